"""Pure: how a script starts its ranks, and when it saves.

Sources: srun(1), "--kill-on-bad-exit", "--export" and SLURM_KILL_BAD_EXIT.
"""

import re
from collections.abc import Iterator

from sluggish.preflight.note import OFF, Note, line_of
from sluggish.preflight.shell import Command, Script, resolved
from sluggish.text import safe

WORDS = ("if", "then", "else", "elif", "do", "while", "until", "!", "{", "time")
"""Of the shell, before a command."""
WRAPPERS = frozenset(
    {"builtin", "command", "env", "exec", "ionice", "nice", "nohup", "numactl", "setsid", "stdbuf"}
    | {"sudo", "taskset", "time", "timeout", "unbuffer"}
)
"""Programs that run another one; their own options stand before it."""
BARE = re.compile(
    # -l   -N2   --pty
    r"-[EHKklOsQuvXZ]\Z|-[A-Za-z].+\Z|--(?:label|unbuffered|quiet|verbose|overlap|exact|exclusive|overcommit|"
    r"oversubscribe|pty|kill-on-bad-exit|no-kill|contiguous|multi-prog|disable-status|reboot|"
    r"preserve-env|immediate|propagate|whole|no-container-[a-z-]+|container-(?:mount-home|remap-root|"
    r"writable))\Z"
)
"""srun's options that take no word behind them (srun(1))."""
ASKS = frozenset({"--version", "-V", "--help", "-h", "--usage"})
HELPERS = frozenset(
    {"cp", "date", "df", "echo", "free", "hostname", "ibstat", "ls", "lsof", "mkdir", "mv"}
    | {"nvidia-smi", "rm", "rsync", "sleep", "sluggish", "tar", "test", "true", "uname"}
)
"""Programs that a batch script runs beside the training: nobody waits for their ranks."""
PROGRAMS = re.compile(
    r"(?:python[\d.]*|torchrun|accelerate|deepspeed|bash|sh|zsh|env|singularity|apptainer|enroot|"
    r"podman|docker|numactl|taskset|nsys|ncu|stdbuf)\Z"
)


def sruns(script: Script) -> Iterator[Command]:
    """The steps that start ranks: no helper of the batch script's."""
    for command in script.commands:
        words = bare(command, script)
        if words and name_of(words[0]) == "srun":
            program = _program(words)
            if program is None and ASKS & set(words):
                continue
            if program is None or name_of(program) not in HELPERS:
                yield Command(line=command.line, words=tuple(words), raw=command.raw)


def bare(command: Command, script: Script) -> list[str]:
    """Without `if`, `time`, `timeout 60` and the like; a variable of the script's opened."""
    words = list(command.words)
    while words and words[0] in WORDS:
        words.pop(0)
    if words and words[0] == "eval":
        words = resolved(" ".join(words[1:]), script.settings).split()
    if words and words[0].startswith("$"):
        words[:1] = resolved(words[0], script.settings).split()
    if words and words[0].rpartition("/")[2] in WRAPPERS:
        at = next((n for n, word in enumerate(words) if name_of(word) in LAUNCHERS), 0)
        words = words[at:]
    return words


LAUNCHERS = (
    "srun",
    "torchrun",
    "accelerate",
    "deepspeed",
    "mpirun",
    "mpiexec",
    "python",
    "python3",
)


def name_of(word: str) -> str:
    """The program without its folder."""
    return word.rpartition("/")[2]


def _options(words: tuple[str, ...] | list[str]) -> list[str]:
    """srun's own words, up to the program that it starts."""
    for at, word in enumerate(words[1:], 1):
        if word.startswith(("-", "$")):
            continue
        before = words[at - 1]
        takes = before.startswith("-") and "=" not in before and at > 1 and not BARE.match(before)
        if not takes or PROGRAMS.match(name_of(word)):
            return list(words[1:at])
    return list(words[1:])


def _program(words: list[str]) -> str | None:
    own = _options(words)
    return words[len(own) + 1] if len(words) > len(own) + 1 else None


_INSIDE = re.compile(r"(?:^|[\s;&|(`])(?:/\S*/)?srun\s")
PRINTS = ("echo", "printf", "logger", "grep", "sed", "awk", "which", "type", "hash", "man")


