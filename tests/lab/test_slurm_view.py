"""A job id to nodes, owner, step and logs, asked of a real slurmctld and slurmdbd."""

import json
import os
import random
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sluggish.facts.origin import Origin
from sluggish.hostlist import expand
from sluggish.probes import topology

from . import cluster
from .cluster import Lab

LOOK = """
import json, msgspec, sys, time
from dataclasses import fields, replace
from sluggish.reach.slurm import look
began, first = time.monotonic(), []
view = look(sys.argv[1], early=lambda _: first.append(time.monotonic() - began))
told = {f.name: getattr(view, f.name) for f in fields(view) if f.name != "evidence"}
told["evidence"] = {e.probe: [e.error, e.command, e.open().decode()] for e in view.evidence}
told |= {"first_s": first[0], "took_s": time.monotonic() - began}
print(msgspec.json.encode(told).decode())
"""


def look(lab: Lab, job: str, user: str | None = None, env: str = "") -> dict[str, Any]:
    """The view that sluggish gets on the login node."""
    code = shlex.quote(LOOK)
    run = f"cd /; {env} PYTHONPATH=/opt/sluggish /opt/venv/bin/python -c {code} {job}"
    return json.loads(lab.sh("login", run, user))


@contextmanager
def submitted(lab: Lab, options: str, script: str = "srun sleep 600") -> Iterator[str]:
    """A job of alice's, as many seconds as it is needed."""
    wrap = f"cd; sbatch --parsable {options} --wrap {shlex.quote(script)}"
    job = lab.sh("login", wrap, "alice").strip()
    try:
        yield job
    finally:
        lab.sh("login", f"scancel {job}")
        cluster.wait_for(
            lambda: not lab.sh("login", f"squeue -h -j {job} -t R,CG -o %T 2>/dev/null || true"),
            30, f"job {job} does not go",
        )  # fmt: skip


def running(lab: Lab, job: str, step: str = "0") -> None:
    """Waits until a step of the job runs."""
    until = f"squeue -h -s -j {job} -o %i | grep -q '[.]{step}$'"
    cluster.wait_for(
        lambda: lab.exec("login", ["sh", "-c", until]).returncode == 0,
        30,
        f"{job}.{step} not there",
    )


@pytest.mark.parametrize("user", [None, "alice"])
def test_a_running_job_has_nodes_owner_step_and_log(lab: Lab, user: str | None) -> None:
    with submitted(lab, "-N2 --ntasks-per-node=8 --gres=gpu:8 -J 'llm 70b' -o '%x-%j-%N.out'",
                   "echo begins; srun sleep 600") as job:  # fmt: skip
        running(lab, job)
        view = look(lab, job, user)
    assert (view["uid"], view["user"]) == (5001, "alice")
    assert view["nodes_from"] == f"step {job}.0"
    assert len(view["nodes"]) == 2
    assert view["step"]["tasks"] == 16
    assert view["job"]["gpus_per_node"] == 8
    assert view["log_paths"] == [f"/home/alice/llm 70b-{job}-{view['nodes'][0]}.out"]
    assert {state["node"] for state in view["node_states"]} == set(view["nodes"])
    tree = topology.parse(view["evidence"]["topology"][2], Origin())
    leaves = {node: one.name for one in tree if one.level == 0 for node in one.nodes}
    assert leaves[view["nodes"][0]].startswith("leaf")
    assert view["notes"] == []
    assert view["first_s"] < 1.0
    assert {"slurm_job", "slurm_node", "squeue", "topology"} == set(view["evidence"])


def test_times_are_utc_whatever_the_zone_of_the_caller(lab: Lab) -> None:
    with submitted(lab, "-N1") as job:
        running(lab, job)
        plain = look(lab, job)
        far = look(lab, job, env="TZ=XXX+11:30 SLURM_TIME_FORMAT=relative SQUEUE_FORMAT=%i")
        there = lab.sh("login", f"TZ=XXX+11:30 scontrol -o show job {job}")
        epoch = int(lab.sh("login", f'date -d "$(squeue -h -j {job} -o %S)" +%s'))
    assert far["job"]["started_at"] == plain["job"]["started_at"]
    assert cluster_time(plain["job"]["started_at"]) == epoch
    assert far["evidence"]["slurm_job"][1].startswith("TZ=UTC ")
    assert far["uid"] == 5001
    assert plain["job"]["started_at"][:-1] not in there  # or the zone would prove nothing


