"""A verdict a node, from facts built by hand; and which of them may drain a node."""

import json
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluggish.facts.derived import ClockOffset, Look
from sluggish.facts.fabric import FabricEvent, Port, RdmaDevices
from sluggish.facts.gpu import Gpu, GpuCount, GpuProcess, SmiFailure, Xid
from sluggish.facts.host import Filesystem, HostMemory, KernelSpan, Mount, NodeIdentity
from sluggish.facts.origin import Origin
from sluggish.facts.store import Facts, Gap
from sluggish.preflight import node_setup
from sluggish.preflight.fitness import Fitness, judge
from sluggish.preflight.node_setup import JobProcesses, NodeSetting, UserProcess
from sluggish.preflight.nodes_report import Checked, document, render
from sluggish.preflight.unseen import AREAS
from sluggish.report import terminal

NODES = ("n1", "n2", "n3", "n4")
AT = datetime(2026, 11, 24, 3, 0, tzinfo=UTC)
GIB = 1 << 30
KINDS: dict[str, tuple[type, ...]] = {
    "nvidia_smi": (Gpu, SmiFailure, GpuCount),
    "gpu_bus": (GpuCount,),
    "ib_ports": (Port, RdmaDevices),
    "kernel_log": (Xid, KernelSpan, FabricEvent),
    "memory": (HostMemory,),
    "mounts": (Mount, Filesystem),
    "node_setup": (NodeSetting, JobProcesses, UserProcess),
    "identity": (NodeIdentity,),
}


def gpu(node: str, index: int, **more: object) -> Gpu:
    """A healthy, idle GPU."""
    known: dict[str, object] = {
        "node": node, "index": index, "pci": f"0000:{index:02x}:00.0", "name": "NVIDIA B300",
        "driver": "580.95.05", "remap_failed": False, "remap_pending": False,
        "ecc_volatile_uncorrectable": 0, "recovery_action": "None", "memory_used_mib": 0,
        "processes_listed": True,
    }  # fmt: skip
    return Gpu(**{**known, **more})  # pyright: ignore[reportArgumentType]


def port(node: str, hca: str, **more: object) -> Port:
    known: dict[str, object] = {
        "node": node, "hca": hca, "port": 1, "state": "active", "phys_state": "linkup",
        "rate_gbps": 800.0, "link_layer": "infiniband", "hca_type": "MT4131", "source": "ib_ports",
    }  # fmt: skip
    return Port(**{**known, **more})  # pyright: ignore[reportArgumentType]


def healthy(nodes: Iterable[str] = NODES, gpus: int = 2) -> Facts:
    """Everything was asked of these nodes, and all is well."""
    facts = Facts()
    nodes = tuple(nodes)
    for node in nodes:
        pci = tuple(f"0000:{i:02x}:00.0" for i in range(gpus))
        names = ("mlx5_0", "mlx5_1")
        for fact in (
            *(gpu(node, i) for i in range(gpus)),
            GpuCount(node=node, source="nvidia-smi", count=gpus, pci=pci),
            GpuCount(node=node, source="pci", count=gpus, pci=pci),
            *(port(node, name) for name in names),
            RdmaDevices(node=node, source="ib_ports", names=names),
            KernelSpan(node=node, first_at=AT, last_at=AT, lines=9, from_boot=True),
            HostMemory(node=node, sample="a", total_bytes=2048 * GIB, available_bytes=2000 * GIB),
            Filesystem(node=node, path="/dev/shm", size_bytes=1024 * GIB, used_bytes=0),
            Mount(node=node, path="/data", fstype="nfs4", answered=True),
            NodeSetting(node=node, name="NCCL library", value="libnccl.so.2.27.7"),
            JobProcesses(node=node, jobs=(), sure=True, ages=((99, 600), (3, 5))),
            NodeIdentity(node=node, hostname=node, kernel="6.8.0"),
        ):
            facts.add(fact)
        for probe, kinds in KINDS.items():
            facts.answered[probe].add(node)
            for kind in kinds:
                facts.seen[kind].add(node)
    facts.add(Look(at=AT, nodes=nodes, world_size=None, job_started_at=None, loose=False))
    return facts


def change(facts: Facts, node: str, kind: type, **more: object) -> None:
    """The first fact of this kind on this node has other values."""
    place = next(i for i, fact in enumerate(facts.facts[kind]) if fact.node == node)
    facts.facts[kind][place] = replace(facts.facts[kind][place], **more)


