import pytest

from sluggish.catalog import nccl


def ids(version: str | None, arch: str | None = None) -> list[str]:
    return [bug.id for bug in nccl.bugs(version, arch)]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2.27.7", (2, 27, 7)),
        ("NCCL version 2.28.9+cuda12.9", (2, 28, 9)),
        ("22809", (2, 28, 9)),
        ("2708", (2, 7, 8)),
        ("unknown", None),
        ("", None),
    ],
)
def test_versions_are_read_in_all_their_spellings(
    text: str, numbers: tuple[int, ...] | None
) -> None:
    assert nccl.version(text) == numbers


def test_the_slot_leak_is_known_on_arm_only_and_before_its_fix() -> None:
    assert "proxy-slot-leak" in ids("2.28.9", "aarch64")
    assert "proxy-slot-leak" in ids("2.29.2", "arm64")
    assert "proxy-slot-leak" not in ids("2.29.3", "aarch64")
    assert "proxy-slot-leak" not in ids("2.28.9", "x86_64")
    assert "proxy-slot-leak" not in ids("2.28.9", None)


def test_the_ras_crash_is_bounded_on_both_sides() -> None:
    assert [v for v in ("2.26", "2.26.2", "2.26.4", "2.26.5") if "ras-init-crash" in ids(v)] == [
        "2.26.2",
        "2.26.4",
    ]


def test_an_unknown_version_has_no_known_bug() -> None:
    assert ids(None, "aarch64") == []
    assert ids("nightly", "aarch64") == []


def test_the_give_up_time_follows_the_version() -> None:
    assert nccl.give_up_s("2.13.4") == pytest.approx(0.47, abs=0.01)
    assert nccl.give_up_s("2.20.5") == pytest.approx(7.5, abs=0.1)
    assert nccl.give_up_s("2.27.7") == pytest.approx(30.1, abs=0.1)
    assert nccl.give_up_s(None) == nccl.give_up_s("2.27.7")
    assert nccl.give_up_s("2.27.7", timeout=22) == pytest.approx(120, abs=1)
    assert nccl.give_up_s("2.27.7", retries=3) == pytest.approx(12.9, abs=0.1)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("2.23.4", "absent"),
        ("2.24.3", "unsafe"),
        ("2.26.2", "unsafe"),
        ("2.26.5", "unsafe"),
        ("2.27.3+cuda12.9", "unsafe"),
        ("2.27.7", "unsafe"),
        ("2.28.9", "unsafe"),
        ("22907", "unsafe"),
        ("2.30.7", "unsafe"),
        ("2.31.1", "unproved"),
        (None, "unknown"),
        ("nightly", "unknown"),
    ],
)
def test_ras_is_asked_only_where_no_report_speaks_against_it(text: str | None, state: str) -> None:
    told = nccl.ras_safety(text)
    assert told.state == state
    assert told.may_ask is (state == "unproved")
    assert bool(told.reports) is (state == "unsafe")
    assert told.read == "2026-11"


def test_each_report_of_ras_tells_when_what_and_where_it_stands() -> None:
    sources = " ".join(report.source for report in nccl.ras_reports())
    assert all(number in sources for number in ("#1669", "#1718", "#1762", "#1996", "#2346"))
    for report in nccl.ras_reports():
        assert report.since < report.before
        assert report.when
        assert report.what


def test_the_reports_of_2_29_7_are_those_of_its_crash() -> None:
    told = nccl.ras_safety("2.29.7")
    assert [report.source.split(",")[0] for report in told.reports] == [
        "NVIDIA/nccl#1996",
        "NVIDIA/nccl#2346",
    ]