def cluster_time(text: str) -> int:
    from datetime import datetime

    return int(datetime.fromisoformat(text).timestamp())


def test_a_pending_job_has_no_nodes_and_is_no_failure(lab: Lab) -> None:
    with submitted(lab, "-N1 --begin=now+1hour") as job:
        view = look(lab, job)
    assert view["job"]["state"] == "PENDING"
    assert (view["nodes"], view["nodes_from"], view["no_job"]) == ([], "", "")
    assert view["uid"] == 5001


def test_an_ended_job_keeps_its_nodes_while_slurm_remembers_it(lab: Lab) -> None:
    with submitted(lab, "-N2 -o %j.log", "echo done; srun sh -c 'exit 3'") as job:
        ask = f"scontrol show job {job} | grep -q JobState=FAILED"
        cluster.wait_for(
            lambda: lab.exec("login", ["sh", "-c", ask]).returncode == 0, 30, "does not end"
        )
        view = look(lab, job, "alice")
    assert view["job"]["state"] == "FAILED"
    assert len(view["nodes"]) == 2
    assert view["nodes_from"] == f"job {job}"
    assert view["log_paths"] == [f"/home/alice/{job}.log"]
    assert any("accounting" in note for note in view["notes"])  # this lab has none: it is said


def test_an_unknown_id_is_said_to_be_unknown(lab_acct: Lab) -> None:
    view = look(lab_acct, "999999")
    assert view["job"] is None
    assert view["evidence"]["slurm_job"][0] == "not found"
    assert view["no_job"] == "Slurm knows no such job, neither in slurmctld nor in accounting"


def test_a_job_that_only_accounting_knows_has_owner_and_nodes(lab_acct: Lab) -> None:
    with submitted(lab_acct, "-N2 -J 'a|b' -o %j.out", "srun sh -c 'exit 3'") as job:
        ask = f"sacct -n -X -P -j {job} -o State,NodeList"
        cluster.wait_for(
            lambda: lab_acct.sh("login", ask).startswith("FAILED|node"), 40, "sacct lags"
        )
        short = "sed -i 's/^MinJobAge=.*/MinJobAge=2/' /etc/slurm/slurm.conf"
        before = lab_acct.sh("ctl", "cat /etc/slurm/slurm.conf")
        try:
            lab_acct.sh("ctl", f"{short}; grep -q ^MinJobAge=2 /etc/slurm/slurm.conf || "
                               "echo MinJobAge=2 >>/etc/slurm/slurm.conf")  # fmt: skip
            lab_acct.sh("ctl", "scontrol reconfigure")
            gone = ["scontrol", "show", "job", job]
            cluster.wait_for(lambda: lab_acct.exec("login", gone).returncode != 0, 90, "stays")
            view = look(lab_acct, job, "alice")
        finally:
            lab_acct.path("ctl", "/etc/slurm/slurm.conf").write_text(before)
            lab_acct.sh("ctl", "scontrol reconfigure")
    assert view["job"]["state"] == "FAILED"
    assert (view["uid"], view["user"]) == (5001, "alice")
    assert len(view["nodes"]) == 2
    assert view["nodes_from"].startswith("accounting: the run that ended")
    assert view["job"]["name"] == "a|b"
    assert set(view["evidence"]) == {"slurm_job", "sacct", "slurm_node", "squeue", "topology"}


def test_the_nodes_of_a_requeued_run_come_from_accounting(lab_acct: Lab) -> None:
    with submitted(lab_acct, "-N2 --requeue") as job:
        running(lab_acct, job)
        held = lab_acct.sh("login", f"squeue -h -j {job} -o %N").strip()
        lab_acct.sh("login", f"scontrol requeue {job}", "alice")
        ask = f"sacct -D -n -X -P -j {job} -o State"
        cluster.wait_for(lambda: "REQUEUED" in lab_acct.sh("login", ask), 40, "sacct lags")
        view = look(lab_acct, job)
    assert view["job"]["state"] == "PENDING"
    assert view["job"]["restarts"] == 1
    assert sorted(view["nodes"]) == sorted(expand(held))
    assert "accounting: the run that ended" in view["nodes_from"]
    assert "REQUEUED" in view["nodes_from"]


