"""In which phase of its life the job is: from the log's own words, else from its age."""

from datetime import timedelta

from sluggish.causes import Phase
from sluggish.facts.derived import Look, PhaseFact
from sluggish.facts.log import LogSign, NcclInit, Progress
from sluggish.facts.store import Facts

YOUNG = timedelta(minutes=30)
"""A job this young without any step line is still starting up."""


def phase(facts: Facts, look: Look) -> PhaseFact:
    """The last word of the log decides: an opened checkpoint or evaluation that did not close."""
    marks = facts.all(Progress)
    opened: Progress | None = None
    steps = 0
    done: Progress | None = None
    for mark in marks:
        if mark.kind in ("checkpoint_start", "evaluation_start"):
            opened = mark
        elif mark.kind in ("checkpoint_end", "evaluation_end"):
            opened = None
        elif mark.kind == "step":
            steps += 1
            if opened is not None and opened.kind == "checkpoint_start":
                opened = None  # the loop went on: nobody printed the end
        elif mark.kind == "training_done":
            done = mark
    if done is not None:
        return PhaseFact(phase=Phase.SHUTDOWN, since=done.at, source="job log: training done")
    if opened is not None:
        checkpoint = opened.kind == "checkpoint_start"
        name = Phase.CHECKPOINT if checkpoint else Phase.EVALUATION
        return PhaseFact(phase=name, since=opened.at, source=f"job log: {opened.kind}")
    if steps > 1:
        return PhaseFact(phase=Phase.STEADY, source="job log: step lines")
    return _before_the_loop(facts, look, steps)


def _before_the_loop(facts: Facts, look: Look, steps: int) -> PhaseFact:
    if steps == 1 or any(line.complete for line in facts.all(NcclInit)):
        return PhaseFact(phase=Phase.FIRST_STEP, source="job log: communicators are up, no step")
    waiting = any(s.kind.startswith("rendezvous") for s in facts.all(LogSign))
    if waiting or facts.all(NcclInit):
        return PhaseFact(phase=Phase.START_UP, source="job log: rendezvous or NCCL init")
    if look.at and look.job_started_at and look.at - look.job_started_at < YOUNG:
        return PhaseFact(phase=Phase.START_UP, source="job age")
    return PhaseFact(phase=Phase.UNKNOWN, source="no log line tells")
