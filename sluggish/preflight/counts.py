"""Pure: from blocks a rank to steps a rank, and whether all ranks leave the epoch together."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sluggish.hostlist import fold_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the training loop turns blocks into steps."""

    batch_size: int
    """Blocks (samples) that one rank takes in one forward pass."""
    grad_accum: int = 1
    """Batches in one step of the optimizer."""
    drop_last: bool = False
    """The last batch of an epoch is left out where it is not full, as DataLoader's drop_last."""

    def batches(self, blocks: int) -> int:
        """Forward passes of one rank in one epoch."""
        return blocks // self.batch_size if self.drop_last else -(-blocks // self.batch_size)

    def steps(self, blocks: int) -> int:
        """Steps of the optimizer; one that begins without all its batches counts unless dropped."""
        batches = self.batches(blocks)
        return batches // self.grad_accum if self.drop_last else -(-batches // self.grad_accum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What was counted: blocks of every rank from 0 on, and in whose words."""

    blocks: tuple[int, ...]
    """By rank."""
    source: str
    """The file, or the pattern of files."""
    how: str = ""
    """How a rank was known and what was counted, where that was a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evenness:
    """The answer: who leaves first, who last, and how many steps lie between."""

    counted: Counted
    plan: Plan
    steps: tuple[int, ...]
    """By rank."""
    batches: tuple[int, ...]

    @property
    def even(self) -> bool:
        """Whether every rank has as many forward passes: FSDP gathers in each of them."""
        return len(set(self.batches)) == 1

    @property
    def fit(self) -> bool:
        """Even, and something is trained: an epoch without a step is a wrong file or batch size."""
        return self.even and self.steps[0] > 0

    @property
    def gap(self) -> int:
        """Steps between the first rank that leaves and the last."""
        return max(self.steps) - min(self.steps)

    @property
    def spread_pct(self) -> float:
        """Fewest blocks below most, in per cent of the most."""
        most = max(self.counted.blocks)
        return 100 * (most - min(self.counted.blocks)) / most if most else 0.0

    def ranks_by_steps(self) -> Mapping[int, tuple[int, ...]]:
        """Steps -> the ranks that have so many, fewest first."""
        return by_value(self.steps)

    def says(self) -> str:
        """The answer in one line."""
        if self.even:
            idle = "" if self.steps[0] else ": nothing is trained; too few blocks, or none found"
            return f"{_all(len(self.steps))} {many(self.steps[0], 'step')}{idle}"
        if not self.gap:
            by = by_value(self.batches)
            low, high = min(by), max(by)
            return (
                f"{_have(by[low])} {low:,} batches, {_have(by[high])} {high:,}, in "
                f"{many(self.steps[0], 'step')} each: where every batch has a collective (FSDP, "
                f"DDP without no_sync) {who(by[low])} {_verb(by[low], 'leave')} "
                f"{many(high - low, 'batch')} early; this deadlocks at the epoch end"
            )
        by = self.ranks_by_steps()
        low, high = min(by), max(by)
        return (
            f"{_have(by[low])} {many(low, 'step')}, {_have(by[high])} {high:,}: {who(by[low])} "
            f"{_verb(by[low], 'leave')} {many(self.gap, 'step')} early; this deadlocks at the "
            "epoch end"
        )


def judge(counted: Counted, plan: Plan) -> Evenness:
    """Steps of every rank."""
    return Evenness(
        counted=counted,
        plan=plan,
        steps=tuple(plan.steps(blocks) for blocks in counted.blocks),
        batches=tuple(plan.batches(blocks) for blocks in counted.blocks),
    )


def even_when_dropped(answer: Evenness) -> bool:
    """Whether leaving out the last partial batch alone would make the ranks even."""
    if answer.even or answer.plan.drop_last:
        return False
    return judge(answer.counted, replace(answer.plan, drop_last=True)).fit


def fewest(answer: Evenness) -> tuple[int, tuple[int, ...]]:
    """The least blocks, and who has them."""
    by = by_value(answer.counted.blocks)
    return min(by), by[min(by)]


def most(answer: Evenness) -> tuple[int, tuple[int, ...]]:
    """The most blocks, and who has them."""
    by = by_value(answer.counted.blocks)
    return max(by), by[max(by)]


def by_value(values: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Value -> the ranks that have it, least first."""
    groups: dict[int, list[int]] = defaultdict(list)
    for rank, value in enumerate(values):
        groups[value].append(rank)
    return {value: tuple(groups[value]) for value in sorted(groups)}


def who(ranks: Collection[int]) -> str:
    """`rank 3`, `ranks 0-2,5`."""
    return f"rank{'s' * (len(ranks) > 1)} {fold_numbers(ranks)}"


def _have(ranks: tuple[int, ...]) -> str:
    return f"{who(ranks)} {'have' if len(ranks) > 1 else 'has'}"


def _verb(ranks: tuple[int, ...], verb: str) -> str:
    return verb if len(ranks) > 1 else f"{verb}s"


def many(count: int, what: str) -> str:
    """`1 step`, `3,854 steps`, `2 batches`."""
    plural = "es" if what.endswith("ch") else "s"
    return f"{count:,} {what}{plural if count != 1 else ''}"


def _all(ranks: int) -> str:
    return f"all {ranks:,} ranks have" if ranks > 1 else "the only rank has"
