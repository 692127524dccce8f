"""NVIDIA's bug report: its parts are found, each by its own probe; what is not read is said."""

import gzip
from pathlib import Path

import pytest

from sluggish.diagnose import diagnose, gather
from sluggish.evidence.bug_report import apart, is_report
from sluggish.evidence.model import Bundle
from sluggish.evidence.open import load
from sluggish.evidence.source import Item
from sluggish.facts.gpu import Gpu, GpuCount, SXid, Xid
from sluggish.facts.host import KernelSpan
from sluggish.probes import PROBES

HERE = Path(__file__).parent
LINE = "_" * 44
START = (
    f"{LINE}\n\nStart of NVIDIA bug report log file.  Please include this file, along\n"
    "with a detailed description of your problem, when reporting a graphics\n"
    "driver bug via the NVIDIA Linux forum (see forums.developer.nvidia.com)\n\n"
    "nvidia-bug-report.sh Version: 31831145\n\nDate: Tue Nov 24 03:20:11 UTC 2026\n"
    "uname: Linux {host} 5.15.0-105-generic #115-Ubuntu SMP x86_64 GNU/Linux\n"
    "command line flags: \n\n"
)
QUERY = (HERE / "captures/nvidia_smi/h200-580-query.txt").read_text(encoding="utf-8")
UNIT = "\n==============NVSMI LOG==============\n\nTimestamp : x\nAttached Units : 0\n"
LSPCI = (
    "00:00.0 Host bridge [0600]: Intel Corporation Device [8086:09a2] (rev 04)\n"
    "83:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H200] [10de:2335] (rev a1)\n"
)
XID = "NVRM: Xid (PCI:0000:83:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
DMESG = f"[    0.000000] Linux version 5.15.0\n[  900.000001] {XID}\n[  901.000000] nvme: up\n"
SCAN = (
    f"\n  /var/log/kern.log:\nNov 24 03:04:17 gpu-08 kernel: [  900.000001] {XID}\n\n"
    "  journalctl -b -0:\nNov 24 03:00:01 gpu-08 systemd[1]: Started nvidia-persistenced.\n\n"
)


def report(*parts: str, host: str = "gpu-08") -> bytes:
    text = START.format(host=host)
    text += f"{LINE}\n\n*** /etc/issue\n*** ls: -rw-r--r-- 1 root root 26 x\nUbuntu 22.04 LTS\n\n"
    return (text + "".join(parts)).encode()


def section(heading: str, body: str) -> str:
    return f"{LINE}\n\n{heading}\n\n{body}\n"


SMI = section(
    "/usr/bin/nvidia-smi --query", QUERY + f"\n/usr/bin/nvidia-smi --query --unit\n{UNIT}"
)
WHOLE = report(
    section("/usr/bin/lspci -nn", LSPCI),
    section("Scanning kernel log files for NVIDIA kernel messages:", SCAN),
    section("dmesg:", DMESG), SMI,
)  # fmt: skip


def loaded(tmp_path: Path, content: bytes, name: str = "nvidia-bug-report.log") -> Bundle:
    (tmp_path / name).write_bytes(content)
    return load([str(tmp_path / name)], PROBES)


@pytest.mark.parametrize("packed", ["no", "whole", "each part"])
def test_the_parts_are_read_each_by_its_own_probe(tmp_path: Path, packed: str) -> None:
    """The script packs each part by itself, and one behind the other they are one file."""
    content, name = WHOLE, "nvidia-bug-report.log"
    if packed == "whole":
        content, name = gzip.compress(WHOLE), f"{name}.gz"
    elif packed == "each part":
        pieces = WHOLE.split(LINE.encode())[1:]
        content = b"".join(gzip.compress(LINE.encode() + piece) for piece in pieces)
        name = f"{name}.gz"
    bundle = loaded(tmp_path, content, name)
    assert {(e.probe, e.node) for e in bundle.evidence} == {
        ("kernel_log", "gpu-08"), ("nvidia_smi", "gpu-08"), ("gpu_bus", "gpu-08")
    }  # fmt: skip
    facts = gather(bundle, PROBES)
    assert [(x.pci, x.code) for x in facts.all(Xid)] == [("0000:83:00.0", 79)]
    assert [g.name for g in facts.all(Gpu)] == ["NVIDIA H200"]
    assert {c.source: c.count for c in facts.all(GpuCount)} == {"pci": 1, "nvidia-smi": 1}
    (span,) = facts.all(KernelSpan)
    assert span.from_boot
    (unread,) = bundle.unread
    assert unread.path.startswith("nvidia-bug-report.log")
    # the others: /etc/issue, and the list of units
    assert "of it lspci -nn, dmesg, nvidia-smi --query is read, 2 other parts are not" in unread.why