def verdicts(facts: Facts, nodes: tuple[str, ...] = NODES, **more: object) -> list[str]:
    return [one.verdict for one in judge(facts, nodes, **more)]  # pyright: ignore


def of(facts: Facts, node: str, **more: object) -> Fitness:
    found = judge(facts, NODES, **more)  # pyright: ignore
    return next(one for one in found if one.node == node)


def test_the_areas_and_their_probes_are_those_that_are_asked() -> None:
    assert {probe for _, ways in AREAS for probe in ways} == set(KINDS)


def test_healthy_nodes_are_ok() -> None:
    assert verdicts(healthy()) == ["ok"] * 4


def test_one_healthy_node_alone_is_ok() -> None:
    assert verdicts(healthy(("n1",)), ("n1",)) == ["ok"]


def test_a_title_that_is_too_long_is_broken_and_not_cut() -> None:
    names = tuple(f"gpu-{rack}-{place}-a" for rack in range(9) for place in range(7))
    facts = Facts()
    facts.add(Look(at=AT, nodes=names, world_size=None, job_started_at=None, loose=False))
    told = Checked(found=judge(facts, names), took_s=6.0)
    title = render(told, terminal.Look(width=80)).split("\n\n", 1)[0]
    assert " ".join(title.split()).endswith(" looked 6 s")
    assert max(len(line) for line in title.splitlines()) <= 80


@pytest.mark.parametrize("probe", KINDS)
def test_a_probe_that_could_not_run_is_never_ok(probe: str) -> None:
    facts = healthy()
    facts.answered[probe].discard("n2")
    facts.gaps.append(Gap(node="n2", fact=None, probe=probe, why="timeout: 8 s"))
    for kind in KINDS[probe]:
        facts.facts[kind] = [f for f in facts.facts[kind] if f.node != "n2"]
        facts.seen[kind].discard("n2")
    found = of(facts, "n2")
    assert found.verdict in ("not checked", "warn")
    assert not found.unfit
    assert any(r.state == "not checked" and "timeout: 8 s" in r.says for r in found.remarks)


def test_a_node_without_any_answer_is_not_checked_and_its_peers_are_judged_as_before() -> None:
    facts = healthy(("n1", "n2", "n3"))
    facts.gaps.append(Gap(node="n4", fact=None, probe="identity", why="unreachable: no route"))
    assert verdicts(facts) == ["ok", "ok", "ok", "not checked"]
    assert of(facts, "n4").silent
    assert of(facts, "n4").remarks[0].says == "gave no answer: unreachable: no route"


def test_a_missing_gpu_is_the_node_s_own_hardware() -> None:
    facts = healthy()
    facts.facts[Gpu] = [g for g in facts.facts[Gpu] if (g.node, g.index) != ("n2", 1)]
    change(facts, "n2", GpuCount, count=1, pci=("0000:00:00.0",))
    assert verdicts(facts) == ["ok", "fail", "ok", "ok"]
    assert of(facts, "n2").broken


def test_the_job_s_own_number_of_gpus_counts_where_no_peer_does() -> None:
    facts = healthy(("n1",))
    assert verdicts(facts, ("n1",), gpus=2) == ["ok"]
    facts = healthy(("n1",))
    (found,) = judge(facts, ("n1",), gpus=4)
    assert (found.verdict, found.broken) == ("fail", True)
    facts = healthy(("n1",), gpus=0)
    (found,) = judge(facts, ("n1",), gpus=8)
    assert "GPUs: none on the PCI bus, the job needs 8" in [r.says for r in found.remarks]
    assert found.broken


def test_a_node_without_gpus_among_nodes_that_have_some_is_unfit() -> None:
    facts = healthy(("n1", "n2", "n3"))
    lonely = healthy(("n4",), gpus=0)
    for kind, found in lonely.facts.items():
        facts.facts[kind] += found if kind is not Look else []
    for probe in KINDS:
        facts.answered[probe].add("n4")
    facts.facts[Look] = [replace(facts.facts[Look][0], nodes=NODES)]
    assert verdicts(facts) == ["ok", "ok", "ok", "fail"]


def test_processor_nodes_need_no_nvidia_smi() -> None:
    facts = healthy(gpus=0)
    for node in NODES:
        facts.answered["nvidia_smi"].discard(node)
    assert verdicts(facts) == ["ok"] * 4


