"""A log that several runs of one job wrote into."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from sluggish.facts.log import EarlierFailure, ProcessExit, Progress, SlurmMessage
from sluggish.facts.origin import Origin
from sluggish.loglines.runs import failed_nodes, split_runs
from sluggish.probes import job_log

# as Slurm 22.05.8 wrote it with --open-mode=append, when node02 had died
OLD = """\
step 1 loss 2.0
step 2 loss 1.9
srun: error: Node failure on node02
slurmstepd-node01: error: *** STEP 4.0 ON node01 CANCELLED AT 2026-11-30T12:53:54 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***
slurmstepd-node01: error: *** JOB 4 ON node01 CANCELLED AT 2026-11-30T12:53:54 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***
srun: got SIGCONT
srun: forcing job termination
srun: Job step aborted: Waiting up to 7 seconds for job step to finish.
srun: error: node01: task 0: Terminated
"""  # noqa: E501
NEW = "begin\nstep 1 loss 2.0\n"
END = datetime(2026, 11, 30, 12, 53, 54, tzinfo=UTC)


@pytest.mark.parametrize("off", [-50, 0, 50])
def test_a_log_is_parted_at_slurm_s_line_of_an_earlier_run_s_end(off: int) -> None:
    assert split_runs(OLD + NEW, [END + timedelta(seconds=off)], UTC) == (NEW, OLD)
    assert split_runs(OLD, [END], UTC) == ("", OLD)


def test_the_last_of_several_ends_counts() -> None:
    older = OLD.replace("2026-11-30T12:5", "2026-11-30T11:5")
    ends = [END - timedelta(hours=1), END]
    assert split_runs(older + OLD + NEW, ends, UTC) == (NEW, older + OLD)


def test_nothing_is_guessed() -> None:
    """Without accounting, of another time or in another zone the log stays whole."""
    for ended, zone in (
        ([], UTC),
        ([END + timedelta(seconds=90)], UTC),
        ([END], timezone(timedelta(hours=2))),
    ):
        assert split_runs(OLD + NEW, ended, zone) == (OLD + NEW, "")
    here = OLD.replace("T12:5", "T14:5")
    assert split_runs(here + NEW, [END], timezone(timedelta(hours=2))) == (NEW, here)


def test_the_launcher_s_words_behind_the_end_belong_to_it_and_a_rank_s_do_not() -> None:
    said = "srun: error: this is the new run's own\n"
    assert split_runs(OLD + NEW + said, [END], UTC)[0] == NEW + said


def test_srun_names_the_nodes_that_failed_once_each() -> None:
    twice = OLD + OLD.replace("node02", "node03.cluster.")
    assert [node for node, _ in failed_nodes(twice)] == ["node02", "node03.cluster"]
    assert list(failed_nodes(NEW)) == []


def test_of_an_earlier_run_only_the_failed_node_is_kept() -> None:
    origin = Origin(path="job.out", ended=(END,))
    found = list(job_log.parse(OLD + NEW, origin))
    assert [fact.node for fact in found if isinstance(fact, EarlierFailure)] == ["node02"]
    assert [fact.step for fact in found if isinstance(fact, Progress)] == [1]
    assert not [fact for fact in found if isinstance(fact, SlurmMessage | ProcessExit)]
    whole = list(job_log.parse(OLD + NEW, Origin(path="job.out")))
    assert [fact for fact in whole if isinstance(fact, SlurmMessage)]
    assert not [fact for fact in whole if isinstance(fact, EarlierFailure)]
