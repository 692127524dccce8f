"""Pure: what sbatch refuses or passes over, and ranks that the script never starts.

Sources: sbatch(1) and srun(1); "Heterogeneous Job Support", slurm.schedmd.com (without --het-group
a step runs on the first part); "torchrun", docs.pytorch.org (one agent a node); DeepSpeed's
multinode_runner (its slurm launcher calls srun with --launcher_args).
"""

import re
from collections.abc import Iterator

from sluggish.preflight import batch
from sluggish.preflight.launch import bare, name_of, sruns
from sluggish.preflight.note import OFF, Note
from sluggish.preflight.shell import Command, Script
from sluggish.text import safe


def refused(script: Script) -> Iterator[Note]:
    """What sbatch does not take, or the shell stumbles over."""
    read = script.batch
    if read.dos_line is not None and (read.has_options or read.shell):
        yield Note(
            unfit=True,
            line=read.dos_line,
            says="it ends with CR LF, as on Windows: sbatch refuses the script, and a shell takes "
            "the CR for a part of the last word",
            better=("sed -i 's/\\r$//' FILE",),
        )
    if read.mark and (read.has_options or read.shebang):
        yield Note(
            unfit=True,
            line=1,
            says="a byte order mark stands before #!: sbatch refuses the script",
            better=("sed -i '1s/^\\xef\\xbb\\xbf//' FILE",),
        )
    elif read.has_options and not read.shebang:
        yield Note(
            unfit=True,
            line=1,
            says="a batch script begins with #! and its interpreter: sbatch refuses it",
            better=("#!/bin/bash",),
        )


def ignored(script: Script) -> Iterator[Note]:
    """Options that are not in force."""
    read = script.batch
    if read.late:
        first = min(read.late)
        yield Note(
            unfit=False,
            line=first,
            says=f"{_lines(len(read.late))} behind the first command (line {read.first_command}): "
            "sbatch passes over it without a word; write it above",
            better=tuple(read.late.values()),
        )
    for line, text in read.shifted.items():
        yield Note(
            unfit=False,
            line=line,
            says="a blank before #SBATCH: sbatch takes the line for a comment",
            better=(text,),
        )


def _lines(count: int) -> str:
    return "an #SBATCH line" if count == 1 else f"{count} #SBATCH lines, this and others,"


_RANK = re.compile(r"(?<!\\)\$\{?(SLURM_(?:PROCID|NODEID|LOCALID))\b")
_QUOTED = re.compile(r"'[^']*'")


def expanded(script: Script) -> Iterator[Note]:
    """A rank's own variable that the batch script's shell fills in for all of them."""
    for command in sruns(script):
        match = _RANK.search(_QUOTED.sub("", command.raw.partition("srun")[2]))
        if match:
            yield Note(
                unfit=False,
                line=command.line,
                says=f"${match[1]} is filled in here, before srun starts: every rank gets 0; "
                "in single quotes each rank fills in its own",
                better=(f"srun ... bash -c '... ${match[1]} ...'",),
            )


def parts(script: Script) -> Iterator[Note]:
    """A heterogeneous job of which only the first part is used."""
    count = len(script.batch.parts)
    steps = list(sruns(script))
    if count < 2 or any(_names_parts(step) for step in steps):
        return
    for step in steps[:1]:
        yield Note(
            unfit=False,
            line=step.line,
            says=f"the job has {count} parts (hetjob), and srun without --het-group starts ranks "
            "in the first alone",
            better=(re.sub(r"\bsrun\b", f"srun --het-group=0-{count - 1}", step.raw, count=1),),
        )


def _names_parts(step: Command) -> bool:
    hidden = ("--het-group", "--pack-group", "$")
    return any(word == ":" or word.startswith(hidden) for word in step.words)


_FAR = ("ssh", "pdsh", "clush", "mpirun", "mpiexec", "mpiexec.hydra", "parallel", "sbatch")


def agents(script: Script) -> Iterator[Note]:
    """A launcher of one node's ranks in a job of several, and one that calls srun itself."""
    commands = [(command, bare(command, script)) for command in script.commands]
    named = [(command, words) for command, words in commands if words]
    alone = not any(True for _ in sruns(script)) and not any(
        name_of(words[0]) in _FAR for _, words in named
    )
    nodes = sum(batch.nodes(part) for part in script.batch.parts)
    for command, words in named:
        agent = agent_of(words)
        if alone and nodes > 1 and agent in ("torchrun", "accelerate"):
            yield Note(
                unfit=False,
                line=command.line,
                says=f"{agent} without srun starts ranks on the first of {nodes} nodes alone",
                better=(f"srun --kill-on-bad-exit=1 --ntasks-per-node=1 {command.raw}",),
            )
        if agent == "deepspeed" and _calls_srun(words) and not _kills(script, words):
            yield Note(
                unfit=True,
                line=command.line,
                says="deepspeed calls srun without --kill-on-bad-exit: when one rank dies the step "
                "runs on and all others wait for it (unless slurm.conf has KillOnBadExit=1)",
                better=("export SLURM_KILL_BAD_EXIT=1",),
            )


def agent_of(words: list[str]) -> str:
    """`torchrun`, `accelerate`, `deepspeed`, `mpirun`, however it is called; else empty."""
    name = name_of(words[0])
    if re.match(r"python[\d.]*\Z", name) and "-m" in words:
        module = words[words.index("-m") + 1 :][:1]
        name = _MODULES.get(module[0] if module else "", "")
    if name == "accelerate" and "launch" not in words:
        return ""
    return "mpirun" if name.startswith("mpiexec") else name if name in _AGENTS else ""


_AGENTS = ("torchrun", "accelerate", "deepspeed", "mpirun")
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}


def _calls_srun(words: list[str]) -> bool:
    return any(
        word.lower() == "--launcher=slurm"
        or (word == "--launcher" and words[at + 1 : at + 2] in (["slurm"], ["SLURM"]))
        for at, word in enumerate(words)
    )


def _kills(script: Script, words: list[str]) -> bool:
    told = script.settings.get("SLURM_KILL_BAD_EXIT")
    if told and told.value not in OFF:
        return True
    return any(re.search(r"--kill-on-bad-exit(?!=0)|(?:^|[\s=])-K1?(?=\s|$)", w) for w in words)


def launch_is_by(script: Script) -> str | None:
    """Who starts the ranks where no srun does; None where nobody is seen to."""
    for command in script.commands:
        words = bare(command, script)
        if words and (agent := agent_of(words)):
            return safe(agent, 40)
    return None