@pytest.mark.parametrize(
    ("more", "verdict", "broken"),
    [
        ({"remap_failed": True}, "fail", True),
        ({"remap_pending": True}, "warn", False),
        ({"recovery_action": "Reset"}, "fail", True),
        ({"recovery_action": "Drain and Reset"}, "warn", False),
        ({"ecc_volatile_uncorrectable": 3}, "warn", False),
        ({"fabric_state": "Not Started"}, "warn", False),
        ({"memory_used_mib": 90_000}, "fail", False),
        ({"memory_used_mib": 500}, "ok", False),
        ({"driver": "575.57.08"}, "warn", False),
    ],
)
def test_a_gpu_that_differs(more: dict[str, object], verdict: str, broken: bool) -> None:
    facts = healthy()
    change(facts, "n2", Gpu, **more)
    found = of(facts, "n2")
    assert (found.verdict, found.broken) == (verdict, broken), found.remarks
    assert [one.verdict for one in judge(facts, NODES) if one.node != "n2"] == ["ok"] * 3


@pytest.mark.parametrize(
    ("pid", "jobs", "sure", "job", "verdict", "says"),
    [
        (99, (), True, None, "fail", "of no Slurm job"),
        (99, (), False, None, "warn", "of no job that could be seen"),
        (3, (), True, None, "warn", "of no job that could be seen"),  # 5 s old
        (7, (), True, None, "warn", "of no job that could be seen"),  # ended, or hidden
        (99, ((99, "12"),), True, None, "warn", "of job 12 holds"),
        (99, ((99, "12"),), True, "13", "warn", "of job 12 holds"),
        (99, ((99, "12"),), True, "12", "ok", ""),
    ],
)  # fmt: skip
def test_a_process_on_a_gpu(
    pid: int, jobs: tuple[tuple[int, str], ...], sure: bool, job: str | None, verdict: str,
    says: str,
) -> None:  # fmt: skip
    facts = healthy()
    held = GpuProcess(pid=pid, name="python", kind="C", memory_mib=90_000)
    change(facts, "n2", Gpu, processes=(held,), memory_used_mib=90_000)
    change(facts, "n2", JobProcesses, jobs=jobs, sure=sure)
    found = of(facts, "n2", job=job)
    assert (found.verdict, found.broken) == (verdict, False)
    assert says in "".join(r.says for r in found.remarks)


@pytest.mark.parametrize("name", ["/usr/lib/xorg/Xorg", "nv-hostengine", "nvidia-cuda-mps-server"])
def test_a_program_of_the_system_is_no_leftover(name: str) -> None:
    facts = healthy()
    held = GpuProcess(pid=99, name=name, kind="C", memory_mib=2_000)
    change(facts, "n2", Gpu, processes=(held,), memory_used_mib=2_000)
    assert of(facts, "n2").verdict == "ok"


def test_a_training_program_of_no_job_is_a_warning() -> None:
    facts = healthy()
    facts.add(UserProcess(node="n2", pid=99, uid=5001, seconds=600, name="python3"))
    facts.add(UserProcess(node="n3", pid=3, uid=5001, seconds=5, name="python3"))
    assert verdicts(facts) == ["ok", "warn", "ok", "ok"]


def test_a_port_that_is_down_where_its_peers_are_active() -> None:
    facts = healthy()
    change(facts, "n2", Port, state="down", phys_state="polling")
    assert verdicts(facts) == ["ok", "fail", "ok", "ok"]
    assert of(facts, "n2").broken


def test_a_rail_that_is_down_drains_nobody() -> None:
    facts = healthy()
    change(facts, "n2", Port, state="down", phys_state="polling")
    change(facts, "n3", Port, state="down", phys_state="polling")
    assert verdicts(facts) == ["ok", "fail", "fail", "ok"]
    assert not any(one.broken for one in judge(facts, NODES))


@pytest.mark.parametrize("went_down", [False, True])
def test_a_port_that_is_down_on_a_node_alone(went_down: bool) -> None:
    """Unused or broken: without peers only the kernel's word that it went down tells."""
    facts = healthy(("n1",))
    change(facts, "n1", Port, state="down", phys_state="polling")
    if went_down:
        facts.add(FabricEvent(node="n1", at=AT, kind="link_down", hca="mlx5_0", line="Link DOWN"))
    (found,) = judge(facts, ("n1",))
    assert (found.verdict, found.broken) == (("fail", True) if went_down else ("warn", False))


