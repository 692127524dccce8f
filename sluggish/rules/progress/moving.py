"""PROG-STEPS, PROG-CKPT, PROG-EVAL, PROG-INIT: positive signs that the job moves."""

from collections.abc import Iterator
from datetime import timedelta

from sluggish.causes import Family, Phase
from sluggish.facts.derived import Look, Onset, PhaseFact
from sluggish.facts.host import RankProcess
from sluggish.facts.log import LogSign, LogSpan, NcclInit, ProcessExit, Progress, PythonError
from sluggish.findings import Finding, Role, Strength, View, rule
from sluggish.job import Job, current
from sluggish.rules.progress.common import SOURCE, live_now, open_mark, pace, span, written_per_s

FRESH_STEPS = 4
"""Steps are expected; the last line may be this many usual intervals old."""
FRESH_FLOOR = timedelta(seconds=5)
"""A job of ten steps a second that printed none for longer has stopped, or nobody can say."""
START_QUIET = timedelta(seconds=120)
"""What starts prints seldom."""
AHEAD = timedelta(seconds=60)
"""A node's clock may run ahead of ours."""
USUAL_PAUSE = timedelta(minutes=10)
"""A checkpoint or evaluation of unknown usual length is believed this long."""
LONGER = 2.0
"""An opened checkpoint may take this many times the longest one before it."""
WRITES = 1e6
"""Bytes a second from which somebody really writes."""
START_TIME = timedelta(minutes=15)
"""Imports, image, rendezvous and NCCL of a big job take minutes, not more."""


def _finding(mark: Progress | None, strength: Strength, role: Role, says: str) -> Finding:
    return Finding(
        node=mark.node if mark else None,
        subject="job",
        role=role,
        strength=strength,
        at=mark.at if mark else None,
        says=says,
        quote=mark.line if mark else "",
        source=SOURCE,
    )


@rule(
    "PROG-STEPS", family=Family.PROCESS, needs=(Progress,), wants=(Look, Onset, LogSpan)
)  # fmt: skip
def prog_steps(view: View) -> Iterator[Finding]:
    """Training steps are printed at their usual pace up to the look, or they have stopped."""
    steps = [p for p in view.all(Progress) if p.kind == "step"]
    timed = [s for s in steps if s.at is not None]
    usual = pace(steps)
    now = live_now(view)
    if not steps:
        return
    last = max(timed, key=lambda s: s.at.timestamp() if s.at else 0.0) if timed else steps[-1]
    name = f"step {last.step}" if last.step is not None else "the last step line"
    if now is None or last.at is None or usual is None:
        yield _finding(last, Strength.WEAK, Role.CONTEXT, f"{name} is the last that was printed")
        return
    age = now - last.at
    told = f"{name} printed {span(age.total_seconds())} before the look"
    told += f", usually one every {span(usual.total_seconds())}"
    numbers = {s.step for s in timed[-8:]}
    rising = len(numbers) > 1 or last.step is None
    fresh = age <= max(usual * FRESH_STEPS, FRESH_FLOOR) and age >= -AHEAD
    if fresh and rising and view.one(Onset) is None:
        yield _finding(last, Strength.STRONG, Role.ROOT, told)
    else:
        yield _finding(last, Strength.WEAK, Role.CONTEXT, told)


@rule("PROG-CKPT", family=Family.PROCESS, needs=(Progress,), wants=(Look, RankProcess))
def prog_ckpt(view: View) -> Iterator[Finding]:
    """A checkpoint has begun and not ended, and is written within its usual time."""
    opened, longest = open_mark(view.all(Progress), "checkpoint_start", "checkpoint_end")
    if opened is None:
        return
    now = live_now(view)
    speed = written_per_s(view)
    writing = speed is not None and speed >= WRITES
    rate = f", {(speed or 0) / 1e6:.0f} MB/s written" if writing else ""
    if now is None or opened.at is None:
        strength = Strength.STRONG if writing and now is not None else Strength.WEAK
        role = Role.ROOT if writing and now is not None else Role.CONTEXT
        yield _finding(opened, strength, role, f"a checkpoint is being written{rate}")
        return
    took = (now - opened.at).total_seconds()
    limit = max(longest * LONGER, 60.0) if longest else USUAL_PAUSE.total_seconds()
    before = f", the longest before took {span(longest)}" if longest else ""
    told = f"in a checkpoint for {span(took)}{before}{rate}"
    if speed is not None and not writing:
        told += ", nothing is written"
    if took > limit or (speed is not None and not writing):
        yield _finding(opened, Strength.WEAK, Role.CONTEXT, told)
    else:
        yield _finding(opened, Strength.STRONG if writing else Strength.WEAK, Role.ROOT, told)


