"""Evidence of every kind becomes one Bundle; hostile and broken files never get further."""

import gzip
import io
import json
import os
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluggish.evidence.archive import unpack
from sluggish.evidence.decode import decode
from sluggish.evidence.model import Bundle, Evidence, Unread
from sluggish.evidence.open import load, text_of
from sluggish.evidence.save import save
from sluggish.evidence.source import EvidenceError, Item
from sluggish.evidence.spool import Limits


def probe(name: str, magic: bytes, *, binary: bool = False) -> ModuleType:
    return cast(
        ModuleType, SimpleNamespace(ID=name, BINARY=binary, sniff=lambda head: magic in head)
    )


KERNEL = probe("kernel_log", b"kernel:")
IBSTAT = probe("ibstat", b"CA 'mlx5")
DUMP = probe("flight_recorder", b"nccl_version", binary=True)
LOG = probe("job_log", b"NCCL INFO")
COUNTERS = probe("ib_counters", b"port_rcv_data")
PROBES = (KERNEL, IBSTAT, DUMP, LOG, COUNTERS)
IB = b"CA 'mlx5_0'\n\tPort 1:\n"
SYSLOG = b"Nov 24 03:04:17 gpu-08 kernel: NVRM: Xid (PCI:0000:ab:00): 79\n"


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def tar_of(*members: tuple[str, bytes, dict[str, object]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content, more in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in more.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def whys(bundle: Bundle) -> dict[str, str]:
    return {gone.path.split("/")[-1].split(": ")[-1]: gone.why for gone in bundle.unread}


def found(bundle: Bundle) -> list[tuple[str, str | None]]:
    return sorted((e.probe, e.node) for e in bundle.evidence)


def a_bundle(root: Path, **manifest: object) -> Path:
    write(root / "nodes/gpu-07/ibstat.txt", IB)
    write(root / "nodes/gpu-07/ibstat.err", b"a warning\n")
    write(root / "nodes/gpu-07/ib_counters.a.txt", b"port_rcv_data 1\n")
    evidence = [
        {"path": "nodes/gpu-07/ibstat.txt", "node": "gpu-07", "probe": "ibstat", "exit_code": 0},
        {
            "path": "nodes/gpu-07/ib_counters.a.txt",
            "node": "gpu-07",
            "probe": "ib_counters",
            "sample": "a",
        },
    ]
    nodes = [{"name": "gpu-07", "error": None, "uptime_s": 10.0, "now": "2026-11-24T03:22:10Z"}]
    whole = {
        "schema": 1,
        "tool_version": "0.1.0",
        "taken_at": "2026-11-24T03:22:10Z",
        "job_id": "48213",
        "nodes": nodes,
        "evidence": evidence,
    } | manifest
    write(root / "manifest.json", json.dumps(whole).encode())
    return root


def test_a_bundle_directory_is_read_by_its_manifest(tmp_path: Path) -> None:
    bundle = load([str(a_bundle(tmp_path / "b"))], PROBES)
    assert bundle.job_id == "48213"
    assert not bundle.loose
    assert bundle.nodes == ("gpu-07",)
    ibstat = bundle.evidence[0]
    assert (ibstat.stderr, ibstat.exit_code, ibstat.loose) == ("a warning\n", 0, False)
    assert text_of(ibstat, IBSTAT) == IB.decode()
    assert bundle.unread == ()


@pytest.mark.parametrize("top", ["", "0311Z/"])
def test_directory_and_archive_are_the_same_bundle(tmp_path: Path, top: str) -> None:
    root = a_bundle(tmp_path / "b")
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as tar:
        for file in sorted(root.rglob("*")):
            tar.add(file, f"{top}{file.relative_to(root)}", recursive=False)
    plain = load([str(root)], PROBES)
    packed = load([str(tmp_path / "b.tar.gz")], PROBES)
    assert [(e.probe, e.node, e.sample, e.path) for e in plain.evidence] == [
        (e.probe, e.node, e.sample, e.path) for e in packed.evidence
    ]
    assert [e.open() for e in plain.evidence] == [e.open() for e in packed.evidence]


def test_a_newer_bundle_is_refused_in_one_line(tmp_path: Path) -> None:
    root = a_bundle(tmp_path / "b", schema=2, nodes="of another shape")
    with pytest.raises(EvidenceError, match=r"bundle format 2 is newer .*update sluggish") as told:
        load([str(root)], PROBES)
    assert "\n" not in str(told.value)


def test_a_file_of_the_manifest_that_is_missing_is_a_gap(tmp_path: Path) -> None:
    root = a_bundle(tmp_path / "b")
    (root / "nodes/gpu-07/ibstat.txt").unlink()
    gone = load([str(root)], PROBES).evidence[0]
    assert (gone.error, gone.size) == ("not found", 0)


def test_a_file_outside_the_manifest_is_read_as_a_loose_file(tmp_path: Path) -> None:
    root = a_bundle(tmp_path / "b")
    write(root / "nodes/gpu-08/dmesg.txt", SYSLOG)
    extra = load([str(root)], PROBES).evidence[-1]
    assert (extra.probe, extra.node, extra.loose) == ("kernel_log", "gpu-08", True)


def test_a_node_that_did_not_answer_is_blind_in_every_probe(tmp_path: Path) -> None:
    nodes = [{"name": "gpu-09", "error": "unreachable"}]
    bundle = load([str(a_bundle(tmp_path / "b", nodes=nodes))], PROBES)
    blind = {e.probe for e in bundle.evidence if e.node == "gpu-09" and e.error == "unreachable"}
    assert {"kernel_log", "nvidia_smi", "ibstat", "mounts"} <= blind


def test_a_damaged_manifest_leaves_the_files_as_loose_ones(tmp_path: Path) -> None:
    root = a_bundle(tmp_path / "b")
    (root / "manifest.json").write_text('{"schema": 1, "nod')
    bundle = load([str(root)], PROBES)
    assert bundle.loose
    assert ("ibstat", "gpu-07") in found(bundle)
    assert "not a readable manifest" in whys(bundle)["manifest.json"]


def test_bundles_of_two_jobs_are_refused(tmp_path: Path) -> None:
    one, two = a_bundle(tmp_path / "1"), a_bundle(tmp_path / "2", job_id="7")
    with pytest.raises(EvidenceError, match="bundles of different jobs: 48213, 7"):
        load([str(one), str(two)], PROBES)


def test_a_path_that_does_not_exist_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="no such file or folder"):
        load([str(tmp_path / "nothing")], PROBES)


def test_loose_files_are_recognised_by_content_and_not_by_name(tmp_path: Path) -> None:
    write(tmp_path / "gpu-07" / "nvidia-smi.xml", IB)
    write(tmp_path / "ibstat.txt", SYSLOG)
    assert found(load([str(tmp_path)], PROBES)) == [("ibstat", "gpu-07"), ("kernel_log", "gpu-08")]


def test_a_file_of_two_kinds_is_read_as_both(tmp_path: Path) -> None:
    write(tmp_path / "all.txt", b"gpu-07:1:2 [0] NCCL INFO x\n" + SYSLOG)
    assert [kind for kind, _ in found(load([str(tmp_path)], PROBES))] == ["job_log", "kernel_log"]


def test_what_is_not_recognised_is_listed_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path / "empty", b"")
    write(tmp_path / "binary", bytes(range(256)) * 8)
    write(tmp_path / "letter.txt", b"Dear all, please see attached.\n")
    write(tmp_path / "x.zip", b"PK\x03\x04....")
    assert whys(load([str(tmp_path)], PROBES)) == {
        "empty": "empty",
        "binary": "binary, of no known kind",
        "letter.txt": "no probe knows this content",
        "x.zip": "a zip archive: unpack it first",
    }


