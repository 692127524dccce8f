"""DATA-TARGET: single targets of Lustre, read from their imports."""

from pathlib import Path
from typing import Any

import pytest

from sluggish.diagnose import diagnose
from sluggish.evidence.open import load
from sluggish.facts.derived import Look
from sluggish.facts.host import LustreTarget, Mount, RankProcess
from sluggish.facts.origin import Origin
from sluggish.facts.store import Facts
from sluggish.findings import Finding, Role, Strength, ask
from sluggish.probes import PROBES, mounts
from sluggish.rules.data import data_target

LOOK = Look(at=None, nodes=("a", "b"), world_size=2, job_started_at=None, loose=False)


def run(*facts: object) -> list[Finding]:
    store = Facts()
    for fact in (LOOK, *facts):
        store.add(fact)
    return list(ask(data_target, store))


def ost(node: str, state: str = "FULL", number: int = 4, **more: Any) -> LustreTarget:
    return LustreTarget(node=node, target=f"fs1-OST{number:04x}", state=state, **more)


def test_a_lost_target_for_which_somebody_waits_is_strong_and_names_who_waits() -> None:
    (found,) = run(ost("a", "DISCONN", inflight=6), ost("b", "DISCONN", inflight=0))
    assert (found.role, found.strength, found.shared) == (Role.ROOT, Strength.STRONG, True)
    assert found.says == "fs1-OST0004 of Lustre is DISCONN on a,b; 6 requests wait for it"
    assert [spot.node for spot in found.spots] == ["a"]


def test_lost_on_one_node_and_full_on_the_others_is_that_node_s_way_to_it() -> None:
    (found,) = run(ost("a", "EVICTED", inflight=1), ost("b"))
    assert (found.node, found.shared) == ("a", False)
    assert "EVICTED, FULL or IDLE on 1 other nodes" in found.says


def test_a_process_in_d_on_storage_makes_it_strong_and_nobody_makes_it_weak() -> None:
    stuck = [RankProcess(node="a", pid=7, rank=0, state="D", wchan="cl_sync_io_wait",
                         sample=sample) for sample in ("a", "b")]  # fmt: skip
    assert run(ost("a", "CONNECTING"), *stuck)[0].strength is Strength.STRONG
    (weak,) = run(ost("a", "CONNECTING"))
    assert (weak.strength, weak.spots) == (Strength.WEAK, ())


@pytest.mark.parametrize(
    "state", ["DISCONN", "CONNECTING", "EVICTED", "REPLAY", "REPLAY_LOCKS", "REPLAY_WAIT",
              "RECOVER"]
)  # fmt: skip
def test_every_state_in_which_nothing_is_answered_is_told(state: str) -> None:
    assert run(ost("a", state, inflight=1))[0].role is Role.ROOT


@pytest.mark.parametrize("state", ["FULL", "IDLE", "NEW", "CLOSED"])
def test_rest_is_no_loss(state: str) -> None:
    (found,) = run(ost("a", state), ost("b"))
    assert found.role is Role.ALL_CLEAR
    assert "1 targets of Lustre connected" in found.says


def test_what_an_administrator_switched_off_is_expected() -> None:
    assert [f.role for f in run(ost("a", "DISCONN", inactive=True, number=9), ost("a"))] == [
        Role.ALL_CLEAR
    ]


def test_the_management_server_holds_no_file() -> None:
    away = LustreTarget(node="a", target="MGS", state="DISCONN", inflight=1)
    assert [f.role for f in run(away, ost("a"))] == [Role.ALL_CLEAR]


def test_a_mount_that_answers_clears_no_target_that_was_not_seen() -> None:
    (found,) = run(Mount(node="a", path="/lustre", fstype="lustre", answered=True))
    assert (found.role, found.strength) == (Role.CONTEXT, Strength.WEAK)
    assert found.says.startswith("a: single targets of Lustre not seen")


IMPORT = """\
osc.fs1-OST0004-osc-ffff880414c43400.import=
import:
    name: fs1-OST0004-osc-ffff880414c43400
    target: fs1-OST0004_UUID
    state: {state}
    connect_flags: [ write_grant, server_lock ]
    import_flags: [ replayable, pingable{flag} ]
    connection:
       failover_nids: [ 192.168.1.13@tcp ]
       current_connection: {server}
       in-progress_invalidations: 0
    rpcs:
       inflight: {inflight}
"""


def test_what_lctl_prints_is_read_from_a_mailed_file(tmp_path: Path) -> None:
    text = IMPORT.format(state="DISCONN", flag="", server='"192.168.1.13@tcp"', inflight=3)
    assert mounts.sniff(text.encode())
    (told,) = mounts.parse(text, Origin(node="a"))
    assert told == LustreTarget(node="a", target="fs1-OST0004", state="DISCONN", inflight=3,
                                server="192.168.1.13@tcp")  # fmt: skip
    (tmp_path / "lctl.txt").write_text(text)
    found = diagnose(load([str(tmp_path)], PROBES))
    assert (found.verdict.cause.value, found.verdict.subtype) == ("data_stall", "storage")
    assert found.verdict.drain_nodes == ()


def test_a_block_that_is_cut_or_of_an_unknown_state_is_no_target() -> None:
    cut = IMPORT.split("state:")[0]
    odd = IMPORT.format(state="HALF", flag="", server="<none>", inflight="x")
    off = IMPORT.format(state="NEW", flag=", deactive", server="<none>", inflight=0)
    told = list(mounts.parse("/dev/sda1 / ext4 rw 0 0\n" + cut + odd + off, Origin(node="a")))[1:]
    assert [(t.state, t.inactive) for t in told if isinstance(t, LustreTarget)] == [("NEW", True)]