@rule("PROG-EVAL", family=Family.PROCESS, needs=(Progress,), wants=(Look,))
def prog_eval(view: View) -> Iterator[Finding]:
    """An evaluation has begun and not ended, within its usual time or with a bar that moves."""
    marks = view.all(Progress)
    opened, longest = open_mark(marks, "evaluation_start", "evaluation_end")
    bars = [m for m in marks if m.kind == "evaluation" and m.at is not None]
    now = live_now(view)
    if opened is None or now is None:
        if opened is not None:
            yield _finding(opened, Strength.WEAK, Role.CONTEXT, "an evaluation has begun")
        return
    last = bars[-1] if bars else None
    if last is not None and last.at is not None and opened.at and last.at >= opened.at:
        age = (now - last.at).total_seconds()
        usual = pace(bars)
        fresh = age <= max(60.0, 2 * usual.total_seconds() if usual else 0.0)
        told = f"evaluating; its bar moved {span(age)} before the look"
        role, strength = (Role.ROOT, Strength.STRONG) if fresh else (Role.CONTEXT, Strength.WEAK)
        yield _finding(last, strength, role, told)
        return
    if opened.at is None:
        yield _finding(opened, Strength.WEAK, Role.CONTEXT, "an evaluation has begun")
        return
    took = (now - opened.at).total_seconds()
    before = f", the longest before took {span(longest)}" if longest else ""
    told = f"in an evaluation for {span(took)}{before}"
    limit = longest * LONGER if longest else USUAL_PAUSE.total_seconds()
    within = took <= limit
    known = Strength.STRONG if longest else Strength.WEAK
    yield _finding(opened, known if within else Strength.WEAK,
                   Role.ROOT if within else Role.CONTEXT, told)  # fmt: skip


@rule(
    "PROG-INIT",
    family=Family.PROCESS,
    needs=(LogSpan,),
    wants=(Look, Job, PhaseFact, Progress, NcclInit, LogSign, PythonError, ProcessExit),
)
def prog_init(view: View) -> Iterator[Finding]:
    """The job is young and its log still grows on the way to the first step."""
    look, phase, now = view.one(Look), view.one(PhaseFact), live_now(view)
    if look is None or now is None or look.job_started_at is None:
        return
    if phase is None or phase.phase not in (Phase.START_UP, Phase.FIRST_STEP):
        return
    job = current(view.all(Job))
    if job is not None and job.ended_at is not None and job.ended_at <= now:
        return
    age = now - look.job_started_at
    # never the file's own time: a copy, an archive and a mail all make it new
    stamps = [s.last_at for s in view.all(LogSpan) if s.last_at is not None]
    last = max((at for at in stamps if at <= now + AHEAD), default=None)
    failed = any(s.kind in ("rendezvous_timeout", "store_timeout") for s in view.all(LogSign))
    failed = failed or bool(view.all(PythonError)) or bool(view.all(ProcessExit))
    told = f"the job is {span(age.total_seconds())} old and has not stepped yet"
    if last is not None:
        told += f"; its log grew {span((now - last).total_seconds())} before the look"
    fresh = last is not None and now - last <= START_QUIET
    if age <= START_TIME and fresh and not failed:
        yield _finding(None, Strength.STRONG, Role.ROOT, told)
    else:
        yield _finding(None, Strength.WEAK, Role.CONTEXT, told)
