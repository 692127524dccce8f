"""Other people's paths: only regular files of their owner, in time, and never more than asked."""

import os
from pathlib import Path

import pytest

from sluggish.reach import paths
from sluggish.reach.command import clean_env, run

ME = os.getuid()


def read(path: Path, *, uid: int = ME, head: int = 4, tail: int = 4) -> paths.Slices:
    return paths.read_slices(str(path), uid=uid, head=head, tail=tail, timeout_s=5)


@pytest.mark.parametrize(
    ("content", "head", "tail", "whole"),
    [
        (b"", b"", b"", True),
        (b"abc", b"abc", b"", True),
        (b"abcdefg", b"abcd", b"efg", True),
        (b"abcdefghijk", b"abcd", b"hijk", False),
    ],
)
def test_head_and_tail_never_overlap(
    tmp_path: Path, content: bytes, head: bytes, tail: bytes, whole: bool
) -> None:
    (tmp_path / "log").write_bytes(content)
    found = read(tmp_path / "log")
    assert (found.head, found.tail, found.whole, found.error) == (head, tail, whole, None)
    assert found.size == len(content)
    assert found.mtime is not None


def test_a_hundred_gigabytes_of_nothing_cost_nothing(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(100 << 30)
    found = read(tmp_path / "sparse", head=1 << 10, tail=1 << 10)
    assert (len(found.head), len(found.tail), found.size) == (1 << 10, 1 << 10, 100 << 30)


def test_links_fifos_devices_and_folders_are_denied(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/shadow")
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "link", tmp_path / "fifo", tmp_path, Path("/dev/null")):
        found = read(path)
        assert (found.error, found.head) == ("denied", b""), path
    assert read(tmp_path / "none").error == "not found"
    assert read(Path("/x" * 3000)).error == "not found"


def test_another_user_is_only_root_s_to_become_and_then_sees_its_own_alone(tmp_path: Path) -> None:
    if ME != 0:
        assert run(("id", "-u"), 5, as_uid=ME + 1).error == "denied"
        return
    for folder in (tmp_path, *tmp_path.parents):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    mine, secret = tmp_path / "mine", tmp_path / "secret"
    mine.write_bytes(b"of nobody")
    os.chown(mine, 65534, 65534)
    secret.write_bytes(b"of root")
    secret.chmod(0o600)
    assert read(mine, uid=65534).head == b"of n"
    assert read(secret, uid=65534).error == "denied"
    secret.chmod(0o644)
    other = read(secret, uid=65534)
    assert (other.error, other.says) == ("denied", "belongs to uid 0, not to the job's 65534")
    assert run(("id", "-u"), 5, as_uid=65534).stdout.strip() == b"65534"


def test_a_pattern_finds_files_and_a_bad_one_none(tmp_path: Path) -> None:
    (tmp_path / "a 1.out").touch()
    (tmp_path / "a 2.out").touch()
    found = paths.expand([f"{tmp_path}/a*.out", f"{tmp_path}/a 1.out"], uid=ME, timeout_s=5)
    assert not isinstance(found, paths.Found)
    assert sorted(found) == [f"{tmp_path}/a 1.out", f"{tmp_path}/a 2.out"]
    assert paths.expand([f"{tmp_path}/none*"], uid=ME, timeout_s=5) == ()
    assert paths.exists(str(tmp_path), 5) is True
    assert paths.exists(f"{tmp_path}/none", 5) is False


def test_a_child_that_does_not_answer_is_ended_with_what_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    ran = run(("sh", "-c", f"sleep 60 & echo $! > {mark}; wait"), 0.5)
    assert ran.error == "timeout"
    assert ran.exit_code is None
    pid = int(mark.read_text())
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or ") Z " in state.read_text()


def test_more_than_the_cap_is_cut_and_said() -> None:
    ran = run(("sh", "-c", "yes"), 5, cap_bytes=10)
    assert (len(ran.stdout), ran.error) == (10, "truncated")
    many = run(("sh", "-c", "yes | head -c 300000 >&2; echo out"), 5)
    assert (many.stdout, many.error, many.exit_code) == (b"out\n", None, 0)


def test_nothing_of_the_callers_formats_reaches_slurm() -> None:
    theirs = {"SQUEUE_FORMAT": "%i", "SLURM_CLUSTERS": "b", "TZ": "X", "SACCT_FORMAT": "x"}
    env = clean_env({**theirs, "SLURM_TIME_FORMAT": "x", "SLURM_CONF": "/c", "PATH": "/bin"})
    assert env == {"SLURM_CONF": "/c", "PATH": "/bin", "LC_ALL": "C", "TZ": "UTC",
                   "SLURM_TIME_FORMAT": "standard"}  # fmt: skip


def test_programs_are_looked_for_in_the_home_last() -> None:
    """Whoever looks for scontrol in a home that hangs never gets to /usr/bin."""
    env = {"HOME": "/home/al", "PATH": "/home/al/bin:/opt/slurm/bin:/home/al:/home/alice:/usr/bin"}
    assert clean_env(env)["PATH"] == "/opt/slurm/bin:/home/alice:/usr/bin:/home/al/bin:/home/al"
    assert clean_env({"PATH": "/b:/a"})["PATH"] == "/b:/a"
