"""The script that a node runs: what it sees as whom, what it survives, and that it only reads."""

import contextlib
import re
import secrets
import shlex
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sluggish.preflight import node_setup
from sluggish.probes import PROBES
from sluggish.reach.frames import Frames, clock_again, clock_of
from sluggish.reach.model import Ask, Frame
from sluggish.reach.script import SUDO_COMMANDS, build

from . import cluster, sims, storage
from .cluster import Lab

NODE = "node01"
ALICE = 5001


def answer(
    lab: Lab, *, node: str = NODE, user: str | None = None, shell: str = "sh", **asked: Any
) -> list[Frame]:
    """What the script says there; every answer must reach its end mark."""
    boundary = secrets.token_hex(16)
    ask = Ask(**{"uid": ALICE, "window_s": 0.0, "probe_s": 3.0, **asked})
    script = build(ask, boundary, PROBES)
    frames = Frames(boundary)
    found = list(frames.feed(fed(lab, node, ["sh", "-c", f"exec {shell} -s"], user, script)))
    assert frames.ended
    return found


def fed(lab: Lab, node: str, argv: list[str], user: str | None, script: bytes) -> bytes:
    """The bytes that a command prints, the script on its stdin."""
    pipe = subprocess.PIPE
    process = lab.popen(node, argv, user, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        return process.communicate(script, timeout=60)[0]
    finally:
        cluster.end(process)


def errors(frames: list[Frame]) -> dict[str, str | None]:
    return {frame.probe + frame.sample: frame.error for frame in frames}


@pytest.fixture
def job(lab: Lab) -> Iterator[str]:
    """A job of alice on two nodes with two ranks on each, all asleep."""
    made = "cd; sbatch --parsable -N2 -w node[01-02] --ntasks-per-node=2 --wrap 'srun sleep 600'"
    number = lab.sh("login", made, "alice").strip()
    try:
        cluster.wait_for(lambda: len(_ranks(lab, number)) == 2, 20, "the ranks")
        yield number
    finally:
        lab.sh("login", f"scancel {number}")


def _ranks(lab: Lab, job: str) -> list[str]:
    rows = lab.exec(NODE, ["scontrol", "listpids", job]).stdout.splitlines()
    return [row for row in rows if row.split()[1:3] == [job, "0"]]


@pytest.mark.parametrize("shell", ["sh", "dash", "bash --posix", "busybox sh"])
def test_every_shell_gives_every_probe_s_answer(lab: Lab, shell: str) -> None:
    told = errors(answer(lab, shell=shell))
    if shell.startswith("busybox"):  # a build that prefers its own setpriv says that it may not
        assert told.pop("flight_recorder", None) in (None, "denied")
    assert {"identity", "kernel_log", "nvidia_smi", "ibstat", "ib_ports", "mounts"} <= set(told)
    assert {name: error for name, error in told.items() if error} == {}


def test_a_plain_user_s_missing_rights_are_errors_and_never_empty_answers(
    lab: Lab, job: str
) -> None:
    owner, other = (errors(answer(lab, user=u, job=job)) for u in ("alice", "bob"))
    assert owner["kernel_log"] == other["kernel_log"] == "denied"
    assert owner["rank_procsa"] is None
    assert {f.rights for f in answer(lab, user="alice")} == {"user"}


def test_sudo_is_used_only_when_told_and_only_for_what_was_denied(lab: Lab) -> None:
    def logs(**asked: bool) -> list[tuple[str | None, str | None]]:
        frames = answer(lab, user="alice", probes=("kernel_log",), **asked)
        return [(frame.rights, frame.error) for frame in frames]

    rules = lab.path("ctl", "/etc/sudoers.d") / "look"
    lines = [f"alice ALL=(root) NOPASSWD: /usr/local/bin/{line}\n" for line in SUDO_COMMANDS]
    rules.write_text("".join(lines))
    rules.chmod(0o440)
    try:
        assert logs() == [("user", "denied")]
        assert logs(sudo=True) == [("user", "denied"), ("sudo", None)]
    finally:
        rules.unlink()
    assert logs(sudo=True) == [("user", "denied"), ("sudo", "denied")]


def test_the_ranks_of_the_job_and_nobody_else_s_are_listed(lab: Lab, job: str) -> None:
    stranger = lab.popen(NODE, ["sleep", "601"], "bob")
    try:
        (procs,) = [f for f in answer(lab, job=job) if f.probe == "rank_procs"]
    finally:
        cluster.end(stranger)
    text = procs.content.decode()
    assert text.count("sleep 600") >= 2
    assert "sleep 601" not in text
    assert sorted(re.findall(r"^SLURM_PROCID=(\d)", text, re.MULTILINE))[-2:] == ["0", "1"]


def procs(lab: Lab, job: str, **more: Any) -> tuple[str | None, str]:
    """Error of the rank processes, and for each command line what found it."""
    (found,) = answer(lab, job=job, probes=("rank_procs",), **more)
    text = found.content.decode()
    told = re.findall(
        r"/source <==\n(\w+)\n(?:==> \S+/mounts <==\nown\n)?==> \S+/cmdline <==\n(.*)", text
    )
    return found.error, "\n".join(f"{line.strip()} ({source})" for source, line in told)


def test_nobody_becomes_a_rank_by_calling_himself_one(lab: Lab, job: str) -> None:
    claim = ["env", f"SLURM_JOB_ID={job}", "SLURM_STEP_ID=0", "RANK=0"]
    liar = lab.popen(NODE, [*claim, "sleep", "602"], "bob")
    left = lab.popen(NODE, [*claim, "sleep", "603"], "alice")
    try:
        cluster.wait_for(lambda: "sleep 603" in procs(lab, job)[1], 10, "the owner's process")
        error, told = procs(lab, job)
    finally:
        cluster.end(liar)
        cluster.end(left)
    assert error is None
    assert "sleep 603 (environment)" in told
    assert "sleep 600 (listpids)" in told
    assert "sleep 602" not in told


def test_a_process_of_the_owner_that_holds_a_gpu_outside_every_job_is_listed(
    lab: Lab, job: str
) -> None:
    lab.sh(NODE, "[ -e /dev/nvidia7 ] || { : >/dev/nvidia7; touch /run/node/made; }")
    runs = ["sh", "-c", "exec 9</dev/nvidia7; exec sleep 604"]
    own = lab.popen(NODE, runs, "alice")
    other = lab.popen(NODE, ["env", "SLURM_JOB_ID=999999", *runs], "alice")
    stranger = lab.popen(NODE, runs, "bob")
    try:
        cluster.wait_for(lambda: "sleep 604" in procs(lab, job)[1], 10, "the process")
        told = procs(lab, job)[1]
    finally:
        for process in (own, other, stranger):
            cluster.end(process)
        lab.sh(NODE, "[ ! -e /run/node/made ] || rm /run/node/made /dev/nvidia7")
    assert told.count("sleep 604 (gpu)") == told.count("sleep 604") == 1


def test_hidden_processes_and_another_pid_namespace_are_no_empty_node(lab: Lab, job: str) -> None:
    lab.sh(NODE, "mount -n -o remount,hidepid=2 /proc")
    try:
        assert procs(lab, job, user="bob")[0] == "denied"
        error, told = procs(lab, job, user="alice")
    finally:
        lab.sh(NODE, "mount -n -o remount,hidepid=0 /proc")
    assert error is None
    assert "sleep 600" in told
    apart = "unshare --pid --fork --mount-proc sh"
    assert procs(lab, job, shell=apart) == ("denied", "")


def test_slurm_that_does_not_answer_costs_its_own_list_alone(lab: Lab, job: str) -> None:
    with tool(lab, "scontrol", "sleep 600"):
        error, told = procs(lab, job, probe_s=6.0)
    assert error is None
    assert "sleep 600 (cgroup)" in told or "sleep 600 (environment)" in told


def test_the_script_s_own_processes_are_no_ranks(lab: Lab, job: str) -> None:
    """Over srun they carry the job's environment, its rank numbers too."""
    boundary = secrets.token_hex(16)
    script = build(Ask(job=job, uid=ALICE, window_s=0.0), boundary, PROBES)
    step = ["srun", f"--jobid={job}", "--overlap", "-N1", "-n1", "-w", NODE, "-Q", "sh", "-s"]
    got = fed(lab, "login", step, "alice", script)
    (procs,) = [f for f in Frames(boundary).feed(got) if f.probe == "rank_procs"]
    lines = re.findall(r"/cmdline <==\n(.*)", procs.content.decode())
    told = {line.strip().rpartition("/")[2] for line in lines}
    assert "sleep 600" in told
    assert not any(line.startswith(("sh -s", "sluggish")) for line in told), told


@contextlib.contextmanager
def mounted(lab: Lab, options: str, *places: str) -> Iterator[None]:
    for place in places:
        lab.sh(NODE, f"mount -n -t tmpfs -o {options} none {place}")
    try:
        yield
    finally:
        for place in places:
            lab.sh(NODE, f"umount -n {place}")


@pytest.mark.parametrize(
    ("options", "places"),
    [("ro", ["/tmp"]), ("size=4k", ["/tmp"]), ("ro", ["/tmp", "/dev/shm"])],
    ids=["read-only", "full", "nowhere"],
)
def test_where_tmp_cannot_be_written_the_answer_still_comes(
    lab: Lab, options: str, places: list[str]
) -> None:
    with mounted(lab, options, *places):
        told = errors(answer(lab, probes=("identity", "kernel_log", "ibstat", "gpu_samples")))
    assert (told["identity"], told["kernel_log"], told["ibstat"]) == (None, None, None)
    if len(places) > 1:
        assert told["gpu_samples"] == "not run"


def test_in_a_variable_too_nothing_is_cut_or_refused_in_silence(lab: Lab) -> None:
    sims.journal(lab, NODE, there=False)
    sims.kernel(lab, NODE, "x" * 100_000)
    sims.kernel(lab, NODE, "the last line")
    try:
        with mounted(lab, "ro", "/tmp", "/dev/shm"):
            everything = answer(lab)
            (whole,) = answer(lab, probes=("kernel_log",))[:1]
            (cut,) = answer(lab, probes=("kernel_log",), cap_bytes=50_000)[:1]
            (refused,) = answer(lab, probes=("kernel_log",), user="alice")[:1]
    finally:
        sims.journal(lab, NODE, there=True)
        sims.clear_kernel(lab, NODE)
    assert (whole.error, whole.exit_code) == (None, 0)
    assert whole.content.rstrip().endswith(b"the last line")
    assert (cut.error, len(cut.content)) == ("truncated", 50_000)
    assert (refused.error, refused.content) == ("denied", b"")
    assert "not permitted" in refused.stderr
    told = errors(everything)
    assert {told[name] for name in ("mounts", "flight_recorder", "gpu_samples")} == {"not run"}


def test_in_a_variable_too_a_tool_that_hangs_in_the_kernel_costs_its_own_answer(lab: Lab) -> None:
    storage.mount(lab, NODE)
    sims.gpus(lab, NODE, {"hang": "/mnt/data/x"})
    storage.hang(lab, NODE)
    try:
        with mounted(lab, "ro", "/tmp", "/dev/shm"):
            frames = answer(lab, probe_s=1.5)
    finally:
        storage.mend(lab, NODE)
        sims.gpus(lab, NODE, {})
        storage.unmount(lab, NODE)
    told = errors(frames)
    assert (told["nvidia_smi"], told["kernel_log"], told["ibstat"]) == ("stuck", None, None)
    (smi,) = [f for f in frames if f.probe == "nvidia_smi"]
    assert " D " in smi.stderr


def test_a_disk_that_fills_in_mid_answer_is_said(lab: Lab) -> None:
    with mounted(lab, "size=1400k", "/tmp"), tool(lab, "ibstat", "head -c 3000000 /dev/zero"):
        (ibstat,) = answer(lab, probes=("ibstat",))[:1]
    assert ibstat.error == "truncated"
    assert 0 < len(ibstat.content) < 3_000_000


@pytest.mark.parametrize(
    ("tools", "error"),
    [
        ("head mktemp timeout gzip", {"sockets": "not found"}),
        ("wc", {"flight_recorder": "not run", "mounts": "not run", "gpu_samples": "not run"}),
        ("cut", {"rank_procsa": "not found", "flight_recorder": "not found"}),
    ],
)
def test_what_a_node_lacks_costs_its_own_answers_and_never_in_silence(
    lab: Lab, tools: str, error: dict[str, str], files: dict[str, str]
) -> None:
    hide = "".join(f"mount -n --bind /dev/null /usr/bin/{tool};" for tool in tools.split())
    shell = f"unshare --mount sh -c '{hide} exec sh \"$@\"' sh"
    frames = answer(lab, shell=shell, job="4713", dumps=(files["prefix"],))
    told = {name: why for name, why in errors(frames).items() if name != "kernel_log"}
    dumps = [f for f in frames if f.probe == "flight_recorder"]
    if "head" in tools:
        assert b"good" in {f.content for f in dumps}
        told.pop("flight_recorder")
    assert {name: why for name, why in told.items() if why} == error


@pytest.mark.parametrize("way", ["TMPDIR=/mnt/data/tmp", "PATH=/mnt/data/bin:$PATH"])
def test_an_environment_that_names_dead_storage_does_not_hold_it_up(lab: Lab, way: str) -> None:
    storage.mount(lab, NODE)
    lab.sh(NODE, "mkdir -p /mnt/data/tmp /mnt/data/bin")
    storage.hang(lab, NODE)
    try:
        began = datetime.now(UTC)
        shell = f"sh -c '{way} exec /bin/sh \"$@\"' sh"
        told = errors(answer(lab, shell=shell, probes=("identity", "kernel_log", "ibstat")))
        took = datetime.now(UTC) - began
    finally:
        storage.mend(lab, NODE)
        storage.unmount(lab, NODE)
    assert told == {"identity": None, "kernel_log": None, "ibstat": None, "clock": None}
    assert took < timedelta(seconds=8)


@pytest.mark.parametrize("how", ["the line breaks", "it is ended"])
def test_a_look_that_is_broken_off_leaves_no_process_and_no_file(lab: Lab, how: str) -> None:
    boundary = secrets.token_hex(16)
    script = build(Ask(window_s=2.0, probes=("gpu_samples", "memory")), boundary, PROBES)
    pipe = subprocess.PIPE
    process = lab.popen(NODE, ["sh", "-s"], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    assert process.stdout is not None
    sampler = ["pgrep", "-f", "query-gpu=timestamp"]
    try:
        process.stdin.write(script)
        process.stdin.close()
        cluster.wait_for(lambda: lab.exec(NODE, sampler).returncode == 0, 10, "the sampler")
        if how == "it is ended":
            process.terminate()
        process.stdout.close()
        cluster.wait_for(lambda: lab.exec(NODE, sampler).returncode != 0, 10, "the sampler's end")
        left = ["sh", "-c", "ls -d /tmp/sluggish.*"]
        cluster.wait_for(lambda: lab.exec(NODE, left).returncode != 0, 10, "the directory's end")
    finally:
        cluster.end(process)


def test_a_gpu_tool_that_hangs_in_the_kernel_is_stuck_and_no_second_one_is_started(
    lab: Lab,
) -> None:
    storage.mount(lab, NODE)
    sims.gpus(lab, NODE, {"hang": "/mnt/data/x"})
    storage.hang(lab, NODE)
    try:
        frames = answer(lab, window_s=1.0, probe_s=1.5)
    finally:
        storage.mend(lab, NODE)
        sims.gpus(lab, NODE, {})
        storage.unmount(lab, NODE)
    told = errors(frames)
    assert (told["nvidia_smi"], told["gpu_samples"]) == ("stuck", "stuck")
    (smi,) = [f for f in frames if f.probe == "nvidia_smi"]
    assert " D " in smi.stderr
    assert told["ibstat"] is None


@contextlib.contextmanager
def tool(lab: Lab, name: str, script: str) -> Iterator[None]:
    """Another program under this name, on one node."""
    place = lab.path(NODE, f"/usr/local/bin/{name}")
    saved = place.with_name(f".{name}.saved")
    if place.exists():
        place.rename(saved)
    place.write_text(f"#!/bin/sh\n{script}\n")
    place.chmod(0o755)
    try:
        yield
    finally:
        place.unlink()
        if saved.exists():
            saved.rename(place)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("head -c 50000000 /dev/zero | tr '\\0' a", "truncated"),
        ("head -c 50000000 /dev/zero | tr '\\0' e >&2; echo CA", None),
        ("sleep 600", "timeout"),
        ("trap '' TERM; sleep 600 & wait; sleep 600", "timeout"),
        ("exit 127", "not found"),
        ("no-such-tool | cat", "not found"),
    ],
    ids=["flood", "stderr flood", "sleeps", "ignores TERM", "missing", "missing in a pipe"],
)
def test_tools_that_misbehave_cost_their_own_answer_alone(
    lab: Lab, script: str, error: str | None
) -> None:
    with tool(lab, "ibstat", script):
        told = errors(answer(lab, probes=("ibstat", "gpu_bus"), probe_s=1.5, cap_bytes=1 << 20))
    assert told == {"ibstat": error, "gpu_bus": None}
    lab.exec(NODE, ["pkill", "-KILL", "-f", "sleep 600"])


