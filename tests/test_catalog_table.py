"""Every entry of the GPU catalogue: what is publicly known of it, and that it changes something.

The tables under tests/catalog were written from the public sources and not from the catalogue. An
entry counts as covered where the answer is another one once it is taken out.
"""

import csv
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sluggish.catalog import xid as catalogue
from sluggish.catalog.explain import explain_xid
from sluggish.facts.derived import Look, Onset
from sluggish.facts.host import KernelSpan
from sluggish.facts.origin import Origin
from sluggish.facts.store import Facts
from sluggish.findings import Role, Strength, ask
from sluggish.probes import kernel_log
from sluggish.rules.xid import RULES

HERE = Path(__file__).parent
T0 = datetime(2026, 11, 24, 3, 0, tzinfo=UTC)
BOOT = T0 - timedelta(hours=9)
LOOK = Look(at=T0 + timedelta(minutes=10), nodes=("a",), world_size=8,
            job_started_at=T0 - timedelta(hours=2), loose=False)  # fmt: skip
ONSET = Onset(earliest=T0 - timedelta(seconds=5), latest=T0, source="watchdog")


def _rows(name: str) -> list[dict[str, str]]:
    text = (HERE / "catalog" / f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


XIDS = [row for row in _rows("xid") if row["hang"] != "unused"]
SXIDS = _rows("sxid")


def _ids(rows: list[dict[str, str]], kind: str) -> list[Any]:
    return [pytest.param(row, id=f"{kind}-{row['code']}") for row in rows]


def _roots(line: str) -> dict[str, Strength]:
    """Rule -> strength of what a line in the cause window accuses."""
    store = Facts()
    stamp = f"[{(T0 - BOOT).total_seconds() - 20:.6f}] "
    store.seen[KernelSpan].add("a")
    for fact in (*kernel_log.parse(stamp + line, Origin(node="a", boot_at=BOOT)), LOOK, ONSET):
        store.add(fact)
        store.seen[type(fact)].add("a")
    found = [f for rule in RULES for f in ask(rule, store)]
    return {f.rule: f.strength for f in found if f.role is Role.ROOT}


def _line(code: str) -> str:
    return f"NVRM: Xid (PCI:0000:4b:00): {code}, pid=7, name=python3, words of the driver"


@pytest.mark.parametrize("row", _ids(XIDS, "xid"))
def test_an_xid_is_judged_as_is_known_and_not_without_its_entry(
    row: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = int(row["code"])
    entry = catalogue.xid(code)
    assert entry is not None
    assert (entry.hang, entry.action, entry.fault) == (row["hang"], row["action"], row["fault"])
    roots = _roots(_line(row["code"]))
    if not 144 <= code <= 150:  # their words decide: see the decode table
        if row["hang"] == "possible":
            assert set(roots) <= {"GPU-XID", "GPU-APP-XID"}
            assert Strength.DECISIVE not in roots.values()
        else:
            heard = {"cause": {"GPU-XID"}, "cause_app": {"GPU-APP-XID"}}
            assert set(roots) == heard.get(row["hang"], set())
    told = explain_xid(row["code"])
    rest = {k: v for k, v in catalogue._xids().items() if k != code}
    monkeypatch.setattr(catalogue, "_xids", lambda: rest)
    assert _roots(_line(row["code"])) == {}
    assert explain_xid(row["code"]) != told


@pytest.mark.parametrize("code", [row["code"] for row in _rows("xid") if row["hang"] == "unused"])
def test_a_code_that_is_not_used_any_more_accuses_nobody(code: str) -> None:
    assert catalogue.xid(int(code)) is None
    assert _roots(_line(code)) == {}


@pytest.mark.parametrize("row", _ids(SXIDS, "sxid"))
def test_a_switch_error_is_judged_by_its_printed_word_and_the_guide(
    row: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = int(row["code"])
    entry = catalogue.sxid(code)
    assert entry is not None
    assert ((entry.prints or ""), (entry.guide or "")) == (row["prints"], row["guide"])
    head = f"nvidia-nvswitch1: SXid (PCI:0000:c2:00.0): {code:05d}, "
    assert _roots(head + "Fatal, Link 22 words") == {"GPU-SXID": Strength.DECISIVE}
    assert _roots(head + "Non-fatal, Link 22 words") == {}
    bare = _roots(head + "Link 22 words")
    always = {"GPU-SXID": Strength.STRONG} if row["guide"] == "always-fatal" else {}
    assert bare == always
    told = explain_xid(f"S{code:05d}")
    rest = {k: v for k, v in catalogue._sxids().items() if k != code}
    monkeypatch.setattr(catalogue, "_sxids", lambda: rest)
    assert _roots(head + "Link 22 words") == {}
    assert explain_xid(f"S{code:05d}") != told


def test_no_entry_is_left_out_of_the_tables() -> None:
    assert {int(row["code"]) for row in XIDS} == set(catalogue._xids())
    assert {int(row["code"]) for row in SXIDS} == set(catalogue._sxids())
