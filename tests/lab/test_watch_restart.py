"""`sluggish watch` killed with SIGKILL around an alert; two of them over one state directory."""

import time

from . import cluster, sims
from .cluster import Lab
from .watching import LEFT, STOP, UNTIL_TOLD, gpus_work, learn, sleeping, state, watching

QUIET = {"*.utilization.gpu": "100", "*.power.draw": "195.00", "*.memory.used": "180000"}
PAGES = "/tmp/pages"


def page(then: str) -> list[str]:
    """Watches alice's jobs; a program is told, and then does this."""
    return ["--user", "alice", "--exec", f"sh -c 'cat >>{PAGES}; echo >>{PAGES}; {then}'"]


def test_an_alert_is_told_once_and_not_lost_by_a_watch_that_is_killed(lab: Lab) -> None:
    stop, pages = lab.path("login", STOP), lab.path("login", PAGES)
    for mark in (stop, pages):
        mark.unlink(missing_ok=True)

    def paged() -> int:
        return len(pages.read_text().splitlines()) if pages.exists() else 0

    try:
        with sleeping(lab, UNTIL_TOLD, "--gres=gpu:2") as job:
            with watching(lab, *page("sleep 30")) as watched:
                with gpus_work(lab, LEFT):
                    learn(lab, job)
                for node in LEFT:
                    sims.gpus(lab, node, QUIET)
                watched.until("alert")
                cluster.wait_for(lambda: paged() == 1, 90, "nobody is paged")
                assert not state(lab, job)["told"]
                cluster.end(watched.process)  # SIGKILL, while the page is under way
            with watching(lab, *page("true")) as watched:
                again = watched.until("alert")
                assert again["job"] == job
                cluster.wait_for(lambda: paged() == 2, 90, "nobody is paged again")
                cluster.wait_for(lambda: state(lab, job)["told"], 30, "it is not written down")
                cluster.end(watched.process)
            with watching(lab, *page("true")) as watched:
                watched.until("watched")
                time.sleep(15)  # the first two were told within so long; now nothing may come
                with gpus_work(lab, LEFT):
                    watched.until("moves")
                assert not {"alert", "quiet", "diagnosis"} & set(watched.kinds)
            assert paged() == 2
    finally:
        stop.touch()
        for node in LEFT:
            sims.gpus(lab, node)
        stop.unlink()


def test_two_watches_over_one_state_directory_do_not_hinder_one_another(lab: Lab) -> None:
    stop = lab.path("login", STOP)
    stop.unlink(missing_ok=True)
    try:
        with (
            sleeping(lab, UNTIL_TOLD, "--gres=gpu:2") as job,
            watching(lab, "--job", job) as one,
            watching(lab, "--user", "alice") as other,
        ):
            one.until("watched")
            other.until("watched")
            with gpus_work(lab, LEFT):
                learn(lab, job)
                stop.touch()
                for watched in (one, other):
                    assert watched.until("ended")["says"] == "COMPLETED"
            assert one.code() == 0
            assert other.process.poll() is None
            kinds = {*one.kinds, *other.kinds}
            assert not {"blind", "alert", "quiet"} & kinds
    finally:
        stop.unlink(missing_ok=True)
        for node in LEFT:
            sims.gpus(lab, node)
