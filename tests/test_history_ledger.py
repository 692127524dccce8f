"""The ledger under faults: nothing that was answered is lost, and trouble is one line."""

import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sluggish.cli.demo import bundle_of
from sluggish.diagnose import diagnose
from sluggish.history import keep, ledger, ledger_file
from sluggish.history.model import Alert
from sluggish.verdict.model import Diagnosis

ROOT = Path(__file__).parents[1]
AT = datetime(2026, 11, 24, 3, 22, 10, tzinfo=UTC)
PLACES = """\
22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
23 22 0:30 / /home rw - nfs4 server:/home rw
24 22 0:31 / /home/a\\040b rw - tmpfs tmpfs rw
25 22 0:32 / /scratch rw - lustre mds:/x rw
26 22 0:33 / /over rw - ext4 /dev/sdb rw
27 22 0:34 / /over rw - fuse.sshfs host: rw
"""
WRITER = """
import json, sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
sys.path.insert(0, sys.argv[4])
from sluggish.history import ledger
path, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for number in range(first, first + count):
    entry = dict.fromkeys(ledger.ENTRY) | {
        "job": str(number), "at": "2026-11-24T03:22:10Z", "cause": "gpu_fault", "shared": False,
        "nodes": "gpu-[07-08]", "culprits": [dict.fromkeys(ledger.CULPRIT) | {"node": "gpu-07"}]}
    ledger.answer({"do": "entry", "path": str(path), "entry": entry, "about": ["gpu-07"],
                   "nodes": ["gpu-07", "gpu-08"]})
    print(number, flush=True)
"""


