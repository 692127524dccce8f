"""Which host keys are known: OpenSSH's files, read whole and looked up quickly. Pure.

Format: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT. paramiko's own reader passes over wildcards and
`@` lines without a word, and compares every line with every other.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

Standing = Literal["known", "unknown", "changed", "revoked", "authority"]
"""`authority`: only a certificate authority is named for this host, whose word we cannot check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One key of one file."""

    names: tuple[str, ...]
    mark: str
    """`@cert-authority`, `@revoked` or nothing."""
    kind: str
    """ssh-ed25519, ssh-rsa, ..."""
    key: str
    """Base64, as it stands in the file."""
    place: str
    """The file's path."""


@dataclass(slots=True)
class KnownHosts:
    """The lines of several files, by name; the few with wildcards or hashes apart."""

    by_name: dict[str, list[Line]] = field(default_factory=dict)
    others: list[Line] = field(default_factory=list)

    def of(self, host: str, port: int) -> list[Line]:
        """Every line about a host. A port of its own is asked first, then the bare name."""
        found = list(self._named(f"[{host}]:{port}" if port != 22 else host))
        if not found and port != 22:
            found = list(self._named(host))
        return found

    def _named(self, name: str) -> Iterator[Line]:
        yield from self.by_name.get(name.lower(), ())
        for line in self.others:
            if _matches(line.names, name.lower()):
                yield line


def read(texts: Iterable[tuple[str, str]]) -> KnownHosts:
    """Files as (path, text). Lines that are no key of a host are passed over, as OpenSSH does."""
    known = KnownHosts()
    for place, text in texts:
        for raw in text.splitlines():
            line = _line(raw, place)
            if line is None:
                continue
            if line.mark or any(re.match(r"[|!]|.*[*?]", name) for name in line.names):
                known.others.append(line)
                continue
            for name in line.names:
                known.by_name.setdefault(name, []).append(line)
    return known


def _line(raw: str, place: str) -> Line | None:
    words = raw.split()
    if not words or words[0].startswith("#"):
        return None
    mark = words.pop(0) if words[0].startswith("@") else ""
    if len(words) < 3 or mark not in ("", "@cert-authority", "@revoked"):
        return None
    names = tuple(n if n.startswith("|") else n.lower() for n in words[0].split(",") if n)
    return Line(names=names, mark=mark, kind=words[1], key=words[2], place=place)


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    found = False
    for pattern in patterns:
        if pattern.startswith("|1|"):
            found = found or _is_hash_of(pattern, name)
        elif pattern.startswith("!") and fnmatchcase(name, _literal(pattern[1:])):
            return False
        elif fnmatchcase(name, _literal(pattern)):
            found = True
    return found


def _literal(pattern: str) -> str:
    """`[host]:port` is no set of letters: OpenSSH knows `*` and `?` alone."""
    return pattern.replace("[", "[[]")


def _is_hash_of(pattern: str, name: str) -> bool:
    try:
        _, _, salt, told = pattern.split("|")
        made = hmac.digest(base64.b64decode(salt), name.encode(), "sha1")
        return hmac.compare_digest(made, base64.b64decode(told))
    except (ValueError, binascii.Error):
        return False


def standing(lines: Iterable[Line], kind: str, key: str) -> tuple[Standing, str]:
    """What the lines of a host say of the key that it showed, and the file that says it."""
    lines = list(lines)
    for line in lines:
        if line.mark == "@revoked" and line.key == key:
            return "revoked", line.place
    plain = [line for line in lines if not line.mark]
    for line in plain:
        if (line.kind, line.key) == (kind, key):
            return "known", line.place
    if plain:
        return "changed", plain[0].place
    authority = next((line for line in lines if line.mark == "@cert-authority"), None)
    return ("authority", authority.place) if authority else ("unknown", "")
