"""Who is told by `sluggish watch`: a real server behind `--webhook`, real programs by `--exec`."""

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from . import cluster
from .cluster import Lab

PORT = 8931
HOOK = f"http://10.77.0.2:{PORT}"
LOG, RAN = "/tmp/hook.log", "/tmp/ran"
PAGER = f"sh -c 'env >{RAN}; cat >>{RAN}; exit 7'"
RUNS: dict[str, tuple[str, list[str]]] = {
    "hangs": ("", ["--webhook", f"{HOOK}/hangs?hangs", "--exec", PAGER]),
    "ok": ("", ["--webhook", f"{HOOK}/ok?ok"]),
    "fails": ("", ["--webhook", f"{HOOK}/fails?fails"]),
    "moved": ("", ["--webhook", f"{HOOK}/moved?moved"]),
    "refused": ("", ["--webhook", "http://10.77.0.2:1/secret"]),
    "dead proxy": ("http_proxy=http://10.77.0.2:1", ["--webhook", f"{HOOK}/ok?dead"]),
    "proxy": (f"http_proxy={HOOK}", ["--webhook", "http://hooks.example/ok?proxy"]),
    "no program": ("", ["--exec", "/no/such/pager now"]),
}
"""Name -> what stands in the environment, and the options. The slowest begins first."""


class Told:
    """What came of one watch of a job that has failed."""

    def __init__(self, lab: Lab, job: str, env: str, argv: list[str]) -> None:
        run = ["env", *env.split(), "sluggish", "watch", "--job", job, "--json", *argv]
        done = lab.exec("login", run, timeout=240)
        self.code = done.returncode
        self.events = [json.loads(line) for line in done.stdout.splitlines()]
        said = [event["says"] for event in self.events if event["kind"] == "not told"]
        self.not_told = sorted(said)


def ended(lab: Lab, script: str, state: str) -> str:
    """A job of alice that has come to this end."""
    argv = ["sbatch", "--parsable", "-N1", "-o", "/home/alice/ended.out", "--wrap", script]
    job = lab.exec("login", argv, "alice", check=True).stdout.strip()
    if state == "CANCELLED":
        lab.exec("login", ["scancel", job], "alice", check=True)
    shown = ["squeue", "-h", "-t", "all", "-j", job, "-o", "%T"]
    cluster.wait_for(lambda: lab.exec("ctl", shown).stdout.strip() == state, 30, f"not {state}")
    return job


@pytest.fixture(scope="module")
def failed(lab: Lab) -> str:
    """A verdict comes at once, and somebody is to be told."""
    return ended(lab, "exit 3", "FAILED")


@pytest.fixture(scope="module")
def hook(lab: Lab) -> Iterator[None]:
    """The server on the login node."""
    null = subprocess.DEVNULL
    lab.path("login", LOG).unlink(missing_ok=True)
    argv = ["/usr/bin/python3", "/opt/sluggish/tests/lab/hook.py", str(PORT), LOG]
    process = lab.popen("login", argv, stdin=null, stdout=null, stderr=null)
    listens = ["sh", "-c", f"grep -q ':{PORT:04X} .* 0A ' /proc/net/tcp"]
    try:
        cluster.wait_for(lambda: lab.exec("login", listens).returncode == 0, 20, "no server")
        yield
    finally:
        cluster.end(process)


@pytest.fixture(scope="module")
def runs(lab: Lab, failed: str, hook: None) -> Iterator[dict[str, "Future[Told]"]]:
    """All watches of the table, three at a time."""
    with ThreadPoolExecutor(3) as pool:
        yield {
            name: pool.submit(Told, lab, failed, env, argv) for name, (env, argv) in RUNS.items()
        }


def came(lab: Lab, name: str) -> list[dict[str, Any]]:
    """What the server was asked under this name."""
    lines = map(json.loads, lab.path("login", LOG).read_text().splitlines())
    return [one for one in lines if one["path"].endswith(f"?{name}")]


def test_a_webhook_gets_the_verdict_once(
    lab: Lab, failed: str, runs: dict[str, "Future[Told]"]
) -> None:
    told = runs["ok"].result()
    assert [event["kind"] for event in told.events] == ["ended", "diagnosis"]
    (request,) = came(lab, "ok")
    document = request["document"]
    assert (request["method"], document["job"], document["kind"]) == ("POST", failed, "ended")
    assert document["exit_code"] == told.code
    verdict = told.events[-1]["diagnosis"]["verdict"]
    assert document["verdict"]["cause"] == verdict["cause"]
    assert lab.exec("login", ["test", "-f", document["bundle"]]).returncode == 0


@pytest.mark.parametrize(
    ("name", "says", "times"),
    [("fails", "10.77.0.2: HTTP 500", 3),
     ("moved", "10.77.0.2: HTTP 302, it is at another address: give that one", 1)],
)  # fmt: skip
def test_a_webhook_that_does_not_take_it_is_said(
    lab: Lab, runs: dict[str, "Future[Told]"], name: str, says: str, times: int
) -> None:
    told = runs[name].result()
    assert told.not_told == [says]
    assert [request["method"] for request in came(lab, name)] == ["POST"] * times
    assert told.code not in (0, 1, 2)  # the verdict's all the same


def test_a_refused_webhook_and_a_refused_proxy_are_told_apart(
    lab: Lab, runs: dict[str, "Future[Told]"]
) -> None:
    (says,) = runs["refused"].result().not_told
    assert says.startswith("10.77.0.2: ")
    assert "refused" in says
    assert "secret" not in says
    (says,) = runs["dead proxy"].result().not_told
    assert says.startswith("10.77.0.2 (through the proxy of http_proxy): ")
    assert came(lab, "dead") == []


def test_a_proxy_is_used_where_one_is_set(lab: Lab, runs: dict[str, "Future[Told]"]) -> None:
    assert runs["proxy"].result().not_told == []
    (request,) = came(lab, "proxy")
    assert request["path"] == "http://hooks.example/ok?proxy"


def test_a_webhook_that_hangs_and_a_program_that_fails_end_no_watch(
    lab: Lab, failed: str, runs: dict[str, "Future[Told]"]
) -> None:
    told = runs["hangs"].result()
    assert told.not_told[0] == "10.77.0.2: timed out"
    assert told.not_told[1].startswith("sh: exit code 7")
    assert told.code not in (0, 1, 2)
    ran = lab.path("login", RAN).read_text()
    assert f"SLUGGISH_JOB={failed}\n" in ran
    assert f"SLUGGISH_EXIT={told.code}\n" in ran
    assert json.loads(ran.splitlines()[-1])["job"] == failed
    assert len(came(lab, "hangs")) == 3


def test_what_cannot_be_run_is_said(lab: Lab, runs: dict[str, "Future[Told]"]) -> None:
    says = runs["no program"].result().not_told
    assert says == ["/no/such/pager: No such file or directory"]


def test_a_job_that_somebody_ended_calls_nobody(lab: Lab, hook: None) -> None:
    job = ended(lab, "srun sleep 600", "CANCELLED")
    told = Told(lab, job, "", ["--webhook", f"{HOOK}/ok?ended"])
    assert told.events[-1]["diagnosis"]["verdict"]["subtype"] == "cancelled"
    assert (told.code, came(lab, "ended")) == (19, [])