def test_nothing_of_the_script_stays_on_the_node(lab: Lab) -> None:
    answer(lab, window_s=0.5)
    left = lab.sh(NODE, "ls -d /tmp/sluggish.* /dev/shm/sluggish.* 2>/dev/null || true")
    assert left == ""


def test_a_clock_that_is_an_hour_ahead_is_measured(lab: Lab) -> None:
    sims.clock(lab, NODE, 3600)
    try:
        sent = datetime.now(UTC)
        identity, again = answer(lab, probes=("identity",))
        clock = clock_of(identity, NODE, sent, datetime.now(UTC))
        sims.clock(lab, NODE, 7200)
        _, jumped = answer(lab, probes=("identity",))
    finally:
        sims.clock(lab, NODE, 0)
    assert clock.offset_s is not None
    assert abs(clock.offset_s - 3600) < 5
    still = clock_again(clock, again, datetime.now(UTC))
    assert abs(still.drift_s or 0.0) < 0.5  # under load it reads its clock and its uptime apart
    moved = clock_again(clock, jumped, datetime.now(UTC))
    assert abs((moved.drift_s or 0) - 3600) < 0.5


# -- what the job's owner names ---------------------------------------------------------------


@pytest.fixture
def files(lab: Lab) -> Iterator[dict[str, str]]:
    """Traps in alice's own directory on the node, named as dumps of ranks are."""
    base = "/tmp/alice's $(touch /tmp/ran) dir"
    quoted = shlex.quote(base)
    lab.sh(NODE, f"mkdir -p {quoted}; printf good >{quoted}/d_0", "alice")
    lab.sh(NODE, f"ln -s /etc/shadow {quoted}/d_1; mkfifo {quoted}/d_2", "alice")
    lab.sh(NODE, f"truncate -s 100G {quoted}/d_3; printf old >{quoted}/d_4", "alice")
    lab.sh(NODE, f"touch -d 2020-01-01 {quoted}/d_4", "alice")
    lab.sh(NODE, f"printf other >{quoted}/d_5; ln -s /dev/zero {quoted}/d_6")
    yield {"prefix": f"{base}/d_", "log": f"{base}/d_0"}
    lab.sh(NODE, f"rm -rf {quoted} /tmp/ran")


