"""Every fault of a connection, on real sshds: the right failure, within its time, said in words."""

import shlex
from collections.abc import Iterator

import pytest

from . import faults
from .cluster import Lab, wait_for
from .faults import PLACE

SSH = {
    "kind": "ssh", "config_file": f"{PLACE}/config", "connect_s": 2, "banner_s": 2, "auth_s": 2,
}  # fmt: skip
OPENSSH = {
    "kind": "openssh",
    "template": ["ssh", "-T", "-F", f"{PLACE}/config", "-o", "BatchMode=yes", "{node}", "sh", "-s"],
}
FLOOD = "head -c 30000000 /dev/zero"

# name of the host -> failure, words, latest second; by ssh
CONNECTING = {
    "refused": ("refused", "Unable to connect", 1.5),
    "noarp": ("unreachable", "", 5.0),
    "blackhole": ("unreachable", "no answer to the connection after 2", 4.0),
    "silent": ("no banner", "no line of sshd after 2", 4.0),
    "half": ("no banner", "first line, then no keys", 4.5),
    "junk": ("no banner", "no line of sshd", 4.5),
    "hangup": ("no banner", "takes the connection", 9.0),
    "badkey": ("auth denied", "Authentication failed", 2.5),
    "adopt": ("auth denied", "likely pam_slurm_adopt", 2.5),
    "slowkeys": ("auth hangs", "account service or home", 5.0),
    "unknown": ("host key", "compare it first, then: ssh-keyscan node01 >> ~/.ssh/known_ho", 2.0),
    "unknownport": ("host key", "then: ssh-keyscan -p 2223 login >> ~/.ssh/known_hosts", 2.0),
    "changed": ("host key", f"ssh-keygen -R node01 -f {PLACE}/changed && ssh-keyscan node01", 2.0),
    "revoked": ("host key", "revoked", 2.0),
    "signed": ("host key", "use --transport openssh", 2.0),
    "command": ("not run", "use --transport openssh", 1.0),
    "lostgate": ("not run", "jump host refused: ", 1.5),
    "nologin": ("no shell", "This account is currently not available", 2.0),
    "nosh": ("no shell", "/no/such/sh", 2.0),
    "no-such-host": ("not run", "does not resolve", 3.0),
    "otherport": (None, "", 2.5),
    "hashed": (None, "", 2.5),
    "here": (None, "", 2.5),
}
# what OpenSSH says in words; where it says none within the deadline, that is all that is known
COURIER = {
    "refused": ("refused", "Connection refused", 1.5),
    "noarp": ("unreachable", "", 4.0),
    "blackhole": ("unreachable", "timed out", 4.0),
    "silent": ("no banner", "during banner exchange", 4.0),
    "half": ("timeout", "no shell within 4 s", 5.5),
    "hangup": ("no banner", "kex_exchange_identification", 2.0),
    "badkey": ("auth denied", "Permission denied", 2.0),
    "adopt": ("auth denied", "pam_slurm_adopt", 2.0),
    "slowkeys": ("timeout", "no shell within 4 s", 5.5),
    "unknown": ("host key", "", 2.0),
    "changed": ("host key", "", 2.0),
    "signed": ("host key", "", 2.0),
    "nologin": ("no shell", "This account is currently not available", 2.0),
    "nosh": ("no shell", "/no/such/sh", 2.0),
    "no-such-host": ("not run", "Could not resolve hostname", 3.0),
    "command": (None, "", 2.0),
    "otherport": (None, "", 2.0),
    "here": (None, "", 2.0),
}
RUNNING = {
    "never ends": "echo begun; exec sleep 20",
    "a child that stays": "echo begun; sleep 20 &",
    "much": "head -c 50000000 /dev/zero",
    "stderr": f"{FLOOD} >&2; echo after",
    "no utf-8": r"printf '\377\376abc'",
    "reads stdin": "cat >/dev/null; echo read",
    "fails": "echo some; exit 3",
}


