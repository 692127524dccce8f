"""What a look that ended early owes: each missing answer stands in the bundle with its reason."""

from datetime import UTC, datetime
from pathlib import Path

from sluggish.evidence.model import Bundle
from sluggish.evidence.open import text_of
from sluggish.facts.host import HostMemory
from sluggish.facts.store import SECOND, read
from sluggish.probes import PROBES
from sluggish.reach.collect import Look
from sluggish.reach.model import Answer, Frame, Progress

MEMINFO = b"==> /proc/meminfo <==\nMemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 500 kB\n"


def frame(probe: str, sample: str) -> Frame:
    return Frame(probe=probe, sample=sample, exit_code=0, content=MEMINFO)


def looked(tmp_path: Path, *samples: str, answer: Answer | None = None) -> Bundle:
    look = Look(folder=tmp_path, nodes=("gpu-07",), job="7")
    for sample in samples:
        look.note(Progress(node="gpu-07", kind="frame", frame=frame("memory", sample)), {})
    if answer:
        look.note(Progress(node="gpu-07", kind="done", answer=answer), {})
    return look.bundle(PROBES, datetime(2026, 11, 24, tzinfo=UTC))


def of_memory(bundle: Bundle) -> list[tuple[str, str | None]]:
    return [(e.sample, e.error) for e in bundle.evidence if e.probe == "memory"]


def test_a_look_that_was_stopped_owes_the_second_sample(tmp_path: Path) -> None:
    bundle = looked(tmp_path, "a")
    assert of_memory(bundle) == [("a", None), ("b", "not run")]
    facts = read(bundle, PROBES, text_of)
    assert facts.saw(HostMemory, "gpu-07")  # the first sample is as good as it was
    assert any(
        gap.probe == "memory" and gap.why.startswith(f"{SECOND}not run: stopped before")
        for gap in facts.gaps
    )


def test_a_node_that_died_in_mid_answer_owes_it_too(tmp_path: Path) -> None:
    died = Answer(node="gpu-07", failure="died", says="connection lost")
    assert of_memory(looked(tmp_path, "a", answer=died)) == [("a", None), ("b", "died")]
    assert of_memory(looked(tmp_path, "a", "b", answer=died)) == [("a", None), ("b", None)]


def test_a_whole_answer_owes_nothing(tmp_path: Path) -> None:
    """With a window of 0 there is no second sample."""
    whole = Answer(node="gpu-07", failure=None)
    assert of_memory(looked(tmp_path, "a", answer=whole)) == [("a", None)]
