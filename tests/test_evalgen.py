"""The generator of incidents: independent, deterministic, unlabelled, physically consistent."""

import ast
import gzip
import json
import pickle
import pickletools
import re
from datetime import datetime
from pathlib import Path

import pytest
from evalgen import flight_recorder as fr
from evalgen.bundle import files
from evalgen.packaged import LIMIT, PACKAGED, packaged
from evalgen.stories import STORIES
from evalgen.stories.common import EXIT
from storyroom import story

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "tests" / "evalgen").rglob("*.py"))
SMALL = sorted(set(STORIES) - {"leaf_ports_down"})


def test_the_generator_never_imports_the_package_under_test():
    imported = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add((node.module or "").split(".")[0])
    assert len(SOURCES) > 10
    assert "sluggish" not in imported
    assert imported <= {
        "__future__", "ast", "collections", "dataclasses", "datetime", "gzip", "hashlib", "io",
        "json", "pathlib", "pickle", "random", "re", "shutil", "sys", "tarfile", "typing", "uuid",
        "xml",
    }  # fmt: skip


def test_the_packaged_archives_are_what_the_generator_writes():
    for name, (archive, expected) in packaged().items():
        shipped = (ROOT / "sluggish" / "demo" / f"{name}.tar.gz").read_bytes()
        # compared unpacked: another zlib may pack the same bytes differently
        assert gzip.decompress(shipped) == gzip.decompress(archive), (
            f"run scripts/make_demo: {name}"
        )
        assert shipped[4:8] == b"\0\0\0\0", "a time stamp in the gzip header"
        assert len(shipped) < LIMIT
        assert (ROOT / "tests" / "demo" / f"{name}.json").read_text() == expected


def test_six_stories_are_packaged():
    names = {p.name.removesuffix(".tar.gz") for p in (ROOT / "sluggish/demo").glob("*.tar.gz")}
    assert names == set(PACKAGED)


