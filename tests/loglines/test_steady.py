"""A log whose steady middle is left out gives the facts of the whole log."""

from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluggish.facts.log import LogSpan, Progress
from sluggish.facts.origin import Origin
from sluggish.loglines import steady
from sluggish.loglines.line import Line
from sluggish.probes import job_log

ORIGIN = Origin(path="job.out", taken_at=datetime(2026, 11, 30, 12, tzinfo=UTC))
T0 = datetime(2026, 11, 30, tzinfo=UTC)
LINES = 12_000


def step(i: int) -> str:
    at = T0 + timedelta(seconds=i)
    return (
        f"[{at:%Y-%m-%d %H:%M:%S}] step {i} loss 2.{i % 97:02d} lr 3.0e-4 tokens/s {9000 + i % 7}"
    )


def plain() -> str:
    return "\n".join(map(step, range(LINES))) + "\n"


def after_a_long_preamble() -> str:
    noise = "".join(f"loading shard {i} of the vocabulary\n" for i in range(6_000))
    return noise + plain()


def with_events() -> str:
    told = [step(i) for i in range(LINES)]
    told[6_000] = "Traceback (most recent call last):"
    told[6_001:6_001] = [
        '  File "/opt/train/loop.py", line 3, in step', "ValueError: loss is nan",
        "Saving checkpoint at step 6000", "Saved checkpoint at step 6000",
    ]  # fmt: skip
    told[7_000] = "step 7000 loss nan lr 3.0e-4 tokens/s 12"
    told.append("slurmstepd: error: *** STEP 1.0 ON gpu-01 CANCELLED AT 2026-11-30T06:00:00 ***")
    return "\n".join(told)


def bars() -> str:
    told = (f"{i * 100 // LINES}%|####      | {i}/{LINES} [01:00<02:00,  2.30s/it]"
            for i in range(LINES))  # fmt: skip
    return "\r".join(told)


def of_ranks() -> str:
    """Rank 3 prints its last step early: that line is what matters."""
    return "".join(
        f"[rank{r}]: step {i} loss 2.{i % 97:02d}\n"
        for i in range(LINES // 2) for r in (0, 3) if r == 0 or i < 40
    )  # fmt: skip


def facts(text: str) -> list[Any]:
    """Without the numbers of lines, which only order them."""
    found = [
        replace(f, order=0) if is_dataclass(f) and hasattr(f, "order") else f  # pyright: ignore
        for f in job_log.parse(text, ORIGIN)
    ]
    return sorted(found, key=repr)


@pytest.mark.parametrize("log", [plain, after_a_long_preamble, with_events, bars, of_ranks])
def test_the_facts_are_those_of_the_whole_log(log: Any) -> None:
    text = log()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steady, "WORTH_CHARS", 10**12)
        whole = facts(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steady, "WORTH_CHARS", 0)
        assert facts(text) == whole


@pytest.mark.parametrize("log", [plain, after_a_long_preamble, with_events, bars])
def test_the_middle_is_left_out(log: Any) -> None:
    text = log() * 4
    read: list[str] = []
    real = job_log.lines

    def heard(some: str, origin: Origin) -> Iterator[Line]:
        read.append(some)
        return real(some, origin)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steady, "WORTH_CHARS", 0)
        patch.setattr(job_log, "lines", heard)
        told = list(job_log.parse(text, ORIGIN))
    assert len(max(read, key=len)) < 0.6 * len(text)
    (span,) = [f for f in told if isinstance(f, LogSpan)]
    assert span.bytes_total == len(text)


def test_lines_that_name_a_rank_all_stay() -> None:
    early = [
        f for f in job_log.parse(of_ranks(), ORIGIN) if isinstance(f, Progress) and f.rank == 3
    ]
    assert max(f.step or 0 for f in early) == 39