def test_dumps_are_read_as_their_owner_and_traps_are_not_read(
    lab: Lab, files: dict[str, str]
) -> None:
    since = datetime.now(UTC) - timedelta(hours=1)
    told = answer(
        lab, probes=("flight_recorder",), dumps=(files["prefix"],), dumps_after=since
    )  # fmt: skip
    dumps = {f.rank: (f.content, f.error) for f in told if f.probe == "flight_recorder"}
    assert dumps.pop(0) == (b"good", None)
    assert dumps.pop(3) == (b"", "truncated")
    assert dumps == dict.fromkeys((1, 2, 5, 6), (b"", "denied"))
    assert {f.rights for f in told} == {"user"}
    assert lab.exec(NODE, ["ls", "/tmp/ran"]).returncode != 0


@pytest.mark.parametrize(
    ("number", "error"), [(0, None), (1, "denied"), (2, "denied"), (5, "denied")]
)
def test_logs_that_are_links_fifos_or_others_are_refused(
    lab: Lab, files: dict[str, str], number: int, error: str | None
) -> None:
    path = f"{files['prefix']}{number}"
    (log,) = [f for f in answer(lab, probes=("job_log",), logs=(path,)) if f.probe == "job_log"]
    assert (log.error, log.name) == (error, path)
    assert b"root:" not in log.content
    assert lab.exec(NODE, ["ls", "/tmp/ran"]).returncode != 0


