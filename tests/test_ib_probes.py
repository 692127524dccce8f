"""ibstat, ibstatus, ibv_devinfo, ports and counters from sysfs: cases, captures, junk."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sluggish.facts.fabric import PortCounters
from sluggish.facts.origin import Origin

HERE = Path(__file__).parent
IDS = ("ibstat", "ibstatus", "ibv_devinfo", "ib_ports", "ib_counters", "slingshot")
PROBES = {name: importlib.import_module(f"sluggish.probes.{name}") for name in IDS}


def _cases() -> list[Any]:
    found = [path for name in IDS for path in sorted((HERE / "probes" / name).glob("*.yaml"))]
    return [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in found]


def _text(path: Path, wanted: dict[str, Any]) -> str:
    source = HERE / wanted["capture"] if "capture" in wanted else path.with_suffix(".txt")
    return source.read_bytes().decode("utf-8", "replace")


def _parse(probe: ModuleType, text: str, **origin: Any) -> list[Any]:
    return list(probe.parse(text, Origin(**origin)))


def _attempt(probe: ModuleType, text: str) -> tuple[list[Any], str | None]:
    """Facts, or the words of the ValueError; any other exception fails the test."""
    try:
        return _parse(probe, text, exit_code=0), None
    except ValueError as problem:
        return [], str(problem)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("path", _cases())
def test_a_recorded_case_gives_its_facts(path: Path) -> None:
    wanted = yaml.safe_load(path.read_text(encoding="utf-8"))
    probe, text = PROBES[path.parent.name], _text(path, wanted)
    assert probe.sniff(text.encode()[:65536]) is wanted.get("sniff", True)
    if "error" in wanted:
        with pytest.raises(ValueError, match=wanted["error"]):
            _parse(probe, text, **wanted.get("origin", {}))
        return
    found = _parse(probe, text, **wanted.get("origin", {}))
    assert [type(fact).__name__ for fact in found] == [f["type"] for f in wanted["facts"]]
    for fact, expected in zip(found, wanted["facts"], strict=True):
        del expected["type"]
        assert {key: _plain(getattr(fact, key)) for key in expected} == expected
        assert type(fact) in probe.FACTS


@pytest.mark.parametrize("path", _cases())
def test_a_case_is_claimed_by_no_other_of_these_probes(path: Path) -> None:
    wanted = yaml.safe_load(path.read_text(encoding="utf-8"))
    head = _text(path, wanted).encode()[:65536]
    assert [n for n in IDS if n != path.parent.name and PROBES[n].sniff(head)] == []


@pytest.mark.parametrize("name", IDS)
def test_every_probe_has_cases_of_each_kind(name: str) -> None:
    stems = {path.stem for path in (HERE / "probes" / name).glob("*.yaml")}
    assert stems >= {"normal", "faulty", "empty", "truncated", "version", "junk"}


@pytest.mark.parametrize("name", IDS)
@given(text=st.text() | st.text(alphabet="CA'mlx5_0: Port1/hca_idstate\n\t>-"))
def test_any_text_gives_facts_or_a_value_error(name: str, text: str) -> None:
    probe = PROBES[name]
    probe.sniff(text.encode("utf-8", "replace"))
    found, problem = _attempt(probe, text)
    assert problem is None or problem.startswith("expected")
    assert all(type(fact) in probe.FACTS for fact in found)


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("junk", ["a/" * 500_000, "CA '" * 200_000, "mlx5_0/ports/1/" * 60_000])
def test_a_very_long_line_is_refused_at_once(name: str, junk: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        _parse(PROBES[name], junk)


def test_pasted_ibstat_with_spaces_reads_as_with_tabs() -> None:
    text = (HERE / "probes/ibstat/faulty.txt").read_text()
    spaced = text.replace("\t", " " * 8).replace("\n", "\r\n")
    assert _parse(PROBES["ibstat"], spaced) == _parse(PROBES["ibstat"], text)


def test_counters_carry_their_values_and_the_time_of_their_sample() -> None:
    text = (HERE / "captures/ib_counters/procfs.txt").read_text()
    found = _parse(PROBES["ib_counters"], text, sample="b")
    assert found[0] == PortCounters(
        node=None, hca="hfi1_0", port=1, sample="b", at=None, counters=found[0].counters
    )
    assert found[0].counters["port_rcv_data"] == 345091702026
    assert found[1].counters["port_xmit_wait"] == 3599
    assert len(found[0].counters) == 17


def test_the_commands_are_read_only() -> None:
    for name in IDS:
        words = PROBES[name].COMMAND
        assert " -R" not in words
        assert " > " not in words
        assert "echo" not in words or name == "ib_ports"
