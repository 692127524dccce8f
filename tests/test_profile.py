"""What kind of machines the nodes are, and the advice that follows from it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from fabric_facts import facts, nodes
from storyroom import story
from test_remedies import GPU, JOB, STATE, XID79, commands

from sluggish.causes import SUBTYPES, Cause
from sluggish.cli.diagnose import run
from sluggish.correlate.profile import profile
from sluggish.diagnose import diagnose
from sluggish.evidence.open import load
from sluggish.facts.derived import Look, Profile
from sluggish.facts.fabric import FabricFlavour
from sluggish.facts.gpu import Gpu
from sluggish.facts.host import Machine, NodeIdentity
from sluggish.facts.origin import Origin
from sluggish.findings import Role
from sluggish.probes import PROBES, identity, kernel_log
from sluggish.remedies import remedies
from sluggish.verdict.model import Culprit, Verdict

AWS = Profile(cloud="AWS")
RACK = Profile(rack_domain=True)
OWN_REPAIR = r"gpu-reset|mlxfwreset|mlxlink|openibd|scontrol reboot"


def seen(*given: object, cloud: bool = False) -> Profile:
    told = facts(*given, names=nodes(2))
    return profile(told, told.all(Look)[0], cloud=cloud)


@pytest.mark.parametrize(
    ("words", "cloud"),
    [
        ("Amazon EC2 p5.48xlarge", "AWS"),
        ("Microsoft Corporation Virtual Machine 7783-7084-3265-9085-8269-3286-77", "Azure"),
        ("Microsoft Corporation Virtual Machine/Virtual Machine", "Azure"),
        ("Google Google Compute Engine/Google Compute Engine", "Google Cloud"),
        ("Oracle Corporation ORACLE SERVER E5-2c OracleCloud.com", "Oracle Cloud"),
        ("Supermicro SYS-821GE-TNHR", None),
        ("NVIDIA DGXH100", None),
        ("QEMU Standard PC (Q35 + ICH9, 2009)", None),
        ("VMware, Inc. VMware7,1", None),
    ],
)
def test_the_firmware_s_words_name_the_provider(words: str, cloud: str | None) -> None:
    assert seen(Machine(node="gpu-01", words=words)).cloud == cloud


def test_a_login_host_s_machine_says_nothing_of_the_job_s() -> None:
    assert seen(Machine(node="login1", words="Amazon EC2 t3.large")).cloud is None


def test_efa_devices_and_a_person_s_word_say_cloud_too() -> None:
    assert seen(FabricFlavour(node="gpu-01", kind="efa")).cloud == "AWS"
    assert seen(FabricFlavour(node="gpu-01", kind="roce")).cloud is None
    assert seen(cloud=True).cloud == "the provider"
    assert seen(Machine(node="gpu-01", words="Amazon EC2 p5"), cloud=True).cloud == "AWS"


BOARDS = (
    ("NVIDIA GB200", True), ("NVIDIA GB300 NVL72", True), ("NVIDIA B200", False),
    ("NVIDIA GH200 480GB", False),
)  # fmt: skip


@pytest.mark.parametrize(("name", "rack"), BOARDS)
def test_a_rack_wide_domain_is_known_by_the_board(name: str, rack: bool) -> None:
    assert seen(Gpu(node="gpu-01", name=name)).rack_domain is rack


def test_machine_is_read_from_sysfs_and_from_the_kernel_log() -> None:
    text = (
        "==> hostname <==\nip-10-0-0-1\n\n==> /sys/class/dmi/id/sys_vendor <==\nAmazon EC2\n\n"
        "==> /sys/class/dmi/id/product_name <==\np5.48xlarge\n\n"
        "==> /sys/class/dmi/id/chassis_asset_tag <==\nAmazon EC2\n"
    )
    [who, machine] = identity.parse(text, Origin())
    assert isinstance(who, NodeIdentity)
    assert machine == Machine(node="ip-10-0-0-1", words="Amazon EC2 p5.48xlarge Amazon EC2",
                              source="identity")  # fmt: skip
    log = (
        "[    0.000000] Linux version 6.8.0-1021-aws (buildd@x) #22-Ubuntu SMP\n"
        "[    0.000000] DMI: Amazon EC2 p5.48xlarge/, BIOS 1.0 10/16/2017\n"
    )
    found = [f for f in kernel_log.parse(log, Origin(node="n1")) if isinstance(f, Machine)]
    assert found == [Machine(node="n1", words="Amazon EC2 p5.48xlarge/", source="kernel")]


# advice -----------------------------------------------------------------------------------------


def test_a_lost_gpu_of_a_provider_is_drained_and_given_back() -> None:
    steps = remedies(GPU, (XID79,), JOB, (STATE,), ("gpu-08",), AWS)
    text = "\n".join(commands(steps))
    assert "State=DRAIN" in text
    assert not re.search(OWN_REPAIR, text)
    assert any("give the instance back" in step.title and "AWS" in step.title for step in steps)
    assert text.endswith("State=RESUME")


@pytest.mark.parametrize("cause", [Cause.GPU_FAULT, Cause.IB_FAULT])
def test_no_hardware_of_a_provider_is_repaired_by_hand(cause: Cause) -> None:
    for subtype in SUBTYPES[cause]:
        for action in ("reset_gpu", "reboot_node", "rma", "drain_and_field_diag", None):
            verdict = Verdict(cause=cause, subtype=subtype, culprits=(
                Culprit(node="gpu-08", gpu_index=5, hca="mlx5_5"),))  # fmt: skip
            found = replace(XID79, action=action)
            text = "\n".join(commands(remedies(verdict, (found,), JOB, (), ("gpu-08",), AWS)))
            assert not re.search(r"gpu-reset|mlxfwreset|openibd|scontrol reboot", text), subtype
            verdict = replace(verdict, shared=True)
            text = "\n".join(commands(remedies(verdict, (found,), JOB, (), ("gpu-08",), AWS)))
            assert not re.search(r"sminfo|iblinkinfo|DRAIN", text), subtype


def test_nothing_is_given_back_where_the_gate_is_shut() -> None:
    steps = remedies(GPU, (XID79,), JOB, (STATE,), (), AWS)
    assert not any("give the instance back" in step.title for step in steps)
    desync = Verdict(cause=Cause.RANK_DESYNC, subtype="missing_rank")
    steps = remedies(desync, (), JOB, (STATE,), (), AWS)
    assert not any("instance" in step.title for step in steps)


def test_no_tray_of_a_rack_is_reset_alone() -> None:
    ecc, found = replace(GPU, subtype="ecc"), replace(XID79, action="reset_gpu")
    own = "\n".join(commands(remedies(ecc, (found,), JOB, (STATE,), ("gpu-08",))))
    assert "--gpu-reset" in own
    steps = remedies(ecc, (found,), JOB, (STATE,), ("gpu-08",), RACK)
    assert "--gpu-reset" not in "\n".join(commands(steps))
    assert any("as a whole" in step.title for step in steps)
    pending = replace(XID79, role=Role.HOUSEKEEPING, rule="GPU-REMAP", action="reset_gpu")
    last = remedies(Verdict(cause=Cause.UNKNOWN), (pending,), JOB, (), (), RACK)[-1]
    assert "whole NVLink domain" in last.title


# the whole way ----------------------------------------------------------------------------------


def test_the_parameter_turns_the_advice(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    path: Path = story("xid79", tmp_path_factory).path("directory")
    bundle = load([str(path)], PROBES)
    own, given = diagnose(bundle), diagnose(bundle, cloud=True)
    assert own.verdict == given.verdict
    assert any("scontrol reboot" in c for r in own.remedies for c in r.commands)
    assert not any("scontrol reboot" in c for r in given.remedies for c in r.commands)
    assert run([str(path)], cloud=True) == 10
    assert "give the instance back" in capsys.readouterr().out
