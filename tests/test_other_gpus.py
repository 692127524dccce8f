"""GPUs that no rule reads, MIG, and NVLink domains: one clear gap each, never a missing GPU."""

from dataclasses import replace
from pathlib import Path

import pytest
from fabric_facts import facts, nodes
from storyroom import story

from sluggish.causes import Cause
from sluggish.correlate.phase import phase
from sluggish.diagnose import diagnose
from sluggish.evidence.open import load
from sluggish.facts.derived import Look
from sluggish.facts.gpu import Gpu, GpuCount, OtherGpus
from sluggish.facts.origin import Origin
from sluggish.probes import PROBES, gpu_bus, nvidia_smi
from sluggish.verdict.case import Case
from sluggish.verdict.coverage import not_checked
from sluggish.verdict.tree import TREE

ROCM = """
============================ ROCm System Management Interface ============================
====================================== Concise Info ======================================
GPU[0]          : GPU ID: 0x74a1
GPU[1]          : GPU ID: 0x74a1
==========================================================================================
"""
AMD_SMI = "GPU: 0\n    BDF: 0000:05:00.0\n    UUID: x\nGPU: 1\n    BDF: 0000:26:00.0\n"


def bus(*devices: tuple[str, str, str]) -> str:
    root = "/sys/bus/pci/devices"
    vendors = "".join(f"{root}/0000:{at}/vendor:{vendor}\n" for at, vendor, _ in devices)
    return vendors + "".join(f"{root}/0000:{at}/class:{kind}\n" for at, _, kind in devices)


INSTINCT = bus(("05:00.0", "0x1002", "0x120000"), ("26:00.0", "0x1002", "0x120000"))


def read(text: str) -> list[object]:
    assert gpu_bus.sniff(text.encode())
    return list(gpu_bus.parse(text, Origin(node="mi-01")))


@pytest.mark.parametrize("text", [ROCM, AMD_SMI])
def test_the_tools_of_rocm_are_known_and_read_as_another_maker(text: str) -> None:
    assert read(text) == [OtherGpus(node="mi-01", maker="AMD", count=2, source="ROCm")]


def test_instinct_boards_on_the_bus_are_another_maker_s() -> None:
    found = read(INSTINCT + "/dev/kfd\n")
    assert OtherGpus(node="mi-01", maker="AMD", count=2, source="pci") in found
    assert [f.count for f in found if isinstance(f, GpuCount)] == [0]


def test_the_mainboard_s_graphics_are_no_gpus_of_another_maker() -> None:
    text = bus(("03:00.0", "0x1002", "0x030000"), ("1b:00.0", "0x10de", "0x030200"))
    assert [type(f) for f in read(text)] == [GpuCount]
    assert OtherGpus in [type(f) for f in read(text + "/dev/kfd\n")]


def gaps(*given: object) -> dict[str, tuple[str | None, str]]:
    told = facts(*given, names=nodes(2))
    look = told.all(Look)[0]
    case = Case(findings=(), facts=told, look=look, wait=None, onset=None,
                phase=phase(told, look), places={})  # fmt: skip
    return {gap.what: (gap.where, gap.why) for gap in not_checked(TREE, case)}


def test_amd_is_one_gap_line() -> None:
    given = [OtherGpus(node=n, maker="AMD", count=8, source="pci") for n in nodes(2)]
    assert gaps(*given)["AMD GPUs"] == (
        "gpu-[01-02]", "no rule reads GPUs of AMD: neither healthy nor missing",
    )  # fmt: skip
    assert "AMD GPUs" not in gaps()


def test_mig_is_one_gap_line() -> None:
    assert gaps(Gpu(node="gpu-01", index=0, mig=True))["load of GPUs"][0] == "gpu-01"
    assert "load of GPUs" not in gaps(Gpu(node="gpu-01", index=0, mig=False))


def test_mates_of_the_nvlink_domain_are_not_checked() -> None:
    four = [Gpu(node=n, index=i, pci=f"{i}", cluster_uuid="cb23", clique=7)
            for n in nodes(2) for i in range(4)]  # fmt: skip
    assert "8 of 72 GPUs" in gaps(*four)["NVLink domain"][1]
    assert "NVLink domain" not in gaps(Gpu(node="gpu-01", index=0))
    rack = [Gpu(node=f"gb-{k:02d}", index=i, pci=f"{i}", cluster_uuid="cb23")
            for k in range(18) for i in range(4)]  # fmt: skip
    assert "NVLink domain" not in gaps(*rack)


def test_cluster_and_clique_are_read_and_zeros_are_no_domain() -> None:
    text = (Path(__file__).parent / "captures/nvidia_smi/h200-580-query.txt").read_text()
    own = [f for f in nvidia_smi.parse(text, Origin()) if isinstance(f, Gpu)]
    assert {gpu.cluster_uuid for gpu in own} == {None}
    assert {gpu.clique for gpu in own} == {0}
    uuid = "cb23b835-48e3-4e55-b85e-c437ec8fe7f5"
    there = text.replace("00000000-0000-0000-0000-000000000000", uuid)
    found = [f for f in nvidia_smi.parse(there, Origin()) if isinstance(f, Gpu)]
    assert {gpu.cluster_uuid for gpu in found} == {uuid}


# the whole way ----------------------------------------------------------------------------------


def test_a_node_with_instinct_boards_lacks_no_gpu(tmp_path_factory: pytest.TempPathFactory) -> None:
    path: Path = story("seed", tmp_path_factory).path("directory")
    bundle = load([str(path)], PROBES)
    text = (INSTINCT + "/dev/kfd\n").encode()
    evidence = tuple(
        replace(e, size=len(text), open=lambda: text, window=None, file=None)
        if e.probe == "gpu_bus"
        else e
        for e in bundle.evidence
        if e.probe not in ("nvidia_smi", "gpu_samples")
    )
    found = diagnose(replace(bundle, evidence=evidence))
    assert found.verdict.cause is not Cause.GPU_FAULT
    assert not [f for f in found.findings if f.rule == "GPU-MISSING"]
    assert Cause.GPU_FAULT not in {out.cause for out in found.verdict.ruled_out}
    assert "AMD GPUs" in {gap.what for gap in found.verdict.not_checked}
