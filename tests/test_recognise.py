"""Every kind of file is known by its content, by its own probe and by no other."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from evalgen.bundle import write
from evalgen.stories import STORIES
from hypothesis import given
from hypothesis import strategies as st
from storyroom import NEVER_ASKED

from sluggish.evidence.loose import HEAD, recognise
from sluggish.evidence.model import Bundle
from sluggish.evidence.open import load
from sluggish.probes import PROBES

HERE = Path(__file__).parent
CASES = sorted(
    path
    for root in (HERE / "probes", HERE / "captures")
    for path in root.glob("*/*")
    if path.is_file() and path.suffix not in (".yaml", ".md") and "junk" not in path.name
)
OF_A_NODE = {"identity", "kernel_log", "nvidia_smi", "gpu_samples", "gpu_bus", "ibstat",
             "ibstatus", "ibv_devinfo", "ib_ports", "ib_counters", "rank_procs", "memory",
             "mounts"}  # fmt: skip


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_no_other_probe_claims_a_file(path: Path) -> None:
    with path.open("rb") as file:
        claimed = set(recognise(file.read(HEAD), PROBES))
    assert claimed <= {path.parent.name}


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    root = tmp_path_factory.mktemp("seed") / "bundle"
    write(STORIES["seed"]()[0], root)
    return load([str(root)], PROBES)


@pytest.mark.parametrize("probe", [p.ID for p in PROBES if p.ID not in NEVER_ASKED])
def test_each_probe_knows_what_the_story_holds_of_its_kind(seed: Bundle, probe: str) -> None:
    heads = [e.open()[:HEAD] for e in seed.evidence if e.probe == probe and e.size]
    assert heads
    assert [recognise(head, PROBES) for head in heads] == [[probe]] * len(heads)


AROUND = {
    "a prompt": lambda t: b"[root@gpu-07 ~]# some-command -v\n" + t,
    "a login": lambda t: b"Last login: Tue Nov 24 03:00:00 2026\nroot@gpu-07:~# cmd\n" + t,
    "a fence": lambda t: b"```\n" + t + b"```\n",
    "script": lambda t: b'Script started on 2026-11-24 03:10:00 [TERM="xterm"]\n' + t,
    "a banner": lambda t: b"*" * 40 + b"\nauthorised use only\n" + b"*" * 40 + b"\n" + t,
    "ssh": lambda t: b"Warning: Permanently added 'gpu-07' (ED25519) to known hosts.\n" + t,
    "a date": lambda t: b"Tue Nov 24 03:22:10 UTC 2026\n" + t,
    "time": lambda t: t + b"\nreal\t0m1.2s\nuser\t0m0.1s\nsys\t0m0.0s\n",
    "set -x": lambda t: b"+ some-command -v\n" + t,
    "blank lines": lambda t: b"\n\n\n" + t,
    "NUL run": lambda t: b"\0" * 4096 + t,
    "byte mark": lambda t: b"\xef\xbb\xbf" + t,
    "windows": lambda t: t.replace(b"\n", b"\r\n"),
    "UTF-16": lambda t: t.decode("utf-8", "replace").encode("utf-16"),
    "UTF-16 without a mark": lambda t: t.decode("utf-8", "replace").encode("utf-16-le"),
    "colours": lambda t: t.replace(b"\n", b"\x1b[0m\x1b[K\n\x1b[1;32m"),
}  # what terminals, mails and other systems leave around a text


@pytest.mark.parametrize("around", AROUND)
def test_what_stands_around_a_text_hides_nothing(seed: Bundle, around: str) -> None:
    for item in seed.evidence:
        if item.size and item.probe not in ("flight_recorder", "stacks"):
            assert recognise(AROUND[around](item.open())[:HEAD], PROBES) == [item.probe]


# lists of numbers: hypothesis likes to make texts of the very words that the probes look for
@given(st.lists(st.integers(0, 255), max_size=400).map(bytes))
def test_junk_is_of_no_kind(head: bytes) -> None:
    assert recognise(head, PROBES) == []


@given(st.one_of(st.binary(max_size=400), st.text(max_size=400).map(str.encode)))
def test_recognising_never_raises(head: bytes) -> None:
    assert set(recognise(head, PROBES)) <= {probe.ID for probe in PROBES}


def content(bundle: Bundle) -> Counter[tuple[str, str | None, str, bytes]]:
    return Counter(
        (e.probe, e.node, e.sample, e.open())
        for e in bundle.evidence
        if e.size and e.probe in OF_A_NODE
    )


@pytest.mark.parametrize("story", ["seed", "healthy_stale", "silent_node"])
@pytest.mark.parametrize("flat", [False, True], ids=["folders", "flat"])
def test_a_story_mailed_as_loose_files_has_the_same_evidence(
    tmp_path: Path, story: str, flat: bool
) -> None:
    world, _ = STORIES[story]()
    write(world, tmp_path / "bundle")
    mailed = tmp_path / "mailed"
    for path in sorted((tmp_path / "bundle").rglob("*")):
        inside = path.relative_to(tmp_path / "bundle")
        if path.is_file() and inside.name != "manifest.json":
            name = "_".join(inside.parts[1:]) if flat else str(inside)
            (mailed / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, mailed / name)
    told, loose = load([str(tmp_path / "bundle")], PROBES), load([str(mailed)], PROBES)
    assert loose.loose
    assert content(loose) == content(told)
