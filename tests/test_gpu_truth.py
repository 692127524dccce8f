"""Each line, spelling and threshold that is publicly known of GPU evidence (gpu_truth.yaml)."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from sluggish.catalog.xid import recovery_action
from sluggish.correlate.bursts import bursts
from sluggish.correlate.shape import gpu_shapes
from sluggish.facts import smi_values
from sluggish.facts.derived import Look, Onset
from sluggish.facts.gpu import Gpu, GpuSample, SmiFailure, Xid
from sluggish.facts.host import KernelSpan
from sluggish.facts.origin import Origin
from sluggish.facts.store import Facts
from sluggish.findings import Role, ask
from sluggish.probes import kernel_log
from sluggish.probes.nvidia_smi import failures
from sluggish.rules.gpu import RULES
from sluggish.rules.xid import RULES as XID_RULES

TRUTH: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parent / "gpu_truth.yaml").read_text(encoding="utf-8")
)
T0 = datetime(2026, 11, 24, 3, 0, tzinfo=UTC)
ORIGIN = Origin(node="a", taken_at=T0, boot_at=T0 - timedelta(hours=9))
BY_ID = {rule.id: rule for rule in (*RULES, *XID_RULES)}
LOOK = Look(at=T0, nodes=("a",), world_size=8, job_started_at=T0 - timedelta(hours=2), loose=False)


def cases(group: str) -> list[Any]:
    return [pytest.param(row, id=str(n)) for n, row in enumerate(TRUTH[group])]


@pytest.mark.parametrize("row", cases("kernel"))
def test_a_kernel_line_is_read(row: dict[str, Any]) -> None:
    text = row.pop("stamp", "") + row.pop("line")
    wanted = row.pop("fact")
    found = [f for f in kernel_log.parse(text, ORIGIN) if not isinstance(f, KernelSpan)]
    if wanted is None:
        assert found == []
        return
    (fact,) = found
    assert type(fact).__name__ == wanted
    got = {key: getattr(fact, key) for key in row}
    assert {k: list(v) if isinstance(v, tuple) else v for k, v in got.items()} == row


@pytest.mark.parametrize("row", cases("smi"))
def test_a_failure_of_nvidia_smi_is_evidence(row: dict[str, Any]) -> None:
    for stdout, stderr in ((row["text"], ""), ("", row["text"])):
        origin = Origin(node="a", exit_code=row["exit"], stderr=stderr)
        found: list[SmiFailure] = list(failures.read(stdout, origin))
        assert row["kind"] in [failure.kind for failure in found]
        if "pci" in row:
            assert found[0].pci == row["pci"]


@pytest.mark.parametrize("row", cases("values"))
def test_a_spelling_is_absent_broken_or_a_number(row: dict[str, Any]) -> None:
    text, wanted = row["text"], row["is"]
    absent = smi_values.value(text) is None and smi_values.broken(text) is None
    assert absent is (wanted == "absent")
    assert (smi_values.broken(text) is not None) is (wanted == "broken")
    if not isinstance(wanted, str):
        assert smi_values.number(text) == pytest.approx(wanted)


@pytest.mark.parametrize("row", cases("reasons"))
def test_a_reason_of_the_clock_holds_a_gpu_back_or_does_not(row: dict[str, Any]) -> None:
    assert smi_values.reasons(row["mask"]) == (row["name"],)
    samples = [
        GpuSample(
            node=f"n{k}", at=T0 + timedelta(seconds=s), index=0, pci="0000:01:00.0",
            utilisation_pct=99.0, sm_clock_mhz=1900, power_limit_w=700.0,
            throttle=(row["name"],) if k == 7 else (),
        )
        for k in range(8)
        for s in range(10)
    ]  # fmt: skip
    found = _ask("SLOW-GPU", *samples)
    assert [f.node for f in found if f.role is Role.ROOT] == (["n7"] if row["slow"] else [])


@pytest.mark.parametrize("row", cases("recovery"))
def test_a_recovery_action_is_known_by_number_and_by_word(row: dict[str, Any]) -> None:
    entry = recovery_action(row["number"])
    assert entry is not None
    assert entry.action == row["action"]
    gpu = Gpu(node="a", index=0, pci="0000:01:00.0", recovery_action=row["words"] or "None")
    actions = [f.action for f in _ask("GPU-RECOVERY", gpu, LOOK) if f.role is not Role.ALL_CLEAR]
    assert actions == ([] if row["action"] == "none" else [row.get("asks", row["action"])])


@pytest.mark.parametrize("row", cases("shapes"))
def test_a_gpu_s_shape_is_that_of_the_capture(row: dict[str, Any]) -> None:
    samples = [
        GpuSample(
            node="a", at=T0 + timedelta(seconds=s), index=0, pci="0000:01:00.0",
            utilisation_pct=row["util"], power_w=row["power"] + row.get("jitter", 0.5) * (s % 2),
            power_limit_w=row["limit"], memory_utilisation_pct=row.get("memory", 0),
            sm_clock_mhz=row.get("clock", 1900), max_sm_clock_mhz=1900, memory_used_mib=50_000,
        )
        for s in range(10)
    ]  # fmt: skip
    (shape,) = gpu_shapes(samples, [])
    assert shape.state == row["state"]


@pytest.mark.parametrize(
    ("per_second", "wanted"), [(999, []), (1001, ["rma"]), (4647, ["rma"]), (17657, ["rma"])]
)
def test_correctable_errors_count_by_their_rate(per_second: int, wanted: list[str]) -> None:
    looks = [
        Gpu(node="a", index=0, pci="0000:01:00.0", at=T0 + timedelta(seconds=s),
            ecc_volatile_correctable=10**9 + per_second * s)
        for s in (0, 10)
    ]  # fmt: skip
    assert [f.action for f in _ask("GPU-ECC", *looks, LOOK) if f.role is Role.ROOT] == wanted


@pytest.mark.parametrize("row", cases("bursts"))
def test_silence_ends_a_burst(row: dict[str, Any]) -> None:
    xids = [
        Xid(node="a", at=T0 + timedelta(seconds=s), pci="0000:01:00.0", code=79, line="")
        for s in (0, row["apart"])
    ]
    assert len(bursts(xids)) == row["bursts"]


@pytest.mark.parametrize("row", cases("reads"))
def test_what_the_memory_counters_say(row: dict[str, Any]) -> None:
    fields = {k: v for k, v in row.items() if k not in ("name", "role", "action")}
    gpu = Gpu(node="a", index=0, pci="0000:01:00.0", **fields)
    (found,) = _ask("GPU-REMAP", gpu, LOOK)
    assert (found.role.name.lower(), found.action) == (row["role"], row["action"])


@pytest.mark.parametrize("row", cases("flags"))
def test_a_yes_and_a_no_in_every_spelling(row: dict[str, Any]) -> None:
    assert smi_values.flag(row["text"]) is row["is"]


@pytest.mark.parametrize("row", cases("advice"))
def test_what_an_xid_alone_asks_for(row: dict[str, Any]) -> None:
    xid = Xid(node="a", at=T0, pci="0000:01:00.0", code=row["xid"], line=f"Xid {row['xid']}")
    gpus = [Gpu(node="a", index=0, pci="0000:01:00.0")] if row["answers"] else []
    onset = Onset(earliest=T0, latest=T0, source="test")
    roots = [f for f in _ask("GPU-XID", xid, *gpus, LOOK, onset) if f.role is Role.ROOT]
    assert [f.action for f in roots] == ([row["action"]] if row["action"] else [])
    if "subtype" in row:
        assert roots[0].subtype == row["subtype"]


def _ask(rule_id: str, *items: Any) -> list[Any]:
    store = Facts()
    for item in items:
        store.add(item)
        store.seen[type(item)].add(getattr(item, "node", None))
    return list(ask(BY_ID[rule_id], store))