@pytest.fixture
def made(request, tmp_path_factory):
    """A story on disk: (name, expected document, path -> content)."""
    one = story(request.param, tmp_path_factory)
    root = one.path("directory")
    content = {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    return request.param, one.expected, content


@pytest.mark.parametrize("made", SMALL[::6], indirect=True)
def test_a_story_is_the_same_each_time(made):
    name, document, content = made
    world, expected = STORIES[name]()
    assert json.loads(json.dumps(expected.document(world))) == document
    assert files(world) == content


LABELS = (
    "rank_desync", "gpu_fault", "ib_fault", "data_stall", "app_crash", "node_down",
    "collective_mismatch", "size_mismatch", "missing_rank", "order_inversion", "off_bus",
    "subnet_manager", "shared_fabric", "hca_mismatch", "hca_gid", "loader_wait", "import_storm",
    "cgroup_oom", "host_oom", "cuda_oom", "slow_gpu", "start_up_hang", "all_joined", "straggler",
    "culprit", "verdict", "ground truth", "evalgen", "sluggish",
)  # fmt: skip
"""Words of the verdict that no tool prints."""


@pytest.mark.parametrize("made", SMALL, indirect=True)
def test_a_bundle_holds_no_label(made):
    name, expected, content = made
    labels = re.compile("|".join(map(re.escape, (*LABELS, expected["told"].lower()[:30]))))
    for path, raw in content.items():
        found = labels.search(path + raw.decode("utf-8", "replace").lower())
        assert found is None, (path, found)
        assert name not in path


@pytest.mark.parametrize("made", SMALL, indirect=True)
def test_every_expected_verdict_has_its_exit_code_and_its_telling(made):
    _, expected, _ = made
    assert expected["exit_code"] == EXIT[expected["cause"]]
    assert len(expected["told"]) > 20
    assert expected["cause"] not in expected["must_not"]
    assert not [cause for cause, _ in expected["also"] if cause in expected["must_not"]]
    assert {c["node"] for c in expected["culprits"]} <= set(expected["nodes"])
    assert set(expected["drains"]) <= set(expected["nodes"])


@pytest.mark.parametrize("made", SMALL, indirect=True)
def test_the_manifest_lists_every_file(made):
    _, _, out = made
    manifest = json.loads(out["manifest.json"])
    listed = {row["path"] for row in manifest["evidence"] if row["path"]}
    assert listed == {p for p in out if p != "manifest.json" and not p.endswith(".err")}
    assert all(row["error"] for row in manifest["evidence"] if row["path"] is None)
    taken = datetime.fromisoformat(manifest["taken_at"]).timestamp()
    for row in manifest["evidence"]:
        started = datetime.fromisoformat(row["started_at"]).timestamp()
        assert taken - 60 < started < taken + 15


def test_bus_addresses_and_pids_agree_between_the_tools():
    world, _ = STORIES["xid79"]()
    out = {p: c.decode("utf-8", "replace") for p, c in files(world).items()}
    for node in world.nodes:
        smi = out[f"nodes/{node.name}/nvidia_smi.txt"]
        buses = set(re.findall(r'<gpu id="0000(.{12})"', smi))
        lost = {g.pci.upper() for g in node.gpus if not g.listed}
        assert buses | lost == {g.pci.upper() for g in node.gpus}
        pids = {int(p) for p in re.findall(r"<pid>(\d+)</pid>", smi)}
        proc = out[f"nodes/{node.name}/rank_procs.a.txt"]
        assert pids <= {int(p) for p in re.findall(r"==> /proc/(\d+)/stat <==", proc)}
        log = re.findall(rf"{node.name}:(\d+):\d+ \[(\d)\] NCCL INFO .*busId (\w+)000 ",
                         out["job/job_log.txt"])  # fmt: skip
        by_log = {(int(p), int(d), b) for p, d, b in log}
        assert by_log == {
            (r.pid, r.local, r.gpu.pci[5:7].lstrip("0")) for r in world.ranks if r.node is node
        }
    kernel = out["nodes/gn-22/kernel_log.txt"]
    assert f"Xid (PCI:{world.ranks[13].gpu.pci[:-2]}): 79" in kernel


def test_in_the_seed_one_rank_reduces_where_fifteen_scatter_at_the_same_number():
    world, expected = STORIES["seed"]()
    out = files(world)
    heads = {}
    for rank in range(16):
        dump = pickle.loads(out[f"ranks/flight_recorder.{rank}"])
        first = next(e for e in dump["entries"] if e["state"] != "completed")
        heads[rank] = (first["collective_seq_id"], first["profiling_name"], first["input_sizes"])
    odd = heads.pop(3)
    assert odd[1:] == ("nccl:all_reduce", [[1]])
    assert {h[:2] for h in heads.values()} == {(odd[0], "nccl:_reduce_scatter_base")}
    assert expected.culprits[0]["seq"] == odd[0]
    smi = out["nodes/gpu-07/gpu_samples.txt"].decode().splitlines()[1:9]
    assert [row.split(", ")[4] for row in smi] == ["100 %"] * 3 + ["0 %"] + ["100 %"] * 4
    watts = [float(row.split(", ")[6].split()[0]) for row in smi]
    assert all(160 < w < 200 for w in watts)


def test_the_recorder_writes_plain_types_only():
    world, _ = STORIES["mesh_cascade"]()
    raw = fr.pickled(world.ranks[13].recorder.dump())
    opcodes = {op.name for op, _, _ in pickletools.genops(raw)}
    assert not opcodes & {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ"}
    assert raw[:2] == b"\x80\x02"


def recorder(**more):
    g = fr.Group(name="0", desc="default_pg", ranks=(0, 1))
    return fr.Recorder(rank=1, groups=(g,), **more), g


def test_json_has_strings_for_the_status_no_frames_and_no_entries_where_there_are_none():
    r, g = recorder()
    assert "entries" not in json.loads(fr.as_json(r.dump()))
    r.collective(g, "all_reduce", [[1]], [[1]], at_ns=5, frames=[fr.frame("f", "a.py", 1)])
    dump = json.loads(fr.as_json(r.dump()))
    assert dump["pg_status"]["0"]["last_enqueued_collective"] == "1"
    entry = dump["entries"][0]
    assert "frames" not in entry
    assert entry["process_group"] == ["0", "default_pg"]
    assert entry["time_discovered_completed_ns"] == 0


def test_a_wrapped_ring_begins_above_record_zero():
    r, g = recorder(buffer_size=4)
    for k in range(10):
        r.complete(r.collective(g, "all_reduce", [[8]], [[8]], at_ns=k * 1000), at_ns=k * 1000 + 5)
    entries = r.dump()["entries"]
    assert [e["record_id"] for e in entries] == [6, 7, 8, 9]
    assert r.dump()["pg_status"]["0"]["last_completed_collective"] == 10


def test_inner_operations_of_a_batch_stay_scheduled_and_the_closing_entry_completes():
    r, g = recorder()
    call = r.batch_p2p(g, [("send", 0, [4]), ("recv", 0, [4])], at_ns=1)
    r.complete(call, at_ns=9)
    states = [(e["profiling_name"], e["state"]) for e in r.dump()["entries"]]
    assert states == [
        ("nccl:send 1->0", "scheduled"), ("nccl:recv 1<-0", "scheduled"),
        ("nccl:coalesced", "completed"),
    ]  # fmt: skip
    assert [e["op_id"] for e in r.dump()["entries"]] == [1, 2, 3]


def test_gloo_never_leaves_scheduled_and_spoils_its_group_table():
    r, g = recorder(backend="gloo")
    call = r.collective(g, "_reduce_scatter_base", [[8]], [[4]], at_ns=1)
    r.complete(call, at_ns=2, failed=True)
    dump = r.dump()
    entry = dump["entries"][0]
    assert (entry["state"], entry["retired"]) == ("scheduled", True)
    assert entry["profiling_name"] == "gloo:all_reduce"
    assert list(dump["pg_config"]) == [""]
    assert dump["comm_lib_version"] == ""


def test_old_formats_lack_what_came_later():
    r, g = recorder(version="2.1")
    r.collective(g, "all_reduce", [[1]], [[1]], at_ns=1)
    assert "pg_status" not in r.dump()
    assert not {"timeout_ms", "is_p2p", "thread_id"} & set(r.dump()["entries"][0])
    r, g = recorder(version="1.0")
    r.collective(g, "all_reduce", [[1]], [[1]], at_ns=1)
    assert isinstance(r.dump(), list)


def test_timing_makes_running_operations_started_and_gives_durations():
    r, g = recorder(timing=True)
    call = r.collective(g, "all_reduce", [[1]], [[1]], at_ns=1_000_000)
    r.start(call, at_ns=2_000_000)
    assert r.dump()["entries"][0]["state"] == "started"
    r.complete(call, at_ns=9_000_000)
    assert r.dump()["entries"][0]["duration_ms"] == 8.0


def test_a_mesh_has_every_row_and_column():
    groups = fr.mesh((2, 3), ("dp", "tp"))
    assert [g.ranks for g in groups if g.desc == "tp"] == [(0, 1, 2), (3, 4, 5)]
    assert [g.ranks for g in groups if g.desc == "dp"] == [(0, 3), (1, 4), (2, 5)]
    assert len({g.name for g in fr.mesh((2, 3), ("dp", "tp"), hashed=True)}) == 6


@pytest.mark.parametrize("name", ["loader_nfs", "mesh_cascade", "healthy"])
def test_no_two_processes_of_a_node_share_a_pid(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = story(name, tmp_path_factory)
    for path in made.path("directory").glob("nodes/*/rank_procs.a.txt"):
        text = path.read_text()
        pids = re.findall(r"^==> /proc/(\d+)/stat <==", text, re.MULTILINE)
        assert len(pids) == len(set(pids)) == int(text.rsplit("\n", 2)[-2])
