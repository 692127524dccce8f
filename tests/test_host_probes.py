"""Identity, processes, memory, mounts and Slurm text: every data case, every capture, junk."""

import importlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sluggish.facts.origin import Origin

HERE = Path(__file__).parent
IDS = ("identity", "rank_procs", "memory", "mounts", "slurm_job", "slurm_node", "sacct",
       "squeue")  # fmt: skip
PROBES = {name: importlib.import_module(f"sluggish.probes.{name}") for name in IDS}
BOOT = datetime(2026, 11, 1, tzinfo=UTC)
TAKEN = datetime(2026, 11, 24, 3, 22, 10, tzinfo=UTC)


def _cases() -> list[Any]:
    found = [path for name in IDS for path in sorted((HERE / "probes" / name).glob("*.yaml"))]
    return [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in found]


def _text(path: Path) -> str:
    wanted = yaml.safe_load(path.read_text(encoding="utf-8"))
    source = HERE / wanted["capture"] if "capture" in wanted else path.with_suffix(".txt")
    return source.read_bytes().decode("utf-8", "replace")


def _attempt(probe: ModuleType, text: str, **origin: Any) -> tuple[list[Any], str | None]:
    """Facts up to the end or the ValueError, and its words; another exception fails the test."""
    plain: dict[str, Any] = {"boot_at": BOOT, "taken_at": TAKEN, **origin}
    found: list[Any] = []
    try:
        for fact in probe.parse(text, Origin(**plain)):
            found.append(fact)
    except ValueError as problem:
        return found, str(problem)
    return found, None


def _plain(value: Any) -> Any:
    """Tuples as lists, so that YAML can say them."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


@pytest.mark.parametrize("path", _cases())
def test_a_recorded_case_gives_its_facts(path: Path) -> None:
    wanted = yaml.safe_load(path.read_text(encoding="utf-8"))
    probe, text = PROBES[path.parent.name], _text(path)
    assert probe.sniff(text.encode()[:65536]) is wanted.get("sniff", True)
    found, problem = _attempt(probe, text, **wanted.get("origin", {}))
    assert wanted.get("error", "") in (problem or "")
    assert (problem is None) is ("error" not in wanted)
    expectations = wanted.get("facts", [])
    assert len(found) == len(expectations)
    for fact, expected in zip(found, expectations, strict=True):
        assert type(fact).__name__ == expected.pop("type")
        got = {key: _plain(getattr(fact, key)) for key in expected}
        assert got == expected
        assert type(fact) in probe.FACTS


@pytest.mark.parametrize("path", _cases())
def test_a_case_is_claimed_by_no_other_of_these_probes(path: Path) -> None:
    head = _text(path).encode()[:65536]
    others = [name for name in IDS if name != path.parent.name and PROBES[name].sniff(head)]
    assert others == []


@pytest.mark.parametrize("name", IDS)
def test_every_probe_has_cases_of_each_kind(name: str) -> None:
    stems = {path.stem for path in (HERE / "probes" / name).glob("*.yaml")}
    assert {"normal", "faulty", "empty", "truncated", "version", "junk", "public"} <= stems


@pytest.mark.parametrize("name", IDS)
@settings(max_examples=60, deadline=None)
@given(text=st.text())
def test_any_text_is_facts_or_a_value_error(name: str, text: str) -> None:
    found, problem = _attempt(PROBES[name], text)
    assert problem is None or problem.startswith("expected ")
    assert all(type(fact) in PROBES[name].FACTS for fact in found)


_words = st.sampled_from(
    [
        "JobId=", "JobName=", "UserId=a(1)", "JobState=", "RUNNING", "NodeList=", "gpu[01-02",
        "EndTime=", "NodeName=", "State=", "DOWN*", "Reason=", "[root@x]",
        "BootTime=2026-13-45T99:99:99", "JobID|State", "JobID", "|", ".", "+0", "_1", "\n", "\t",
        "\x00", "==> /proc/1/stat <==", "==>", "(x)", "S", "1", "D", "PID", "PPID", "COMMAND",
        "TIME", "[kworker]", "-", "-1", "99999999999999999999", "kB:", "MemTotal:", "some",
        "avg10=0.00", "/a", "nfs", "rw", "0", "answered", "in", "1e999", "nan"
    ]
)  # fmt: skip


@pytest.mark.parametrize("name", IDS)
@settings(max_examples=150, deadline=None)
@given(words=st.lists(_words, max_size=60), glue=st.sampled_from(["", " ", "\n"]))
def test_text_that_looks_right_is_facts_or_a_value_error(
    name: str, words: list[str], glue: str
) -> None:
    found, problem = _attempt(PROBES[name], glue.join(words))
    assert problem is None or problem.startswith("expected ")
    assert all(type(fact) in PROBES[name].FACTS for fact in found)


@pytest.mark.parametrize("name", IDS)
@given(head=st.binary(max_size=300))
def test_any_bytes_can_be_sniffed(name: str, head: bytes) -> None:
    assert PROBES[name].sniff(head) in (True, False)


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("unit", [" ", "\n", "a", "JobId=1 ", "==> a <==\n", "A=", "|", "0"])
def test_a_long_line_takes_linear_time(name: str, unit: str) -> None:
    started = datetime.now(UTC)
    text = unit * (200_000 // len(unit))
    PROBES[name].sniff(text.encode()[:65536])
    _attempt(PROBES[name], text)
    assert datetime.now(UTC) - started < timedelta(seconds=3)
