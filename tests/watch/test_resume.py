"""A watch that goes on after it was away: what of its state holds, and what is told again."""

import os
import time
from pathlib import Path

from msgspec.structs import replace

from sluggish.job import Neighbour
from sluggish.watch import resume, store
from sluggish.watch.follow import MOVED, Follow
from sluggish.watch.judge import cleared, need
from sluggish.watch.state import Event, Job, Node, decode, encode

from .test_watch import RULES, kinds, played, trained


def test_an_alert_of_which_nobody_was_told_is_made_again_after_a_restart() -> None:
    job, events = played(trained(), 10_900, 400, gpu="split", log=False, io=0)
    assert kinds(events) == ["quiet", "alert"]
    again = resume.taken_up(decode(encode(job)) or job, 11_310)
    _, events = played(again, 11_310, 60, gpu="split", log=False, io=0)
    assert kinds(events) == ["alert"]


def test_an_alert_that_was_told_is_not_made_again_for_the_same_hang() -> None:
    job, _ = played(trained(), 10_900, 400, gpu="split", log=False, io=0)
    job = resume.taken_up(replace(job, told=True), 11_310)
    job, events = played(job, 11_310, 900, gpu="split", log=False, io=0)
    assert events == []
    job, events = played(job, 12_210, 300, gpu="moving")
    assert kinds(events) == ["moves"]
    _, events = played(job, 12_510, 600, gpu="split", log=False, io=0)
    assert kinds(events) == ["quiet", "alert"]


def test_a_checkpoint_after_a_time_unseen_is_not_counted_from_the_one_before_it() -> None:
    job, events = played(trained(), 10_900, 130, gpu="park", log=False, io=0)
    assert kinds(events) == ["quiet"]
    # nobody watched for 200 s in which it trained; its log grew
    job = resume.taken_up(job, 11_230)
    job, events = played(job, 11_230, 5, gpu="park", log=True)
    _, more = played(job, 11_235, 150, gpu="park", log=False, io=0)
    assert kinds(events + more) == ["quiet"]


def test_a_hang_that_lasts_over_a_time_unseen_is_counted_from_its_begin() -> None:
    job, events = played(trained(), 10_900, 130, gpu="park", log=False, io=0)
    assert kinds(events) == ["quiet"]
    _, events = played(resume.taken_up(job, 11_230), 11_230, 90, gpu="park", log=False, io=0)
    assert kinds(events) == ["alert"]
    assert (events[0].since or 0) < 10_980


def test_a_pause_over_a_time_unseen_teaches_nothing() -> None:
    job, _ = played(trained(), 10_900, 60, gpu="moving")
    job, _ = played(job, 11_500, 300, gpu="moving")
    assert job.log.gap_s < 100
    assert job.nodes["gpu-07"].io.gap_s < 100


def test_a_clock_that_was_set_back_does_not_make_the_watch_deaf() -> None:
    job, _ = played(trained(), 10_900, 130, gpu="split", log=False, io=0)
    job = resume.taken_up(job, 7_430)
    _, events = played(job, 7_430, 300, gpu="split", log=False, io=0)
    assert kinds(events) == ["alert"]


def test_a_look_that_saw_it_move_teaches_its_dip_and_the_watch_goes_on() -> None:
    job, events = played(trained(), 10_900, 400, gpu="split", log=False, io=0)
    job = cleared(job, 11_300)
    assert need(job, RULES) > 500
    _, events = played(job, 11_300, 700, gpu="split", log=False, io=0)
    assert kinds(events) == ["quiet", "alert"]
    assert events[1].at - 11_300 > 500


def test_in_a_cgroup_the_driver_counts_the_job_s_gpus_from_nought() -> None:
    job = Job(job="1", started_at=0.0, nodes={"gpu-07": Node(mine=(4, 5, 6, 7))}, moved_at=9.0)
    _, events = played(job, 10_000, 500, gpu="spin", log=False, io=0)
    assert kinds(events) == ["quiet", "alert"]


# -- what Slurm says -----------------------------------------------------------------------------


def followed(events: list[Event], folder: Path | None = None) -> Follow:
    follow = Follow(None, lambda: 100.0, RULES, events.append, folder)  # type: ignore[arg-type]
    follow.streams = _NoStreams()  # type: ignore[assignment]
    follow.begin("7", raw_id="7", started_at=0.0, nodes=("a", "b"), uid=None, logs=(),
                 transport=None)  # fmt: skip
    return follow


class _NoStreams:
    def leave(self, stream: str) -> None:
        pass

    def close(self) -> None:
        pass


def row(state: str, *nodes: str) -> dict[str, Neighbour]:
    return {"7": Neighbour(id="7", raw_id="7", uid=1, user="a", state=state, nodes=nodes)}


def test_a_job_that_slurm_has_suspended_stands_still_rightly() -> None:
    events: list[Event] = []
    follow = followed(events)
    job, _ = played(trained(), 10_900, 130, gpu="split", log=False, io=0)
    follow.jobs["7"].state = job
    follow.slurm(row("SUSPENDED", "a", "b"), 11_030.0)
    assert [event.kind for event in events] == ["stopped"]
    state = follow.jobs["7"].state
    assert (state.quiet_since, state.noticed, follow.jobs["7"].over) == (None, False, "")
    follow.slurm(row("RUNNING", "a", "b"), 12_000.0)
    assert [event.kind for event in events] == ["stopped", "runs"]


def test_states_of_a_job_that_lives_are_no_end_of_it() -> None:
    events: list[Event] = []
    follow = followed(events)
    for state in ("RUNNING", "SIGNALING", "RESIZING", "STAGE_OUT", "COMPLETING"):
        follow.slurm(row(state, "a", "b"), 100.0)
        assert follow.jobs["7"].over == ""


def test_a_job_on_other_nodes_than_before_is_begun_again_and_keeps_what_it_knows(
    tmp_path: Path,
) -> None:
    events: list[Event] = []
    follow = followed(events, tmp_path)
    follow.slurm(row("RUNNING", "a", "b"), 100.0)
    follow.slurm(row("RUNNING", "b", "a"), 100.0)
    assert follow.jobs["7"].over == ""
    follow.slurm(row("RUNNING", "a", "c"), 100.0)
    assert follow.jobs["7"].over == MOVED
    follow.jobs["7"].state = replace(follow.jobs["7"].state, dips=(40.0,))
    follow.leave("7")
    follow.begin("7", raw_id="7", started_at=0.0, nodes=("a", "c"), uid=None, logs=(),
                 transport=None)  # fmt: skip
    assert follow.jobs["7"].state.dips == (40.0,)


def test_halves_of_writers_that_were_killed_are_removed(tmp_path: Path) -> None:
    store.save(tmp_path, Job(job="1"))
    for name in (".watch-1.json.77.1", ".watch-1.json.78.2"):
        (tmp_path / name).touch()
    os.utime(tmp_path / ".watch-1.json.77.1", (1, 1))
    store.tidy(tmp_path, time.time())
    assert sorted(p.name for p in tmp_path.iterdir()) == [".watch-1.json.78.2", "watch-1.json"]


def test_shifting_all_times_and_back_changes_nothing() -> None:
    job, _ = played(trained(), 10_900, 130, gpu="split", log=False, io=0)
    assert resume.shifted(resume.shifted(job, -4096.0), 4096.0) == job