def test_of_a_long_log_head_and_tail_come_with_what_lies_between(lab: Lab) -> None:
    lab.sh(NODE, "seq -f 'line %.0f' 1000000 >/tmp/long.log", "alice")
    try:
        (log,) = answer(lab, probes=("job_log",), logs=("/tmp/long.log",))
    finally:
        lab.sh(NODE, "rm /tmp/long.log")
    text = log.content.decode()
    assert text.startswith("line 1\n")
    assert text.endswith("line 1000000\n")
    size = len("".join(f"line {n}\n" for n in range(1, 1_000_001)))
    assert f"[... {size - 4456448} bytes not searched ...]" in text


def test_a_dump_in_a_rank_s_own_tmp_is_found_through_its_root(lab: Lab) -> None:
    job = "4711"
    body = "mount -n -t tmpfs x /tmp && printf inside >/tmp/nccl_trace_rank_3 && exec sleep 605"
    apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", body]
    rank = lab.popen(NODE, ["env", f"SLURM_JOB_ID={job}", "RANK=3", *apart], "alice")
    try:
        cluster.wait_for(lambda: "sleep 605" in procs(lab, job)[1], 10, "the rank")
        told = answer(lab, job=job, probes=("flight_recorder",))
    finally:
        cluster.end(rank)
    (dump,) = told
    assert (dump.rank, dump.content, dump.error) == (3, b"inside", None)
    assert re.fullmatch(r"/proc/\d+/root/tmp/nccl_trace_rank_3", dump.name)


