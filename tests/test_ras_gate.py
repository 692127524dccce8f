"""RAS is asked only of a job that looks frozen, of a version with no report of harm."""

from datetime import UTC, datetime

import pytest

from sluggish.causes import Phase
from sluggish.correlate.ras_gate import why_not_ask_ras
from sluggish.facts.derived import Onset, PhaseFact
from sluggish.facts.gpu import JobShape
from sluggish.facts.log import NcclInit, Version
from sluggish.facts.store import Facts

AT = datetime(2026, 11, 24, 3, 0, tzinfo=UTC)
FROZEN = Onset(earliest=AT, latest=AT, source="watchdog")
STEADY = PhaseFact(phase=Phase.STEADY)


def nccl(version: str) -> Version:
    return Version(node=None, rank=None, component="nccl", version=version)


def init(*, complete: bool) -> NcclInit:
    return NcclInit(node="a", rank=0, world_size=8, pid=1, comm="0x9", complete=complete)


def why(*items: object) -> str | None:
    facts = Facts()
    for item in items:
        facts.add(item)
    return why_not_ask_ras(facts)


def test_a_frozen_job_of_a_version_without_a_report_may_be_asked():
    done = (init(complete=False), init(complete=True))
    assert why(nccl("2.31.1"), FROZEN, STEADY, *done) is None


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ((FROZEN, STEADY), "version is not known"),
        ((nccl("2.21.5"), FROZEN, STEADY), "has no RAS"),
        ((nccl("2.28.9"), FROZEN, STEADY), "have crashed jobs"),
        ((nccl("2.31.1"), nccl("2.28.9"), FROZEN, STEADY), "have crashed jobs"),
        ((nccl("2.31.1"), STEADY), "nothing shows that the job hangs"),
        ((nccl("2.31.1"), FROZEN, PhaseFact(phase=Phase.START_UP)), "initialising"),
        ((nccl("2.31.1"), FROZEN, STEADY, init(complete=False)), "initialising"),
        ((nccl("2.31.1"), FROZEN, STEADY, JobShape(shape="moving", gpus=8)), "the GPUs move"),
    ],
)
def test_whatever_speaks_against_it_is_said(items: tuple[object, ...], said: str):
    assert said in (why(*items) or "")
