"""Through one jump host: whose fault it is, and that no node is blamed for another's."""

from collections.abc import Iterator

import pytest

from . import faults
from .cluster import Lab, end, wait_for

CONFIG = "/run/lab/jump-config"
SSH = {"kind": "ssh", "config_file": CONFIG, "connect_s": 4}
KINDS = {
    "good": ("node0{one}", 22, "gateway"),
    "closed": ("node0{one}", 2299, "gateway"),
    "dead": ("10.77.5.{two}", 22, "gateway"),
    "nameless": ("no-such-{two}", 22, "gateway"),
    "forbidden": ("node0{one}", 22, "forbids"),
    "stranger": ("node0{one}", 22, "unknown"),
    "lost": ("node0{one}", 22, "nobody"),
}
"""Where a host of this kind lies, its port, its jump host."""
TOLD = {
    "good": (None, ""),
    "closed": ("refused", "the jump host cannot connect to it: Connection refused"),
    "dead": ("unreachable", "the jump host cannot connect to it: No route to host"),
    "nameless": ("not run", "the jump host cannot connect to it: Name or service not known"),
    "forbidden": ("not run", "the jump host forbids forwarding"),
    "stranger": ("not run", "jump host unknown: its host key is not known"),
    "lost": ("not run", "jump host nobody: "),
}
BY_OPENSSH = {
    "good": (None, ""),
    "closed": ("refused", "channel 0: open failed: connect failed: Connection refused"),
    "dead": ("unreachable", "channel 0: open failed: connect failed: No route to host"),
    "nameless": ("not run", "channel 0: open failed: connect failed: Name or service not known"),
    "forbidden": ("not run", "channel 0: open failed: administratively prohibited"),
    "stranger": ("not run", "its jump host: "),
    "lost": ("not run", "its jump host: ssh: connect to host login port 2299: Connection refused"),
}
EACH = 8


@pytest.fixture(scope="module")
def behind(lab: Lab) -> Iterator[Lab]:
    text = "Host gateway\n  HostName login\nHost forbids\n  HostName login\n  Port 2231\n"
    text += "Host unknown\n  HostName login\n  UserKnownHostsFile /dev/null\n"
    text += "Host nobody\n  HostName login\n  Port 2299\n"
    for kind, (place, port, jump) in KINDS.items():
        for number in range(EACH):
            name = place.format(one=number % 4 + 1, two=number + 1)
            text += f"Host {kind}{number}\n  HostName {name}\n  Port {port}\n  ProxyJump {jump}\n"
    path = lab.path("ctl", CONFIG)
    path.write_text(f"{text}Host *\n  StrictHostKeyChecking yes\n")
    sshd = lab.popen("login", ["/usr/sbin/sshd", "-D", "-p", "2231", "-o", "AllowTcpForwarding=no"])
    listens = ["sh", "-c", "ss -Hltn | grep -q ':2231 '"]
    try:
        wait_for(lambda: lab.exec("login", listens).returncode == 0, 10, "no sshd")
        yield lab
    finally:
        end(sshd)
        path.unlink()


@pytest.fixture(scope="module")
def answers(behind: Lab) -> list[dict]:
    """All kinds at once through one connection: none may get another's refusal."""
    nodes = [f"{kind}{number}" for number in range(EACH) for kind in KINDS]
    told = {"name": "all", "nodes": nodes, "transport": SSH, "workers": 64, "deadline_s": 15}
    return faults.ask(behind, [told])["all"]["answers"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_node_is_told_its_own_refusal(answers: list[dict], kind: str) -> None:
    mine = [a for a in answers if a["node"].startswith(kind)]
    assert len(mine) == EACH
    failure, words = TOLD[kind]
    told = [(a["node"], a["failure"], a["says"]) for a in mine]
    assert [t for t in told if t[1] != failure or not t[2].startswith(words)] == []


@pytest.fixture(scope="module")
def by_openssh(behind: Lab) -> dict[str, dict]:
    template = ["ssh", "-T", "-F", CONFIG, "-o", "BatchMode=yes", "{node}", "sh", "-s"]
    told = {
        "name": "all", "nodes": [f"{kind}0" for kind in KINDS], "deadline_s": 15,
        "transport": {"kind": "openssh", "template": template},
    }  # fmt: skip
    return {a["node"][:-1]: a for a in faults.ask(behind, [told])["all"]["answers"]}


@pytest.mark.parametrize("kind", KINDS)
def test_openssh_blames_the_jump_host_for_its_own_faults(
    by_openssh: dict[str, dict], kind: str
) -> None:
    failure, words = BY_OPENSSH[kind]
    told = by_openssh[kind]["failure"], by_openssh[kind]["says"]
    assert told[0] == failure, told
    assert told[1].startswith(words), told


def test_a_jump_host_that_dies_is_named_and_not_the_nodes(behind: Lab) -> None:
    mark = behind.path("node03", "/tmp/asked")
    nodes = [f"good{number}" for number in range(EACH)]
    script = "echo first; : >/tmp/asked; sleep 30"
    told = {"name": "d", "nodes": nodes, "transport": SSH, "script": script, "deadline_s": 20}
    process = faults.asking(behind, [told])
    try:
        wait_for(mark.exists, 15, "the script did not begin")
        ours = "ps -C sshd -o pid=,args= | grep 'sshd: root' | awk '{print $1}'"
        behind.sh("login", f"kill -9 $({ours})")
        found = faults.told(process)["d"]
    finally:
        mark.unlink(missing_ok=True)
    assert found["wall_s"] < 12
    says = "the connection to the jump host is gone, the node may be well"
    for answer in found["answers"]:
        assert answer["failure"] in ("died", "not run"), answer
        assert answer["says"].startswith((says, "jump host gateway")), answer


def test_more_than_a_rekey_goes_through_one_jump_host(behind: Lab) -> None:
    """paramiko makes new keys after 512 MB, and all nodes' answers share its connection."""
    nodes = [f"good{number}" for number in range(EACH)]
    told = {
        "name": "much", "nodes": nodes, "transport": SSH, "deadline_s": 90, "overall_s": 100,
        "script": "head -c 75000000 /dev/zero",
    }  # fmt: skip
    found = faults.told(faults.asking(behind, [told]), 120)["much"]
    assert [(a["failure"], a["says"]) for a in found["answers"]] == [(None, "")] * EACH
    assert found["bytes"] == [75_000_000] * EACH
