"""`==> NAME <==` sections, the form of `head -v` and `tail -v`: several files in one text."""

import re
from collections.abc import Iterator

# ==> /proc/4711/stat <==
_HEADER = re.compile(r"==> (\S(?:.{0,510}\S)?) <==\s*\Z")
HEADER_BYTES = rb"^==> [^\n]{1,512} <==\r?$"
"""For `sniff`: compile with re.MULTILINE."""


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Name and body of each section, in order; text before the first header is dropped."""
    name: str | None = None
    body: list[str] = []
    for line in text.split("\n"):
        match = _HEADER.match(line) if line.startswith("==> ") else None
        if match is None:
            body.append(line)
            continue
        if name is not None:
            yield name, _body(body)
        name, body = match[1], []
    if name is not None:
        yield name, _body(body)


def _body(lines: list[str]) -> str:
    """`head -v` puts an empty line between two files: it belongs to neither."""
    end = len(lines)
    while end and not lines[end - 1].strip("\r"):
        end -= 1
    return "\n".join(lines[:end])