def test_an_hca_that_is_not_there_is_hardware_where_a_majority_says_so() -> None:
    facts = healthy()
    facts.facts[Port] = [p for p in facts.facts[Port] if (p.node, p.hca) != ("n2", "mlx5_1")]
    change(facts, "n2", RdmaDevices, names=("mlx5_0",))
    assert of(facts, "n2").broken
    assert "HCAs: mlx5_1 missing, 1 of 2 are there" in [r.says for r in of(facts, "n2").remarks]
    two = healthy(("n1", "n2"))
    change(two, "n2", RdmaDevices, names=("mlx5_0",))
    found = judge(two, ("n1", "n2"))
    assert [(one.verdict, one.broken) for one in found] == [("ok", False), ("fail", False)]


def test_an_old_xid_of_which_nothing_stands_is_a_warning() -> None:
    facts = healthy()
    line = "NVRM: Xid (PCI:0000:00:00): 48, pid=1, DBE"
    facts.add(Xid(node="n2", at=AT, pci="0000:00:00.0", code=48, line=line))
    assert verdicts(facts) == ["ok", "warn", "ok", "ok"]


@pytest.mark.parametrize(
    ("kind", "gpus", "verdict"),
    [("no_driver", None, "fail"), ("version_mismatch", None, "fail"), ("no_devices", 2, "fail"),
     ("no_devices", None, "warn")],
)  # fmt: skip
def test_nvidia_smi_that_fails_where_there_are_gpus(
    kind: str, gpus: int | None, verdict: str
) -> None:
    facts = healthy()
    facts.facts[Gpu] = [g for g in facts.facts[Gpu] if g.node != "n2"]
    facts.facts[GpuCount] = [
        c for c in facts.facts[GpuCount] if (c.node, c.source) != ("n2", "nvidia-smi")
    ]
    facts.add(SmiFailure(node="n2", at=None, kind=kind, line="failed"))
    found = of(facts, "n2", gpus=gpus)
    assert (found.verdict, found.broken) == (verdict, False)


@pytest.mark.parametrize(
    ("kind", "more", "verdict", "says"),
    [
        (HostMemory, {"available_bytes": 900 * GIB}, "warn", "memory: only 44% of 2,048 GiB"),
        (HostMemory, {"available_bytes": 100 * GIB}, "fail", "memory: only 5% of 2,048 GiB"),
        (HostMemory, {"total_bytes": 1984 * GIB, "available_bytes": 1900 * GIB}, "warn",
         "memory: 1,984 GiB, on the other nodes 2,048 GiB"),
        (HostMemory, {"total_bytes": 2047 * GIB}, "ok", ""),
        (Filesystem, {"used_bytes": 600 * GIB}, "warn", "/dev/shm: 59%"),
        (Filesystem, {"used_bytes": 1000 * GIB}, "fail", "/dev/shm: 98%"),
        (Filesystem, {"size_bytes": 1 << 26}, "warn", "size of /dev/shm"),
        (Mount, {"answered": False}, "fail", "mount /data (nfs4) does not answer"),
        (Mount, {"answered": None}, "not checked", "not asked"),
        (NodeSetting, {"value": "libnccl.so.2.26.2"}, "warn",
         "NCCL library: libnccl.so.2.26.2, on the other nodes libnccl.so.2.27.7"),
        (NodeIdentity, {"kernel": "5.15.0"}, "warn", "kernel: 5.15.0, on the other nodes 6.8.0"),
        (NodeIdentity, {"kernel_cmdline": "root=UUID=1 iommu=pt"}, "warn",
         "kernel command line: iommu=pt, on the other nodes none"),
        (NodeIdentity, {"kernel_cmdline": "root=UUID=1 quiet"}, "ok", ""),
    ],
)  # fmt: skip
def test_a_host_that_differs(kind: type, more: dict[str, object], verdict: str, says: str) -> None:
    facts = healthy()
    change(facts, "n2", kind, **more)
    found = of(facts, "n2")
    assert (found.verdict, found.broken) == (verdict, False), found.remarks
    assert says in " ".join(r.says for r in found.remarks)
    assert [one.verdict for one in judge(facts, NODES) if one.node != "n2"] == ["ok"] * 3


