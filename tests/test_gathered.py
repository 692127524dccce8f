"""One file of many nodes: each node's part goes to its probe under its own name, or is said."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluggish.diagnose import gather
from sluggish.evidence import gathered, transcript
from sluggish.evidence.open import load
from sluggish.evidence.source import Item
from sluggish.facts.fabric import Port
from sluggish.facts.gpu import Gpu, GpuCount, Xid
from sluggish.facts.origin import Origin
from sluggish.facts.store import Facts
from sluggish.probes import PROBES, ibstat, ibstatus, ibv_devinfo, nvidia_smi
from sluggish.text import is_node_name

HERE = Path(__file__).parent
XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
QUERY = (HERE / "captures/nvidia_smi/h200-580-query.txt").read_text(encoding="utf-8")
Texts = dict[str, str]


def port(state: str, guid: str = "0x1") -> str:
    physical = "LinkUp" if state == "Active" else "Polling"
    return (
        f"CA 'mlx5_0'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tNode GUID: {guid}\n\tPort 1:\n"
        f"\t\tState: {state}\n\t\tPhysical state: {physical}\n\t\tRate: 400\n\t\tBase lid: 7\n"
        "\t\tSM lid: 1\n\t\tLink layer: InfiniBand\n"
    )


def labelled(texts: Texts) -> str:
    """Lines of the nodes in turn, as they arrive at pdsh."""
    each = {n: [f"{n}: {line}\n" for line in t.splitlines()] for n, t in texts.items()}
    longest = max(map(len, each.values()))
    return "".join(rows[i] for i in range(longest) for rows in each.values() if i < len(rows))


def headed(heading: str) -> Callable[[Texts], str]:
    return lambda texts: "".join(f"{heading.format(n)}\n{t}\n" for n, t in texts.items())


FORMS = {
    "pdsh": labelled,
    "dshbak": headed("-" * 16 + "\n{}\n" + "-" * 16),
    "clush -b": headed("-" * 15 + "\n{} (1)\n" + "-" * 15),
    "ansible": headed("{} | CHANGED | rc=0 >>"),
    "tail -v": headed("==> {} <=="),
    "echo": headed("{}"),
    "equals": headed("===== {} ====="),
    "hashes": headed("### {}"),
    "brackets": headed("[{}]"),
    "a prompt above": lambda t: "[me@login1 ~]$ for n in a b; do ...\n" + headed("{}:")(t),
    "windows": lambda t: headed("==> {} <==")(t).replace("\n", "\r\n"),
}


def facts_of(tmp_path: Path, content: str | bytes) -> Facts:
    path = tmp_path / "all.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return gather(load([str(path)], PROBES), PROBES)


@pytest.mark.parametrize("form", FORMS)
def test_the_port_of_each_node_is_its_own(form: str, tmp_path: Path) -> None:
    texts = {"gpu-07": port("Down", "0x1"), "gpu-08": port("Active", "0x2")}
    found = facts_of(tmp_path, FORMS[form](texts)).all(Port)
    assert [(p.node, p.state) for p in found] == [("gpu-07", "down"), ("gpu-08", "active")]


@pytest.mark.parametrize("form", FORMS)
def test_a_kernel_log_of_many_nodes_has_each_event_at_its_node(form: str, tmp_path: Path) -> None:
    quiet = "[  901.000001] usb 1-1: new device\n[  902.000001] eth0: link up\n"
    texts = {"n01": quiet, "n02": quiet + f"[  903.000001] {XID}\n", "n03": quiet}
    facts = facts_of(tmp_path, FORMS[form](texts))
    assert [(x.node, x.code) for x in facts.all(Xid)] == [("n02", 79)]
    assert all(facts.saw(Xid, node) for node in texts)


@pytest.mark.parametrize("form", FORMS)
def test_nvidia_smi_of_many_nodes_counts_each_node(form: str, tmp_path: Path) -> None:
    facts = facts_of(tmp_path, FORMS[form]({"dgx1": QUERY, "dgx2": QUERY}))
    counts = {c.node: c.count for c in facts.all(GpuCount)}
    assert counts == {"dgx1": len(facts.all(Gpu)) / 2, "dgx2": len(facts.all(Gpu)) / 2}


def test_names_that_were_folded_are_unfolded(tmp_path: Path) -> None:
    bar = "-" * 15
    text = f"{bar}\ngpu-[07-08,11] (3)\n{bar}\n{port('Active')}{bar}\ngpu-09\n{bar}\n{port('Down')}"
    found = {p.node: p.state for p in facts_of(tmp_path, text).all(Port)}
    assert found == dict.fromkeys(("gpu-07", "gpu-08", "gpu-11"), "active") | {"gpu-09": "down"}


def test_a_node_that_did_not_answer_is_named(tmp_path: Path) -> None:
    path = tmp_path / "all.txt"
    path.write_text(
        f"gpu-07 | CHANGED | rc=0 >>\n{port('Active')}\n"
        'gpu-08 | UNREACHABLE! => {\n    "msg": "timed out", "unreachable": true\n}\n'
    )
    (gone,) = load([str(path)], PROBES).unread
    assert gone.path == "all.txt/gpu-08"


# what only looks like it ------------------------------------------------------------------------


def test_the_log_of_a_job_keeps_its_names_in_front(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    rows = (f"gpu-0{n}: {n}: gpu-0{n}:41{n}:42{n} [0] NCCL INFO Init COMPLETE\n" for n in range(9))
    path.write_text("".join(rows))
    assert [(e.probe, e.path) for e in load([str(path)], PROBES).evidence] == [
        ("job_log", "job.log")
    ]


@pytest.mark.parametrize("name", ["mlx5_{}", "GPU{}", "ib{}", "rank{}", "10.0.0.{}", "step {}"])
def test_headings_of_devices_are_no_nodes(name: str, tmp_path: Path) -> None:
    whole = port("Active")
    path = tmp_path / "all.txt"
    path.write_text("".join(f"=== {name.format(i)} ===\n{whole}" for i in range(3)))
    assert {e.node for e in load([str(path)], PROBES).evidence} <= {None}


def test_one_heading_alone_is_no_loop(tmp_path: Path) -> None:
    path = tmp_path / "ibstat.txt"
    path.write_text("### h100\n" + port("Active"))
    assert [e.path for e in load([str(path)], PROBES).evidence] == ["ibstat.txt"]


# files of nodes that somebody joined without a word between them ---------------------------------


def test_two_nodes_in_one_ibstat_are_refused_and_one_node_twice_is_not() -> None:
    with pytest.raises(ValueError, match=r"^expected the text of one node"):
        list(ibstat.parse(port("Down", "0x1") + port("Active", "0x2"), Origin()))
    twice = [f for f in ibstat.parse(port("Active") * 2, Origin()) if isinstance(f, Port)]
    assert [p.state for p in twice] == ["active"]


def test_two_nodes_in_one_ibv_devinfo_are_refused() -> None:
    text = (HERE / "probes/ibv_devinfo/normal.txt").read_text(encoding="utf-8")
    other = re.sub(r"(node_guid:\s+)\w{4}", r"\1ffff", text)
    assert other != text
    with pytest.raises(ValueError, match=r"^expected the text of one node"):
        list(ibv_devinfo.parse(text + other, Origin()))
    assert list(ibv_devinfo.parse(text + text, Origin()))


def test_two_nodes_in_one_ibstatus_are_refused() -> None:
    text = (HERE / "probes/ibstatus/normal.txt").read_text(encoding="utf-8")
    other = re.sub(r"(default gid:\s+fe80:0000:0000:0000):\w{4}", r"\1:ffff", text)
    assert other != text
    with pytest.raises(ValueError, match=r"^expected the text of one node"):
        list(ibstatus.parse(text + other, Origin()))
    assert list(ibstatus.parse(text + text, Origin()))


def test_two_nodes_in_one_answer_of_nvidia_smi_are_refused() -> None:
    other = re.sub(r"GPU-\w{8}", "GPU-0000000f", QUERY)
    with pytest.raises(ValueError, match=r"^expected the answer of one node, found 2"):
        list(nvidia_smi.parse(QUERY + other, Origin()))
    assert list(nvidia_smi.parse(QUERY + QUERY, Origin()))


def test_colours_hide_no_event(tmp_path: Path) -> None:
    rows = "\x1b[32m[  901.000001] \x1b[0m\x1b[33musb: \x1b[0mnew device\n" * 3
    red = f"\x1b[32m[  902.000001] \x1b[0m\x1b[33mNVRM: \x1b[0m\x1b[1m\x1b[31m{XID[6:]}\x1b[0m\n"
    (xid,) = facts_of(tmp_path, rows + red).all(Xid)
    assert (xid.code, xid.line) == (79, f"[  902.000001] {XID}")


# what somebody copied from a terminal -------------------------------------------------------------

TABLE = (HERE / "captures/nvidia_smi/h200-580-table.txt").read_text(encoding="utf-8")
DMESG = f"[  901.000001] usb 1-1: new device\n[  902.000001] {XID}\n"
SESSION = (
    "Last login: Tue Nov 24 03:00:00 2026\n{0}uptime\n 03:22:10 up 12 days\n{0}nvidia-smi\n"
    + TABLE.strip("\n").replace("{", "{{").replace("}", "}}")
    + "\n{0}dmesg | tail -2\n"
    + DMESG
    + "{0}ssh gpu-09 ibstat\n"
    + port("Down")
    + "{0}exit\nlogout\n"
)


def kinds(tmp_path: Path, text: str) -> dict[str, str | None]:
    path = tmp_path / "session.txt"
    path.write_text(text)
    return {e.probe: e.node for e in load([str(path)], PROBES).evidence}


@pytest.mark.parametrize(
    ("prompt", "host"),
    [
        ("[root@gpu-07 ~]# ", "gpu-07"),
        ("root@gpu-07:~# ", "gpu-07"),
        ("(base) me@gpu-07:/scratch/x$ ", "gpu-07"),
        ("me@gpu-07 ~ $ ", "gpu-07"),
        ("gpu-07:~ # ", "gpu-07"),
        ("$ ", None),
        ("# ", None),
        ("+ ", None),
    ],
)
def test_each_answer_of_a_session_goes_to_its_probe(
    prompt: str, host: str | None, tmp_path: Path
) -> None:
    found = kinds(tmp_path, SESSION.format(prompt))
    assert found == {"nvidia_smi": host, "kernel_log": host, "ibstat": "gpu-09"}
    (rest,) = load([str(tmp_path / "session.txt")], PROBES).unread
    assert rest.why == "a transcript: 1 answer is of no known kind (uptime)"


@pytest.mark.parametrize(
    "heading",
    ["=== {} ===", "==== {}", "## {}", "### Output of `{}`:", "---- {} ----", "***** {} *****"],
)
def test_each_answer_under_a_heading_goes_to_its_probe(heading: str, tmp_path: Path) -> None:
    answers = {"uptime": "up 12 days\n", "nvidia-smi": TABLE, "sudo dmesg -T": DMESG,
               "ibstat mlx5_0": port("Down")}  # fmt: skip
    text = "".join(f"{heading.format(c)}\n\n```\n{t}```\n\n" for c, t in answers.items())
    assert set(kinds(tmp_path, text)) == {"nvidia_smi", "kernel_log", "ibstat"}


@pytest.mark.parametrize("form", ["dshbak", "clush -b", "ansible", "tail -v", "equals", "echo"])
def test_several_answers_of_each_node_are_each_read(form: str, tmp_path: Path) -> None:
    answers = f"$ nvidia-smi\n{TABLE}\n$ dmesg\n{DMESG}$ ibstat\n{port('Down')}"
    path = tmp_path / "all.txt"
    path.write_text(FORMS[form]({"gpu-07": answers, "gpu-08": answers}))
    found = {(e.node, e.probe) for e in load([str(path)], PROBES).evidence}
    assert found == {
        (n, p) for n in ("gpu-07", "gpu-08") for p in ("nvidia_smi", "kernel_log", "ibstat")
    }


def test_commands_on_many_machines_name_no_single_one(tmp_path: Path) -> None:
    text = f"[me@login1 ~]$ {{}} ibstat\n{port('Down')}[me@login1 ~]$ dmesg\n{DMESG}"
    for command, node in (
        ("pdsh -w gpu-07", None), ("srun -N1", None), ("srun -w gpu-07", "gpu-07"),
        ("srun -w gpu-07,gpu-08", None), ("ssh -p 22 root@gpu-07", "gpu-07"),
    ):  # fmt: skip
        found = kinds(tmp_path, text.format(command))
        assert found == {"ibstat": node, "kernel_log": "login1"}


def test_the_log_of_a_job_is_not_torn_at_what_its_script_prints(tmp_path: Path) -> None:
    text = "+ module load cuda\n+ ibstat\n" + port("Active") + "+ srun python train.py\n"
    text += "gpu-07:1:2 [0] NCCL INFO Bootstrap\n" * 3
    assert "job_log" in kinds(tmp_path, text)
    assert "job.log" not in {e.path for e in load([str(tmp_path / "session.txt")], PROBES).unread}


PIECES = st.sampled_from(
    [b"gpu-07: x\n", b"gpu-08:\n", b"----------------\n", b"gpu-[07-08] (2)\n", b"gpu-[07-\n",
     b"gpu-07 | FAILED | rc=1 >>\n", b"==> gpu-07 <==\n", b"=== gpu-08 ===\n", b"gpu-09\n",
     b"[root@gpu-07 ~]# ls 'x\n", b"$ dmesg\n", b"## nvidia-smi\n", b"\xff\xfe\0", b"\r\n",
     b"\xed\xa0\x80", b"[root@gpu-07 ~]# \n", b"gpu-[1-99999999]\n"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=30).map(b"".join))
def test_parting_never_raises_and_invents_nothing(content: bytes) -> None:
    item = Item(name="x", size=len(content), read=lambda at, n: content[at : at + n])
    for part in (*gathered.apart(item), *transcript.apart(item)):
        assert part.node is None or is_node_name(part.node)
        lines = part.item.read(0, part.item.size).splitlines()
        assert all(line in content for line in lines)
