"""What an engineer hands in instead of our own collection: other forms of the same evidence.

The stories' kernel logs and nvidia-smi documents are written in the forms of other commands; the
verdict must name the same place, and never more than what the form can tell.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest
from evalgen.bundle import write
from evalgen.stories import STORIES

from sluggish.diagnose import diagnose
from sluggish.evidence.open import load
from sluggish.probes import PROBES
from sluggish.verdict.model import Diagnosis

# 1795995544.123456 gpu-08 kernel: text                        (evalgen/render/kernel.py)
LINE = re.compile(r"(\d+)\.(\d{6}) (\S+) (\w+): (.*)")


def _entries(text: str) -> list[dict[str, str]]:
    found = [match for line in text.splitlines() if (match := LINE.match(line))]
    assert len(found) == len(text.splitlines())
    return [
        {"__CURSOR": "s=1", "__REALTIME_TIMESTAMP": m[1] + m[2], "_TRANSPORT": "kernel",
         "_HOSTNAME": m[3], "SYSLOG_IDENTIFIER": m[4], "MESSAGE": m[5]}
        for m in found
    ]  # fmt: skip


def _json(text: str) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in _entries(text))


def _pretty(text: str) -> str:
    out = ""
    for entry in _entries(text):
        fields = ",\n".join(f"\t{json.dumps(k)} : {json.dumps(v)}" for k, v in entry.items())
        out += f"{{\n{fields}\n}}\n"
    return out


def _export(text: str) -> str:
    return "".join(
        "".join(f"{name}={value}\n" for name, value in entry.items()) + "\n"
        for entry in _entries(text)
    )


def _precise(text: str) -> str:
    out = ""
    for entry in _entries(text):
        at = datetime.fromtimestamp(int(entry["__REALTIME_TIMESTAMP"]) / 1e6, UTC)
        out += f"{at:%Y-%m-%dT%H:%M:%S.%f+00:00} {entry['_HOSTNAME']} kernel: {entry['MESSAGE']}\n"
    return out


FORMS: dict[str, Callable[[str], str]] = {
    "json": _json, "json-pretty": _pretty, "export": _export, "short-iso-precise": _precise,
}  # fmt: skip


def told(folder: Path) -> tuple[object, ...]:
    return _short(diagnose(load([str(folder)], PROBES)))


def _short(found: Diagnosis) -> tuple[object, ...]:
    v = found.verdict
    culprits = [(c.node, c.gpu_index, c.rank) for c in v.culprits]
    return v.cause, v.subtype, culprits, v.confidence.level, v.drain_nodes


def loose(story: str, folder: Path) -> Path:
    """The story's files without their manifest: whatever a person would pack."""
    world, _ = STORIES[story]()
    write(world, folder)
    (folder / "manifest.json").unlink()
    return folder


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("story", ["xid79", "cgroup_oom", "healthy_stale"])
def test_the_journal_s_form_does_not_change_the_verdict(
    tmp_path: Path, story: str, form: str
) -> None:
    folder = loose(story, tmp_path / "in")
    expected = told(folder)
    logs = list(folder.glob("nodes/*/kernel_log.txt"))
    assert logs
    for path in logs:
        path.write_text(FORMS[form](path.read_text()))
    assert told(folder) == expected


def _listed(xml: str) -> str:
    """`nvidia-smi -L` of the same GPUs."""
    root = ElementTree.fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", xml))
    return "".join(
        f"GPU {i}: {gpu.findtext('product_name')} (UUID: {gpu.findtext('uuid')})\n"
        for i, gpu in enumerate(root.iter("gpu"))
    )


def test_lists_in_place_of_reports_name_the_same_node_and_rule_out_less(tmp_path: Path) -> None:
    folder = loose("gpu_vanished", tmp_path / "in")
    before = diagnose(load([str(folder)], PROBES)).verdict
    for path in folder.glob("nodes/*/nvidia_smi.txt"):
        path.write_text(_listed(path.read_text()))
    after = diagnose(load([str(folder)], PROBES)).verdict
    assert before.cause == after.cause == "gpu_fault"
    assert {c.node for c in after.culprits} == {c.node for c in before.culprits}
    assert "gpu_fault" not in {entry.cause for entry in after.ruled_out}
    assert any(hole.what == "nvidia-smi" for hole in after.not_checked)