@pytest.fixture(scope="module")
def seed() -> Diagnosis:
    return diagnose(bundle_of("seed"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state/history.db"


def jobs(path: Path) -> list[str]:
    return [entry.job for entry in keep.read_ledger(path).entries]


def sound(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []


def writer(path: Path, first: int, count: int) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-c", WRITER, str(path), str(first), str(count), str(ROOT)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def written(path: Path, first: int, count: int) -> None:
    with writer(path, first, count) as process:
        process.communicate(timeout=60)
    assert process.returncode == 0


# -- what is kept --------------------------------------------------------------------------------


def test_a_look_is_kept_once_and_private(seed: Diagnosis, path: Path) -> None:
    first = keep.record_diagnosis(seed, path)
    assert (first.problem, first.notes, dict(first.about)) == (None, (), {"gpu-07": ()})
    again = keep.record_diagnosis(seed, path)
    assert again.problem is None
    assert [entry.job for entry in again.about["gpu-07"]] == ["48213"]
    (entry,) = keep.read_ledger(path).entries
    assert (entry.cause, entry.subtype, entry.confidence, entry.nodes, entry.gpu_hours) == (
        "rank_desync", "collective_mismatch", "high", "gpu-[07-08]", 3.27,
    )  # fmt: skip
    assert [(c.node, c.gpu_index, c.rank) for c in entry.culprits] == [("gpu-07", 3, 3)]
    assert entry == replace(keep.entry_of(seed) or entry, id=1)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_ledger_in_a_group_s_folder_is_the_group_s(seed: Diagnosis, path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o2770)
    assert keep.record_diagnosis(seed, path).problem is None
    assert path.stat().st_mode & 0o777 == 0o660


def test_the_record_changes_nothing_of_the_diagnosis(seed: Diagnosis, path: Path) -> None:
    from sluggish.report.json import render

    before = render(seed)
    assert keep.record_diagnosis(seed, path).problem is None
    assert render(seed) == before


def test_hours_of_a_job_that_had_ended_are_counted_to_its_end(seed: Diagnosis) -> None:
    assert seed.job
    assert seed.taken_at
    assert seed.verdict.onset
    stalled = seed.taken_at - seed.verdict.onset.latest
    ended = replace(seed.job, ended_at=seed.taken_at - stalled / 2)
    entry = keep.entry_of(replace(seed, job=ended))
    assert entry
    assert entry.gpu_hours == pytest.approx(3.27 / 2, abs=0.01)


def test_without_a_job_or_a_time_nothing_is_written_and_that_is_said(
    seed: Diagnosis, path: Path
) -> None:
    told = keep.record_diagnosis(replace(seed, job=None), path)
    assert "not recorded: no job" in (told.problem or "")
    assert not path.exists()
    assert keep.record_diagnosis(replace(seed, job=None), path, job="77").problem is None
    assert jobs(path) == ["77"]


def test_alerts_are_kept_beside_the_looks_and_found_by_node(path: Path) -> None:
    alert = Alert(job="5", at=AT, nodes="gpu-[07-08]", says="no step\x1b[31m for 2 min")
    assert keep.record_alert(alert, path).problem is None
    assert keep.record_alert(alert, path).problem is None
    (found,) = keep.read_ledger(path, node="gpu-08").alerts
    assert (found.job, found.at, found.says) == ("5", AT, "no step for 2 min")
    assert keep.read_ledger(path, node="gpu-09").alerts == ()


def test_since_and_node_choose(seed: Diagnosis, path: Path) -> None:
    assert seed.job
    assert seed.taken_at
    for number in range(3):
        job = replace(seed.job, id=str(number))
        at = seed.taken_at + timedelta(days=number)
        assert keep.record_diagnosis(replace(seed, job=job, taken_at=at), path).problem is None
    found = keep.read_ledger(path, since=seed.taken_at + timedelta(days=1))
    assert [entry.job for entry in found.entries] == ["1", "2"]
    assert found.parts == {"gpu-07": (2, 3)}
    long_ago = datetime(300, 1, 1, tzinfo=UTC)
    assert len(keep.read_ledger(path, since=long_ago).entries) == 3
    assert [e.job for e in keep.read_ledger(path, node="gpu-08").entries] == ["0", "1", "2"]
    assert keep.read_ledger(path, node="gpu-08").parts == {"gpu-08": (1, 2, 3)}
    assert keep.read_ledger(path, node="gpu-99").entries == ()


# -- many writers, kill -9 -----------------------------------------------------------------------


def test_two_processes_that_write_at_once_lose_nothing(path: Path) -> None:
    """Each also reads the node's record, while the other adds to it."""
    both = [writer(path, first, 60) for first in (0, 1000)]
    for process in both:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert sorted(map(int, jobs(path))) == [*range(60), *range(1000, 1060)]
    sound(path)


def test_kill_9_at_any_moment_loses_no_answered_record(path: Path) -> None:
    """Two writers at once; the first rounds end in the middle of making the file."""
    answered: list[str] = []
    dice = random.Random(7)
    for round_ in range(12):
        both = [writer(path, (2 * round_ + n) * 1000, 900) for n in range(2)]
        for process in both:
            assert process.stdout
            for _ in range(dice.randint(1, 8) if round_ > 3 else 0):
                answered.append(process.stdout.readline().strip())
            time.sleep(dice.uniform(0.0, 0.06))
            process.send_signal(signal.SIGKILL)
        for process in both:
            answered += process.communicate(timeout=30)[0].split("\n")[:-1]
        if path.exists() and path.stat().st_size:
            sound(path)
    found = jobs(path)
    assert len(answered) > 16
    assert set(answered) <= set(found)
    assert len(found) == len(set(found))
    entries = keep.read_ledger(path).entries
    assert all(entry.culprits for entry in entries), "half a record"


def test_a_reader_does_not_stop_a_writer(path: Path) -> None:
    written(path, 0, 1)
    with closing(sqlite3.connect(path)) as db:
        db.execute("BEGIN")
        assert db.execute("SELECT count(*) FROM entry").fetchone() == (1,)
        written(path, 1, 1)
    assert jobs(path) == ["0", "1"]


def test_a_writer_that_holds_the_file_is_waited_for_and_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(path, 0, 1)
    monkeypatch.setattr(ledger_file, "BUSY_S", 0.3)
    alert = {"job": "1", "started": None, "at": "2026-11-24T03:22:10Z", "nodes": "a", "says": "b"}
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError) as caught:
            ledger.answer({"do": "alert", "path": str(path), "alert": alert})
        assert "held by another program for more than" in ledger_file.words(caught.value)
        db.execute("ROLLBACK")
    assert ledger.answer({"do": "alert", "path": str(path), "alert": alert}) == {"notes": []}


# -- schema --------------------------------------------------------------------------------------


def old_ledger(path: Path) -> None:
    """As the first schema wrote it: without alerts."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        ledger_file.migrate(db, 1)
        db.execute(
            "INSERT INTO entry (job, at, cause, shared, nodes) "
            "VALUES ('1', '2026-11-01T00:00:00Z', 'memory', 0, 'gpu-07')"
        )
        assert db.execute("PRAGMA user_version").fetchone() == (1,)


def test_an_older_ledger_is_brought_to_this_schema_with_what_it_holds(
    seed: Diagnosis, path: Path
) -> None:
    old_ledger(path)
    assert keep.record_diagnosis(seed, path).problem is None
    assert keep.record_alert(Alert(job="5", at=AT, nodes="a", says="b"), path).problem is None
    assert jobs(path) == ["1", "48213"]
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (ledger_file.SCHEMA,)


def test_many_who_find_an_older_ledger_bring_it_over_once(path: Path) -> None:
    old_ledger(path)
    both = [writer(path, first, 5) for first in (100, 200, 300)]
    for process in both:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert len(jobs(path)) == 16
    sound(path)


def test_a_newer_ledger_is_neither_read_nor_written(seed: Diagnosis, path: Path) -> None:
    assert keep.record_diagnosis(seed, path).problem is None
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {ledger_file.SCHEMA + 1}")
    before = path.read_bytes()
    why = f"{path}: its schema 3 is newer than this sluggish, which reads up to 2"
    with pytest.raises(keep.NoLedger, match=why):
        keep.read_ledger(path)
    told = keep.record_diagnosis(replace(seed, taken_at=AT + timedelta(days=1)), path)
    assert told.problem == why.replace(": its", ": not recorded: its")
    assert told.about == {}
    assert path.read_bytes() == before


def test_another_program_s_database_is_left_alone(seed: Diagnosis, path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE entry (mine TEXT)")
    before = path.read_bytes()
    assert "of another program" in (keep.record_diagnosis(seed, path).problem or "")
    assert path.read_bytes() == before


# -- disks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["text", "holes", "cut"])
def test_a_damaged_ledger_is_one_line_and_is_left_as_it_is(
    seed: Diagnosis, path: Path, damage: str
) -> None:
    written(path, 0, 30)
    whole = path.read_bytes()
    if damage == "text":
        path.write_bytes(b"not a database, not even a small one\n" * 40)
    elif damage == "holes":
        path.write_bytes(whole[:4096] + os.urandom(len(whole) - 4096))
    else:
        path.write_bytes(whole[:5000])
    bad = path.read_bytes()
    with pytest.raises(keep.NoLedger) as caught:
        keep.read_ledger(path)
    for line in (str(caught.value), keep.record_diagnosis(seed, path).problem or ""):
        assert line.startswith(f"{path}: ")
        assert "move it away" in line
        assert "\n" not in line
    assert path.read_bytes() == bad


def test_bytes_turned_at_random_are_read_or_one_line(seed: Diagnosis, path: Path) -> None:
    written(path, 0, 12)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole, dice = path.read_bytes(), random.Random(3)
    entry = json.loads(keep.msgspec.json.encode(keep.entry_of(seed)))
    add = {"do": "entry", "entry": entry, "nodes": ["gpu-07"], "about": ["gpu-07"]}
    said: set[str] = set()
    for _ in range(150):
        turned = bytearray(whole)
        for _ in range(dice.choice((1, 2, 8))):
            turned[dice.randrange(dice.choice((200, len(whole))))] = dice.randrange(256)
        for ask in ({"do": "read"}, add):
            for beside in path.parent.iterdir():
                beside.unlink()
            path.write_bytes(turned)
            try:
                json.dumps(ledger.answer({"path": str(path), **ask}))
            except (ledger_file.Refused, sqlite3.Error, OSError, ValueError) as problem:
                said.add(ledger_file.words(problem))
    assert len(said) > 3
    for line in said:
        assert "\n" not in line
        assert "codec" not in line


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may grow beyond this, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_takes_no_more_is_one_line_and_what_was_written_stays(
    seed: Diagnosis, path: Path, small_files: None
) -> None:
    assert seed.job
    kept: list[str] = []
    for number in range(3000):
        wide = replace(seed.job, id=str(number), name="x" * 90)
        nodes = tuple(f"gpu-{number * 50 + n}" for n in range(50))
        summary = replace(seed.summary, nodes=nodes)
        told = keep.record_diagnosis(replace(seed, job=wide, summary=summary), path)
        if told.problem:
            break
        kept.append(str(number))
    assert told.problem
    assert told.problem.startswith(f"{path}: not recorded: the disk ")
    assert len(kept) > 3
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert jobs(path) == kept
    sound(path)


def test_no_folder_no_file_and_no_regular_file_are_one_line(seed: Diagnosis) -> None:
    for bad, why in (
        ("/proc/none/history.db", "No such file or directory"),
        ("/dev/null", "a device, expected a ledger's file"),
        ("/etc", "a directory, expected a ledger's file"),
        ("/etc/passwd/history.db", "Not a directory"),
        ("/tmp/\udcff.db", "its path is no UTF-8"),
    ):
        assert keep.record_diagnosis(seed, Path(bad)).problem == f"{bad}: not recorded: {why}"
    with pytest.raises(keep.NoLedger, match="no ledger there yet"):
        keep.read_ledger(Path("/none/history.db"))


def test_the_ledger_is_private_or_its_folder_s_group_s(tmp_path: Path) -> None:
    alert = {"job": "1", "started": None, "at": "2026-11-24T03:22:10Z", "nodes": "a", "says": "b"}
    ledger.answer({"do": "alert", "path": str(tmp_path / "own" / "h.db"), "alert": alert})
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    ledger.answer({"do": "alert", "path": str(shared / "h.db"), "alert": alert})
    modes = [p.stat().st_mode & 0o777 for p in (tmp_path / "own" / "h.db", shared / "h.db")]
    assert modes == [0o600, 0o660]


def test_a_file_that_never_answers_is_given_up(seed: Diagnosis, path: Path) -> None:
    """Somebody's lock stands for storage that hangs. The lab has a real one."""
    written(path, 0, 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        told = keep.record_diagnosis(seed, path, timeout_s=1.0)
        assert time.monotonic() - began < 4
        assert "no answer in 1 s" in (told.problem or "")
        with pytest.raises(keep.NoLedger, match="no answer in 1 s"):
            keep.read_ledger(path, timeout_s=1.0)
        db.execute("ROLLBACK")


def made(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


MARK = f"PRAGMA application_id = {ledger_file.APPLICATION}"
ODD = {
    "a fifo": (lambda path: os.mkfifo(path), "a FIFO, expected", "a FIFO, expected"),
    "a directory": (lambda path: path.mkdir(), "a directory, expected", "a directory, expected"),
    "a link to a device": (lambda path: path.symlink_to("/dev/zero"), "a device", "a device"),
    "a link to nowhere": (lambda path: path.symlink_to("nowhere"), "no ledger there yet",
                          "No such file"),
    "a text": (lambda path: path.write_text("rank,blocks\n" * 90), "not a ledger", "not a ledger"),
    "a short text": (lambda path: path.write_text("x"), "not a ledger", "not a ledger"),
    "an empty file": (lambda path: path.touch(), "an empty file, no ledger yet", None),
    "an empty database": (lambda path: made(path, "VACUUM"), "an empty database", None),
    "another program's": (lambda path: made(path, "CREATE TABLE a (b)"), "an SQLite file of",
                          "an SQLite file of another program"),
    "marked and of no schema": (lambda path: made(path, "CREATE TABLE a (b)", MARK),
                                "damaged: schema 0 with 1 tables", "damaged: schema 0"),
    "of a schema below none": (lambda path: made(path, "CREATE TABLE a (b)", MARK,
                                                 "PRAGMA user_version = -3"),
                               "damaged: schema -3", "damaged: schema -3"),
    "without its tables": (lambda path: made(path, MARK, "PRAGMA user_version = 2"),
                           "damaged: schema 2 with 0 tables", "damaged: schema 2"),
    "with other tables": (lambda path: made(path, "CREATE TABLE a (b)", MARK,
                                            "PRAGMA user_version = 2"),
                          "damaged (no such table: entry)", "damaged (no such table"),
    "newer": (lambda path: made(path, "CREATE TABLE a (b)", MARK, "PRAGMA user_version = 99"),
              "its schema 99 is newer", "its schema 99 is newer"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "read", "write"), ODD.values(), ids=ODD)
def test_what_is_no_ledger_is_one_line_at_once_and_stays_as_it_is(
    seed: Diagnosis, path: Path, make: Callable[[Path], None], read: str, write: str | None
) -> None:
    path.parent.mkdir()
    make(path)
    before = path.read_bytes() if path.is_file() else None
    began = time.monotonic()
    with pytest.raises(keep.NoLedger) as caught:
        keep.read_ledger(path)
    assert str(caught.value).startswith(f"{path}: {read}")
    assert "\n" not in str(caught.value)
    assert (path.read_bytes() if path.is_file() else None) == before
    told = keep.record_diagnosis(seed, path)
    assert time.monotonic() - began < 4
    if write is None:
        assert told.problem is None
        assert jobs(path) == ["48213"]
        return
    assert (told.problem or "").startswith(f"{path}: not recorded: {write}")
    assert "\n" not in (told.problem or "")
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_reader_takes_an_older_ledger_as_it_is(path: Path) -> None:
    """It may lie where nobody but its owner may write."""
    old_ledger(path)
    before = path.read_bytes()
    found = keep.read_ledger(path)
    assert ([entry.job for entry in found.entries], found.alerts) == (["1"], ())
    assert path.read_bytes() == before


def test_a_clock_that_was_set_back_is_said_and_the_look_is_kept(
    seed: Diagnosis, path: Path
) -> None:
    assert seed.job
    ahead = replace(seed, taken_at=AT + timedelta(days=300))
    assert keep.record_diagnosis(ahead, path).notes == ()
    told = keep.record_diagnosis(replace(seed, job=replace(seed.job, id="2")), path)
    assert told.problem is None
    assert "a clock was set" in told.notes[0]
    assert jobs(path) == ["48213", "2"]
    near = replace(seed, taken_at=AT + timedelta(days=300) - timedelta(minutes=1))
    assert keep.record_diagnosis(near, path).notes == ()


def test_hostile_text_stays_text(seed: Diagnosis, path: Path) -> None:
    assert seed.job
    odd = replace(seed.job, id="1'); DROP TABLE entry; --\udc80\x00", name="\x1b]0;x\x07\u202e",
                  user="a\nb")  # fmt: skip
    assert keep.record_diagnosis(replace(seed, job=odd), path).problem is None
    (entry,) = keep.read_ledger(path).entries
    assert entry.job.startswith("1'); DROP TABLE")
    assert (entry.name, entry.user) == ("\\u202e", "a\\x0ab")


def test_what_others_wrote_into_it_is_shown_escaped_or_refused(seed: Diagnosis, path: Path) -> None:
    assert keep.record_diagnosis(seed, path).problem is None
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE entry SET user = char(27) || '[2J' || char(7)")
    assert keep.read_ledger(path).entries[0].user == "\\x07"


@pytest.mark.parametrize(
    "change",
    [
        *(f"gpu_hours = {value}" for value in ("x'00ff'", "'soon'", "9e999", "-1")),
        *(f"at = {value}" for value in ("x'00ff'", "'soon'", "'2026-13-01T00:00:00Z'", "1")),
        *(f"{column} = x'00ff'" for column in ("job", "name", "cause", "nodes", "started")),
        "shared = 1.5",
        "name = printf('%.*c', 70000, 'x')",
    ],
)
def test_a_damaged_record_is_left_out_and_said_and_the_others_are_kept(
    seed: Diagnosis, path: Path, change: str
) -> None:
    """Also where it would stand beside a new look: that is recorded."""
    assert seed.job
    for number in ("1", "2"):
        look = replace(seed, job=replace(seed.job, id=number))
        assert keep.record_diagnosis(look, path).problem is None
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE entry SET {change} WHERE job = '1'")
    found = keep.read_ledger(path)
    assert [entry.job for entry in found.entries] == ["2"]
    assert found.notes == ("1 record is damaged and left out: somebody else wrote there",)
    assert found.parts == {"gpu-07": (2,)}
    told = keep.record_diagnosis(replace(seed, job=replace(seed.job, id="3")), path)
    assert told.problem is None
    assert told.notes == found.notes
    assert [entry.job for entry in told.about["gpu-07"]] == ["2"]
    assert jobs(path) == ["2", "3"]


def test_a_damaged_place_or_alert_is_left_out_and_said(seed: Diagnosis, path: Path) -> None:
    assert keep.record_diagnosis(seed, path).problem is None
    for says in ("a", "b"):
        assert keep.record_alert(Alert(job="5", at=AT, nodes="a", says=says), path).problem is None
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE culprit SET rank = 'x'")
        db.execute("UPDATE alert SET nodes = x'00' WHERE says = 'a'")
        db.execute("UPDATE OR IGNORE part SET entry = 1.5")
    found = keep.read_ledger(path)
    assert [entry.culprits for entry in found.entries] == [()]
    assert [alert.says for alert in found.alerts] == ["b"]
    assert len(found.notes) == 2


# -- where it lies -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/var/x/history.db", "ext4"),
        ("/home/alice/history.db", "nfs4"),
        ("/home/a b/history.db", "tmpfs"),
        ("/homely/history.db", "ext4"),
        ("/scratch", "lustre"),
        ("/over/history.db", "fuse.sshfs"),
    ],
)
def test_the_file_system_is_that_of_the_last_mount_above(place: str, kind: str) -> None:
    assert ledger_file.file_system(place, PLACES) == kind
    assert ledger_file.file_system(place, "junk\n- - -\n") == ""


def test_shared_storage_gets_a_rollback_journal_and_a_warning(
    seed: Diagnosis, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a ledger that was begun on a local disk, with a writer's WAL left behind."""
    written(path, 0, 1)
    monkeypatch.setattr(ledger_file, "LOCAL", set())
    entry = json.loads(keep.msgspec.json.encode(keep.entry_of(seed)))
    ask = {"path": str(path), "entry": entry, "nodes": ["gpu-07"], "about": []}
    assert ledger.answer({"do": "entry", **ask})["notes"] == []
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    told = ledger.answer({"do": "read", "path": str(path)})
    assert len(told["entries"]) == 2
    assert "not on a disk of this machine: kept with a rollback journal" in told["notes"][0]
    fresh = path.parent / "new.db"
    told = ledger.answer({"do": "entry", **ask, "path": str(fresh)})
    assert "rollback journal" in told["notes"][0]
    assert not Path(f"{fresh}-wal").exists()


def test_a_ledger_in_use_is_not_turned_over_under_its_user(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(path, 0, 1)
    monkeypatch.setattr(ledger_file, "LOCAL", set())
    monkeypatch.setattr(ledger_file, "BUSY_S", 0.3)
    holds = (
        "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\n"
        "db.execute('SELECT * FROM entry').fetchall()\nprint(1, flush=True)\ninput()"
    )
    argv = [sys.executable, "-c", holds, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, text=True, **pipes) as other:
        assert other.stdout
        assert other.stdout.readline() == "1\n"
        with pytest.raises((sqlite3.OperationalError, ledger_file.Refused), match=r"lock|in use"):
            ledger.answer({"do": "read", "path": str(path)})
        other.communicate("\n", timeout=30)
    assert len(ledger.answer({"do": "read", "path": str(path)})["entries"]) == 1


def test_where_the_ledger_lies(tmp_path: Path) -> None:
    home = {"HOME": "/home/a"}
    assert keep.place(home, db=None, state_dir=None) == Path(
        "/home/a/.local/state/sluggish/history.db"
    )
    assert keep.place(home, db=None, state_dir="/s") == Path("/s/history.db")
    assert keep.place(home, db="/d.db", state_dir="/s") == Path("/d.db")
    with pytest.raises(keep.NoLedger, match="history_db"):
        keep.place({}, db=None, state_dir=None)
