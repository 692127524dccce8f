"""What a person asks of the watch is checked before it begins; telling others holds nothing up."""

import json
import time
from pathlib import Path

import pytest

from sluggish.cli import watch
from sluggish.cli.watch_order import order
from sluggish.cli.watch_tell import Telling
from sluggish.config import Config
from sluggish.evidence.source import EvidenceError
from sluggish.watch.state import Event

TIMES = {"interval": 5, "notice": 120.0, "alert": 300.0}
DOCUMENT = {"job": "7", "exit_code": 20, "verdict": {"cause": None}, "bundle": None}


@pytest.mark.parametrize(
    ("told", "says"),
    [({"execute": "page 'me"}, "--exec: No closing quotation"),
     ({"execute": "  "}, "--exec: expected a program"),
     ({"webhook": "hooks.example"}, "--webhook: expected an http or https address"),
     ({"webhook": "https://u:hidden@h/"}, "--webhook: a name and password"),
     ({"prometheus": ""}, "--prometheus: expected an http"),
     ({"notice": 10.0}, "expected --interval")],
)  # fmt: skip
def test_a_mistake_is_one_line(told: dict[str, object], says: str) -> None:
    with pytest.raises(EvidenceError) as raised:
        order(**{**TIMES, **told})  # type: ignore[arg-type]
    assert str(raised.value).startswith(says)
    assert "hidden" not in str(raised.value)


def test_a_program_is_split_as_a_shell_would() -> None:
    assert order(**TIMES, execute="page 'the team' now").execute == ["page", "the team", "now"]  # type: ignore[arg-type]


def test_a_program_that_takes_its_time_holds_nothing_up(tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f'until [ -e {go} ]; do sleep 0.05; done; test -z "$SLUGGISH_CAUSE$SLUGGISH_BUNDLE"'
    telling = Telling(["sh", "-c", script], None)
    began = time.monotonic()
    telling.tell("7", DOCUMENT)
    assert time.monotonic() - began < 2
    assert list(telling.came()) == []
    assert telling.busy
    go.touch()
    came: list[tuple[str, list[str]]] = []
    while not came and time.monotonic() - began < 20:
        came += telling.came()
    assert came == [("7", [])]
    assert not telling.busy


def test_one_who_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    go = tmp_path / "go"
    monkeypatch.setattr("sluggish.cli.watch_tell.LONGEST_S", 0.0)
    telling = Telling(["sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done"], None)
    telling.tell("7", DOCUMENT)
    (told,) = telling.came()
    assert told == ("7", ["not told within 0 s"])
    assert not telling.busy
    go.touch()


def test_a_fault_of_ours_in_a_look_hides_no_alert(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def fails(*_: object, **__: object) -> None:
        raise KeyError("a fault of ours")

    monkeypatch.setattr(watch, "look", fails)
    told = order(**TIMES, execute=f"tee {tmp_path}/page", as_json=True)  # type: ignore[arg-type]
    running = watch._Watch(told, Config())
    running._look(Event(kind="alert", at=1000.0, job="7", says="all GPUs are parked"))
    until = time.monotonic() + 20
    while running._telling.busy and time.monotonic() < until:
        for job, why in running._telling.came():
            assert (job, why) == ("7", [])
    document = json.loads((tmp_path / "page").read_text())
    assert (document["job"], document["verdict"]["cause"]) == ("7", None)
    assert running.code == 1
    assert "a fault of ours" in capsys.readouterr().err
