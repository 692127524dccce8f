"""For training code: every rank takes as many steps as the one that has fewest.

PyTorch is imported when it is called, so that sluggish itself needs none.
"""

from __future__ import annotations

import logging
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger("sluggish.preflight")
INVALID = -1
"""What a rank tells the others whose own count is none: all raise then, and nobody waits for it."""
MOST = (1 << 63) - 1


def agree_on_steps(n_local: int, group: Any = None) -> int:
    """The smallest `n_local` of all ranks of `group` (default: the whole world).

    A collective: every rank of the group calls it once, at the same place, e.g. before each epoch.
    The group's first rank logs who had how many, as a warning where they differ. Raises ValueError
    on every rank where one gave no whole number from 0 on, or on a rank that is not in the group;
    RuntimeError where several ranks were started and no process group was made.
    """
    dist: Any = import_module("torch.distributed")
    own = _checked(n_local)
    if not (dist.is_available() and dist.is_initialized()):
        _refuse_if_many()
        if own == INVALID:
            raise ValueError(f"expected a whole number of steps from 0 on, not {n_local!r}")
        return own
    if dist.get_rank(group) < 0:
        raise ValueError("this rank is not in the group: it has nothing to agree on")
    counts = _gathered(own, group)
    ranks = dist.get_process_group_ranks(group)
    wrong = [rank for rank, count in zip(ranks, counts, strict=True) if count == INVALID]
    if wrong:
        here = f"; here {n_local!r}" if own == INVALID else ""
        raise ValueError(f"no whole number of steps from 0 on, on rank {wrong}{here}")
    if dist.get_rank(group) == 0:
        _tell(ranks, counts)
    return min(counts)


def _checked(n_local: object) -> int:
    """Also integers of NumPy; a float or a bool is a mistake of the caller's."""
    if isinstance(n_local, bool) or not hasattr(n_local, "__index__"):
        return INVALID
    number: int = n_local.__index__()  # pyright: ignore[reportAttributeAccessIssue]
    return number if 0 <= number <= MOST else INVALID


def _refuse_if_many() -> None:
    for name in ("WORLD_SIZE", "SLURM_NTASKS"):
        told = os.environ.get(name, "1")
        if told.isdigit() and int(told) > 1:
            raise RuntimeError(
                f"{name}={told} and no process group: call agree_on_steps after init_process_group"
            )


def _gathered(own: int, group: Any) -> list[int]:
    """Every rank's count; an all-reduce MIN must say the same, so a broken backend shows here."""
    torch: Any = import_module("torch")
    dist: Any = import_module("torch.distributed")
    device = _device(group)
    mine = torch.tensor([own], dtype=torch.int64, device=device)
    all_of = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(all_of, mine, group=group)
    least = mine.clone()
    dist.all_reduce(least, op=dist.ReduceOp.MIN, group=group)
    counts = [int(one.item()) for one in all_of]
    if int(least.item()) != min(counts):
        raise RuntimeError(f"all-reduce MIN says {int(least.item())}, all-gather {min(counts)}")
    return counts


def _device(group: Any) -> str:
    """Where the group's backend wants its tensors: the CPU if it may, else this rank's own GPU."""
    dist: Any = import_module("torch.distributed")
    # `cpu:gloo,cuda:nccl`; older PyTorch tells the backend's name alone
    known = getattr(dist, "get_backend_config", dist.get_backend)
    told = str(known(group)).lower()
    devices = [part.partition(":")[0] for part in told.split(",") if ":" in part]
    if not devices:
        return "cuda" if "nccl" in told else "cpu"
    return "cpu" if "cpu" in devices else devices[0]


def _tell(ranks: Sequence[int], counts: Sequence[int]) -> None:
    from sluggish.preflight.counts import by_value, who

    groups = {
        count: [ranks[place] for place in places] for count, places in by_value(counts).items()
    }
    least, most = min(groups), max(groups)
    if least == most:
        log.info("all %d ranks have %d steps", len(ranks), least)
        return
    told = "; ".join(f"{count:,}: {who(held)}" for count, held in groups.items())
    log.warning(
        "steps differ, every rank takes %s (%s would have taken %s more). %s",
        f"{least:,}", who(groups[most]), f"{most - least:,}", told,
    )  # fmt: skip
