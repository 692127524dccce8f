"""Real perfquery, iblinkinfo, ibqueryerrors, ibhosts and sminfo over a simulated fabric."""

import shutil
import subprocess
from pathlib import Path

import pytest

from sluggish.diagnose import diagnose
from sluggish.evidence.open import load
from sluggish.findings import Finding, Role, Strength
from sluggish.probes import PROBES
from sluggish.verdict.model import Diagnosis

from .cluster import wait_for
from .ibsim import HCAS, LEAF, NODES, Fabric, fabric, port_of

JOB = "JobId=77 JobName=train UserId=alice(1) JobState=RUNNING NodeList=gpu-[01-04] NumNodes=4\n"


@pytest.fixture(scope="module")
def stages(machine: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of mailed files, one a stage of a fabric that gets worse."""
    out = {n: tmp_path_factory.mktemp(n) for n in ("well", "bad", "gone", "right")}
    with fabric(tmp_path_factory.mktemp("ibsim")) as sim:
        sim.manage()
        mail(sim, out["well"])
        leaf = sim.ask("ibswitches").rsplit(" lid ", 1)[1].split()[0]
        sim.ask("ibportstate", leaf, str(port_of("gpu-02", "mlx5_1")), "width", "1")
        wait_for(lambda: "Rate: 26" in sim.state("gpu-02", "mlx5_1"), 30, "width stays")
        sim.console('Unlink "gpu-03-mlx5_0"[1]')
        wait_for(lambda: "State: Down" in sim.state("gpu-03", "mlx5_0"), 20, "link stays")
        before = sim.ask("perfquery", node="gpu-04")
        for counter in ("LinkDownedCounter=4", "SymbolErrorCounter=65535"):
            sim.console(f'PerformanceSet "gpu-04-mlx5_0"[1] PortCounters.{counter}')
        wait_for(lambda: "65535" in sim.ask("perfquery", node="gpu-04"), 20, "counters stay")
        mail(sim, out["bad"])
        (out["bad"] / "perfquery_before.txt").write_text(before)
        (out["bad"] / "perfquery_after.txt").write_text(sim.ask("perfquery", node="gpu-04"))
        sim.unmanage()
        for verb in ("Unlink", "ReLink"):
            sim.console(f'{verb} "gpu-01-mlx5_1"[1]')
        wait_for(lambda: "Initializing" in sim.state("gpu-01", "mlx5_1"), 20, "no bounce")
        mail(sim, out["gone"])
    (out["right"] / "job.txt").write_text(JOB)
    (out["right"] / "fabric.txt").write_text(_without_umad())
    return out


def mail(sim: Fabric, folder: Path) -> None:
    """What an engineer sends: ibstat of every node, and the tools' words in one file each."""
    (folder / "job.txt").write_text(JOB)
    for node in NODES:
        told = [
            sim.state(node, hca).replace("ibsim0", hca).replace("type: simulator", "type: MT4123")
            for hca in HCAS
        ]
        (folder / f"ibstat-{node}.txt").write_text("".join(told))
    for name, argv in {
        "links": ["iblinkinfo"], "hosts": ["ibhosts"], "errors": ["ibqueryerrors"],
        "manager": ["sminfo"], "discovered": ["ibnetdiscover"],
    }.items():  # fmt: skip
        (folder / f"{name}.txt").write_text(sim.ask(*argv))


def _without_umad() -> str:
    done = subprocess.run(["/usr/sbin/perfquery"], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def look(folder: Path) -> Diagnosis:
    return diagnose(load([str(folder)], PROBES))


def told(found: Diagnosis, rule: str, role: Role = Role.ROOT) -> list[Finding]:
    return [f for f in found.findings if f.rule == rule and f.role is role]


def test_a_healthy_fabric_whose_every_link_could_be_wider_accuses_nobody(
    stages: dict[str, Path],
) -> None:
    assert (stages["well"] / "links.txt").read_text().count("Could be 12X") >= 8
    found = look(stages["well"])
    assert [f for f in found.findings if f.role is Role.ROOT] == []
    assert found.unread == ()
    assert any("checked, none beyond its thresholds" in f.says for f in found.findings)


def test_the_narrow_link_and_the_hca_that_is_gone_are_hints_at_their_nodes(
    stages: dict[str, Path],
) -> None:
    found = look(stages["bad"])
    hints = told(found, "IB-REPORT")
    assert {(f.node, f.subject) for f in hints} == {("gpu-02", "mlx5_1"), ("gpu-03", "mlx5_0")}
    assert {f.strength for f in hints} == {Strength.WEAK}
    assert any(f"gpu-02 mlx5_1 - {LEAF} runs 50 Gb/s (1X)" in f.says for f in hints)
    assert not found.verdict.drain_nodes


def test_counters_that_moved_between_two_queries_are_laid_at_the_port_with_that_lid(
    stages: dict[str, Path],
) -> None:
    found = look(stages["bad"])
    assert {(f.node, f.subject) for f in told(found, "IB-COUNTERS")} == {("gpu-04", "mlx5_0/1")}


def test_a_full_counter_of_the_fabric_s_list_is_said(
    stages: dict[str, Path], tmp_path: Path
) -> None:
    for path in stages["bad"].glob("[!p]*"):
        shutil.copy(path, tmp_path)
    [full] = told(look(tmp_path), "IB-REPORT", Role.HOUSEKEEPING)
    assert full.node == "gpu-04"
    assert "symbol_error saturated" in full.says


def test_a_port_that_bounced_without_a_manager_is_not_its_node_s_fault(
    stages: dict[str, Path],
) -> None:
    found = look(stages["gone"])
    waits = told(found, "IB-SM")
    assert [(f.node, f.subtype) for f in waits] == [(None, "subnet_manager")]
    assert "gpu-01" not in {f.node for f in told(found, "IB-PORT")}


def test_a_tool_that_may_not_ask_is_not_checked(stages: dict[str, Path]) -> None:
    found = look(stages["right"])
    assert not told(found, "IB-SM")
    assert any("may not open umad" in hole.why for hole in found.verdict.not_checked)