def test_two_nodes_that_differ_are_both_told_and_none_is_odd() -> None:
    facts = healthy(("n1", "n2"))
    change(facts, "n2", NodeSetting, value="libnccl.so.2.26.2")
    found = judge(facts, ("n1", "n2"))
    assert [one.verdict for one in found] == ["warn", "warn"]
    assert "libnccl.so.2.27.7 on n1; libnccl.so.2.26.2 on n2" in found[0].remarks[0].says


def test_a_variable_that_one_node_lacks_is_named_alone() -> None:
    facts = healthy()
    for node in ("n1", "n3", "n4"):
        facts.add(NodeSetting(node=node, name="$NCCL_IB_HCA", value="mlx5"))
    assert verdicts(facts) == ["ok", "warn", "ok", "ok"]
    (remark,) = of(facts, "n2").remarks
    assert remark.says == "$NCCL_IB_HCA: not set, on the other nodes mlx5"


def test_a_clock_that_stands_apart_is_a_warning() -> None:
    facts = healthy()
    for node in NODES:
        facts.add(ClockOffset(node=node, offset_s=3_600.0 if node == "n2" else 0.1))
    assert verdicts(facts) == ["ok", "warn", "ok", "ok"]


# -- what is printed -------------------------------------------------------------------------------


def checked(facts: Facts, **more: bool) -> Checked:
    return Checked(found=judge(facts, NODES), took_s=6.0, **more)


def test_only_hardware_fails_a_prolog() -> None:
    facts = healthy()
    change(facts, "n2", Mount, answered=False)
    assert checked(facts).exit_code == 40
    assert checked(facts, hardware_only=True).exit_code == 0
    change(facts, "n3", Gpu, recovery_action="Reset")
    assert checked(facts, hardware_only=True).exit_code == 40


def test_nothing_seen_is_neither_fit_nor_unfit() -> None:
    told = Checked(found=judge(Facts(), NODES), took_s=6.0)
    assert told.exit_code == 30
    assert "UNKNOWN   no node gave an answer" in render(told, terminal.Look())


def test_what_was_not_checked_stands_beside_fit() -> None:
    facts = healthy()
    for node in NODES:
        facts.answered["kernel_log"].discard(node)
    screen = render(checked(facts), terminal.Look())
    assert "FIT       as far as could be seen; on n[1-4] not all could be checked" in screen
    assert " ? not checked  n[1-4]  kernel log: not collected" in screen
    assert "✓" not in screen


def test_equal_remarks_are_folded_and_the_lines_stay_narrow() -> None:
    facts = healthy()
    for node in NODES:
        change(facts, node, Mount, answered=False)
    change(facts, "n2", NodeSetting, value="\x1b[2J" + "x" * 500)
    for width in (80, 100):
        screen = render(checked(facts), terminal.Look(width=width))
        assert screen.count("does not answer") == 1
        assert "\x1b" not in screen
        assert max(len(line) for line in screen.splitlines()) <= width


@pytest.mark.parametrize(
    ("kind", "more", "says"),
    [
        (Mount, {"answered": None}, "mounts: not asked whether they answer: /data"),
        (Mount, {"answered": None, "fstype": "fuse.sshfs"}, "not asked whether they answer"),
        (Filesystem, {"path": "/"}, "/dev/shm: how full it is was not seen"),
        (HostMemory, {"available_bytes": None}, "memory: how much is free was not seen"),
        (HostMemory, {"total_bytes": 0}, "memory: how much is free was not seen"),
    ],
)
def test_a_probe_that_answered_in_part_leaves_the_rest_unchecked(
    kind: type, more: dict[str, object], says: str
) -> None:
    facts = healthy()
    change(facts, "n2", kind, **more)
    found = of(facts, "n2")
    assert found.verdict == "not checked"
    assert [r.says for r in found.remarks if says in r.says and r.state == "not checked"]
    assert of(facts, "n1").verdict == "ok"


def test_a_local_mount_need_not_be_asked() -> None:
    facts = healthy()
    change(facts, "n2", Mount, answered=None, fstype="ext4")
    assert verdicts(facts) == ["ok"] * 4


def test_a_node_without_a_gpu_is_ok_and_that_is_said_beside_it() -> None:
    facts = healthy(gpus=0)
    told = judge(facts, NODES)
    assert {(one.verdict, one.gpus) for one in told} == {("ok", 0)}
    screen = " ".join(render(checked(facts), terminal.Look(width=100)).split())
    assert "everything that was asked is in order; no GPU on the PCI bus" in screen
    assert json.loads(document(checked(facts)))["nodes"][0]["gpus"] == 0
    assert "no GPU" not in render(checked(healthy()), terminal.Look(width=100))
    assert json.loads(document(checked(healthy())))["nodes"][0]["gpus"] == 2
    facts = healthy()
    facts.facts[GpuCount] = [c for c in facts.all(GpuCount) if c.source != "pci"]
    assert json.loads(document(checked(facts)))["nodes"][0]["gpus"] is None


