"""CFG-NVLS: NVLink SHARP that cannot be set up."""

import pytest

from sluggish.facts.fabric import NcclTrouble
from sluggish.facts.log import LogSpan, Progress
from sluggish.facts.origin import Origin
from sluggish.facts.store import Facts
from sluggish.findings import Finding, Role, Strength, ask
from sluggish.loglines import nccl_net
from sluggish.loglines.prefix import lines
from sluggish.rules.config import cfg_nvls

SPAN = LogSpan(node=None, path="job.out", bytes_total=900, bytes_read=900)
BIND = (
    "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 "
    "'the operation cannot be performed in the present state'."
)


def said(text: str) -> list[NcclTrouble]:
    found = nccl_net.parse(lines(text + "\n", Origin()))
    return [fact for fact in found if isinstance(fact, NcclTrouble)]


def run(*facts: object) -> list[Finding]:
    store = Facts()
    for fact in facts:
        store.add(fact)
    return list(ask(cfg_nvls, store))


@pytest.mark.parametrize(
    "text",
    [
        f"a:1:1 [0] transport/nvls.cc:379 (nvlsAllocateMem) NCCL WARN {BIND}",
        "a:1:1 [2] transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'",
        "a:1:1 [2] transport/nvls.cc:165 NCCL WARN Cuda failure 'invalid argument'",
    ],
)
def test_every_form_names_the_node_before_the_first_step(text: str) -> None:
    (found,) = run(SPAN, *said(text))
    assert (found.role, found.strength, found.node) == (Role.ROOT, Strength.STRONG, "a")
    assert "multicast memory on a" in found.says


def test_what_pytorch_prints_of_it_has_no_node() -> None:
    (trouble,) = said(BIND)
    assert trouble.node is None
    assert run(SPAN, trouble)[0].shared


def test_on_two_nodes_it_is_how_the_machines_are_set_up() -> None:
    both = [t for n in "ab" for t in said(f"{n}:1:1 [0] transport/nvls.cc:379 NCCL WARN {BIND}")]
    (found,) = run(SPAN, *both)
    assert (found.node, found.spots, found.shared) == (None, (), True)


def test_after_the_first_step_it_is_context() -> None:
    steps = [Progress(node=None, rank=0, at=None, step=n) for n in (1, 2)]
    (found,) = run(SPAN, *said(f"a:1:1 [0] transport/nvls.cc:379 NCCL WARN {BIND}"), *steps)
    assert found.role is Role.CONTEXT


def test_a_cuda_failure_elsewhere_is_none_of_it() -> None:
    assert said("a:1:1 [2] init.cc:165 NCCL WARN Cuda failure 1 'invalid argument'") == []
