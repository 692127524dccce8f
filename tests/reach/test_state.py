"""Where looks are kept: private, never on a hanging or foreign folder, pruned with care."""

import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sluggish.evidence.model import Bundle
from sluggish.evidence.save import save
from sluggish.reach import state

AT = datetime(2026, 11, 24, 3, 22, 10, tzinfo=UTC)


def test_the_first_folder_is_made_private_and_a_second_look_has_another_name(
    tmp_path: Path,
) -> None:
    env = {"SLUGGISH_STATE": str(tmp_path / "state")}
    first = state.place("48213_4", AT, env=env)
    assert first.path == tmp_path / "state/48213_4/bundle-20261124T032210Z.tar.gz"
    assert stat.S_IMODE(first.root.stat().st_mode) == 0o700
    save(Bundle(job_id="48213"), first.path)
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    assert state.place("48213_4", AT, env=env).path.name == "bundle-20261124T032210Z-1.tar.gz"
    with pytest.raises(FileExistsError):
        save(Bundle(), first.path)


def test_the_folders_in_their_order() -> None:
    local = tuple(Path(f"{top}/sluggish-{os.getuid()}") for top in ("/var/tmp", "/tmp"))
    home = {"HOME": "/home/a"}
    assert state.folders(home) == (Path("/home/a/.local/state/sluggish"), *local)
    assert state.folders({**home, "XDG_STATE_HOME": "/x"})[0] == Path("/x/sluggish")
    assert state.folders({**home, "SLUGGISH_STATE": "/s"})[0] == Path("/s")
    assert state.folders({**home, "SLUGGISH_STATE": "/s"}, "/c")[0] == Path("/c")
    assert state.folders(home, "~/kept")[0] == Path("/home/a/kept")
    assert state.folders({"HOME": "relative"}) == local


def test_a_folder_that_does_not_answer_is_told_apart_from_one_that_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that sleeps stands for dead storage; the lab has a real one."""
    dead, link, good = tmp_path / "dead", tmp_path / "link", tmp_path / "good"
    link.symlink_to(tmp_path)
    hangs = "import sys, time\nif sys.argv[1].endswith('/dead'): time.sleep(60)\n"
    monkeypatch.setattr(state, "_TRY", hangs + state._TRY)
    monkeypatch.setattr(state, "folders", lambda *_: (dead, link, good))
    found = state.place("1", AT, env={}, probe_s=1.0)
    assert (found.root, found.silent) == (good, (dead,))
    assert [note.rpartition(": ")[2] for note in found.notes] == ["no answer in 1 s", "a link"]


def test_a_link_or_a_folder_open_to_others_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, link, wide = tmp_path / "good", tmp_path / "link", tmp_path / "wide"
    good.mkdir(mode=0o700)
    link.symlink_to(good)
    wide.mkdir()
    wide.chmod(0o777)
    (tmp_path / "file").touch()
    tried = (link, wide, tmp_path / "file", Path("/proc/none"), good)
    monkeypatch.setattr(state, "folders", lambda *_: tried)
    found = state.place("1", AT, env={})
    assert found.root == good
    assert [note.rpartition(": ")[2] for note in found.notes][:2] == [
        "a link", "others may write there",
    ]  # fmt: skip
    assert len(found.notes) == 4
    monkeypatch.setattr(state, "folders", lambda *_: tried[:1])
    with pytest.raises(state.NoPlace, match="a link"):
        state.place("1", AT, env={})


def test_a_hostile_job_id_is_no_path(tmp_path: Path) -> None:
    found = state.place("../../etc", AT, env={"SLUGGISH_STATE": str(tmp_path / "s")})
    assert found.path.parent == tmp_path / "s/0"


def bundle(root: Path, job: str, at: datetime, size: int) -> Path:
    path = root / job / f"bundle-{at:%Y%m%dT%H%M%SZ}.tar.gz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(size))
    return path


def test_the_oldest_go_first_by_age_and_size_and_nothing_else_goes(tmp_path: Path) -> None:
    ancient = bundle(tmp_path, "1", AT - timedelta(days=40), 10)
    older = bundle(tmp_path, "2", AT - timedelta(days=3), 1 << 20)
    newer = bundle(tmp_path, "2", AT - timedelta(days=2), 1 << 20)
    mine = bundle(tmp_path, "3", AT, 1 << 20)
    theirs = [tmp_path / "2/notes.txt", tmp_path / "2/bundle-x.tar.gz", tmp_path / "thesis"]
    for path in theirs:
        path.write_bytes(bytes(1 << 20))
    (tmp_path / "keep").mkdir()
    foreign = tmp_path / "keep/bundle-20200101T000000Z.tar.gz"
    foreign.touch()
    link = tmp_path / "2/bundle-20200101T000000Z.tar.gz"
    link.symlink_to(theirs[2])
    gone = state.prune(tmp_path, keep=mine, max_mb=2, max_days=30, now=AT)
    assert gone == (ancient, older)
    assert all(path.exists() for path in (*theirs, foreign, link, newer, mine))
    assert not ancient.parent.exists()
    assert state.prune(tmp_path, keep=mine, max_mb=0, max_days=30, now=AT) == (newer,)
    assert mine.exists()
