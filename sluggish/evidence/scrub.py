"""Scrub: one text with its names, paths, addresses and serial numbers exchanged, always alike."""

import re
from functools import cached_property

from sluggish.evidence.naming_away import Names
from sluggish.hostlist import expand, fold

SYSTEM = {"proc", "sys", "dev", "usr", "lib", "lib64", "bin", "sbin", "run", "boot", "slurm",
          "system.slice", "kubepods.slice"}  # fmt: skip
"""Paths below these are alike everywhere and stay whole."""
PUBLIC = {"home", "mnt", "data", "scratch", "lustre", "fsx", "gpfs", "nfs", "work", "shared", "opt",
          "tmp", "var", "etc", "local", "export", "log", "logs", "train", "checkpoint",
          "checkpoints", "ckpt", "dataset", "datasets", "dataloader", "loader", "main", "run",
          "eval", "python", "python3", "venv", ".venv", "conda", "miniconda3", "envs", "lib",
          "lib64", "bin", "site-packages", "dist-packages", "torch", "distributed", "utils",
          "workspace", "root", "fr_pipe_", "nccl_trace_rank_", "slurm", "core", "model", "trainer",
          "nn", "cuda", "autograd", "multiprocessing", "megatron", "deepspeed", "transformers",
          "lightning", "nemo", "accelerate", "flash_attn", "triton", "train.py"}  # fmt: skip
"""Parts of paths that tell nobody's name, and by which frames and mounts are known."""
ENDINGS = (".py", ".so", ".log", ".out", ".err", ".yaml", ".json", ".sh", ".sbatch", ".pt", ".txt")

_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b")
# nothing but zeros stands for "none"
_NONE = re.compile(r"[0:x.-]+\Z")
_URL = re.compile(r"\b([a-z][a-z0-9+]{1,9}://)([^\s\"'<>/:@\\]+)(:\d+)?(/[^\s\"'<>\\]*)?")
_PATH = re.compile(r"(?<![\w./~<-])/(?:[\w@+%~.-]+/){0,40}[\w@+%~.-]+")
_FOLDED = re.compile(r"[A-Za-z][\w.-]{0,60}(?:\[[0-9][0-9,-]{0,2000}\][\w.-]{0,60}){1,4}")
_IP = re.compile(r"(?<![\w.-])(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?!\w|\.\d)")
_GUID = re.compile(r"\b0x([0-9a-f]{16})\b")
_GROUPS = re.compile(
    r"(?<![0-9a-f:])[0-9a-f]{4}(?::[0-9a-f]{4}){3}(?:(?::[0-9a-f]{4}){4})?(?![0-9a-f:])"
)
_SHORT6 = re.compile(r"(?<![0-9a-f:])fe80::[0-9a-f:]{2,39}")
_MAC = re.compile(r"(?<![0-9a-f:])[0-9a-f]{2}(?::[0-9a-f]{2}){5,19}(?![0-9a-f:])")
_SERIAL = re.compile(
    r"((?i:serial)[ _]?(?i:number)?>?[\s:=]{0,60}>?)([A-Z]{0,3}\d[A-Z0-9]{6,30})\b"
)