def test_dumps_stand_where_the_rank_s_environment_says(lab: Lab) -> None:
    lab.sh(NODE, "mkdir -p '/tmp/al  ice' && printf own >'/tmp/al  ice/x_7'", "alice")
    names = ["TORCH_FR_DUMP_TEMP_FILE=/tmp/al  ice/x_", "SLURM_JOB_ID=4712", "RANK=7"]
    rank = lab.popen(NODE, ["env", *names, "sleep", "606"], "alice")
    try:
        cluster.wait_for(lambda: "sleep 606" in procs(lab, "4712")[1], 10, "the rank")
        told = answer(lab, job="4712", probes=("flight_recorder",))
    finally:
        cluster.end(rank)
        lab.sh(NODE, "rm -r '/tmp/al  ice'")
    assert [(f.rank, f.content) for f in told] == [(7, b"own")]


def test_dumps_of_a_node_whose_clock_is_behind_are_not_taken_for_an_earlier_job_s(
    lab: Lab,
) -> None:
    """Written ten minutes ago on a clock that is an hour behind; the job began half an hour ago."""
    now = datetime.now(UTC)
    stamp = int((now - timedelta(minutes=70)).timestamp())
    made = f"mkdir /tmp/behind && cd /tmp/behind && printf own >x_7 && touch -d @{stamp} x_7"
    lab.sh(NODE, made, "alice")
    asked = {"dumps": ("/tmp/behind/x_",), "dumps_after": now - timedelta(minutes=30),
             "probes": ("flight_recorder",)}  # fmt: skip

    def told(**more: Any) -> list[int | None]:
        return [f.rank for f in answer(lab, **asked, **more) if f.content == b"own"]

    try:
        assert told(asked_at=now) == []
        sims.clock(lab, NODE, -3600)
        assert told(asked_at=now) == [7]
        assert told() == []
    finally:
        sims.clock(lab, NODE, 0)
        lab.sh(NODE, "rm -r /tmp/behind")


