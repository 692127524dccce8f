"""CFG-ENV: settings of NCCL that are not the same on all ranks, from environments and logs."""

from typing import Any

import pytest

from sluggish.facts.host import RankProcess
from sluggish.facts.log import LogSpan, NcclSetting, Progress
from sluggish.facts.origin import Origin
from sluggish.facts.store import Facts
from sluggish.findings import Finding, Role, Spot, Strength, ask
from sluggish.loglines import nccl_init, nccl_net
from sluggish.loglines.prefix import lines
from sluggish.rules.config import cfg_env

SPAN = LogSpan(node=None, path="job.out", bytes_total=900, bytes_read=900)
STEPPED = [Progress(node=None, rank=0, at=None, step=n) for n in (1, 2)]


def rank(number: int, *, node: str = "", world: Any = 16, **more: str) -> RankProcess:
    """Rank of a job with four ranks a node; `more` are its NCCL_ variables."""
    env = {"RANK": str(number), **more}
    return RankProcess(
        node=node or f"n{number // 4}", pid=100 + number, rank=number, local_rank=number % 4,
        world_size=world, env=tuple(env.items()),
    )  # fmt: skip


def job(odd: dict[int, dict[str, str]], **everybody: str) -> list[RankProcess]:
    return [rank(n, **{**everybody, **odd.get(n, {})}) for n in range(16)]


def on(node: int, **variables: str) -> dict[int, dict[str, str]]:
    return dict.fromkeys(range(node * 4, node * 4 + 4), variables)


def run(*facts: object) -> list[Finding]:
    store = Facts()
    for fact in facts:
        store.add(fact)
    return list(ask(cfg_env, store))


def test_the_node_that_plans_otherwise_is_named_with_its_value() -> None:
    (found,) = run(SPAN, *job(on(2, NCCL_PROTO="Simple")))
    assert found.says == (
        "NCCL_PROTO differs: Simple on n2 (ranks 8-11), not set on the other 12 ranks"
    )
    assert (found.role, found.strength, found.node) == (Role.ROOT, Strength.STRONG, "n2")
    assert found.spots == (Spot(node="n2"),)


def test_a_node_that_lacks_what_the_others_have_is_the_odd_one() -> None:
    ranks = job({n: {"NCCL_ALGO": "Ring"} for n in range(12)})
    (found,) = run(SPAN, *ranks)
    assert "NCCL_ALGO differs: not set on n3" in found.says
    assert found.node == "n3"


def test_one_odd_rank_is_named_as_a_rank() -> None:
    (found,) = run(SPAN, *job({5: {"NCCL_NET": "Socket"}}, NCCL_NET="IB"))
    assert found.spots == (Spot(node="n1", rank=5, pid=105),)


def test_without_a_majority_nobody_is_accused() -> None:
    half = {n: {"NCCL_ALGO": "Ring"} for n in range(8)}
    (found,) = run(SPAN, *job(half, NCCL_ALGO="Tree"))
    assert (found.spots, found.node, found.shared) == ((), None, True)
    assert "Ring on n[0-1]" in found.says
    assert "Tree on n[2-3]" in found.says


@pytest.mark.parametrize(
    ("name", "role", "strength"),
    [
        ("NCCL_ALGO", Role.ROOT, Strength.STRONG),
        ("NCCL_PROTO", Role.ROOT, Strength.STRONG),
        ("NCCL_P2P_DISABLE", Role.ROOT, Strength.STRONG),
        ("NCCL_P2P_LEVEL", Role.ROOT, Strength.STRONG),
        ("NCCL_NET_GDR_LEVEL", Role.ROOT, Strength.STRONG),
        ("NCCL_NET_PLUGIN", Role.ROOT, Strength.STRONG),
        ("NCCL_NVLS_ENABLE", Role.ROOT, Strength.STRONG),
        ("NCCL_CUMEM_ENABLE", Role.ROOT, Strength.STRONG),
        ("NCCL_BUFFSIZE", Role.ROOT, Strength.STRONG),
        ("NCCL_MAX_NCHANNELS", Role.ROOT, Strength.STRONG),
        ("NCCL_MIN_CTAS", Role.ROOT, Strength.STRONG),
        ("NCCL_IB_DISABLE", Role.ROOT, Strength.STRONG),
        ("NCCL_SOCKET_IFNAME", Role.ROOT, Strength.WEAK),
        ("NCCL_IB_HCA", Role.ROOT, Strength.WEAK),
        ("NCCL_IB_GID_INDEX", Role.ROOT, Strength.WEAK),
        ("NCCL_IB_TIMEOUT", Role.CONTEXT, Strength.WEAK),
        ("NCCL_SOMETHING_NEW", Role.CONTEXT, Strength.WEAK),
    ],
)
def test_what_must_be_equal_is_strong_and_what_may_differ_is_not(
    name: str, role: Role, strength: Strength
) -> None:
    (found,) = run(SPAN, *job(on(1, **{name: "7"})))
    assert (found.role, found.strength) == (role, strength)


