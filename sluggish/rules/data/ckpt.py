"""DATA-CKPT: a rank writes a checkpoint: moving (healthy) or stuck."""

import re
from collections.abc import Iterator

from sluggish.causes import Family, Phase
from sluggish.correlate.procs import deltas, what_it_waits_on
from sluggish.facts.derived import PhaseFact
from sluggish.facts.host import ProcessDelta, RankProcess, Stack
from sluggish.findings import Finding, Role, Spot, Strength, View, rule

WRITES_BPS = 1_000_000
"""Bytes/s of a process that writes a checkpoint; a log or a heartbeat writes far less."""
BUSY = 0.5
"""Cores of a process that serialises tensors before it writes them."""
IDLE = 0.05
_FILE = re.compile(
    r"checkpoint|ckpt|\.distcp|\.safetensors|global_step|/iter_\d|\.pth?(?:\.tmp)?\Z", re.IGNORECASE
)
_SAVE = re.compile(r"save_checkpoint|save_state|\bsave\Z|_save\Z|save_pretrained|save_model|"
                   r"async_save|write_data|write_shards|_write_item")  # fmt: skip
_SAVE_FILE = re.compile(r"torch/serialization|distributed/checkpoint|checkpoint|safetensors|saving")


@rule(
    "DATA-CKPT",
    family=Family.DATA,
    needs=(RankProcess, Stack),
    wants=(PhaseFact,),
)
def data_ckpt(view: View) -> Iterator[Finding]:
    """A rank writes a checkpoint, and its bytes move or stand still."""
    phase = view.one(PhaseFact)
    in_phase = phase is not None and phase.phase is Phase.CHECKPOINT
    saving = {(s.node, s.pid) for s in view.all(Stack) if s.main and _saves(s)}
    for delta in deltas(view.all(RankProcess)):
        if delta.role == "other" or not delta.seconds or delta.written_bytes is None:
            continue
        files = [path for path in delta.open_files if _FILE.search(path)]
        at_it = (delta.node, delta.pid) in saving
        rate = delta.written_bytes / delta.seconds
        if rate >= WRITES_BPS and (files or at_it or in_phase):
            yield _moving(delta, f"writes {rate / 1e6:.0f} MB/s", files)
        elif at_it and (delta.cpu_rate or 0.0) >= BUSY:
            yield _moving(delta, f"serialises on {delta.cpu_rate:.1f} cores", files)
        elif (at_it or (files and in_phase)) and _stands(delta):
            yield _stuck(delta, files)


def _saves(stack: Stack) -> bool:
    return any(_SAVE.search(f.function) and _SAVE_FILE.search(f.file + f.function)
               for f in stack.frames)  # fmt: skip


def _stands(delta: ProcessDelta) -> bool:
    """No byte and no work: a rank that spins in a barrier of the save is a waiter, not this."""
    quiet = not delta.written_bytes and (delta.cpu_rate is None or delta.cpu_rate < IDLE)
    return quiet and (delta.stuck or not delta.read_bytes)


def _moving(delta: ProcessDelta, how: str, files: list[str]) -> Finding:
    where = f" to {files[0]}" if files else ""
    return Finding(
        node=delta.node,
        subject=f"rank {delta.rank}",
        role=Role.CONTEXT,
        strength=Strength.STRONG,
        says=f"rank {delta.rank} {how}{where}: a checkpoint that moves",
        source="processes",
        spots=(_spot(delta, "writes a checkpoint"),),
        subtype="checkpoint",
    )


def _stuck(delta: ProcessDelta, files: list[str]) -> Finding:
    on = what_it_waits_on(delta)
    hard = delta.stuck and on in ("network", "disk")
    where = f", in D on {delta.wchan}" if hard else ""
    return Finding(
        node=delta.node,
        subject=f"rank {delta.rank}",
        role=Role.ROOT,
        strength=Strength.STRONG if hard else Strength.WEAK,
        says=f"rank {delta.rank} is in a checkpoint and wrote nothing for {delta.seconds:.0f} s"
        + (f" ({files[0]})" if files else "")
        + where,
        source="processes",
        spots=(_spot(delta, "stuck in a checkpoint"),),
        subtype="checkpoint",
    )


def _spot(delta: ProcessDelta, doing: str) -> Spot:
    return Spot(rank=delta.rank, node=delta.node, pid=delta.pid, doing=doing)
