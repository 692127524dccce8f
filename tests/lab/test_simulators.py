"""What the nodes' stand-ins print is what sluggish's own probes read, run as they run it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluggish.facts.collective import RasReport
from sluggish.facts.fabric import Port
from sluggish.facts.gpu import Gpu, GpuCount, GpuSample, SmiFailure, Xid
from sluggish.facts.host import CgroupMemory, OomKill
from sluggish.facts.origin import Origin
from sluggish.probes import (
    gpu_bus,
    gpu_samples,
    ib_counters,
    ib_ports,
    ibstat,
    ibstatus,
    ibv_devinfo,
    identity,
    kernel_log,
    nccl_ras,
    nvidia_smi,
)
from sluggish.probes import memory as host_memory

from . import cluster, memory, sims, sysfs
from .cluster import Lab

NODE = "node01"


@pytest.fixture(autouse=True)
def healthy(lab: Lab) -> Iterator[None]:
    yield
    sims.gpus(lab, NODE)
    sims.clear_kernel(lab, NODE)
    sims.clock(lab, NODE, 0)
    sims.journal(lab, NODE, there=True)


def ask(lab: Lab, probe: Any, user: str | None = None, command: str = "") -> list[Any]:
    """The facts that a probe finds in what its command prints on the node."""
    done = lab.exec(NODE, ["sh", "-c", command or probe.COMMAND], user, timeout=30)
    origin = Origin(node=NODE, exit_code=done.returncode, stderr=done.stderr)
    return list(probe.parse(done.stdout, origin))


@pytest.mark.parametrize("form", ["-q -x", "-q", ""])
def test_eight_healthy_gpus_in_every_form(lab: Lab, form: str) -> None:
    facts = ask(lab, nvidia_smi, "alice", f"nvidia-smi {form}")
    gpus = [fact for fact in facts if isinstance(fact, Gpu)]
    assert [gpu.index for gpu in gpus] == list(range(8))
    assert {gpu.power_limit_w for gpu in gpus} == {1100}
    assert not any(isinstance(fact, SmiFailure) for fact in facts)
    assert [fact.count for fact in facts if isinstance(fact, GpuCount)] == [8]


def test_a_gpu_of_the_state_file_shows_in_every_form(lab: Lab) -> None:
    state = {
        "3.gpu_recovery_action": "Reset",
        "3.ecc.errors.uncorrected.volatile.total": "4",
        "3.utilization.gpu": "100",
        "3.power.draw": "171.30",
    }
    sims.gpus(lab, NODE, state, "process=3,4711,/usr/bin/python3,90000")
    for form in ("-q -x", "-q"):
        gpu = ask(lab, nvidia_smi, None, f"nvidia-smi {form}")[3]
        assert gpu.recovery_action == "Reset"
        assert gpu.ecc_volatile_uncorrectable == 4
        assert (gpu.utilisation_pct, gpu.power_w) == (100, 171.3)
        assert [process.pid for process in gpu.processes] == [4711]
    table = ask(lab, nvidia_smi, None, "nvidia-smi")[3]
    assert (table.ecc_volatile_uncorrectable, table.processes[0].pid) == (4, 4711)
    query = "nvidia-smi --query-compute-apps=pid,gpu_uuid,used_memory --format=csv,noheader,nounits"
    pid, uuid, mib = lab.sh(NODE, query).strip().split(", ")
    assert (pid, uuid, mib) == ("4711", ask(lab, nvidia_smi)[3].uuid, "90000")


def test_samples_come_once_a_second(lab: Lab) -> None:
    facts = ask(lab, gpu_samples, None, f"timeout 2.5 {gpu_samples.COMMAND}")
    samples = [fact for fact in facts if isinstance(fact, GpuSample)]
    assert len(samples) == 24
    first, third = samples[0].at, samples[16].at
    assert first is not None
    assert third is not None
    assert (third - first).total_seconds() == pytest.approx(2, abs=0.5)


def test_a_lost_gpu_is_told_on_stderr_with_status_zero(lab: Lab) -> None:
    sims.gpu_off_the_bus(lab, NODE, 3)
    facts = ask(lab, nvidia_smi)
    (failure,) = [fact for fact in facts if isinstance(fact, SmiFailure)]
    assert (failure.kind, failure.pci, failure.exit_code) == ("gpu_lost", "0000:61:00.0", 0)
    assert len([fact for fact in facts if isinstance(fact, Gpu)]) == 7
    (bus,) = ask(lab, gpu_bus)
    assert bus.count == 8
    xids = [fact for fact in ask(lab, kernel_log) if isinstance(fact, Xid)]
    assert [(xid.code, xid.pci) for xid in xids] == [(79, "0000:61:00.0")]


def test_the_driver_can_be_gone_altogether(lab: Lab) -> None:
    words = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    sims.gpus(lab, NODE, {"fail": words})
    done = lab.exec(NODE, ["nvidia-smi"])
    assert (done.returncode, done.stdout.strip()) == (9, words)


@pytest.mark.parametrize("there", [True, False])
def test_root_reads_the_kernel_log_from_journal_or_dmesg(lab: Lab, there: bool) -> None:
    sims.journal(lab, NODE, there)
    sims.kernel(lab, NODE, "NVRM: Xid (PCI:0000:1b:00): 48, pid=7, DBE", ago=60)
    facts = ask(lab, kernel_log)
    assert [fact.code for fact in facts if isinstance(fact, Xid)] == [48]
    assert lab.sh("node02", "dmesg").count("Xid") == 0


def test_a_plain_user_is_refused_the_kernel_log(lab: Lab) -> None:
    with pytest.raises(ValueError, match="not permitted"):
        ask(lab, kernel_log, "alice")
    assert lab.sh(NODE, "journalctl -k", "alice") == "-- No entries --\n"


def test_a_clock_that_is_off_is_off_in_date_and_journal(lab: Lab) -> None:
    sims.kernel(lab, NODE, "NVRM: Xid (PCI:0000:1b:00): 48, pid=7, DBE")
    right, stamp = (float(lab.sh(NODE, f"{date}date +%s.%N")) for date in ("/bin/", ""))
    assert stamp == pytest.approx(right, abs=5)
    sims.clock(lab, NODE, 3600)
    (node,) = ask(lab, identity)
    (xid,) = [fact for fact in ask(lab, kernel_log) if isinstance(fact, Xid)]
    assert node.hostname == NODE
    assert xid.at is not None
    assert xid.at.timestamp() - right == pytest.approx(3600, abs=10)


@pytest.mark.parametrize("probe", [ib_ports, ibstat, ibstatus, ibv_devinfo])
def test_the_real_tools_show_eight_ports_and_the_one_that_is_down(lab: Lab, probe: Any) -> None:
    sysfs.port_down(lab, NODE, "mlx5_3")
    try:
        ports = [fact for fact in ask(lab, probe, "alice") if isinstance(fact, Port)]
        assert len(ports) == 8
        assert [port.hca for port in ports if (port.state or "").lower() != "active"] == ["mlx5_3"]
    finally:
        sysfs.port_up(lab, NODE, "mlx5_3")
    ports = [fact for fact in ask(lab, probe) if isinstance(fact, Port)]
    assert {(port.state or "").lower() for port in ports} == {"active"}
    assert ports[3].lid == 20


def test_counters_are_read_and_can_be_set(lab: Lab) -> None:
    sysfs.port(lab, NODE, "mlx5_1", symbol_error=7)
    try:
        counted = {fact.hca: fact.counters["symbol_error"] for fact in ask(lab, ib_counters)}
        assert counted == {f"mlx5_{i}": 7 if i == 1 else 0 for i in range(8)}
    finally:
        sysfs.port(lab, NODE, "mlx5_1", symbol_error=0)


def test_data_counters_rise_under_traffic(lab: Lab) -> None:
    def sent() -> list[int]:
        return [fact.counters["port_xmit_data"] for fact in ask(lab, ib_counters)]

    with sims.traffic(lab, NODE):
        cluster.wait_for(lambda: min(sent()) > 0, 10, "no traffic")
        before = sent()
        cluster.wait_for(lambda: all(map(int.__gt__, sent(), before)), 10, "no more traffic")


def test_the_ras_port_speaks_its_protocol(lab: Lab) -> None:
    captures = Path(__file__).parents[1] / "captures/nccl_ras"
    sims.ras(lab, NODE, (captures / "docs-mismatch.txt").read_text())
    try:
        (report,) = [fact for fact in ask(lab, nccl_ras, "alice") if isinstance(fact, RasReport)]
        assert (report.communicators, report.processes, report.complete) == (1, 32, True)
        sims.ras(lab, NODE, (captures / "docs-json-2.29.1.json").read_text())
        words = "client protocol 2\\nset format json\\nstatus\\n"
        told = lab.sh(NODE, f"(printf '{words}'; sleep 0.5) | nc -N localhost 28028")
        assert told.startswith('SERVER PROTOCOL 2\nOK\n{\n  "nccl_version": "2.29.1"')
        bad = lab.sh(NODE, "(printf 'shutdown\\n'; sleep 0.5) | nc -N localhost 28028")
        assert bad.startswith("ERROR: ")
    finally:
        sims.ras(lab, NODE, None)
    assert lab.exec(NODE, ["nc", "-z", "localhost", "28028"]).returncode == 1


def test_the_kernel_kills_for_memory_and_the_node_s_log_says_so(lab: Lab) -> None:
    pipe = subprocess.PIPE
    script = "echo $$; read go; exec tail /dev/zero"
    eater = lab.popen(NODE, ["sh", "-c", script], "alice", stdin=pipe, stdout=pipe)
    try:
        assert eater.stdin is not None
        assert eater.stdout is not None
        pid = int(eater.stdout.readline())
        with memory.limited(lab, NODE, job="77", mib=32) as group:
            memory.enter(lab, NODE, group, pid)
            (seen,) = [fact for fact in ask(lab, host_memory) if isinstance(fact, CgroupMemory)]
            assert (seen.limit_bytes, seen.path.rpartition("/slurm/")[2]) == (
                32 << 20, "uid_5001/job_77/step_0",
            )  # fmt: skip
            eater.stdin.write(b"go\n")
            eater.stdin.flush()
            assert eater.wait(30) != 0
            line = memory.copy_kill(lab, NODE, group, pid)
    finally:
        cluster.end(eater)
    assert f"Killed process {pid} (tail)" in line
    kills = [fact for fact in ask(lab, kernel_log) if isinstance(fact, OomKill)]
    assert [(kill.pid, kill.job_id) for kill in kills] == [(pid, "77")]
    assert lab.dir.name not in lab.sh(NODE, "dmesg")
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{lab.dir.name}"))