def test_links_and_fifos_are_not_opened(tmp_path: Path) -> None:
    secret = write(tmp_path / "outside" / "secret", SYSLOG)
    inside = tmp_path / "in"
    write(inside / "ib.txt", IB)
    (inside / "link").symlink_to(secret)
    (inside / "folder").symlink_to(secret.parent)
    os.mkfifo(inside / "fifo")
    bundle = load([str(inside)], PROBES)
    assert [e.probe for e in bundle.evidence] == ["ibstat"]
    assert whys(bundle) == {
        "link": "a link: not followed",
        "folder": "a link: not followed",
        "fifo": "not a regular file",
    }


def test_a_file_swapped_for_a_link_after_the_look_is_not_followed(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret", b"the secret")
    file = write(tmp_path / "in" / "ib.txt", IB)
    evidence = load([str(tmp_path / "in")], PROBES).evidence[0]
    file.unlink()
    file.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic link"):
        evidence.open()


def test_a_fifo_given_by_name_is_refused_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(EvidenceError, match="not a regular file"):
        load([str(tmp_path / "fifo")], PROBES)


def test_an_unreadable_file_is_listed() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        write(Path(folder) / "ib.txt", IB).chmod(0)
        me = os.geteuid()
        try:
            if me == 0:
                os.seteuid(65534)  # root reads everything
            bundle = load([folder], PROBES)
        finally:
            os.seteuid(me)
    assert whys(bundle) == {"ib.txt": "not readable: Permission denied"}


def test_an_archive_is_read_by_name_check(tmp_path: Path) -> None:
    packed = tar_of(
        ("x/gpu-07/ib.txt", IB, {}),
        ("../../escape", IB, {}),
        ("/etc/absolute", IB, {}),
        ("x/link", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}),
        ("x/hard", b"", {"type": tarfile.LNKTYPE, "linkname": "x/gpu-07/ib.txt"}),
        ("x/device", b"", {"type": tarfile.CHRTYPE}),
        ("x/pipe", b"", {"type": tarfile.FIFOTYPE}),
        ("x/gpu-07/ib.txt", b"CA 'mlx5_9'", {}),
    )
    bundle = load([str(write(tmp_path / "a.tgz", packed))], PROBES)
    assert found(bundle) == [("ibstat", "gpu-07")]
    assert bundle.evidence[0].open() == IB
    assert [gone.why for gone in bundle.unread] == [
        "its name leads out of the archive: not read",
        "its name leads out of the archive: not read",
        "a link: not followed",
        "a link: not followed",
        "not a regular file",
        "not a regular file",
        "a second file of the same name: not read",
    ]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tgz"]