def test_logs_that_nccl_writes_into_files_of_its_own_are_read(lab: Lab) -> None:
    """One a process, as their owner; a worker of a rank has the variable and no file."""
    at = "/tmp/nccl  logs"
    lab.sh(NODE, f"mkdir -p '{at}'", "alice")
    names = [f"NCCL_DEBUG_FILE={at}/n.%h.%p", "NCCL_DEBUG=INFO", "SLURM_JOB_ID=4713"]
    body = f"echo of rank $RANK >'{at}'/n.{NODE}.$$; sleep 607"
    link = f"ln -s /etc/motd '{at}'/n.{NODE}.$$; sleep 607"
    ranks = [
        lab.popen(NODE, ["env", *names, f"RANK={n}", "sh", "-c", what], "alice")
        for n, what in ((3, body), (4, body), (5, link))
    ]
    lone = lab.popen(
        NODE, ["env", "SLURM_JOB_ID=4714", "NCCL_DEBUG=INFO", f"NCCL_DEBUG_FILE={at}/none",
               "sleep", "608"], "alice",
    )  # fmt: skip
    try:
        made = ["sh", "-c", f"test $(ls '{at}' | wc -l) = 3"]
        cluster.wait_for(lambda: lab.exec(NODE, made).returncode == 0, 10, "the ranks' files")
        cluster.wait_for(lambda: "sleep 608" in procs(lab, "4714")[1], 10, "the lone one")
        told = answer(lab, job="4713", probes=("flight_recorder",))
        alone = answer(lab, job="4714", probes=("flight_recorder",))
        owner = answer(lab, job="4713", probes=("flight_recorder",), user="alice")
    finally:
        for rank in (*ranks, lone):
            cluster.end(rank)
        lab.sh(NODE, f"rm -r '{at}'")
    for frames in (told, owner):
        logs = {f.rank: (f.content, f.error) for f in frames if f.probe == "job_log"}
        assert logs[3] == (b"of rank 3\n", None)
        assert logs[4] == (b"of rank 4\n", None)
        assert logs[5] == (b"", "denied")
        assert len(logs) == 3
    (missing,) = [f for f in alone if f.probe == "job_log"]
    assert (missing.error, missing.name) == ("not found", f"{at}/none")