class Scrub:
    """Exchanges what `Names` holds, and what it meets, in text after text."""

    def __init__(self, names: Names) -> None:
        self._words = names.table()
        self._new: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def text(self, text: str) -> str:
        """The text under other names."""
        text = _UUID.sub(lambda m: self._uuid(m[0]), text)
        text = _URL.sub(self._url, text)
        text = _PATH.sub(lambda m: self._path(m[0]), text)
        text = _FOLDED.sub(lambda m: self._folded(m[0]), text)
        text = self._named(text)
        text = _GROUPS.sub(lambda m: self._groups(m[0]), text)
        text = _SHORT6.sub(lambda m: f"fe80::{self._number('ip6', m[0]):x}", text)
        text = _MAC.sub(lambda m: self._mac(m[0]), text)
        text = _GUID.sub(lambda m: "0x" + self._guid(m[1]), text)
        text = _IP.sub(lambda m: self._ip(m[0]), text)
        return _SERIAL.sub(lambda m: f"{m[1]}{self._number('serial', m[2]):013d}", text)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        if not self._words:
            return None
        longest = sorted(self._words, key=lambda word: (-len(word), word))
        listed = "|".join(re.escape(word) for word in longest)
        return re.compile(rf"(?<![A-Za-z0-9])(?:{listed})(?![A-Za-z0-9])")

    def _named(self, text: str) -> str:
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda m: self._words[m[0]], text)

    def _number(self, kind: str, old: str) -> int:
        """1, 2, 3: the same for the same."""
        key = f"{kind}\0{old}"
        if key not in self._new:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._new[key] = str(self._counts[kind])
        return int(self._new[key])

    def _uuid(self, old: str) -> str:
        if _NONE.match(old):
            return old
        return f"00000000-0000-4000-8000-{self._number('uuid', old):012x}"

    def _url(self, match: re.Match[str]) -> str:
        host = match[2]
        known = self._named(self._ip(host) if _IP.fullmatch(host) else host)
        if known == host and not _IP.fullmatch(host) and host not in ("localhost",):
            known = f"site{self._number('url', host)}.example"
        rest = f"/p{self._number('path', match[4])}" if match[4] and match[4] != "/" else ""
        return f"{match[1]}{known}{match[3] or ''}{rest}"

    def _path(self, old: str) -> str:
        parts = old.split("/")[1:]
        if parts[0] in SYSTEM:
            return old
        return "/" + "/".join(self._part(part) for part in parts)

    def _part(self, part: str) -> str:
        stem, dot, end = part.rpartition(".")
        ending = f".{end}" if dot and f".{end}" in ENDINGS else ""
        bare = stem if ending else part
        if bare.lower() in PUBLIC or part in PUBLIC or re.fullmatch(r"[\d.]*|python3?\.?\d*", bare):
            return part
        if bare in self._words:
            return self._words[bare] + ending
        return f"p{self._number('path', bare)}{ending}"

    def _folded(self, old: str) -> str:
        try:
            names = expand(old)
        except ValueError:
            return old
        if not all(name in self._words for name in names):
            return old
        return fold(self._words[name] for name in names)

    def _ip(self, old: str) -> str:
        """Neighbours stay neighbours: the network by its first two numbers, the host's stays."""
        first, second, third, last = old.split(".")
        if first in ("0", "127", "255") or any(int(n) > 255 for n in (first, second, third, last)):
            return old
        net = self._number("net", f"{first}.{second}")
        part = self._number(f"net{net}", third)
        return f"10.{net % 256}.{part % 256}.{last}"

    def _guid(self, old: str) -> str:
        if not old.strip("0") or not old.strip("f") or old.startswith("ffff"):
            return old  # none, all, a kernel address
        return f"02{self._number('guid', old):014x}"

    def _groups(self, old: str) -> str:
        digits = old.replace(":", "")
        if len(digits) == 16:
            return _grouped(self._guid(digits))
        prefix, tail = digits[:16], digits[16:]
        if not prefix.strip("0") and tail.startswith("0000ffff"):  # an IPv4 address inside
            octets = [int(tail[at : at + 2], 16) for at in (8, 10, 12, 14)]
            new = self._ip(".".join(str(octet) for octet in octets))
            return _grouped(prefix + "0000ffff" + "".join(f"{int(n):02x}" for n in new.split(".")))
        kept = prefix if prefix.startswith("fe80") else self._guid(prefix)
        return _grouped(kept + self._guid(tail))

    def _mac(self, old: str) -> str:
        if _NONE.match(old) or not old.strip("f:"):
            return old
        count = old.count(":") + 1
        digits = f"02{self._number('mac', old):0{2 * count - 2}x}"
        return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))


def _grouped(digits: str) -> str:
    return ":".join(digits[at : at + 4] for at in range(0, len(digits), 4))