def test_half_an_archive_gives_what_was_complete_and_says_so(tmp_path: Path) -> None:
    whole = tar_of(("gpu-07/ib.txt", IB, {}), ("gpu-08/k.txt", SYSLOG + os.urandom(40_000), {}))
    bundle = load([str(write(tmp_path / "a.tgz", whole[: len(whole) // 2]))], PROBES)
    assert found(bundle) == [("ibstat", "gpu-07")]
    assert "complete files read: 1 " in bundle.unread[0].why


def test_a_plain_tar_cut_between_two_files_is_seen_as_cut(tmp_path: Path) -> None:
    plain = gzip.decompress(tar_of(("gpu-07/ib.txt", IB, {}), ("gpu-08/ib.txt", IB, {})))
    bundle = load([str(write(tmp_path / "a.tar", plain[:1024]))], PROBES)
    assert found(bundle) == [("ibstat", "gpu-07")]
    assert "no end mark" in bundle.unread[0].why


def test_files_that_a_cut_bundle_archive_lost_are_gaps(tmp_path: Path) -> None:
    root = a_bundle(tmp_path / "b")
    content = (root / "manifest.json").read_bytes()
    packed = tar_of(("manifest.json", content, {}), ("nodes/gpu-07/ibstat.txt", IB, {}))
    bundle = load([str(write(tmp_path / "a.tar", gzip.decompress(packed)[:-8192]))], PROBES)
    errors = {e.probe: e.error for e in bundle.evidence}
    assert errors == {"ibstat": None, "ib_counters": "truncated"}


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    write(tmp_path / "bomb.gz", gzip.compress(bytes(80 << 20)))
    write(tmp_path / "ib.txt", IB)
    bundle = load([str(tmp_path)], PROBES)
    assert found(bundle) == [("ibstat", None)]
    assert "250-fold" in whys(bundle)["bomb.gz"]


def test_a_bomb_inside_an_archive_ends_the_archive_and_keeps_what_came_before() -> None:
    packed = tar_of(("gpu-07/ib.txt", IB, {}), ("bomb", bytes(9 << 20), {}), ("later", IB, {}))
    item = Item(name="a.tgz", size=len(packed), read=lambda at, n: packed[at : at + n])
    out = unpack(item, Limits(total=5 << 20))
    assert [one.name for one in out if isinstance(one, Item)] == ["gpu-07/ib.txt"]
    assert "more than 5 MiB" in next(one.why for one in out if isinstance(one, Unread))


def test_an_archive_in_an_archive_is_not_opened(tmp_path: Path) -> None:
    inner = tar_of(("gpu-07/ib.txt", IB, {}))
    bundle = load([str(write(tmp_path / "a.tgz", tar_of(("inner.tgz", inner, {}))))], PROBES)
    assert bundle.evidence == ()
    assert whys(bundle) == {"inner.tgz": "an archive in an archive: unpack it first"}


def test_a_gzipped_file_is_known_by_its_content(tmp_path: Path) -> None:
    write(tmp_path / "gpu-07.bin", gzip.compress(IB[:5]) + gzip.compress(IB[5:]))
    (evidence,) = load([str(tmp_path)], PROBES).evidence
    assert (evidence.probe, evidence.node, evidence.open()) == ("ibstat", "gpu-07", IB)


def test_a_cut_gzip_file_gives_its_beginning_and_is_marked(tmp_path: Path) -> None:
    packed = gzip.compress(IB + os.urandom(60_000))
    write(tmp_path / "gpu-07.gz", packed[:30_000])
    (evidence,) = load([str(tmp_path)], PROBES).evidence
    assert evidence.error == "truncated"
    assert evidence.open().startswith(IB)


def test_a_large_file_out_of_an_archive_lies_on_disk_only_while_it_is_used(tmp_path: Path) -> None:
    big = b"gpu-07:1:2 [0] NCCL INFO x\n" + os.urandom(6 << 20)
    bundle = load([str(write(tmp_path / "a.tgz", tar_of(("job.log", big, {}))))], PROBES)
    file = bundle.evidence[0].file
    assert file is not None
    assert bundle.evidence[0].open() == big
    del bundle
    assert not Path(file).exists()


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("gpu-07/dmesg.txt", "gpu-07"),
        ("nodes/lyon3/dmesg.txt", "lyon3"),
        ("dmesg-gpu-07.txt", "gpu-07"),
        ("ibstat_node03.log", "node03"),
        ("hgx-b300-12.ibstat.gz", "hgx-b300-12"),
        ("incident-42/dmesg.txt", None),
        ("llama3/run7/rank3.txt", None),
        ("gpu3.txt", None),
        ("48213/x.txt", None),
    ],
)
def test_the_node_comes_from_folder_or_name_only_if_it_looks_like_one(
    tmp_path: Path, name: str, node: str | None
) -> None:
    write(tmp_path / "mail" / name, IB)
    assert found(load([str(tmp_path / "mail")], PROBES)) == [("ibstat", node)]


def test_a_host_that_another_file_shows_is_found_in_any_name(tmp_path: Path) -> None:
    write(tmp_path / "job.log", b"lyon17:1:2 [0] NCCL INFO x\n")
    write(tmp_path / "dmesg-of-lyon17.txt", IB)
    assert ("ibstat", "lyon17") in found(load([str(tmp_path)], PROBES))


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_3", 3),
        ("dump.11.pkl", 11),
        ("nccl_trace_rank_0007.json", 7),
        ("d", None),
        ("attachment-1", None),
        ("file (4)", None),
        ("3f9a01b7", None),
        ("job77_12", 12),
    ],
)
def test_the_rank_of_a_dump_is_the_last_number_of_its_name(
    tmp_path: Path, name: str, rank: int | None
) -> None:
    write(tmp_path / name, b"nccl_version")
    assert [e.rank for e in load([str(tmp_path)], PROBES).evidence] == [rank]


def test_a_job_id_in_the_name_of_a_log_is_not_a_rank(tmp_path: Path) -> None:
    write(tmp_path / "slurm-48213.out", b"NCCL INFO")
    assert load([str(tmp_path)], PROBES).evidence[0].rank is None


def test_a_file_a_device_of_two_samples_keeps_the_names_that_say_so(tmp_path: Path) -> None:
    for device in ("ens1np0", "ens2np0"):
        for sample in ("a", "b"):
            write(tmp_path / f"gpu-07/counters_{device}.{sample}.txt", b"port_rcv_data " + b"1")
    found = load([str(tmp_path)], PROBES).evidence
    assert [e.sample for e in sorted(found, key=lambda e: e.path)] == ["a", "b", "a", "b"]


def test_two_samples_are_told_apart_by_name_or_else_by_time(tmp_path: Path) -> None:
    write(tmp_path / "gpu-07/counters-after.txt", b"port_rcv_data 2")
    write(tmp_path / "gpu-07/counters-before.txt", b"port_rcv_data 1")
    os.utime(write(tmp_path / "gpu-08/x.txt", b"port_rcv_data 2"), (2e9, 2e9))
    os.utime(write(tmp_path / "gpu-08/y.txt", b"port_rcv_data 1"), (1e9, 1e9))
    bundle = load([str(tmp_path)], PROBES)
    samples = {(e.node, e.sample): e.open() for e in bundle.evidence}
    assert samples == {
        ("gpu-07", "a"): b"port_rcv_data 1",
        ("gpu-07", "b"): b"port_rcv_data 2",
        ("gpu-08", "a"): b"port_rcv_data 1",
        ("gpu-08", "b"): b"port_rcv_data 2",
    }


def test_the_same_file_twice_counts_once(tmp_path: Path) -> None:
    write(tmp_path / "a/gpu-07/ib.txt", IB)
    write(tmp_path / "b/gpu-07/ib.txt", IB)
    bundle = load([str(tmp_path / "a"), str(tmp_path / "a"), str(tmp_path / "b")], PROBES)
    assert found(bundle) == [("ibstat", "gpu-07")]
    assert "the same content as" in bundle.unread[0].why


def test_the_order_of_paths_does_not_change_the_evidence(tmp_path: Path) -> None:
    one = write(tmp_path / "gpu-07.txt", IB)
    two = write(tmp_path / "k.txt", SYSLOG)
    there = load([str(one), str(two)], PROBES).evidence
    assert there == load([str(two), str(one)], PROBES).evidence


@pytest.mark.parametrize(
    "content",
    [
        "Xid 79\n".encode("utf-16"),
        "Xid 79\n".encode("utf-16-le"),
        b"\xfe\xff" + "Xid 79\n".encode("utf-16-be"),
        b"\xef\xbb\xbfXid 79\n",
        b"Xid 79\r\n",
        b"\0\0\0Xid\0 79\n",
    ],
)
def test_text_in_any_encoding_reads_the_same(content: bytes) -> None:
    assert decode(content * 4).replace("\ufeff", "") == "Xid 79\n" * 4


@given(st.binary(max_size=3000))
def test_no_bytes_break_the_unpacker(content: bytes) -> None:
    for start in (b"", b"\x1f\x8b\x08\0"):
        whole = start + content
        item = Item(name="x", size=len(whole), read=lambda at, n, w=whole: w[at : at + n])
        assert unpack(item)


@given(st.integers(0, 4000), st.integers(0, 255))
def test_a_flipped_byte_in_a_tar_never_raises(at: int, byte: int) -> None:
    plain = bytearray(gzip.decompress(tar_of(("a/ib.txt", IB, {}), ("b/ib.txt", IB, {}))))
    plain[at % len(plain)] = byte
    item = Item(name="x.tar", size=len(plain), read=lambda a, n: bytes(plain[a : a + n]))
    assert unpack(item)


@pytest.mark.parametrize("name", ["out", "out.tar.gz"])
def test_what_is_saved_reads_back_as_it_was(tmp_path: Path, name: str) -> None:
    before = load([str(a_bundle(tmp_path / "b"))], PROBES)
    save(before, tmp_path / name)
    after = load([str(tmp_path / name)], PROBES)
    assert after.evidence == before.evidence or [
        (e.probe, e.node, e.sample, e.exit_code, e.stderr, e.open()) for e in after.evidence
    ] == [(e.probe, e.node, e.sample, e.exit_code, e.stderr, e.open()) for e in before.evidence]
    assert (after.job_id, after.taken_at, after.clocks) == (
        before.job_id,
        before.taken_at,
        before.clocks,
    )


def test_the_same_bundle_makes_the_same_archive(tmp_path: Path) -> None:
    bundle = load([str(a_bundle(tmp_path / "b"))], PROBES)
    save(bundle, tmp_path / "1.tar.gz")
    save(bundle, tmp_path / "2.tar.gz")
    assert (tmp_path / "1.tar.gz").read_bytes() == (tmp_path / "2.tar.gz").read_bytes()


def test_secrets_do_not_reach_a_saved_bundle(tmp_path: Path) -> None:
    secrets = (
        b"WANDB_API_KEY=0123456789abcdef\nexport HF_TOKEN='hf_abcdefghijklmnopqrstuv'\n"
        b"GET https://s3.example/x?X-Amz-Signature=feedbeef&a=1\nAuthorization: Bearer abc.def\n"
        b"git clone https://me:hunter2@git.example/x\ntokens=4096 tokens_per_second=17\n"
    )
    write(tmp_path / "in" / "job.log", b"NCCL INFO\n" + secrets)
    save(load([str(tmp_path / "in")], PROBES), tmp_path / "out")
    kept = next((tmp_path / "out/job").iterdir()).read_bytes()
    for secret in (b"0123456789abcdef", b"hf_abc", b"feedbeef", b"abc.def", b"hunter2"):
        assert secret not in kept
    assert b"tokens=4096 tokens_per_second=17" in kept


@pytest.mark.parametrize("name", ["out", "out.tar.gz"])
def test_a_missing_tool_is_no_silent_node_and_words_and_times_are_kept(tmp_path: Path, name: str):
    written = datetime(2026, 11, 24, 3, 0, tzinfo=UTC)
    spoke = Evidence(
        node="a", probe="kernel_log", path="x", size=4, open=lambda: b"[1]\n", mtime=written
    )
    missing = Evidence(node="a", probe="nvidia_smi", path="", error="not found", stderr="no such")
    dead = Evidence(node="b", probe="identity", path="", error="refused", stderr="port 22 closed")
    save(Bundle(nodes=("a", "b"), evidence=(spoke, missing, dead)), tmp_path / name)
    back = load([str(tmp_path / name)], PROBES)
    told = {(e.node, e.probe): (e.error, e.stderr, e.mtime) for e in back.evidence}
    assert told["a", "kernel_log"] == (None, "", written)
    assert told["a", "nvidia_smi"] == ("not found", "no such", None)
    assert ("a", "ibstat") not in told
    assert told["b", "ibstat"] == ("refused", "port 22 closed", None)


def test_a_hostile_node_name_never_becomes_a_path(tmp_path: Path) -> None:
    evidence = Evidence(node="../../x", probe="ibstat", path="p", size=1, open=lambda: b"x")
    save(Bundle(nodes=("../../x",), evidence=(evidence,)), tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    assert [p.name for p in (tmp_path / "out").iterdir() if p.is_dir()] == ["job"]


def test_the_owner_s_and_the_administrator_s_look_make_one(tmp_path: Path) -> None:
    """Each question's best answer: whole before refused, then the newest; samples stay together."""
    early, late = (datetime(2026, 11, 24, 3, minute, tzinfo=UTC) for minute in (0, 5))

    def look(name: str, at: datetime, *evidence: Evidence) -> None:
        bundle = Bundle(job_id="7", taken_at=at, nodes=("a",), evidence=evidence)
        save(bundle, tmp_path / f"{name}.tar.gz")

    def said(probe: str, text: bytes, sample: str = "") -> Evidence:
        return Evidence(
            node="a", probe=probe, path="x", sample=sample, size=len(text), open=lambda: text
        )

    refused = Evidence(
        node="a", probe="kernel_log", path="", error="denied", stderr="not permitted"
    )
    look(
        "admin", early, said("kernel_log", b"root"), said("memory", b"1", "a"), said("ibstat", b"x")
    )
    look("owner", late, refused, said("memory", b"2", "a"), said("memory", b"3", "b"))
    for order in (("admin", "owner"), ("owner", "admin")):
        both = load([str(tmp_path / f"{name}.tar.gz") for name in order], PROBES)
        told = {(e.probe, e.sample): e.open() for e in both.evidence}
        assert told == {
            ("kernel_log", ""): b"root",
            ("memory", "a"): b"2",
            ("memory", "b"): b"3",
            ("ibstat", ""): b"x",
        }
        assert both.taken_at == late