@pytest.fixture
def piped(lab: Lab) -> Iterator[str]:
    """Ranks as PyTorch leaves them with a recorder's pipe: one answers, the others are traps."""
    base = "/tmp/alice's pipes"
    at = shlex.quote(base)
    lab.sh(NODE, f"mkdir -p {at}; cd {at}; mkfifo p_0.pipe p_1.pipe p_4.pipe", "alice")
    lab.sh(NODE, f"cd {at}; ln -s /etc/motd p_2.pipe; printf kept >p_3.pipe", "alice")
    lab.sh(NODE, f"cd {at}; printf first >d_4; mkfifo p_5.pipe; mkdir torch", "alice")
    lab.sh(NODE, f"cd {at}; printf kept >torch/comm_lib_trace_rank_5", "alice")
    answers = f"cd {at}; head -c 1 <p_0.pipe >/dev/null; printf dumped >d_0; exec sleep 606"
    bodies = {0: answers, 4: f"cd {at}; head -c 1 <p_4.pipe >/dev/null; printf second >d_4"}
    names = [f"TORCH_NCCL_DEBUG_INFO_PIPE_FILE={base}/p_", f"TORCH_FR_DUMP_TEMP_FILE={base}/d_",
             f"XDG_CACHE_HOME={base}"]  # fmt: skip
    ranks = [
        lab.popen(
            NODE,
            ["env", "SLURM_JOB_ID=4712", f"RANK={n}", *names, "sh", "-c",
             bodies.get(n, "exec sleep 606")],
            "alice",
        )
        for n in range(6)
    ]  # fmt: skip
    try:
        cluster.wait_for(lambda: procs(lab, "4712")[1].count("(environment)") >= 6, 10, "the ranks")
        yield base
    finally:
        for rank in ranks:
            cluster.end(rank)
        lab.sh(NODE, f"rm -rf {at}")