def test_lines_of_an_earlier_boot_come_from_the_journal_and_clear_nothing(tmp_path: Path) -> None:
    content = report(
        section("Scanning kernel log files for NVIDIA kernel messages:", SCAN),
        section("dmesg:", DMESG.replace(XID, "usb: new device")),
    )
    facts = gather(loaded(tmp_path, content), PROBES)
    assert [x.at.minute if x.at else None for x in facts.all(Xid)] == [4]
    assert sorted(s.filtered for s in facts.all(KernelSpan)) == [False, True]


def test_its_diagnosis_is_that_of_the_parts(tmp_path: Path) -> None:
    told = diagnose(loaded(tmp_path, WHOLE))
    assert (told.verdict.cause, told.verdict.subtype) == ("gpu_fault", "off_bus")
    assert [c.node for c in told.verdict.culprits] == ["gpu-08"]


def test_fabric_manager_s_log_is_one_of_the_parts(tmp_path: Path) -> None:
    log = (HERE / "probes/fabric_manager/faulty.txt").read_text()
    listed = "*** ls: -rw-r--r-- 1 root root 4096 2026-11-24 03:04:17 /var/log/fabricmanager.log\n"
    heading = f"{LINE}\n\n*** /var/log/fabricmanager.log\n"
    bundle = loaded(tmp_path, report(heading + listed + log + "\n", section("dmesg:", DMESG)))
    assert sorted((e.probe, e.node or "") for e in bundle.evidence) == [
        ("fabric_manager", "gpu-08"), ("kernel_log", "gpu-08")
    ]  # fmt: skip
    assert [s.code for s in gather(bundle, PROBES).all(SXid)] == [20034]


def test_a_table_of_versions_may_stand_before_the_title(tmp_path: Path) -> None:
    table = "Component | Details\n" + "".join(f"part {n} | 1.{n}\n" for n in range(300))
    bundle = loaded(tmp_path, table.encode() + WHOLE)
    assert {e.probe for e in bundle.evidence} == {"kernel_log", "nvidia_smi", "gpu_bus"}
    assert {e.node for e in bundle.evidence} == {"gpu-08"}


def test_reports_of_two_nodes_are_told_apart(tmp_path: Path) -> None:
    for host in ("gpu-07", "gpu-08"):
        (tmp_path / f"{host}.log").write_bytes(report(section("dmesg:", DMESG), host=host))
    bundle = load([str(tmp_path)], PROBES)
    assert sorted(e.node or "" for e in bundle.evidence) == ["gpu-07", "gpu-08"]


def test_a_report_without_any_part_that_is_read_is_said(tmp_path: Path) -> None:
    bundle = loaded(tmp_path, report())
    assert bundle.evidence == ()
    assert "of it nothing is read" in bundle.unread[0].why


@pytest.mark.parametrize("cut", [200, 700, 1000, 4000, 9000])
def test_a_report_that_was_cut_is_no_crash(tmp_path: Path, cut: int) -> None:
    gather(loaded(tmp_path, WHOLE[:cut]), PROBES)


def test_headings_alone_and_many_of_them_are_taken_apart_in_short_time() -> None:
    content = WHOLE + (f"{LINE}\n" * 50_000).encode() + b"dmesg:\n" * 50_000 + b"_" * 500_000
    item = Item(name="x", size=len(content), read=lambda at, n: content[at : at + n])
    assert is_report(content)
    assert len(apart(item).parts) == 4  # the last one holds nothing but underscores