@pytest.fixture(scope="module")
def broken(lab: Lab) -> Iterator[Lab]:
    with faults.running(lab):
        yield lab


@pytest.fixture(scope="module")
def by_ssh(broken: Lab) -> dict[str, dict]:
    rounds = [
        {"name": name, "nodes": [name], "transport": SSH, "deadline_s": 12, "overall_s": 15}
        for name in CONNECTING
    ]
    rounds += [
        {"name": name, "nodes": ["here"], "script": script, "transport": SSH, "deadline_s": 4}
        for name, script in RUNNING.items()
    ]
    return faults.ask(broken, rounds)


@pytest.fixture(scope="module")
def by_openssh(broken: Lab) -> dict[str, dict]:
    rounds = [
        {"name": name, "nodes": [name], "transport": OPENSSH, "deadline_s": 4} for name in COURIER
    ]
    rounds += [
        {"name": name, "nodes": ["here"], "script": script, "transport": OPENSSH, "deadline_s": 4}
        for name, script in RUNNING.items()
    ]
    return faults.ask(broken, rounds)


def check(found: dict, failure: str | None, words: str, latest_s: float) -> None:
    (answer,) = found["answers"]
    told = f"{answer['failure']} {answer['says']} {answer['elapsed_s']:.1f} s {answer['stderr']}"
    assert answer["failure"] == failure, told
    assert words in answer["says"], told
    assert found["wall_s"] < latest_s * 2, told  # the machine is shared: twice the quiet time


@pytest.mark.parametrize("name", CONNECTING)
def test_a_fault_of_the_connection_by_ssh(by_ssh: dict[str, dict], name: str) -> None:
    check(by_ssh[name], *CONNECTING[name])


@pytest.mark.parametrize("name", COURIER)
def test_a_fault_of_the_connection_by_openssh(by_openssh: dict[str, dict], name: str) -> None:
    check(by_openssh[name], *COURIER[name])


@pytest.fixture(params=["ssh", "openssh"])
def ran(request: pytest.FixtureRequest) -> dict[str, dict]:
    return request.getfixturevalue(f"by_{request.param}")


def test_a_script_without_an_end_is_cut_at_its_deadline(ran: dict[str, dict]) -> None:
    found = ran["never ends"]
    check(found, "timeout", "did not end", 5.5)
    assert found["first"] == ["begun\n"]


def test_a_child_that_keeps_the_outputs_does_not_spoil_the_answer(ran: dict[str, dict]) -> None:
    """OpenSSH's client waits for the end of the outputs: the answer is whole all the same."""
    found = ran["a child that stays"]
    assert found["first"] == ["begun\n"]
    check(found, None, "", 4.5)


def test_much_output_comes_whole(ran: dict[str, dict]) -> None:
    check(ran["much"], None, "", 4.0)
    assert ran["much"]["bytes"] == [50_000_000]


def test_a_flood_of_stderr_blocks_nothing_and_is_capped(ran: dict[str, dict]) -> None:
    found = ran["stderr"]
    check(found, None, "", 4.0)
    assert found["first"] == ["after\n"]
    assert len(found["answers"][0]["stderr"]) <= 1 << 16


def test_bytes_arrive_as_they_are(ran: dict[str, dict]) -> None:
    assert ran["no utf-8"]["first"] == ["\xff\xfeabc"]


def test_the_script_ends_its_own_input(ran: dict[str, dict]) -> None:
    assert ran["reads stdin"]["first"] == ["read\n"]


def test_a_script_that_fails_has_died(ran: dict[str, dict]) -> None:
    check(ran["fails"], "died", "exit code 3", 3.0)


def test_64_targets_behind_one_jump_host_with_few_startups(broken: Lab) -> None:
    """Its sshd drops the third connection that is being made: one is shared by all."""
    nodes = [f"t{number:02d}" for number in range(64)]
    told = {"name": "jump", "nodes": nodes, "transport": SSH, "deadline_s": 25, "overall_s": 40}
    found = faults.ask(broken, [told])["jump"]
    failed = [(a["node"], a["failure"], a["says"]) for a in found["answers"] if a["failure"]]
    assert not failed
    log = broken.path("ctl", f"{PLACE}/sshd2225.log").read_text()
    assert log.count("Accepted publickey") == 1


