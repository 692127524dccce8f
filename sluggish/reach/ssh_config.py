"""A person's and a machine's ssh_config, with their `Include` lines, for paramiko's reader.

paramiko passes over `Include` without a word; Debian's own /etc/ssh/ssh_config begins with one.
"""

import glob
import io
import re
from pathlib import Path
from typing import Any

from sluggish.reach.command import run
from sluggish.reach.errors import OPENSSH

SYSTEM = Path("/etc/ssh/ssh_config")
MOST_DEPTH = 16
"""OpenSSH's own limit of files in files."""
HOME_S = 3.0
_INCLUDE = re.compile(r"\s*include(?:\s*=\s*|\s+)(.+)", re.IGNORECASE)
_BLOCK = re.compile(r"\s*(?:host|match)[\s=]", re.IGNORECASE)

_MATCH = re.compile(r"\s*match(?:\s*=\s*|\s+)(.+)", re.IGNORECASE)
_FINAL_ALL = re.compile(r"^\s*match\s+final\s+all\s*$", re.IGNORECASE)
# paramiko takes a criterion that it does not know as met, and runs `exec` without a deadline
_CRITERIA = ("all", "canonical", "final", "host", "originalhost", "user", "localuser")


class NotForUs(Exception):
    """Something in ssh_config that only OpenSSH itself can do; the text says what to use."""


def load(config_file: str | None, home: Path | None) -> Any:
    """paramiko's SSHConfig. `config_file` replaces both files; without a `home` only the system's.

    Raises NotForUs where a line cannot be read as OpenSSH would.
    """
    import paramiko

    config: Any = paramiko.SSHConfig()
    files = [(Path(config_file), home or Path("/etc/ssh"))] if config_file else []
    if not config_file:
        files = [(home / ".ssh/config", home)] if home else []
        files.append((SYSTEM, Path("/etc/ssh")))
    for file, base in files:
        below = base / ".ssh" if base == home else base
        text = expand(file, below, home, must=bool(config_file))
        try:
            config.parse(io.StringIO(text))
        except paramiko.ConfigParseError as problem:
            raise NotForUs(f"{file}: {problem}: use {OPENSSH}") from None
    matches = config._does_match  # asks for the user's name once a block: needless without Match

    def met(told: list[Any], *more: Any) -> bool:
        return bool(told) and bool(matches(told, *more))

    config._does_match = met
    return config


def answered(options: Any) -> Any:
    """An SSHConfig that says this of any host: fabric asks it again for each connection."""
    import paramiko

    config: Any = paramiko.SSHConfig()

    def lookup(_host: str) -> Any:
        return options

    config.lookup = lookup
    return config


def expand(file: Path, base: Path, home: Path | None, depth: int = 0, must: bool = False) -> str:
    """The text with included files in place; relative names are looked for in `base`."""
    try:
        text = file.read_text("utf-8", "replace")
    except FileNotFoundError:
        if must:
            raise NotForUs(f"{file}: no such file") from None
        return ""
    except OSError as problem:
        raise NotForUs(f"{file}: {problem.strerror}") from None
    if depth > MOST_DEPTH:
        raise NotForUs(f"{file}: Include lines in a circle")
    out: list[str] = []
    inside = False
    for line in text.splitlines():
        match = _INCLUDE.match(line)
        if not match:
            inside = inside or bool(_BLOCK.match(line))
            _only_known_criteria(line, file)
            # the form of Red Hat's own file, which paramiko refuses: the same in other words
            out.append(_FINAL_ALL.sub("Match final", line))
            continue
        for name in _names(match[1], base, home):
            more = expand(Path(name), base, home, depth + 1)
            blocks = any(_BLOCK.match(each) for each in more.splitlines())
            if blocks and inside:
                raise NotForUs(f"{file}: a Host block includes Host blocks: use {OPENSSH}")
            out.append(more)
            if blocks:
                out.append("Host *")  # what follows an Include at the top is for every host again
    return "\n".join(out) + "\n"


def _only_known_criteria(line: str, file: Path) -> None:
    match = _MATCH.match(line)
    words = match[1].split() if match else []
    while words:
        word = words.pop(0).lstrip("!").lower()
        if word not in _CRITERIA:
            raise NotForUs(f"{file}: Match {word[:40]}: use {OPENSSH}")
        if word not in _CRITERIA[:3]:
            del words[:1]


def _names(patterns: str, base: Path, home: Path | None) -> list[str]:
    found: list[str] = []
    for quoted, bare in re.findall(r'"([^"]*)"|(\S+)', patterns):
        pattern = quoted or bare
        if pattern.startswith("~/"):
            if home is None:
                continue
            pattern = str(home / pattern[2:])
        elif not pattern.startswith("/"):
            pattern = str(base / pattern)
        found += sorted(glob.glob(pattern))
    return found


def home_that_answers() -> Path | None:
    """The home directory; None where it lies on storage that does not answer.

    Asked in a child: a thread that opens a file there could hang for ever.
    """
    home = Path.home()
    files = [str(home / ".ssh" / name) for name in ("config", "known_hosts")]
    look = run(["cat", "--", *files], HOME_S)
    return None if look.error in ("timeout", "stuck") else home
