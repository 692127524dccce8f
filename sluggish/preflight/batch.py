"""Pure: what sbatch reads of a batch script, and what it passes over without a word.

Seen with sbatch of Slurm 22.05: it reads options up to the first line that is neither empty nor a
comment; `#SBATCH` must stand at the very beginning of its line, a blank behind it is not needed.
"Heterogeneous Job Support", slurm.schedmd.com: `#SBATCH hetjob` begins the next part of the job.
"""

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

_OPTIONS = re.compile(r"#SBATCH(.*)")
_SHIFTED = re.compile(r"[ \t]+#SBATCH[ \t]+-(.*)")
_NEXT_PART = re.compile(r"#SBATCH[ \t]*(?:hetjob|packjob)\b")
_SHELL = re.compile(r"#![^\n]*[/ \t](?:ba|da|k|z|c|tc)?sh(?=\s|\Z)")

Options = Mapping[str, tuple[str, int]]
"""`--nodes` and its value and line; short options as they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A script as sbatch sees it."""

    parts: tuple[Options, ...]
    """Of a heterogeneous job one each; else one."""
    first_command: int | None
    """Line at which sbatch stops to look for options."""
    late: Mapping[int, str]
    """Lines with options that stand behind it."""
    shifted: Mapping[int, str]
    """Lines with options that do not begin at the margin."""
    has_options: bool
    """Whether it is meant for sbatch."""
    shell: bool
    """Whether a shell runs it."""
    shebang: bool
    mark: bool
    """It begins with a byte order mark."""
    dos_line: int | None
    """The first line that ends with CR LF."""


def read_batch(text: str, documents: Sequence[range]) -> Batch:
    """`documents`: lines of here-documents, whose options are those of another script."""
    whole = text.removeprefix("\ufeff")
    lines = whole.replace("\r\n", "\n").split("\n")
    first = next(
        (
            n
            for n, line in enumerate(lines, 1)
            if line.strip() and not line.lstrip().startswith("#")
        ),
        None,
    )
    parts: list[dict[str, tuple[str, int]]] = [{}]
    late: dict[int, str] = {}
    shifted: dict[int, str] = {}
    elsewhere = {number for lines_of in documents for number in lines_of}
    for number, line in enumerate(lines, 1):
        if "#SBATCH" not in line or number in elsewhere:
            continue
        if _SHIFTED.match(line):
            shifted[number] = line.strip()
        elif match := _OPTIONS.match(line):
            if first is not None and number > first:
                late[number] = line.strip()
            elif _NEXT_PART.match(line):
                parts.append({})
            else:
                parts[-1].update(_options(match[1], number))
    dos = whole.find("\r\n")
    return Batch(
        parts=tuple(parts),
        first_command=first,
        late=late,
        shifted=shifted,
        has_options=any(parts) or bool(late),
        shell=bool(_SHELL.match(lines[0])),
        shebang=lines[0].startswith("#!"),
        mark=text.startswith("\ufeff"),
        dos_line=whole.count("\n", 0, dos) + 1 if dos >= 0 else None,
    )


def _options(text: str, number: int) -> Iterator[tuple[str, tuple[str, int]]]:
    bare = re.sub(r"(?:^|\s)#.*", "", text)
    try:
        words = shlex.split(bare)
    except ValueError:
        words = bare.split()
    for at, word in enumerate(words):
        if word.startswith("--"):
            name, _, value = word.partition("=")
        elif word.startswith("-"):
            name, value = word[:2], word[2:]
        else:
            continue
        after = words[at + 1] if at + 1 < len(words) else "-"
        yield name, (value or ("" if after.startswith("-") else after), number)


def of(options: Options, names: Collection[str]) -> str:
    """The value of the first of these that is there."""
    return next((options[name][0] for name in names if name in options), "")


def nodes(options: Options) -> int:
    """Nodes of a part, at least; 1 where it does not say."""
    match = re.match(r"(\d{1,6})(?:-\d+)?\Z", of(options, ("--nodes", "-N")))
    return int(match[1]) if match else 1


def gpus(options: Options) -> int | None:
    """GPUs of a part on all its nodes; None where it does not say."""
    whole = _last_number(of(options, ("--gpus", "-G")))
    if whole:
        return whole
    told = re.search(r"gpu(?:[:\w.-]*:)?(\d{1,4})?(?:\(|,|\Z)", of(options, ("--gres",)))
    each = _last_number(of(options, ("--gpus-per-node",)))
    each = each or (int(told[1] or 1) if told else None)
    each = each or _last_number(of(options, ("--ntasks-per-node",)))
    return each * nodes(options) if each else None


def _last_number(value: str) -> int | None:
    """`8`, `b300:8`."""
    match = re.search(r"(\d{1,6})\Z", value)
    return int(match[1]) if match else None
