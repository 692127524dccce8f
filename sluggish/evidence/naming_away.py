"""Names: which words of a bundle are somebody's (hosts, switches, users, jobs)."""

import re
from collections.abc import Callable, Iterable

from sluggish.hostlist import expand
from sluggish.slurmtext.fields import fields, records
from sluggish.slurmtext.job import jobs
from sluggish.slurmtext.queue import rows
from sluggish.slurmtext.sacct import runs
from sluggish.text import is_node_name

NOBODY = {"root", "slurm", "munge", "nobody", "daemon", "sys", "normal", "default", "localhost",
          "None", "gpu", "main", "train", "python", "bash", "sh", "wrap", "batch", "extern", "srun",
          "test", "job", "interactive", "user", "users"}  # fmt: skip
"""Words that tell nobody's name, and without which the texts could not be read."""

_HOST = (
    re.compile(r"\b(?:NodeList|ReqNodeList|ExcNodeList|Nodes|BatchHost|NodeHostName|NodeName)=([^\s(]+)"),
    re.compile(r"\b(?:AllocNode:Sid|MASTER_ADDR|SLURMD_NODENAME|HOSTNAME)=([^\s:]+)"),
    re.compile(r"==> hostname <==\n(\S+)"),
    re.compile(r"==> uname -a <==\nLinux (\S+) "),
    re.compile(r"^([A-Za-z][\w.-]{0,100}):\d+:\d+ \[\d+\] NCCL ", re.MULTILINE),
    re.compile(r"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ([\w.-]{1,100}) kernel: ", re.MULTILINE),
    re.compile(r"^([A-Za-z][\w.-]{0,100}):/\S{0,400} /\S{0,400} ", re.MULTILINE),
    re.compile(r"\bserver ([A-Za-z][\w.-]{0,100}) (?:not responding|OK)"),
)  # fmt: skip
_SWITCH = re.compile(r"\b(?:SwitchName|BlockName|Switches)=(\S+)")
_PLACE = re.compile(r"SLURM_TOPOLOGY_ADDR=(\S+)")
_USER = (
    re.compile(r"\b(?:UserId|GroupId)=([^\s()]{1,64})\("),
    re.compile(r"\bAccount=(\S{1,64})"),
    re.compile(r"\b(?:USER|LOGNAME)=(\S{1,64})"),
    re.compile(r"/home/([\w.-]{1,64})"),
    re.compile(r"\[([A-Za-z][\w.-]{0,63})@\d{4}-\d\d-\d\dT"),
)


class Names:
    """Old name to new; what came first keeps its number only within its kind and sorted order."""

    def __init__(self) -> None:
        self.hosts: set[str] = set()
        self.switches: set[str] = set()
        self.users: set[str] = set()
        self.jobs: set[str] = set()

    def host(self, name: str | None) -> None:
        """A host, with its short form."""
        if name and is_node_name(name) and name not in NOBODY and not _is_address(name):
            short = name.split(".")[0]
            self.hosts |= {name, short} if len(short) > 1 else {name}

    def table(self) -> dict[str, str]:
        """Every word with its replacement; a full host name becomes its short form's."""
        told: dict[str, str] = {}
        shorts = sorted({name.split(".")[0] for name in self.hosts})
        width = max(2, len(str(len(shorts))))
        for number, short in enumerate(shorts, 1):
            told[short] = f"node-{number:0{width}d}"
        told |= {name: told[name.split(".")[0]] for name in self.hosts if "." in name}
        kinds = (("switch", self.switches), ("user", self.users), ("jobname", self.jobs))
        for kind, words in kinds:
            for number, word in enumerate(sorted(words - told.keys() - NOBODY), 1):
                told[word] = f"{kind}{number}"
        return {word: new for word, new in told.items() if len(word) > 1}


def collect(names: Names, probe: str, text: str) -> None:
    """Add the names that this text tells."""
    for pattern in _HOST:
        for match in pattern.finditer(text):
            _each(match[1], names.host)
    for match in _SWITCH.finditer(text):
        _each(match[1], names.switches.add)
    for match in _PLACE.finditer(text):
        *above, host = match[1].split(".")
        names.switches |= set(above)
        names.host(host)
    for pattern in _USER:
        names.users |= {match[1] for match in pattern.finditer(text)}
    if probe == "slurm_job":
        _jobs(names, text)
    elif probe == "sacct":
        _runs(names, text)
    elif probe == "squeue":
        _queue(names, text)


def _each(listed: str, take: Callable[[str], None]) -> None:
    try:
        found: Iterable[str] = expand(listed)
    except ValueError:
        return
    for name in found:
        take(name)


def _jobs(names: Names, text: str) -> None:
    try:
        found = jobs(text, 0)
    except ValueError:
        return
    names.jobs |= {job.name for job in found if job.name}
    names.users |= {job.user for job in found if job.user}
    for record in records(text, "StepId="):
        name = fields(record).get("Name")
        names.jobs |= {name} if name else set()


def _runs(names: Names, text: str) -> None:
    try:
        found = runs(text, 0)
    except ValueError:
        return
    for job in found:
        names.jobs |= {job.name} if job.name else set()
        names.users |= {job.user} if job.user else set()
        for node in (*job.nodes, *(n for step in job.steps for n in step.nodes or ())):
            names.host(node)


def _queue(names: Names, text: str) -> None:
    try:
        found = rows(text)
    except ValueError:
        return
    for one in found:
        names.users |= {one.user} if one.user else set()
        for node in one.nodes:
            names.host(node)


def _is_address(name: str) -> bool:
    return bool(re.fullmatch(r"[\d.]+", name))
