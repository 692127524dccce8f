"""`sluggish history`, and what a live look tells of its nodes: beside the report, not in it."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sluggish.cli.demo import bundle_of
from sluggish.cli.diagnose import report
from sluggish.cli.history import remember, remember_alert, run, since_when
from sluggish.config import Config
from sluggish.diagnose import diagnose
from sluggish.evidence.source import EvidenceError
from sluggish.history import keep
from sluggish.history.model import Alert
from sluggish.verdict.model import Diagnosis

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def seed() -> Diagnosis:
    return diagnose(bundle_of("seed"))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(history_db=str(tmp_path / "history.db"))


def convict(seed: Diagnosis, node: str) -> Diagnosis:
    """The same look, had its GPU been at fault."""
    culprit = replace(seed.verdict.culprits[0], node=node, rank=None)
    verdict = replace(seed.verdict, cause="gpu_fault", subtype="ecc", culprits=(culprit,))
    return replace(seed, verdict=verdict)


def earlier(seed: Diagnosis, config: Config, number: int, found: Diagnosis) -> None:
    assert seed.job
    job = replace(seed.job, id=str(number))
    remember(replace(found, job=job), config, str(number))


def show(config: Config, db: Path | None = None, **more: object) -> int:
    asked: dict[str, object] = {"node": None, "since": None, "as_json": False, "as_csv": False}
    return run(config, db=db, **(asked | more))  # type: ignore[arg-type]


def test_the_record_of_a_node_is_told_after_the_report_and_changes_nothing_of_it(
    seed: Diagnosis, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundle_of("seed")
    plain = report(bundle, as_json=True, explain=False)
    before = capsys.readouterr()
    for number in range(1, 4):
        earlier(seed, config, number, convict(seed, "gpu-07"))
    earlier(seed, config, 4, seed)
    assert capsys.readouterr().err.count("context, no proof") == 3  # of the jobs before each
    live = report(
        bundle, as_json=True, explain=False, then=lambda d: remember(d, config, "48213")
    )  # fmt: skip
    after = capsys.readouterr()
    assert (live, after.out) == (plain, before.out)
    assert after.err == (
        "history: gpu-07: convicted in 3 of 4 failed jobs it was in (gpu_fault/ecc 3); "
        "context, no proof\n"
    )


@pytest.mark.parametrize("place", ["/proc/none/history.db", "/etc/passwd", "/dev/full"])
def test_a_ledger_that_cannot_be_written_is_one_line_after_the_report(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Config(history_db=place)
    bundle = bundle_of("seed")
    report(bundle, as_json=False, explain=False)
    plain = capsys.readouterr()
    then = report(bundle, as_json=False, explain=False, then=lambda d: remember(d, config, "1"))
    told = capsys.readouterr()
    assert (then, told.out) == (12, plain.out)
    assert told.err.startswith(f"history: {place}: not recorded: ")
    assert told.err.count("\n") == 1


def test_a_ledger_where_the_bundle_found_dead_storage_is_not_waited_for(
    seed: Diagnosis, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Config(history_db=str(tmp_path / "state/history.db"))
    remember(seed, config, "1", silent=[tmp_path / "state"])
    path = tmp_path / "state/history.db"
    told = f"history: {path}: not recorded: its storage does not answer\n"
    assert capsys.readouterr().err == told
    assert not path.parent.exists()
    remember(seed, config, "1", silent=[tmp_path / "stat"])  # a name that is only alike
    assert path.exists()


def test_an_alert_that_cannot_be_kept_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    alert = Alert(job="2", at=NOW, nodes="gpu-07", says="no step for 2 min")
    remember_alert(alert, Config(history_db="/dev/full"))
    assert capsys.readouterr().err == (
        "history: /dev/full: not recorded: a device, expected a ledger's file\n"
    )


def test_a_look_that_nobody_reads_to_its_end_is_written_down_too(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sluggish.cli import diagnose as command

    def broken(_: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(command, "show", broken)
    with pytest.raises(BrokenPipeError):
        report(bundle_of("seed"), as_json=True, explain=False,
               then=lambda d: remember(d, config, "48213"))  # fmt: skip
    assert len(keep.read_ledger(Path(config.history_db or "")).entries) == 1


def test_the_screen_the_table_and_the_document(
    seed: Diagnosis, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2):
        earlier(seed, config, number, convict(seed, "gpu-07"))
    alert = Alert(job="2", at=NOW, nodes="gpu-[07-08]", says="no step for 2 min")
    remember_alert(alert, config)
    capsys.readouterr()
    assert show(config) == 0
    out = capsys.readouterr().out
    assert "  gpu-07  2 of 2 failed  in 2 jobs" in out
    assert "2026-11-24 12:00Z  2  gpu-[07-08]  no step for 2 min" in out
    assert show(config, node="gpu-08") == 0
    assert "gpu-08: convicted in 0 of 2 failed jobs it was in (context" in capsys.readouterr().out
    assert show(config, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert [node["node"] for node in told["nodes"]] == ["gpu-07"]
    assert len(told["alerts"]) == 1
    assert show(config, as_csv=True, since="2026-11-24T10:00") == 0
    assert capsys.readouterr().out.count("\n") == 2
    assert show(Config(), db=Path(config.history_db or "")) == 0


def test_nothing_to_show_is_said_and_has_its_own_exit_code(
    seed: Diagnosis, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier(seed, config, 1, seed)
    capsys.readouterr()
    assert show(config, node="gpu-99") == 30
    told = capsys.readouterr()
    assert told.out == ""
    assert "no job with gpu-99 was looked at" in told.err
    assert show(config, since="2030-01-01", as_json=True) == 30
    assert json.loads(capsys.readouterr().out)["looks"] == []


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"since": "soon"}, "expected 12h, 7d, 4w, or a date"),
        ({"since": "2026-13-01"}, "expected 12h, 7d, 4w, or a date"),
        ({"node": "../x"}, "no node name"),
        ({"as_json": True, "as_csv": True}, "--json or --csv"),
        ({"db": Path("/none.db")}, "/none.db: no ledger there yet"),
        ({"db": Path("/etc/passwd")}, "/etc/passwd: not a ledger"),
    ],
)
def test_a_mistake_is_one_line(config: Config, more: dict[str, object], why: str) -> None:
    with pytest.raises(EvidenceError) as caught:
        show(config, **more)  # type: ignore[arg-type]
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_since_in_hours_days_weeks_or_a_date() -> None:
    assert since_when("12h", NOW) == NOW - timedelta(hours=12)
    assert since_when("7d", NOW) == NOW - timedelta(days=7)
    assert since_when("4w", NOW) == NOW - timedelta(days=28)
    assert since_when("2026-11-24", NOW) == NOW.replace(hour=0)
    assert since_when("2026-11-24T03:00+02:00", NOW) == NOW.replace(hour=1)
