"""Bursts of Xids: where one ends, which line started it, what is an echo."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sluggish.correlate.bursts import bursts, is_follower
from sluggish.correlate.xidrole import ECHOES, role
from sluggish.facts.gpu import Xid

T0 = datetime(2026, 11, 24, 3, 0, tzinfo=UTC)
PEER_FAILED = 0x021425C6
LINK_SIGNAL = 0x004505C6


def _xid(code: int, second: float | None = 0, gpu: int = 1, **more: Any) -> Xid:
    at = None if second is None else T0 + timedelta(seconds=second)
    return Xid(**{"node": "gpu-08", "at": at, "pci": f"0000:0{gpu}:00.0", "code": code, **more})


def _down(word: int, second: float = 0, gpu: int = 1, *, fatal: bool = True) -> Xid:
    return _xid(149, second, gpu, unit="NETIR_LINK_EVT", fatal=fatal, intrinfo=word, status=0)


def _crowd(second: float, gpu: int) -> Xid:
    return _xid(145, second, gpu, unit="RLW_SRC_TRACK", fatal=False, intrinfo=0x040988E2, status=8)


def _root(*xids: Xid) -> int | None:
    (burst,) = bursts(xids)
    return burst.root.code if burst.root else None


def test_three_minutes_of_silence_end_a_burst() -> None:
    assert len(bursts([_xid(13, 0), _xid(13, 180)])) == 1
    assert len(bursts([_xid(13, 0), _xid(13, 181)])) == 2


def test_nodes_have_bursts_of_their_own() -> None:
    found = bursts([_xid(79), _xid(79, node="gpu-07")])
    assert [b.node for b in found] == ["gpu-08", "gpu-07"]


def test_the_root_is_the_earliest_code_that_can_be_a_cause() -> None:
    assert _root(_xid(45, 0), _xid(43, 1), _xid(48, 2), _xid(94, 3)) == 48


def test_the_order_in_the_file_does_not_matter() -> None:
    assert _root(_xid(94, 3), _xid(48, 2), _xid(45, 0)) == 48


def test_echoes_alone_have_no_root() -> None:
    assert _root(*(_xid(code) for code in sorted(ECHOES))) is None


def test_hardware_comes_before_a_program_fault_of_the_same_burst() -> None:
    assert _root(_xid(31, 0, 2), _xid(79, 30, 1)) == 79


def test_a_code_that_nobody_knows_is_never_a_root() -> None:
    assert _root(_xid(999)) is None
    assert role(_xid(999)).hang == "unknown"


def test_a_line_that_names_its_cause_is_not_a_root_itself() -> None:
    assert _root(_xid(79, 1, caused_by=149), _xid(31, 2, 2)) == 31


def test_a_cause_whose_own_line_is_lost_is_kept_by_its_number() -> None:
    (burst,) = bursts([_xid(45, caused_by=149)])
    assert (burst.root, burst.named_cause) == (None, 149)


def test_one_lost_link_explains_the_crowd_around_it() -> None:
    crowd = [_crowd(0.1 * gpu, gpu) for gpu in range(1, 8)]
    (burst,) = bursts([*crowd, _down(LINK_SIGNAL, 1, 8)])
    assert burst.root is not None
    assert (burst.root.code, burst.root.pci) == (149, "0000:08:00.0")
    assert all(is_follower(x, burst.root) for x in crowd)


def test_the_end_that_only_reports_its_peer_gives_way_to_the_end_that_failed() -> None:
    reports, failed = _down(PEER_FAILED, 0, 1), _down(LINK_SIGNAL, 1, 2)
    (burst,) = bursts([reports, failed])
    assert burst.root is failed


def test_a_peer_sub_code_alone_is_a_root_that_accuses_the_other_end() -> None:
    (burst,) = bursts([_down(PEER_FAILED)])
    assert burst.root is not None
    assert role(burst.root).peer
    assert burst.why == "the other end of its link failed"


def test_a_line_cut_off_after_its_first_word_still_tells_the_peer() -> None:
    cut = _xid(149, unit="NETIR_LINK_EVT", fatal=True, intrinfo=PEER_FAILED)
    assert role(cut).peer


def test_the_printed_word_decides_a_link_error() -> None:
    assert role(_xid(144, unit="SAW_EGR", fatal=True)).hang == "cause"
    assert role(_xid(144, unit="SAW_EGR", fatal=False)).hang == "possible"
    assert (
        role(_xid(149, unit="NETIR_BER_EVENT", fatal=False, intrinfo=5, status=0)).hang != "cause"
    )


def test_a_page_fault_right_after_a_pmu_failure_is_hardware() -> None:
    (burst,) = bursts([_xid(122, 0), _xid(31, 5)])
    assert burst.root is not None
    assert "122" in burst.why


def test_a_page_fault_six_seconds_after_a_pmu_failure_is_the_programs() -> None:
    (burst,) = bursts([_xid(122, 0), _xid(31, 6)])
    assert burst.why == "earliest fault of a program"


def test_a_pmu_failure_of_another_gpu_excuses_no_program() -> None:
    (burst,) = bursts([_xid(122, 0, 2), _xid(31, 1, 1)])
    assert burst.why == "earliest fault of a program"


def test_two_gpus_with_faults_of_their_own_are_both_accused() -> None:
    first, second = _xid(79, 0, 1), _xid(79, 1, 2)
    assert not is_follower(second, first)
    assert is_follower(_xid(119, 2, 1), first)


def test_lines_without_a_time_keep_the_order_of_the_log() -> None:
    (burst,) = bursts([_xid(48, None, order=1), _xid(79, None, 2, order=2)])
    assert burst.root is not None
    assert burst.root.code == 48


@given(
    st.lists(
        st.tuples(st.sampled_from([13, 31, 43, 45, 48, 63, 74, 79, 94, 119, 154, 999]),
                  st.integers(0, 1000), st.integers(1, 8)),
        max_size=30, unique_by=lambda item: item[1],
    ),
    st.randoms(),
)  # fmt: skip
def test_no_order_of_lines_changes_the_roots(
    items: list[tuple[int, int, int]], random: Any
) -> None:
    xids = [_xid(code, second, gpu) for code, second, gpu in items]
    mixed = list(xids)
    random.shuffle(mixed)
    assert [b.root for b in bursts(xids)] == [b.root for b in bursts(mixed)]
    assert all(b.root is None or b.root.code not in ECHOES for b in bursts(xids))
    assert sum(len(b.xids) for b in bursts(xids)) == len(xids)