@pytest.mark.parametrize("transport", [SSH, OPENSSH], ids=["ssh", "openssh"])
def test_a_link_that_is_cut_ends_at_the_deadline_with_what_had_come(
    broken: Lab, transport: dict
) -> None:
    script = "echo first; : >/tmp/cut-now; sleep 30"
    told = {"name": "cut", "nodes": ["node04"], "transport": transport, "script": script}
    mark = broken.path("node04", "/tmp/cut-now")
    process = faults.asking(broken, [{**told, "deadline_s": 3}])
    try:
        wait_for(mark.exists, 10, "the script did not begin")
        broken.cut("node04")
        found = faults.told(process)["cut"]
    finally:
        broken.mend("node04")
        mark.unlink(missing_ok=True)
    check(found, "timeout", "did not end", 4.5)
    assert found["first"] == ["first\n"]


@pytest.mark.parametrize("transport", [SSH, OPENSSH], ids=["ssh", "openssh"])
def test_a_node_whose_connection_breaks_off_has_died(broken: Lab, transport: dict) -> None:
    """Its sshd ends in mid-answer, as when the machine goes down."""
    script = "echo first; echo $PPID >/tmp/parent; sleep 30"
    told = {"name": "died", "nodes": ["node03"], "transport": transport, "script": script}
    mark = broken.path("node03", "/tmp/parent")
    process = faults.asking(broken, [{**told, "deadline_s": 10}])
    try:
        wait_for(lambda: mark.exists() and bool(mark.read_text()), 10, "it did not begin")
        broken.sh("node03", "kill -9 $(cat /tmp/parent)")
        found = faults.told(process)["died"]
    finally:
        mark.unlink(missing_ok=True)
    check(found, "died", "", 4.0)
    assert found["first"] == ["first\n"]


def test_the_command_that_is_printed_makes_the_key_known(broken: Lab) -> None:
    home = broken.path("ctl", f"{PLACE}/home/.ssh")
    home.mkdir(parents=True)
    broken.sh("ctl", f"cp /root/.ssh/id_ed25519 {PLACE}/home/.ssh/")
    env = {"HOME": f"{PLACE}/home"}
    told = {"name": "new", "nodes": ["login"], "transport": {"kind": "ssh", "port": 2223}}
    refused = faults.told(faults.asking(broken, [told], env=env))["new"]["answers"][0]
    assert refused["failure"] == "host key"
    command = refused["says"].partition("then: ")[2]
    broken.sh("login", f"HOME={PLACE}/home; export HOME; {command}")
    known = faults.told(faults.asking(broken, [told], env=env))["new"]["answers"][0]
    assert known["failure"] is None, known["says"]


def test_login_without_an_agent_offers_none(broken: Lab) -> None:
    """Forwarding stays off although ssh_config asks for it: nobody on a node gets at the keys."""
    broken.path("ctl", f"{PLACE}/forward").write_text(
        f"Include {PLACE}/config\nHost node01\n  ForwardAgent yes\n"
    )
    script = "echo agent=$SSH_AUTH_SOCK"
    agent = "eval $(ssh-agent) >/dev/null; ssh-add -q; echo $SSH_AUTH_SOCK $SSH_AGENT_PID"
    socket, pid = broken.sh("login", agent).split()
    try:
        transport = {**SSH, "config_file": f"{PLACE}/forward"}
        told = {"name": "f", "nodes": ["node01"], "transport": transport, "script": script}
        env = {"SSH_AUTH_SOCK": socket}
        found = faults.told(faults.asking(broken, [told], env=env))["f"]
    finally:
        broken.sh("login", f"kill {shlex.quote(pid)}")
    assert found["first"] == ["agent=\n"]