def in_quotes(script: Script) -> Iterator[int]:
    """Lines where a command that is not looked into seems to start a step: `ssh n1 srun ...`."""
    known = {command.line for command in sruns(script)}
    for command in script.commands:
        words = bare(command, script)
        if command.line in known or not words or name_of(words[0]) in (*PRINTS, "srun"):
            continue
        if any(_INSIDE.search(f"{word} ") for word in words):
            yield command.line
    for setting in script.settings.values():
        if re.search(r"(?:\$\(|`)\s*srun(?:\s|\Z)", setting.value):
            yield setting.line


def kill(script: Script) -> Iterator[Note]:
    """Ranks that outlive a dead one."""
    told = script.settings.get("SLURM_KILL_BAD_EXIT")
    if told and told.value not in OFF:
        return
    for command in sruns(script):
        own = _options(command.words)
        flags = [
            w for w in own if re.match(r"(?:--kill-on-bad-exit(?:=.*)?|-[EHklOsQuvXZ]*K\d?)\Z", w)
        ]
        if flags and not flags[-1].endswith("0"):
            continue
        hidden = [word for word in own if word.startswith("$")]
        if hidden and _KILLS.search(script.text):
            continue  # `srun "${ARGS[@]}" ...`: it stands in what the variable holds
        raw = command.raw
        for flag in flags:
            raw = raw.replace(f" {flag}", "", 1)
        better = re.sub(r"\bsrun\b", "srun --kill-on-bad-exit=1", raw, count=1)
        if "srun" not in raw:
            better = "export SLURM_KILL_BAD_EXIT=1"
        yield Note(
            unfit=not hidden,
            line=command.line,
            says=f"srun without --kill-on-bad-exit{_unseen(hidden)}: when one rank dies the step "
            "runs on and all others wait for it, until a timeout or the end of the allocation "
            "(unless slurm.conf has KillOnBadExit=1)",
            better=(better,),
        )


_KILLS = re.compile(r"--kill-on-bad-exit(?!=0)|(?:^|[\s(\"'])-K1?(?=[\s)\"']|$)", re.MULTILINE)


def _unseen(hidden: list[str]) -> str:
    return f" (what {safe(hidden[0], 40)} holds is not seen here)" if hidden else ""


_EPOCH = re.compile(
    # --save_strategy epoch      save_strategy="epoch"       (transformers)
    # --checkpointing_steps epoch                            (accelerate's examples)
    # every_n_epochs=1                                       (Lightning's ModelCheckpoint)
    r"""(?:save[_-]strategy|checkpointing[_-]steps|save[_-]freq)["']?[ =:]+["']?epoch\b"""
    r"""|every[_-]n[_-]epochs["']?[ =:]+\d+|--save[_-](?:every|per|each)[_-]epoch\b"""
)
_STEPS = re.compile(
    r"""(?:save[_-](?:steps|interval|every[_-]n[_-]steps)|every[_-]n[_-]train[_-]steps"""
    r"""|checkpointing[_-]steps|checkpoint[_-]interval|ckpt[_-]interval)["']?[ =:]+["']?\d"""
)


def checkpoint(script: Script) -> Iterator[Note]:
    """Saved only where unequal ranks deadlock."""
    match = _EPOCH.search(script.text)
    if match is None or _STEPS.search(script.text):
        return
    words = match[0].strip()
    better = "--save_strategy steps --save_steps 500" if "strategy" in words else ""
    yield Note(
        unfit=False,
        line=line_of(script, match),
        says=f"{safe(words, 40)}: a checkpoint only at the end of the epoch, where unequal ranks "
        "deadlock: that epoch is lost whole; save inside it too",
        better=(better,) if better else (),
    )


def saves_are_told(script: Script) -> bool:
    """Whether the script says anything of when it saves."""
    return bool(_EPOCH.search(script.text) or _STEPS.search(script.text))


def export(script: Script) -> Iterator[Note]:
    """A step that does not hand on what the script sets."""
    for command in sruns(script):
        told = [w for w in _options(command.words) if w.startswith("--export=")]
        if told and "ALL" not in told[-1].partition("=")[2].split(","):
            value = told[-1].partition("=")[2]
            better = command.raw.replace(told[-1], f"--export=ALL,{value}".removesuffix(",NONE"), 1)
            yield Note(
                unfit=False,
                line=command.line,
                says=f"{safe(told[-1], 60)}: the variables of this script do not reach the ranks",
                better=(better,),
            )