def test_the_document_holds_every_node() -> None:
    facts = healthy()
    change(facts, "n2", Gpu, recovery_action="Reset")
    told = json.loads(document(checked(facts)))
    assert (told["fit"], told["exit_code"]) == (False, 40)
    assert [one["verdict"] for one in told["nodes"]] == ["ok", "fail", "ok", "ok"]
    assert told["nodes"][1]["remarks"][0]["rule"] == "GPU-RECOVERY"


# -- the probe -------------------------------------------------------------------------------------

SETUP = """==> ulimit -l <==
unlimited
==> /sys/module/nvidia/version <==
580.95.05
==> /etc/nccl.conf <==
# site
NCCL_IB_HCA=mlx5
==> modules <==
nvidia_uvm
nvidia_peermem
==> libnccl <==
/usr/lib/x86_64-linux-gnu/libnccl.so.2.27.7
==> environment <==
NCCL_DEBUG=WARN
CUDA_VISIBLE_DEVICES=0,1
==> scontrol listpids <==
PID      JOBID    STEPID   LOCALID GLOBALID
4711     48213    0        0       0
-1       48213    extern   -       -
listpids ended with 0
==> cgroups <==
/proc/4712/cgroup:0::/system.slice/slurmstepd.scope/job_48214/step_0/user/task_0
==> ps <==
      1     0  999 systemd
   4711  5001   60 python3
   5000  5001  600 pt_data_worker
   5001  5001  600 bash
"""


def parsed(text: str) -> list[object]:
    return list(node_setup.parse(text, Origin(node="n1")))


def test_the_set_up_of_a_node_is_read() -> None:
    facts = parsed(SETUP)
    told = {f.name: f.value for f in facts if isinstance(f, NodeSetting)}
    assert told["nvidia driver"] == "580.95.05"
    assert told["mlx5 driver"] == "none"
    assert told["/etc/nccl.conf"] == "NCCL_IB_HCA=mlx5"
    assert told["NCCL library"] == "libnccl.so.2.27.7"
    assert {name: value for name, value in told.items() if name[0] == "$"} == {
        "$NCCL_DEBUG": "WARN"
    }
    assert told["kernel modules"] == "nvidia_peermem nvidia_uvm"
    (jobs,) = [f for f in facts if isinstance(f, JobProcesses)]
    assert (jobs.jobs, jobs.sure) == (((4711, "48213"), (4712, "48214")), True)
    assert [f.pid for f in facts if isinstance(f, UserProcess)] == [4711, 5000]


@pytest.mark.parametrize(
    ("told", "sure"),
    [
        ("No job steps exist on this node.\nlistpids ended with 1", True),
        ("sh: scontrol: not found\nlistpids ended with 127", False),
        ("scontrol: error: slurmd: Connection refused\nlistpids ended with 1", False),
        ("listpids ended with 124", False),
    ],
)  # fmt: skip
def test_slurmd_that_does_not_answer_is_no_proof_of_nothing(told: str, sure: bool) -> None:
    text = f"==> ulimit -l <==\n64\n==> scontrol listpids <==\n{told}\n==> ps <==\n"
    (jobs,) = [f for f in parsed(text) if isinstance(f, JobProcesses)]
    assert (jobs.jobs, jobs.sure) == ((), sure)


def test_another_text_is_refused() -> None:
    with pytest.raises(ValueError, match="expected the sections"):
        parsed("==> ulimit -l <==\n64\n")


@given(st.text(max_size=300))
def test_any_text_is_facts_or_a_value_error(text: str) -> None:
    try:
        parsed(f"==> ulimit -l <==\n{text}\n==> ps <==\n{text}\n")
    except ValueError as problem:
        assert str(problem).startswith("expected")  # noqa: PT017


def test_the_probe_runs_in_a_plain_shell() -> None:
    done = subprocess.run(["sh", "-s"], input=node_setup.COMMAND, capture_output=True, text=True)
    assert done.returncode == 0
    assert any(isinstance(fact, NodeSetting) for fact in parsed(done.stdout))
