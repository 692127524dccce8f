"""A few lines, as somebody mails them: what is said of them, and that nothing more is.

Every line here is made up in the shape that the program prints. Each case gives the loose files,
the causes that a specialist would accept, and where it matters the place or a word of the answer.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from sluggish.causes import Cause, Level
from sluggish.diagnose import diagnose
from sluggish.evidence.open import load
from sluggish.findings import Role
from sluggish.probes import PROBES
from sluggish.verdict.model import Diagnosis


@dataclass(frozen=True)
class Case:
    """One mail: the text of each file, and what must come of it."""

    files: dict[str, str]
    causes: tuple[Cause, ...]
    place: object = None
    """A rank, node, GPU address or HCA that the verdict must accuse."""
    says: str = ""
    """Words that stand in a finding."""
    unread: bool = False


def log(text: str, *causes: Cause, says: str = "", place: object = None) -> Case:
    return Case({"job.log": text}, causes, place, says)


def kernel(text: str, *causes: Cause, says: str = "", place: object = None) -> Case:
    return Case({"dmesg.txt": text}, causes, place, says)


def file(text: str, *causes: Cause, says: str = "", place: object = None) -> Case:
    return Case({"mailed.txt": text}, causes, place, says)


GPU, IB, DESYNC, DATA, MEMORY = (
    Cause.GPU_FAULT, Cause.IB_FAULT, Cause.RANK_DESYNC, Cause.DATA_STALL, Cause.MEMORY,
)  # fmt: skip
CRASH, CONFIG, DOWN, ENDED, UNKNOWN = (
    Cause.APP_CRASH, Cause.CONFIG, Cause.NODE_DOWN, Cause.NOT_RUNNING, Cause.UNKNOWN,
)  # fmt: skip

KERNEL: dict[str, Case] = {
    "a stamp whose fraction was cut": kernel(
        "[2044.61] NVRM: Xid (PCI:0000:2a:00): 79, pid='<unknown>', name=<unknown>, "
        "GPU has fallen off the bus.",
        GPU, place="0000:2a:00.0",
    ),
    "an address that was left out": kernel(
        "kernel: NVRM: Xid (PCI:...): 79, pid=4242, name=python, GPU has fallen off the bus.",
        GPU, says="Xid 79",
    ),
    "an address that was masked": kernel(
        "NVRM: Xid (PCI:xxxx:xx:00): 95, pid=4242, name=python, Uncontained: LTC TAG (0x2,0x0). "
        "RST: Yes, D-RST: No",
        GPU, says="Xid 95",
    ),
    "an oom-kill without its stamp": kernel(
        "Out of memory: Killed process 9914 (pt_data_worker) total-vm:8123122kB, "
        "anon-rss:3123122kB, file-rss:0kB, shmem-rss:8kB, UID:1000 pgtables:99kB oom_score_adj:0",
        MEMORY,
    ),
    "a hung nvidia-smi": kernel(
        "INFO: task nvidia-smi:7171 blocked for more than 120 seconds.\n"
        "task:nvidia-smi      state:D stack:    0 pid: 7171 ppid:  7001 flags:0x00000004\n"
        "Call Trace:\n os_acquire_rwlock_write+0x35/0x50 [nvidia]",
        GPU, UNKNOWN, says="nvidia-smi",
    ),
    "a firmware error of an HCA": kernel(
        "[ 911.61] mlx5_core 0000:5a:00.0: mlx5_health_try_recover: handling bad device here\n"
        "[ 911.62] mlx5_core 0000:5a:00.0: print_health_info:423:(pid 0): Health issue observed, "
        "firmware internal error, severity(3) ERROR:",
        IB,
    ),
}  # fmt: skip

CASES = {**KERNEL}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_fragment_is_read_as_a_specialist_reads_it(case: Case, tmp_path: Path) -> None:
    found = look(case, tmp_path)
    verdict = found.verdict
    assert verdict.cause in case.causes, verdict.says
    assert verdict.confidence.level is not Level.HIGH, "one fragment proves nothing alone"
    assert not verdict.drain_nodes
    if case.place is not None and verdict.cause is not UNKNOWN:
        places = [(c.rank, c.node, c.gpu_pci, c.hca) for c in verdict.culprits]
        assert any(case.place in place for place in places), places
    told = [f for f in found.findings if f.role is not Role.ALL_CLEAR]
    assert any(case.says in f.says or case.says in f.quote for f in told) or not case.says
    assert bool(found.unread) is case.unread, found.unread
    if verdict.cause is UNKNOWN:
        assert verdict.next_probe


def look(case: Case, folder: Path) -> Diagnosis:
    for name, text in case.files.items():
        (folder / name).write_text(text + "\n")
    return diagnose(load([str(folder)], PROBES))