@pytest.mark.parametrize(
    "name",
    ["NCCL_HOSTID", "NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_RAS_ADDR", "NCCL_TOPO_FILE",
     "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE", "NCCL_IGNORE_CPU_AFFINITY",
     "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "OMP_NUM_THREADS"],
)  # fmt: skip
def test_what_is_a_node_s_own_is_not_compared(name: str) -> None:
    assert run(SPAN, *job(on(1, **{name: "7"}))) == []


def test_an_hca_for_each_local_rank_is_the_same_on_every_node() -> None:
    own = {n: {"NCCL_IB_HCA": f"mlx5_{n % 4}"} for n in range(16)}
    assert run(SPAN, *job(own)) == []
    own[5] = {"NCCL_IB_HCA": "mlx5_9"}
    assert len(run(SPAN, *job(own))) == 1


def test_a_job_that_has_stepped_can_work_like_that() -> None:
    (found,) = run(SPAN, *STEPPED, *job(on(2, NCCL_PROTO="Simple")))
    assert (found.role, found.strength) == (Role.CONTEXT, Strength.WEAK)


def test_without_the_log_nobody_knows_whether_it_has_stepped() -> None:
    (found,) = run(*job(on(2, NCCL_PROTO="Simple")))
    assert found.strength is Strength.WEAK


def test_processes_of_another_world_and_environments_that_were_not_read_are_left_out() -> None:
    other = rank(3, node="x", world=4, NCCL_PROTO="LL")
    hidden = RankProcess(node="n9", pid=9, rank=15, world_size=16)
    child = RankProcess(node="n0", pid=900, rank=0, inherited_rank=True, world_size=16,
                        env=(("RANK", "0"), ("NCCL_PROTO", "LL")))  # fmt: skip
    assert run(SPAN, *job({}, NCCL_PROTO="Simple"), other, hidden, child) == []


def test_what_nccl_prints_serves_where_no_environment_was_read() -> None:
    text = (
        "".join(
            f"{node}:{pid}:{pid} [0] NCCL INFO NCCL_ALGO set by environment to {value}\n" * 2
            for node, pid, value in [("a", 1, "ring"), ("a", 2, "ring"), ("b", 3, "ring,tree")]
        )
        + "a:1:1 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.\n"
    )
    said = [f for f in nccl_init.parse(lines(text, Origin())) if isinstance(f, NcclSetting)]
    assert [(f.node, f.pid, f.name, f.value) for f in said] == [
        ("a", 1, "NCCL_ALGO", "ring"), ("a", 2, "NCCL_ALGO", "ring"),
        ("b", 3, "NCCL_ALGO", "ring,tree"), ("a", 1, "NCCL_IB_TIMEOUT", "22"),
    ]  # fmt: skip
    (found,) = run(SPAN, *said)
    assert found.says == "NCCL_ALGO differs: ring,tree on b, ring on the other 2 ranks"
    assert (found.node, found.source) == ("b", "job log")


TRUNCATED = (
    "a:1:1 [0] transport/net_socket.cc:497 NCCL WARN NET/Socket : peer 10.0.0.9<35022> message "
    "truncated : receiving 524288 bytes instead of 65536. If you believe your socket network is in "
    "a healthy state, there may be a mismatch in collective sizes or environment settings\n"
)


def test_other_sizes_than_expected_are_a_weak_sign_before_the_first_step() -> None:
    (said,) = nccl_net.parse(lines(TRUNCATED, Origin()))
    (found,) = run(SPAN, said)
    assert (found.role, found.strength) == (Role.ROOT, Strength.WEAK)
    assert [f.role for f in run(SPAN, said, *STEPPED)] == [Role.CONTEXT]


def test_a_quoted_line_of_a_program_is_no_setting_of_nccl() -> None:
    text = "INFO the log said NCCL_ALGO set by environment to ring\n"
    assert [f for f in nccl_init.parse(lines(text, Origin())) if isinstance(f, NcclSetting)] == []