def test_one_task_of_an_array_and_never_a_mixture(lab: Lab) -> None:
    with submitted(lab, "-N1 --gres=gpu:8 -a 1-3%2") as job:
        running(lab, f"{job}_2")
        one = look(lab, f"{job}_2", "alice")
        bare = look(lab, job)
    assert one["job"]["id"] == f"{job}_2"
    assert one["job"]["raw_id"] != job
    assert one["nodes_from"] == f"step {job}_2.0"
    assert len(one["nodes"]) == 1
    assert one["log_paths"] == [f"/home/alice/slurm-{job}_2.out"]
    assert one["notes"] == []
    assert len(bare["nodes"]) == 1
    assert "ask for another as" in bare["notes"][0]
    assert bare["evidence"]["slurm_job"][2].count("JobName=") == 1


def test_the_parts_of_a_heterogeneous_job_are_one_job(lab: Lab) -> None:
    with submitted(lab, "-N1 : -N2", "srun --het-group=0,1 sleep 600") as job:
        running(lab, job)
        whole, part = look(lab, job, "alice"), look(lab, f"{job}+1")
    assert len(whole["nodes"]) == 3
    assert whole["job"]["id"] == job
    assert whole["uid"] == 5001
    assert "2 parts" in whole["notes"][0]
    assert len(part["nodes"]) == 2
    assert set(part["nodes"]) < set(whole["nodes"])
    assert part["job"]["id"] == f"{job}+1"


def test_the_training_is_the_numeric_step_with_most_tasks(lab: Lab) -> None:
    script = "srun -N1 -n1 --overlap sleep 600 & srun -N2 -n8 --overlap sleep 600"
    with submitted(lab, "-N2 -n8 --gres=gpu:8", script) as job:
        running(lab, job, "1")
        view, named = look(lab, job), look(lab, f"{job}.0")
    sizes = {s["id"].split(".")[1]: s["tasks"] for s in view["job"]["steps"]}
    biggest = max(("0", "1"), key=lambda n: sizes[n])
    assert view["step"]["id"] == f"{job}.{biggest}"
    assert len(view["nodes"]) == 2
    assert named["step"]["id"] == f"{job}.0"


def test_other_jobs_on_the_nodes_are_listed_unless_they_are_private(lab: Lab) -> None:
    with submitted(lab, "-N1 -n1 -w node01") as job, submitted(lab, "-N1 -n1 -w node01") as other:
        running(lab, job)
        running(lab, other)
        view = look(lab, job, "bob")
    (seen,) = view["other_jobs"]["node01"]
    assert (seen["id"], seen["user"]) == (other, "alice")


def test_a_node_that_went_down_is_there_with_its_state(lab: Lab) -> None:
    with submitted(lab, "-N2 -w node03,node04 --no-requeue") as job:
        running(lab, job)
        lab.sh("ctl", "scontrol update nodename=node04 state=fail reason='lab test'")
        try:
            view = look(lab, job)
        finally:
            lab.sh("ctl", "scontrol update nodename=node04 state=resume")
    state = next(s for s in view["node_states"] if s["node"] == "node04")
    assert "FAIL" in (state["state"], *state["flags"])
    assert state["reason"] == "lab test"


def test_a_name_that_imitates_another_owner_fools_nobody(lab: Lab) -> None:
    name = "x UserId=root(0) GroupId=root(0) JobState=RUNNING NodeList=node04"
    with submitted(lab, f"-N1 -w node01 -J {shlex.quote(name)}") as job:
        running(lab, job)
        view = look(lab, job)
    assert view["uid"] == 5001
    assert view["nodes"] == ["node01"]


def test_a_controller_that_hangs_costs_its_deadline_and_is_said(lab: Lab) -> None:
    pid = lab.sh("ctl", "pgrep -o slurmctld").strip()
    with submitted(lab, "-N1") as job:
        running(lab, job)
        lab.sh("ctl", f"kill -STOP {pid}")
        try:
            view = look(lab, job)
        finally:
            lab.sh("ctl", f"kill -CONT {pid}")
    assert view["job"] is None
    assert view["evidence"]["slurm_job"][0] == "timeout"
    assert any("no answer in 5 s" in note for note in view["notes"])
    assert view["no_job"].startswith("Slurm cannot be asked (no answer in 5 s")
    assert view["took_s"] < 14


