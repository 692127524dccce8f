"""`sluggish watch` over OpenSSH's own client and over srun: the same alert, the same verdict."""

from . import cluster, sims
from .cluster import Lab
from .watching import LEFT, UNTIL_TOLD, gpus_work, learn, sampled, sleeping, watching

XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def test_over_openssh_and_over_srun_a_stall_is_told_and_looked_at(lab: Lab) -> None:
    try:
        with (
            sleeping(lab, UNTIL_TOLD, "--gres=gpu:2") as job,
            watching(lab, "--job", job, "--transport", "openssh") as outer,
            watching(lab, "--job", job, "--transport", "srun", user="alice") as inner,
        ):
            assert outer.until("watched")["says"].endswith("by openssh")
            assert inner.until("watched")["says"].endswith("by srun")
            with gpus_work(lab, LEFT):
                learn(lab, job)
                learn(lab, job, "alice")
            for node in LEFT:
                state = {"*.utilization.gpu": "100", "*.power.draw": "195.00"}
                sims.gpus(lab, node, {**state, "*.memory.used": "180000"})
            sims.kernel(lab, LEFT[0], XID)
            assert outer.until("xid", 30, LEFT[0])["says"].startswith("Xid 79")
            for watched in (outer, inner):
                assert watched.until("alert")["job"] == job
            found = [one.until("diagnosis", 90)["diagnosis"] for one in (outer, inner)]
            codes = [one.code() for one in (outer, inner)]
            # the kernel's lines are not alice's to read in every session, and no look says "fine"
            assert codes[0] == 10
            assert 0 not in codes
            assert [one["verdict"]["culprits"][0]["node"] for one in found[:1]] == [LEFT[0]]
        cluster.wait_for(lambda: sampled(lab) == 0, 30, "a sampler stayed behind")
    finally:
        for node in LEFT:
            sims.gpus(lab, node)
            sims.clear_kernel(lab, node)


def test_a_job_that_no_way_leads_to_is_said_and_the_watch_goes_on(lab: Lab) -> None:
    with sleeping(lab, "srun sleep 600") as job:
        with watching(lab, "--user", "alice", "--transport", "srun", user="bob") as watched:
            event = watched.until("blind")
            assert event["job"] == job
            assert event["says"].startswith("not followed: "), event["says"]
            assert "srun" in event["says"]
            assert watched.process.poll() is None
        with watching(lab, "--job", job, "--transport", "srun", user="bob") as watched:
            watched.until("blind")
            assert watched.code() == 2
