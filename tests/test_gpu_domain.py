"""NVLink domains over several nodes: who is in which, and what NCCL says of them."""

from typing import Any

import pytest
from fabric_facts import facts
from storyroom import story

from sluggish.diagnose import diagnose
from sluggish.evidence.open import load
from sluggish.facts.fabric import NcclTrouble, Switch
from sluggish.facts.gpu import Gpu, GpuCount, ImexDomain
from sluggish.facts.log import Progress
from sluggish.findings import Finding, Role, Strength, ask
from sluggish.loglines import nccl_net
from sluggish.loglines.line import Line
from sluggish.probes import PROBES
from sluggish.rules import gpu

RULES = {rule.id: rule for rule in gpu.RULES}
NODES = tuple(f"gb-{k:02d}" for k in range(1, 5))
BLOCK = Switch(name="rack07", level=0, nodes=NODES, block=True)


def tray(node: str, uuid: str | None = "cb23", clique: int = 7, **more: Any) -> list[Gpu]:
    return [Gpu(node=node, index=i, pci=f"0000:{i}1:00.0", name="NVIDIA GB200", cluster_uuid=uuid,
                clique=clique, **more) for i in range(4)]  # fmt: skip


def seen(*given: Any, rule: str = "GPU-DOMAIN") -> tuple[Finding, ...]:
    return ask(RULES[rule], facts(*given, names=NODES))


def roots(*given: Any) -> list[Finding]:
    return [f for f in seen(*given) if f.role is Role.ROOT]


def test_a_rack_alike_and_machines_without_a_domain_say_nothing() -> None:
    rack = [g for n in NODES for g in tray(n)]
    assert seen(*rack, BLOCK) == ()
    assert seen(*[g for n in NODES for g in tray(n, uuid=None)], BLOCK) == ()


def test_a_gpu_in_another_clique_than_its_tray() -> None:
    odd = Gpu(node="gb-02", index=3, pci="0000:31:00.0", cluster_uuid="cb23", clique=8)
    rack = [g for n in NODES for g in tray(n) if (g.node, g.index) != ("gb-02", 3)]
    [found] = roots(*rack, odd, BLOCK)
    assert (found.node, found.spots[0].gpu_index) == ("gb-02", 3)
    assert (found.strength, found.action) == (Strength.STRONG, "reset_nvlink_domain")


def test_a_node_apart_from_its_block_is_weak_and_only_told_with_a_block() -> None:
    rack = [g for n in NODES[:3] for g in tray(n)] + tray("gb-04", uuid="4192")
    [found] = roots(*rack, BLOCK)
    assert (found.node, found.strength) == ("gb-04", Strength.WEAK)
    assert roots(*rack) == []


def test_a_rack_split_in_halves_has_no_odd_node() -> None:
    halves = [g for k, n in enumerate(NODES) for g in tray(n, clique=k // 2)]
    assert roots(*halves, BLOCK) == []


def test_drivers_that_differ_inside_a_domain_are_context() -> None:
    skew = [g for k, n in enumerate(NODES) for g in tray(n, driver=f"580.{k // 3}")]
    assert [f.role for f in seen(*skew)] == [Role.CONTEXT]


@pytest.mark.parametrize("words", [
    "Check the IMEX channel configuration (/dev/nvidia-caps-imex-channels).",
    "Check the IMEX configuration (nvidia-imex-ctl -N).",
])  # fmt: skip
def test_nccl_s_warning_accuses_no_node(words: str) -> None:
    text = (
        "gb-01:7:9 [0] mnnvl.cc:72 NCCL WARN MNNVL (cliqueSize 16) is available but not "
        f"working on this system. {words} Set NCCL_MNNVL_ENABLE=0 to ignore this issue."
    )
    [trouble] = nccl_net.parse([Line(text=text, raw=text, order=0)])
    assert isinstance(trouble, NcclTrouble)
    [found] = roots(trouble)
    assert (found.shared, found.node, found.action) == (True, None, "recover_imex")


def test_four_gpus_a_node_are_no_missing_gpus() -> None:
    counts = [GpuCount(node=n, source="nvidia-smi", count=4) for n in NODES]
    found = seen(*counts, *[g for n in NODES for g in tray(n)], rule="GPU-MISSING")
    assert not [f for f in found if f.role is Role.ROOT]


def test_imex_is_looked_at_and_nothing_is_drained_or_reset(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    found = diagnose(load([str(story("imex_broken", tmp_path_factory).path("directory"))], PROBES))
    told = "\n".join(f"{r.title} {' '.join(r.commands)}" for r in found.remedies)
    assert "IMEX" in told
    assert "State=DRAIN" not in told
    assert "--gpu-reset" not in told


def imex(node: str, state: str | None = "UP", **more: Any) -> ImexDomain:
    told: dict[str, Any] = {"channels": 1, **more}
    return ImexDomain(node=node, state=state, **told)


def test_a_domain_that_is_up_with_channels_says_nothing() -> None:
    assert seen(*[imex(n) for n in NODES]) == ()


def test_a_node_without_a_channel_among_nodes_that_have_one() -> None:
    (found,) = roots(*[imex(n) for n in NODES[:3]], imex("gb-04", channels=0))
    assert (found.node, found.strength, found.action) == ("gb-04", Strength.WEAK, "recover_imex")
    assert found.says.startswith("gb-04: no IMEX channel")
    assert roots(*[imex(n, channels=0) for n in NODES]) == []  # a cluster that does not use them


def test_a_mate_that_is_away_is_named_as_context() -> None:
    away = (("10.2.0.9", "UNAVAILABLE"), ("10.2.0.7", "READY"))
    domains = [imex(n, "DEGRADED", mates=away, not_connected=3) for n in NODES]
    (found,) = seen(*domains)
    assert found.says == (
        "the IMEX domain is DEGRADED on gb-[01-04]: 10.2.0.9 UNAVAILABLE; 3 ways between its "
        "nodes not connected"
    )
    assert (found.role, found.spots, found.shared) == (Role.CONTEXT, (), True)


def test_a_channel_that_is_missing_is_context_after_the_first_step() -> None:
    domains = [*[imex(n) for n in NODES[:3]], imex("gb-04", channels=0)]
    steps = [Progress(node=None, rank=0, at=None, step=n) for n in (1, 2)]
    assert [f.role for f in seen(*domains, *steps)] == [Role.CONTEXT]


def test_beside_nccl_s_warning_it_tells_why() -> None:
    trouble = NcclTrouble(node="gb-01", at=None, pid=1, rank=None, kind="imex", detail="", line="x")
    found = seen(*[imex(n, channels=0) for n in NODES], trouble)
    assert [(f.role, f.strength) for f in found] == [
        (Role.CONTEXT, Strength.WEAK), (Role.ROOT, Strength.STRONG),
    ]  # fmt: skip


def test_a_daemon_that_says_nothing_is_told() -> None:
    (found,) = seen(imex("gb-01", None), imex("gb-02"))
    assert found.role is Role.CONTEXT
    assert found.says == "gb-01: the IMEX daemon says nothing"