def test_logs_of_a_sites_own_place_are_read_as_the_owner(lab: Lab) -> None:
    with submitted(lab, "-N1") as job:
        running(lab, job)
        mine, theirs = f"/home/alice/site-{job}-rank0.txt", f"/home/alice/site-{job}-rank1.txt"
        lab.sh("login", f"echo step 1 >{mine}", "alice")
        lab.sh("login", f"echo secret >{theirs}; chmod 644 {theirs}")
        settings = (
            "SLUGGISH_LOG_PATTERNS='[/home/%u/site-%j-rank*.txt]'; export SLUGGISH_LOG_PATTERNS"
        )
        told = lab.sh(
            "login", f"{settings}; sluggish collect --job {job} --window 0 -o /tmp/b 2>&1"
        )
        manifest = json.loads(lab.sh("login", "cat /tmp/b/manifest.json"))
        lab.sh("login", f"rm -r /tmp/b {mine} {theirs}")
    logs = {e["command"]: e["error"] for e in manifest["evidence"] if e["probe"] == "job_log"}
    assert logs[mine] is None, told
    assert logs[theirs] == "denied"


def test_no_munge_and_no_name_of_the_controller_are_no_unknown_job(lab: Lab) -> None:
    diagnose = "sluggish diagnose --job 4242 --window 0 2>&1; echo rc=$?"
    socket = "/run/munge/munge.socket.2"
    lab.sh("login", f"mv {socket} {socket}.away")
    try:
        munge = lab.sh("login", diagnose)
    finally:
        lab.sh("login", f"mv {socket}.away {socket}")
    assert "sluggish: job 4242: Slurm cannot be asked (Munge encode failed" in munge
    conf = "sed s/^SlurmctldHost=.*/SlurmctldHost=nowhere.invalid/ /etc/slurm/slurm.conf >/tmp/dns"
    dns = lab.sh("login", f"{conf}; SLURM_CONF=/tmp/dns; export SLURM_CONF; {diagnose}")
    assert "sluggish: job 4242: Slurm cannot be asked (no answer in 5 s: " in dns
    assert "knows no such job" not in munge + dns
    known = lab.sh("login", diagnose)
    assert "slurmctld knows no such job, and there is no accounting here" in known


SEED = os.environ.get("SLUGGISH_FUZZ_SEED", "11")


def test_our_expansion_of_host_lists_is_slurms(lab: Lab) -> None:
    dice = random.Random(SEED)

    def numbers() -> str:
        low = dice.randrange(0, 30)
        width = dice.choice((1, 2, 3))
        spans = [f"{low:0{width}d}-{low + dice.randrange(0, 12):0{width}d}"]
        spans += [f"{dice.randrange(0, 99):0{width}d}" for _ in range(dice.randrange(0, 3))]
        return "[" + ",".join(spans) + "]"

    def one() -> str:
        words = ["node", "gpu-", "rack", "a", "b-c", "n.x"]
        text = dice.choice(words)
        for _ in range(dice.randrange(0, 3)):
            text += numbers() + dice.choice(("", "n", "-k"))
        return text.removesuffix("n").removesuffix("-k") if "[" in text else text + "7"

    lists = [",".join(one() for _ in range(dice.randrange(1, 4))) for _ in range(150)]
    script = "".join(f"echo '>> {x}'; scontrol show hostnames '{x}' 2>/dev/null\n" for x in lists)
    told = lab.sh("login", script)
    for block in told.split(">> ")[1:]:
        text, *names = block.splitlines()
        assert expand(text) == names, text


def test_a_job_that_there_is_not_leaves_nothing_behind(lab: Lab) -> None:
    argv = ["env", "SLUGGISH_STATE=/tmp/none", "sluggish", "diagnose", "--job", "99999"]
    done = lab.exec("login", argv, "alice")
    assert done.stdout == ""
    assert "knows no such job" in done.stderr
    assert "cancel" not in done.stderr
    assert lab.sh("login", "ls -A /tmp/none", "alice").split() == []
