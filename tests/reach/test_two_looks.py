"""Two looks at one job at the same time do not disturb one another."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from sluggish.cli.collect import _save
from sluggish.evidence.model import Bundle
from sluggish.evidence.source import EvidenceError
from sluggish.facts.host import RankProcess
from sluggish.facts.origin import Origin
from sluggish.probes import rank_procs


def test_a_name_that_the_other_look_took_meanwhile_gives_the_next_one(tmp_path: Path) -> None:
    taken = tmp_path / f"bundle-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz"
    taken.write_text("the other's")
    got = _save(Bundle(job_id="1"), taken, own=True)
    assert got != taken
    assert got.exists()
    assert taken.read_text() == "the other's"
    with pytest.raises(EvidenceError, match="is there already"):
        _save(Bundle(job_id="1"), taken, own=False)


def process(pid: int, name: str, step: int, rank: int, tasks: int) -> str:
    environ = f"SLURM_STEP_ID={step}\nSLURM_PROCID={rank}\nSLURM_NTASKS={tasks}\n"
    stat = f"{pid} ({name}) S 1 " + " ".join(["0"] * 48)
    return f"==> /proc/{pid}/stat <==\n{stat}\n==> /proc/{pid}/environ <==\n{environ}\n"


def test_the_shell_of_another_step_is_no_rank() -> None:
    text = process(10, "python", 0, 0, 4) + process(11, "python", 0, 1, 4)
    text += process(90, "sh", 7, 0, 1)
    text = f"==> hostname <==\nnode01\n{text}==> processes <==\n3\n"
    facts = list(rank_procs.parse(text, Origin(path="procs")))
    ranks = {fact.pid: fact.rank for fact in facts if isinstance(fact, RankProcess)}
    assert ranks == {10: 0, 11: 1, 90: None}
