"""A bundle under other names: nothing of the old ones is left, and the verdict is the same."""

from collections.abc import Callable
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path

import pytest
from storyroom import story

from sluggish.diagnose import diagnose
from sluggish.evidence.anonymize import anonymize
from sluggish.evidence.model import Bundle, Evidence
from sluggish.evidence.naming_away import Names
from sluggish.evidence.open import load
from sluggish.evidence.save import save
from sluggish.evidence.scrub import Scrub
from sluggish.facts.store import origin_of
from sluggish.probes import PROBES
from sluggish.probes.flight_recorder import compacted
from sluggish.verdict.model import Diagnosis

DEMOS = sorted(p.name.removesuffix(".tar.gz") for p in files("sluggish.demo").iterdir()
               if p.name.endswith(".tar.gz"))  # fmt: skip
SOME = ("seed", "xid79", "ib_port_down", "healthy")


def renamed(bundle: Bundle) -> Bundle:
    clocks = {clock.node: clock for clock in bundle.clocks}
    return anonymize(bundle, lambda e: compacted(e.open(), origin_of(e, bundle, clocks)))


def same(first: Diagnosis, other: Diagnosis, names: dict[str, str]) -> None:
    """Cause, subtype, level, culprits and drains are the same but for the names."""
    one, two = first.verdict, other.verdict
    assert (two.cause, two.subtype, two.confidence) == (one.cause, one.subtype, one.confidence)
    assert [names[n] for n in one.drain_nodes] == list(two.drain_nodes)
    places = [(names.get(c.node or "", c.node), c.rank, c.gpu_index, c.hca) for c in one.culprits]
    assert [(c.node, c.rank, c.gpu_index, c.hca) for c in two.culprits] == places
    rules = [sorted({f.rule for f in found.findings}) for found in (first, other)]
    assert rules[0] == rules[1]


def told(bundle: Bundle) -> str:
    parts = [bundle.path, *bundle.nodes]
    for item in bundle.evidence:
        parts += [item.path, item.node or "", item.command or "", item.stderr]
        parts.append(item.open().decode("latin-1"))
    return "\n".join(parts)


@pytest.mark.parametrize("name", DEMOS)
def test_a_packaged_story_under_other_names_has_the_same_verdict(name: str, tmp_path: Path) -> None:
    with as_file(files("sluggish.demo") / f"{name}.tar.gz") as path:
        bundle = load([str(path)], PROBES)
    other = replace(renamed(bundle), path="")
    names = dict(zip(bundle.nodes, other.nodes, strict=True))
    same(diagnose(bundle), diagnose(other), names)
    text = told(other)
    for word in (*bundle.nodes, "alice", "llm-70b", "10.9.0.5"):
        assert word not in text, word
    save(other, tmp_path / "b.tar.gz")
    back = load([str(tmp_path / "b.tar.gz")], PROBES)
    same(diagnose(bundle), diagnose(back), names)


@pytest.mark.parametrize("name", SOME)
def test_a_story_on_disk_under_other_names_has_the_same_verdict(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = story(name, tmp_path_factory)
    bundle = load([str(made.path("directory"))], PROBES)
    other = renamed(bundle)
    same(diagnose(bundle), diagnose(other), dict(zip(bundle.nodes, other.nodes, strict=True)))


@pytest.fixture
def scrub() -> Callable[[str], str]:
    names = Names()
    for node in ("gpu-07.site.org", "gpu-08", "nas01"):
        names.host(node)
    names.users |= {"alice", "root"}
    names.jobs |= {"llm [70b] x"}
    return Scrub(names).text


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("gpu-07.site.org gpu-07:12 xgpu-07 gpu-077", "node-01 node-01:12 xgpu-07 gpu-077"),
        ("NodeList=gpu-[07-08] x[0-3]", "NodeList=node-[01-02] x[0-3]"),
        ("nas01:/export/alice /home nfs4 rw,addr=10.9.0.5",
         "node-03:/export/user1 /home nfs4 rw,addr=10.1.1.5"),
        ("JobName=llm [70b] x UserId=alice(5)", "JobName=jobname1 UserId=user1(5)"),
        ("/secret/plan.py and /secret/plan.log", "/p1/p2.py and /p1/p2.log"),
        ("/proc/12/stat /sys/class/net /dev/shm", "/proc/12/stat /sys/class/net /dev/shm"),
        ("2026/11/24 and/or 3/4", "2026/11/24 and/or 3/4"),
        ("see https://wandb.ai/corp/run?x=1 tcp://gpu-08:29500",
         "see https://site1.example/p1 tcp://node-02:29500"),
        ("10.9.0.5 10.9.1.5 127.0.0.1 580.95.05 1.2.3.4.5", "10.1.1.5 10.1.2.5 127.0.0.1 "
         "580.95.05 1.2.3.4.5"),
        ("fe80:0000:0000:0000:506b:4b03:00ca:1234 0x506b4b0300ca1234 506b:4b03:00ca:1234",
         "fe80:0000:0000:0000:0200:0000:0000:0001 0x0200000000000001 0200:0000:0000:0001"),
        ("0000:0000:0000:0000:0000:ffff:0a09:0005 10.9.0.5",
         "0000:0000:0000:0000:0000:ffff:0a01:0105 10.1.1.5"),
        ("0000:44:00.0 03:09:54 0x0000000000000000", "0000:44:00.0 03:09:54 0x0000000000000000"),
        ("GPU-5f1c1f7e-0000-4a5b-8a31-4c2f3a0d9b11", "GPU-00000000-0000-4000-8000-000000000001"),
        ("aa:bb:cc:dd:ee:ff", "02:00:00:00:00:01"),
        ("<serial>1654922001234</serial>", "<serial>0000000000001</serial>"),
        ("root daemon", "root daemon"),
    ],
)  # fmt: skip
def test_what_is_exchanged_and_what_stays(scrub: Callable[[str], str], text: str, new: str) -> None:
    assert scrub(text) == new


def test_a_dump_that_cannot_be_read_is_left_out_and_said() -> None:
    item = Evidence(node="gpu-07", probe="flight_recorder", path="ranks/flight_recorder.0", rank=0,
                    size=4, open=lambda: b"\x80\x02cx")  # fmt: skip
    (left,) = renamed(Bundle(nodes=("gpu-07",), evidence=(item,))).evidence
    assert (left.error, left.size, left.open()) == ("denied", 0, b"")
    assert "left out" in left.stderr