def test_a_recorder_is_asked_through_its_pipe_only_when_told(lab: Lab, piped: str) -> None:
    def dumps(**more: Any) -> dict[tuple[int | None, str], tuple[bytes, str | None]]:
        told = answer(lab, job="4712", probes=("flight_recorder",), **more)
        return {(f.rank, f.name): (f.content, f.error) for f in told if f.probe != "stacks"}

    first = {
        (4, f"{piped}/d_4"): (b"first", None),
        (5, f"{piped}/torch/comm_lib_trace_rank_5"): (b"kept", None),
    }
    assert dumps() == first
    assert dumps(poke=True) == first | {
        (0, f"{piped}/d_0"): (b"dumped", None),
        (1, f"{piped}/p_1.pipe"): (b"", "not run"),  # nobody reads it: a dead monitor thread
        (2, f"{piped}/p_2.pipe"): (b"", "denied"),
        (3, f"{piped}/p_3.pipe"): (b"", "denied"),
    }
    assert lab.sh(NODE, f"cat {shlex.quote(piped)}/p_3.pipe") == "kept"


@pytest.mark.parametrize("tools", ["nc", "bash"])
def test_ras_is_asked_with_what_the_node_has(lab: Lab, tools: str) -> None:
    report = (Path(__file__).parents[1] / "captures/nccl_ras/docs-mismatch.txt").read_text()
    sims.ras(lab, NODE, report)
    hidden = [] if tools == "nc" else ["nc", "ncat", "socat"]
    where = lab.sh(NODE, f"for t in {' '.join(hidden)} ''; do command -v $t; done; :").split()
    hide = "".join(f"mount -n --bind /dev/null {path};" for path in where)
    shell = f"unshare --mount sh -c '{hide} exec sh \"$@\"' sh"
    try:
        (told,) = answer(lab, shell=shell, probes=("nccl_ras",), ras=True, probe_s=8.0)
    finally:
        sims.ras(lab, NODE, None)
    assert (told.error, told.exit_code) == (None, 0)
    assert report.strip()[-200:] in told.content.decode()


# -- it only reads -----------------------------------------------------------------------------

_WRITES = re.compile(
    r"^\d+ +(?:open(?:at)?\((?:AT_FDCWD, )?\"(?P<open>[^\"]*)\", [^)]*O_(?:WRONLY|RDWR|CREAT)"
    r"|(?:unlink|rmdir|mkdir|mknod|truncate|chmod|chown|rename|link|symlink|setxattr|utime)\w*"
    r"\((?:AT_FDCWD, )?\"(?P<path>[^\"]*)\""
    r"|(?P<kill>(?:tg|t)?kill)\((?P<pid>-?\d+), (?P<signal>\w+))"
)
_FORKS = re.compile(
    r"^(?P<who>\d+) .*(?:clone3?|v?fork)\(.*= (?P<child>\d+)$|resumed.*= (?P<late>\d+)$"
)
ALLOWED = re.compile(r"/tmp/sluggish\.\w{8}(?:/|$)")
OUTPUTS = ("/dev/null", "/dev/tty")


@pytest.mark.parametrize("places", [(), ("/tmp", "/dev/shm")], ids=["files", "variables"])
def test_the_script_writes_only_in_its_own_directory_and_ends_only_its_own(
    lab: Lab, job: str, places: tuple[str, ...]
) -> None:
    boundary = secrets.token_hex(16)
    ask = Ask(job=job, uid=ALICE, window_s=1.5, dumps=("/tmp/d_",), logs=("/tmp/none.log",))
    script = build(ask, boundary, (*PROBES, node_setup))
    trace = "/run/node/look.trace"
    calls = "trace=file,process,kill,tkill,tgkill,unlink,unlinkat"
    strace = ["strace", "-f", "-qq", "-e", calls, "-o", trace, "sh", "-s"]
    with mounted(lab, "ro", *places):
        assert boundary.encode() in fed(lab, NODE, strace, None, script)
    lines = lab.path(NODE, trace).read_text(errors="replace").splitlines()
    lab.path(NODE, trace).unlink()
    assert len(lines) > 1000
    started = {line.split(maxsplit=1)[0] for line in lines}
    wrong: list[str] = []
    for line in lines:
        found = _WRITES.match(line)
        if found is None or "= -1 E" in line:
            continue
        path = found["open"] if found["open"] is not None else found["path"]
        if path is not None and (places or not ALLOWED.match(path)) and path not in OUTPUTS:
            wrong.append(line)
        if found["kill"] and (found["pid"] not in started or found["signal"] == "SIGKILL"):
            wrong.append(line)
    assert wrong == []
