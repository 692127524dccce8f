"""The files behind `StdOut=` and `srun -o`: Slurm's patterns as globs (source: sbatch(1))."""

import glob
import re
from collections.abc import Callable, Iterable

from sluggish.job import Job

# `%j`, `%4t`, `%%`
_PATTERN = re.compile(r"%(\d{0,2})([%AaJjNnstuxbh])")
LOG_ENDINGS = ("out", "err", "log", "txt")
NOWHERE = ("/dev/null", "/dev/stdout", "/dev/stderr")
MOST = 20_000
"""Characters of a path or job name that are looked at."""


def patterns(job: Job) -> tuple[str, ...]:
    """Globs of absolute paths of the job's own stdout and stderr; () where Slurm names none.

    scontrol has expanded them but for `%N`, accounting from 24.05 on prints them raw.
    """
    found = (expanded(path, job) for path in (job.stdout_path, job.stderr_path) if path)
    kept = [path for path in found if path.startswith("/") and path not in NOWHERE]
    return tuple(dict.fromkeys(kept))


def of_site(site: Iterable[str], job: Job) -> tuple[str, ...]:
    """A site's own patterns for this job, relative ones below WorkDir; globs stay globs."""
    found = (expanded(path, job, literal=str) for path in site)
    return tuple(dict.fromkeys(path for path in found if path.startswith("/")))


def guesses(job: Job) -> tuple[str, ...]:
    """Globs for `srun -o`, which Slurm tells nobody: files of the WorkDir that carry the job id."""
    if not (job.work_dir or "").startswith("/"):
        return ()
    number = job.id.partition("_")[0].partition("+")[0]
    ids = dict.fromkeys((job.raw_id or number, number))
    home = glob.escape((job.work_dir or "")[:MOST].rstrip("/"))
    places = ("", "logs/", "log/", "slurm/", "slurm_logs/")
    stems = [f"{home}/{place}*{one}*" for place in places for one in ids]
    return tuple(f"{stem}.{ending}" for stem in stems for ending in LOG_ENDINGS)


def expanded(path: str, job: Job, literal: Callable[[str], str] = glob.escape) -> str:
    """The path as a glob: what is known is filled in, what differs by node or task is `*`."""
    path = path[:MOST]
    home = ""
    if not path.startswith("/"):
        home = glob.escape((job.work_dir or "").rstrip("/")) + "/"
    if "\\" in path:  # a backslash turns the patterns off
        return home + literal(path.replace("\\", ""))
    parts: list[str] = [home]
    end = 0
    for match in _PATTERN.finditer(path):
        parts += [literal(path[end : match.start()]), _value(match[2], match[1], job)]
        end = match.end()
    return re.sub(r"\*{2,}", "*", "".join([*parts, literal(path[end:])]))


def _value(letter: str, width: str, job: Job) -> str:
    array, _, task = job.id.partition("_")
    known = {
        "%": "%",
        "A": array if task else job.raw_id,
        "a": task or "4294967294",
        "b": str(int(task) % 10) if task.isdigit() else None,
        "j": job.raw_id,
        "u": job.user,
        "x": job.name,
    }
    value = known.get(letter)
    if value is None:  # %N %h %n %t %s %J: another for each node, task or step
        return "*"
    if width and value.isdigit():
        value = value.zfill(int(width))
    return glob.escape(value)


def matches(names: Iterable[str], job: Job) -> tuple[str, ...]:
    """Of the files found by `guesses`, those whose number is the job's and not a part of one."""
    number = job.id.partition("_")[0].partition("+")[0]
    ids = {job.raw_id or number, number}
    return tuple(
        name for name in names if ids & set(re.findall(r"\d+", name.rpartition("/")[2][:MOST]))
    )
