"""Host keys on a live connection: known, or refused with the exact command that adds them."""

import shlex
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sluggish.reach.errors import OPENSSH
from sluggish.reach.known_hosts import KnownHosts, Line, read, standing

SYSTEM = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
OWN = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")


class KeyRefused(Exception):
    """The host did not show a key that is known; the text says how it becomes known."""


@dataclass(slots=True)
class Keys:
    """The files of known hosts, each set of them read once."""

    home: Path | None
    """None: its storage does not answer, nothing there is opened."""
    more: tuple[Path, ...] = ()
    _read: dict[tuple[str, ...], KnownHosts] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def checker(self, options: Any, host: str, by_jump: bool) -> "Checker":
        """For one connection to a host with these options of ssh_config."""
        files = (
            *_paths(options.get("userknownhostsfile"), OWN, self.home),
            *_paths(options.get("globalknownhostsfile"), SYSTEM, self.home),
            *(str(path) for path in self.more),
        )
        with self._lock:
            if files not in self._read:
                self._read[files] = read(_texts(files))
            known = self._read[files]
        return Checker(known=known, alias=options.get("hostkeyalias"), asked=host, by_jump=by_jump)


@dataclass(slots=True)
class Checker:
    """paramiko's policy for host keys: it is asked about each, for the client is told of none."""

    known: KnownHosts
    alias: str | None
    asked: str
    """The name that the person used."""
    by_jump: bool
    _host: str = ""
    _port: int = 22
    _lines: list[Line] = field(default_factory=list)

    def meets(self, host: str, port: int) -> None:
        """Where the connection goes, once ssh_config has been asked."""
        self._host, self._port = (self.alias, 22) if self.alias else (host, port)
        self._lines = self.known.of(self._host, self._port)

    def transport(self, sock: Any, **more: Any) -> Any:
        """A paramiko Transport that asks for the kinds of key first that are known."""
        from sluggish.reach.ssh_through import JumpTransport

        made: Any = JumpTransport(sock, **more)
        known = {line.kind for line in self._lines if not line.mark}
        if "ssh-rsa" in known:
            known |= {"rsa-sha2-512", "rsa-sha2-256"}
        options = made.get_security_options()
        kinds = list(options.key_types)
        options.key_types = sorted(kinds, key=lambda kind: kind not in known)
        return made

    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        """Raises KeyRefused for all but a known key."""
        said, place = standing(self._lines, key.get_name(), key.get_base64())
        if said != "known":
            raise KeyRefused(self._why(said, place))

    def _why(self, said: str, place: str) -> str:
        name = self._host if self._port == 22 else f"[{self._host}]:{self._port}"
        port = "" if self._port == 22 else f"-p {self._port} "
        add = f"ssh-keyscan {port}{shlex.quote(self._host)} >> ~/.ssh/known_hosts"
        if self.by_jump or self.alias:
            add = f"ssh {shlex.quote(self.asked)} true"
        if said == "revoked":
            return f"its host key is revoked by {place}"
        if said == "authority":
            return (
                f"known by a certificate authority alone ({place}), whose signatures only OpenSSH "
                f"checks: use {OPENSSH}"
            )
        if said == "changed":
            return (
                f"its host key is another than in {place} (set up anew, or somebody in between); "
                f"compare it first, then: ssh-keygen -R {shlex.quote(name)} -f "
                f"{shlex.quote(place)} && {add}"
            )
        return f"its host key is not known; compare it first, then: {add}"


def _paths(told: str | None, default: tuple[str, ...], home: Path | None) -> list[str]:
    names = told.split() if told else list(default)
    out: list[str] = []
    for name in names:
        if name.startswith("~/") and home is not None:
            out.append(str(home / name[2:]))
        elif name.startswith("/"):
            out.append(name)
    return out


def _texts(files: tuple[str, ...]) -> list[tuple[str, str]]:
    texts: list[tuple[str, str]] = []
    for file in dict.fromkeys(files):
        with suppress(OSError):
            texts.append((file, Path(file).read_text("utf-8", "replace")))
    return texts
