"""Gloo ends a rank that is sent more than its buffer holds. It or its sender has the odd size."""

import re
from collections.abc import Iterable
from dataclasses import replace

from sluggish.facts.collective import Wait, WaitRoot
from sluggish.facts.log import LogSign

KIND = "gloo_size_mismatch"
SOURCE = ("gloo",)

# [enforce fail at .../gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 268 vs 4.
_BYTES = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d{1,15}) vs (\d{1,15})\.")


def refused(signs: Iterable[LogSign]) -> set[int]:
    """Ranks that Gloo ended: victims as often as not."""
    return {s.rank for s in signs if s.kind == KIND and s.rank is not None}


def from_gloo(signs: Iterable[LogSign]) -> Wait | None:
    """From the line alone it is one against one: both are told, neither is blamed."""
    told = sorted((s for s in signs if s.kind == KIND), key=lambda s: (s.order, str(s.rank)))
    if not told:
        return None
    found = _BYTES.search(told[0].line)
    sent, fits = (f"{n} bytes" for n in found.groups()) if found else ("more", "less")
    rank = told[0].rank
    return Wait(
        state="tie",
        mismatch="sizes",
        sides=((f"a buffer for {fits}", () if rank is None else (rank,)), (f"{sent} sent", ())),
        sources=SOURCE,
        confidence_notes=("Gloo ended a rank that was sent more than it had room for",),
    )


def settled(recorder: Wait, gloo: Wait) -> Wait:
    """All others posted one size, and only the rank that Gloo ended left no dump: it is odd."""
    ended = gloo.sides[0][1]
    if recorder.state != "unobserved" or not ended or recorder.unobserved != ended:
        return recorder
    root = WaitRoot(
        rank=ended[0],
        group=recorder.group,
        seq=recorder.seq,
        doing=f"other sizes: {gloo.sides[0][0]}, {gloo.sides[1][0]}; Gloo ended it",
        waiters=len(recorder.waiters),
    )
    return replace(
        recorder,
        state="mismatch",
        mismatch="sizes",
        roots=(root,),
        sources=(*recorder.sources, *gloo.sources),
        confidence_notes=(*recorder.confidence_notes, *gloo.confidence_notes),
    )