def _utilisation(xml: str) -> str:
    """A query of the load alone."""
    rows = _listed(xml).splitlines()
    head = "index, name, utilization.gpu [%], memory.used [MiB]\n"
    return head + "".join(f"{i}, B300, 100 %, 7000 MiB\n" for i, _ in enumerate(rows))


def _clocks(xml: str) -> str:
    """`nvidia-smi -q -d CLOCK`."""
    gpus = re.findall(r'<gpu id="([^"]+)"', xml)
    head = "\n==============NVSMI LOG==============\n\nDriver Version : 580.1\n"
    head += f"Attached GPUs : {len(gpus)}\n"
    return head + "".join(f"GPU {gpu}\n    Clocks\n        SM : 1980 MHz\n" for gpu in gpus)


@pytest.mark.parametrize("form", [_listed, _utilisation, _clocks])
def test_what_says_nothing_of_the_gpus_state_rules_no_gpu_fault_out(
    tmp_path: Path, form: Callable[[str], str]
) -> None:
    folder = loose("seed", tmp_path / "in")
    assert "gpu_fault" in {e.cause for e in diagnose(load([str(folder)], PROBES)).verdict.ruled_out}
    for path in folder.glob("nodes/*/nvidia_smi.txt"):
        path.write_text(form(path.read_text()))
    after = diagnose(load([str(folder)], PROBES)).verdict
    assert after.cause == "rank_desync"
    assert any(
        hole.why.startswith("in part: expected nvidia-smi -q -x too") for hole in after.not_checked
    )
    assert "gpu_fault" not in {entry.cause for entry in after.ruled_out}


def test_kernel_logs_that_were_filtered_rule_nothing_out(tmp_path: Path) -> None:
    folder = loose("xid79", tmp_path / "in")
    expected = told(folder)[:3]
    for path in folder.glob("nodes/*/kernel_log.txt"):
        kept = [line for line in path.read_text().splitlines() if "NVRM" in line]
        path.write_text("".join(f"{line}\n" for line in kept))
    found = diagnose(load([str(folder)], PROBES))
    assert _short(found)[:3] == expected
    assert "memory" not in {entry.cause for entry in found.verdict.ruled_out}


def _nvlink(counts: list[int], of: int = 18) -> str:
    """`nvidia-smi nvlink -s`: so many links of each GPU are up."""
    return "".join(
        f"GPU {i}: NVIDIA B300 SXM6 AC (UUID: GPU-11111111-2222-3333-4444-55555555555{i})\n"
        + "".join(f"\t Link {k}: {'53.125 GB/s' if k < n else '<inactive>'}\n" for k in range(of))
        for i, n in enumerate(counts)
    )


BUILT_SO = {
    "whole": [18] * 8,
    "pairs beside boards without a bridge": [12, 12, 0, 0, 12, 12, 12, 12],
    "still training": [18, 3, 7, 0, 18, 2, 9, 1],
    "none": [0] * 8,
}


@pytest.mark.parametrize("counts", BUILT_SO.values(), ids=BUILT_SO)
@pytest.mark.parametrize("story", ["seed", "healthy_stale"])
def test_links_that_are_built_so_change_no_verdict(
    tmp_path: Path, story: str, counts: list[int]
) -> None:
    folder = loose(story, tmp_path / "in")
    expected = told(folder)
    for node in (folder / "nodes").iterdir():
        (node / "nvlink.txt").write_text(_nvlink(counts))
    assert told(folder) == expected


@pytest.mark.parametrize("story", ["seed", "healthy_stale"])
def test_a_lost_link_outranks_neither_the_collectives_nor_a_job_that_moves(
    tmp_path: Path, story: str
) -> None:
    folder = loose(story, tmp_path / "in")
    expected = told(folder)[:3]
    first = min((folder / "nodes").iterdir())
    (first / "nvlink.txt").write_text(_nvlink([18] * 7 + [17]))
    found = diagnose(load([str(folder)], PROBES))
    assert _short(found)[:3] == expected
    assert found.verdict.drain_nodes == ()
    assert any(f.says.startswith("17 NVLinks") and f.node == first.name for f in found.findings)
