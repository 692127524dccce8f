"""The kernel log: every data case, every capture, the table of lines, coverage, junk."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sluggish.catalog.xid import decode_nvlink5
from sluggish.evidence.naming import own_host
from sluggish.facts.gpu import GpuTrouble, SXid, Xid
from sluggish.facts.host import KernelSpan, KernelTrouble, OomKill
from sluggish.facts.origin import Origin
from sluggish.facts.smi_values import pci
from sluggish.probes import kernel_log

HERE = Path(__file__).parent
CASES = sorted((HERE / "probes" / "kernel_log").glob("*.yaml"))
TAKEN = datetime(2026, 11, 24, 4, 0, tzinfo=UTC)
BOOT = datetime(2026, 11, 20, tzinfo=UTC)
ORIGIN = Origin(node="gpu-08", taken_at=TAKEN, boot_at=BOOT)


def _text(path: Path) -> str:
    wanted = yaml.safe_load(path.read_text(encoding="utf-8"))
    source = HERE / wanted["capture"] if "capture" in wanted else path.with_suffix(".txt")
    return source.read_bytes().decode("utf-8", "replace")


def _parse(text: str, origin: Origin) -> tuple[list[Any], str | None]:
    found: list[Any] = []
    try:
        for fact in kernel_log.parse(text, origin):
            found.append(fact)
    except ValueError as problem:
        return found, str(problem)
    return found, None


def _facts(text: str, kind: type[Any], origin: Origin = ORIGIN) -> list[Any]:
    return [fact for fact in kernel_log.parse(text, origin) if isinstance(fact, kind)]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return list(value) if isinstance(value, tuple) else value


def _origin(given_fields: dict[str, Any]) -> Origin:
    times = {k: datetime.fromisoformat(v) for k, v in given_fields.items() if k.endswith("_at")}
    return Origin(**{**given_fields, **times})


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_recorded_case_gives_its_facts(path: Path) -> None:
    wanted = yaml.safe_load(path.read_text(encoding="utf-8"))
    text = _text(path)
    assert kernel_log.sniff(text.encode()[:65536]) is wanted.get("sniff", True)
    found, problem = _parse(text, _origin(wanted["origin"]))
    assert (problem or "").startswith(wanted.get("error", ""))
    assert (problem is None) is ("error" not in wanted)
    assert [type(f).__name__ for f in found] == [f["type"] for f in wanted["facts"]]
    for fact, expected in zip(found, wanted["facts"], strict=True):
        expected.pop("type")
        assert {key: _plain(getattr(fact, key)) for key in expected} == expected


def test_cases_of_each_kind_are_there() -> None:
    stems = {path.stem for path in CASES}
    assert {"normal", "faulty", "empty", "truncated", "version", "junk", "public"} <= stems


def _lines() -> list[Any]:
    table = (HERE / "probes" / "kernel_log" / "lines.tsv").read_text(encoding="utf-8")
    rows = [row.split("\t", 1) for row in table.splitlines() if row and row[0] != "#"]
    return [pytest.param(*row, id=str(i)) for i, row in enumerate(rows)]


@pytest.mark.parametrize(("expected", "line"), _lines())
def test_a_line_of_the_table_is_parsed_as_the_table_says(expected: str, line: str) -> None:
    code, address, pid, previous, more = expected.split("|")
    extra = dict(part.split("=", 1) for part in more.split() if "=" in part)
    fact = kernel_log.tidy(kernel_log.parse(line, ORIGIN))[0]
    assert fact.pci == pci(address)
    if code.startswith("S"):
        assert isinstance(fact, SXid)
        assert fact.code == int(code[1:6])
        assert fact.fatal is {"Fatal": True, "Non-fatal": False}.get(code[7:])
        return
    if code == "79*":
        assert isinstance(fact, GpuTrouble)
        assert fact.kind == "fallen_off"
        return
    assert isinstance(fact, Xid)
    assert fact.code == int(code)
    assert fact.pid == (int(pid) if pid.isdigit() else None)
    assert fact.caused_by == (int(previous) if previous != "-" else None)
    assert fact.process == (extra["name"] if extra["name"] not in ("-", "<unknown>") else None)
    if "to" in extra:
        assert fact.recovery == int(extra["to"])
    if "rst" in extra:
        assert fact.reset_hint is (extra["rst"] == "Yes")
    if "link" in extra:
        assert fact.link == int(extra["link"])
    if "rule" in extra:
        row = decode_nvlink5(fact.code, fact.unit or "", fact.intrinfo or 0, fact.status or 0)
        unit, sub, status = extra["rule"].split("/")
        assert row is not None
        assert (row.subcode, row.status, row.action) == (
            int(sub, 16), int(status, 16), extra["action"],
        )  # fmt: skip
        assert row.peer_is_source is (extra["peer_is_source"] == "1")
        assert unit in row.unit.split("/")


def _words() -> list[Any]:
    table = (HERE / "probes" / "kernel_log" / "words.tsv").read_text(encoding="utf-8")
    rows = [row.split("\t", 1) for row in table.splitlines() if row and row[0] != "#"]
    return [pytest.param(*row, id=row[1][:40]) for row in rows]


@pytest.mark.parametrize(("expected", "line"), _words())
def test_a_line_of_the_host_becomes_its_kind_of_event_or_none(expected: str, line: str) -> None:
    found = [
        f"{type(fact).__name__}:{fact.kind}"
        for fact in kernel_log.parse(f"[  900.000000] {line}\n", ORIGIN)
        if not isinstance(fact, KernelSpan)
    ]
    assert found == ([] if expected == "-" else [expected])


def test_a_log_from_the_first_line_of_the_boot_says_so() -> None:
    boot = "[    0.000000] Linux version 6.8.0 (x)\n[   12.500000] usb 1-1: new device\n"
    (span,) = _facts(boot, KernelSpan)
    assert span.from_boot
    assert (span.first_at, span.last_at) == (BOOT, BOOT + timedelta(seconds=12.5))


def test_a_ring_buffer_that_has_wrapped_begins_where_it_begins() -> None:
    (span,) = _facts("[  900.000000] a\n[  901.000000] b\n", KernelSpan)
    assert not span.from_boot
    assert span.first_at == BOOT + timedelta(seconds=900)


def test_a_kernel_that_was_booted_later_in_a_syslog_is_told() -> None:
    text = "Nov 24 01:00:00 n01 kernel: x\nNov 24 02:00:00 n01 kernel: [ 0.0] Linux version 6.8\n"
    (boot,) = _facts(text, KernelTrouble)
    assert boot.at == datetime(2026, 11, 24, 2, tzinfo=UTC)


def test_a_refusal_on_stderr_with_nothing_on_stdout_is_denied() -> None:
    origin = Origin(stderr="dmesg: read kernel buffer failed: Operation not permitted", exit_code=1)
    assert "Operation not permitted" in (_parse("", origin)[1] or "")


def test_lines_beside_a_hint_are_still_read() -> None:
    text = (
        "Hint: You are currently not seeing messages from other users and the system.\n"
        "[   12.000000] NVRM: Xid (PCI:0000:27:00): 79, GPU has fallen off the bus.\n"
    )
    assert [x.code for x in _facts(text, Xid)] == [79]


def test_the_relative_form_without_a_minute_has_no_time() -> None:
    line = "[  +0.000316] NVRM: Xid (PCI:0000:27:00): 79, GPU has fallen off the bus.\n"
    assert [x.at for x in _facts(line, Xid)] == [None]


def test_a_line_without_a_stamp_takes_the_time_of_the_line_before() -> None:
    text = "[   10.000000] something\nNVRM: Xid (PCI:0000:27:00): 79, x\n"
    assert _facts(text, Xid)[0].at == BOOT + timedelta(seconds=10)


def test_a_storm_of_one_code_is_one_fact_an_episode() -> None:
    line = "[%d.000000] NVRM: Xid (PCI:0000:27:00): 95, pid=7, name=p, Uncontained: LTC TAG\n"
    storm = "".join(line % s for s in [*range(100, 200), 300])
    assert [(x.count, x.at) for x in _facts(storm, Xid)] == [
        (100, BOOT + timedelta(seconds=100)),
        (1, BOOT + timedelta(seconds=300)),
    ]


def test_two_pids_of_one_gpu_are_not_folded() -> None:
    line = "[5.000000] NVRM: Xid (PCI:0000:27:00): 45, pid=%d, name=p, Ch 1\n"
    assert [x.pid for x in _facts(line % 7 + line % 8, Xid)] == [7, 8]


def test_a_loss_without_xid_is_kept_where_the_79_is_of_another_gpu() -> None:
    text = (
        "[10.000000] NVRM: Xid (PCI:0000:27:00): 79, GPU has fallen off the bus.\n"
        "[11.000000] NVRM: GPU 0000:28:00.0: GPU has fallen off the bus.\n"
    )
    assert [t.pci for t in _facts(text, GpuTrouble)] == ["0000:28:00.0"]


def test_prose_about_a_lost_gpu_is_no_loss() -> None:
    text = "[10.000000] audit: the gpu has fallen off the bus, said the operator\n"
    assert _facts(text, GpuTrouble) == []


def test_two_oom_kills_in_one_second_are_two() -> None:
    kill = "[9.0000%d] Memory cgroup out of memory: Killed process %d (python) anon-rss:8kB\n"
    assert [k.pid for k in _facts(kill % (1, 11) + kill % (2, 12), OomKill)] == [11, 12]


def test_the_child_that_dies_for_its_parent_is_the_victim() -> None:
    text = (
        "[9.000001] Out of memory: Kill process 456 (python) score 50 or sacrifice child\n"
        "[9.000002] Killed process 457 (worker) total-vm:9kB, anon-rss:8kB, file-rss:0kB\n"
    )
    assert [(k.pid, k.process, k.cgroup) for k in _facts(text, OomKill)] == [(457, "worker", False)]


def test_a_log_collected_from_many_hosts_keeps_them_apart() -> None:
    line = "2026-11-24T03:12:0%d+00:00 %s kernel: NVRM: Xid (PCI:0000:27:00): 79, x\n"
    text = line % (1, "gpu-07") + line % (2, "gpu-08")
    origin = Origin(taken_at=TAKEN)
    assert [x.node for x in _facts(text, Xid, origin)] == ["gpu-07", "gpu-08"]
    assert [s.node for s in _facts(text, KernelSpan, origin)] == ["gpu-07", "gpu-08"]


def test_a_leap_day_without_a_year_finds_its_leap_year() -> None:
    text = "Feb 29 03:12:02 n01 kernel: NVRM: Xid (PCI:0000:27:00): 79, x\n"
    assert _facts(text, Xid)[0].at == datetime(2024, 2, 29, 3, 12, 2, tzinfo=UTC)


def test_control_characters_of_a_line_do_not_reach_its_quote() -> None:
    text = "[9.000000] NVRM: Xid (PCI:0000:27:00): 79, \x1b[2J\u202egone\x07\n"
    quote = _facts(text, Xid)[0].line
    assert quote.isprintable()


def test_a_process_name_cannot_carry_escapes_or_bidi_marks() -> None:
    text = "[9.000000] NVRM: Xid (PCI:0000:27:00): 31, pid=7, name=py\x1b[2J\u202ethon, Ch 1\n"
    assert _facts(text, Xid)[0].process == "py\\u202ethon"


def test_every_form_of_stamp_tells_the_same_moment() -> None:
    words = "NVRM: Xid (PCI:0000:27:00): 79, x"
    at = datetime(2026, 11, 24, 3, 12, 2, tzinfo=UTC)
    seconds = (at - BOOT).total_seconds()
    for stamp in (
        f"[{seconds:.6f}] ", f"<4>[{seconds:.6f}] ", f"kern  :warn  : [{seconds:.6f}] ",
        f"[{seconds:.6f}][ T812] ", f"[{seconds:.6f} <    0.000316>] ",
        "[Tue Nov 24 03:12:02 2026] ", "2026-11-24T03:12:02,000000+00:00 ",
        f"4,1,{int(seconds * 1e6)},-;", f"4,1,{int(seconds * 1e6)},-,caller=T812;",
        "Nov 24 03:12:02 n01 kernel: ", f"Nov 24 03:12:02 n01 kernel: [{seconds:.6f}] ",
        "2026-11-24T03:12:02+0000 n01 kernel: ", "2026-11-24T04:12:02.000000+01:00 n01 kernel: ",
        "2026-11-24T03:12:02Z n01 kernel: ", f"{at.timestamp():.6f} n01 kernel: ",
        "Tue 2026-11-24 03:12:02 UTC n01 kernel: ", "03:12:02 ",
        "<4>1 2026-11-24T03:12:02Z n01 kernel - - - ",
    ):  # fmt: skip
        assert [x.at for x in _facts(stamp + words + "\n", Xid)] == [at], stamp


def test_other_logs_are_not_claimed() -> None:
    for head in (
        b"2026-11-24 03:12:01,123 INFO step 1\n" * 9,
        b"[2026-11-24T03:12:01.123] error: slurmd: x\n" * 9,
        b"[1124 03:12:01 x.py:1] hello\n" * 9,
        b"gpu-07:812:900 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB\n" * 9,
        b"[12] loss 3\n[13] loss 2\n",
        b"PID TTY STAT\n",
        b"\x80\x02}q\x00",
        b"",
    ):
        assert not kernel_log.sniff(head), head


@settings(max_examples=150, deadline=None)
@given(text=st.text())
def test_any_text_is_facts_or_a_value_error(text: str) -> None:
    _, problem = _parse(text, ORIGIN)
    assert problem is None or problem.startswith(("expected ", "denied: "))


_parts = st.sampled_from(
    [*kernel_log.NEEDLES, "[12.500000] ", "[  +0.1] ", "[Nov24 03:12] ",
     "4,1,99999999999999999,-;", "NVRM: Xid (PCI:0000:27:00): ", "79, ", "pid=", "name=",
     "Feb 30 99:99:99 h kernel: ", "\x00",
     "99999999999.123456 h kernel: ", "9999-99-99T99:99:99,1+99:99 ", "٣", ": ", "(", ")",
     "0x", "\r",
     "INFO: task a:1 blocked for more than 9 seconds", "Call Trace:", " f+0x1/0x2 [m]", "(0x1 0x2"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(parts=st.lists(_parts, max_size=30), glue=st.sampled_from(["", " ", "\n"]))
def test_text_that_looks_right_is_facts_or_a_value_error(parts: list[str], glue: str) -> None:
    text = glue.join(parts)
    _, problem = _parse(text, ORIGIN)
    assert problem is None or problem.startswith(("expected ", "denied: "))
    assert kernel_log.sniff(text.encode()) in (True, False)


JOURNAL = (HERE / "probes/kernel_log/journal_json.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("before", ["\x1e", "data: "], ids=["json-seq", "json-sse"])
def test_the_journal_s_other_ways_to_write_json(before: str) -> None:
    text = "\n".join(before + line for line in JOURNAL.splitlines())
    assert kernel_log.sniff(text.encode())
    assert _parse(text, ORIGIN) == _parse(JOURNAL, ORIGIN)


def test_entries_that_name_nobody_are_the_kernel_s_as_journalctl_k_with_chosen_fields_prints() -> (
    None
):
    line = (
        '{"__REALTIME_TIMESTAMP":"1795835602123456","MESSAGE":"NVRM: Xid (PCI:0000:65:00): 79, x"}'
    )
    assert kernel_log.sniff(line.encode())
    assert [x.at for x in _facts(line, Xid)] == [datetime(2026, 11, 28, 3, 13, 22, 123456, UTC)]


@pytest.mark.parametrize(
    "text",
    ['{"__CURSOR":\n' * 30_000, "{\n" * 100_000, '{"__CURSOR":"a","b":' + "[" * 100_000,
     '{"__CURSOR":' + "9" * 10_000 + "}", "data: " * 50_000, '{"__CURSOR":"' + "x" * 1_000_000,
     "__REALTIME_TIMESTAMP=1795835602000000\n" + "MESSAGE\n" * 50_000],
    ids=["open", "braces", "deep", "number", "data", "string", "bytes"],
)  # fmt: skip
def test_json_that_is_none_costs_little_and_is_said(text: str) -> None:
    found, problem = _parse(text, ORIGIN)
    assert not [f for f in found if isinstance(f, Xid)]
    assert problem is not None
    assert problem.startswith("expected ")


@pytest.mark.parametrize("name", ["journal_json", "journal_pretty", "journal_export"])
def test_the_journal_s_formats_tell_their_node(name: str) -> None:
    text = (HERE / f"probes/kernel_log/{name}.txt").read_text(encoding="utf-8")
    assert own_host(text) == "gpu-08"


@pytest.mark.parametrize(
    ("text", "filtered"),
    [
        ("[1.000001] NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.\n", True),
        ("[1.000001] NVRM: loading\n\n[2.000001] mlx5_core 0000:ab:00.0: x\n", True),
        ("-- Logs begin at --\n[1.000001] NVRM: loading\n", True),
        ("[1.000001] NVRM: loading\n[2.000001] e1000 0000:00:03.0: up\n", False),
    ],
)
def test_a_log_in_which_every_line_is_one_that_people_search_for_was_filtered(
    text: str, filtered: bool
) -> None:
    (span,) = _facts(text, KernelSpan)
    assert span.filtered is filtered
    (span,) = _facts(text, KernelSpan, Origin(node="gpu-08", command="dmesg"))
    assert not span.filtered  # nobody stands between the kernel and us


LOSS = (
    "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)
SECONDS, SYSLOG = f"[  900.000001] {LOSS}", f"Nov 24 03:04:17 gpu-08 kernel: {LOSS}"


@pytest.mark.parametrize(
    "text",
    [
        f"> {SECONDS}\n> [  901.000001] usb: new device\n",
        f"    {SECONDS}\n",
        f"\t{SECONDS}\n",
        f"Hello,\nthis is what dmesg on that node says:\n\n    {SECONDS}\n\nCan you drain it?\n",
        f"/var/log/messages:{SYSLOG}\n/var/log/messages-20261123:{SYSLOG.replace('79', '45')}\n",
        f"kern.log.1:1203:{SYSLOG}\n",
        f"1203:{SYSLOG}\n",
        f"gpu-08/dmesg.txt:{SECONDS}\n",
    ],
)
def test_what_a_mail_or_grep_puts_in_front_hides_no_line(text: str) -> None:
    assert kernel_log.sniff(text.encode())
    found = list(kernel_log.parse(text, ORIGIN))
    xid = next(f for f in found if isinstance(f, Xid))
    (span,) = [f for f in found if isinstance(f, KernelSpan)]
    assert (xid.code, xid.at is not None) == (79, True)
    assert span.filtered or "usb" in text  # an excerpt cannot say that nothing else was there


@pytest.mark.parametrize(
    "text",
    [
        "1203:Nov 24 was a Tuesday\n",
        "/var/log/messages:no such file\n",
        "    indented prose about NVRM and Xid 79\n",
        "> did you see an Xid?\n",
    ],
)
def test_prose_is_no_kernel_log(text: str) -> None:
    assert not kernel_log.sniff(text.encode())


@pytest.mark.parametrize(
    ("stamp", "month"),
    [
        ("[Di Mär  3 03:12:01 2026] ", 3),
        ("[Di Mai  5 03:12:01 2026] ", 5),
        ("[Di Okt  6 03:12:01 2026] ", 10),
        ("[mar. févr.  3 03:12:01 2026] ", 2),
        ("[ven. juin  5 03:12:01 2026] ", 6),
        ("[ven. juil.  3 03:12:01 2026] ", 7),
        ("[sam. août  1 03:12:01 2026] ", 8),
        ("[jue ene  1 03:12:01 2026] ", 1),
        ("[lun ago  3 03:12:01 2026] ", 8),
        ("[gio ott  1 03:12:01 2026] ", 10),
        ("[qui out  1 03:12:01 2026] ", 10),
        ("[czw paź  1 03:12:01 2026] ", 10),
        ("[Чт окт  1 03:12:01 2026] ", 10),
        ("[四 10月  1 03:12:01 2026] ", 10),
        ("Okt  6 03:12:01 gpu-08 kernel: ", 10),
        ("août  1 03:12:01 gpu-08 kernel: ", 8),
        ("10月 01 03:12:01 gpu-08 kernel: ", 10),
        ("Sep  1 03:12:01 gpu-08 kernel: ", 9),
    ],
)
def test_months_of_other_languages(stamp: str, month: int) -> None:
    text = f"{stamp}usb 1-1: new device\n{stamp}{LOSS}\n"
    assert kernel_log.sniff(text.encode())
    (xid,) = _facts(text, Xid)
    assert (xid.at.year, xid.at.month, xid.at.hour) == (2026, month, 3)


def _export(*messages: str) -> str:
    """Entries of a program, as `journalctl -o export` writes a message of several lines."""
    out = ""
    for text in messages:
        size = len(text.encode()).to_bytes(8, "little").decode("utf-8", "replace")
        out += "__REALTIME_TIMESTAMP=1795835602000000\n_TRANSPORT=stdout\nSYSLOG_IDENTIFIER=job\n"
        out += f"MESSAGE\n{size}{text}\n_HOSTNAME=gpu-08\n\n"
    return out


FORGED = (
    "a\n_TRANSPORT=kernel\nMESSAGE=NVRM: Xid (PCI:0000:65:00): 79, x\n\n"
    "__REALTIME_TIMESTAMP=1795835602000000\n_TRANSPORT=kernel\nSYSLOG_IDENTIFIER=kernel\n"
    "MESSAGE=NVRM: Xid (PCI:0000:66:00): 79, x\n"
)
KERNEL = "__REALTIME_TIMESTAMP=1795835603000000\n_TRANSPORT=kernel\n" \
    "MESSAGE=NVRM: Xid (PCI:0000:67:00): 79, x\n\n"  # fmt: skip


@pytest.mark.parametrize("message", [FORGED[:60], FORGED, "\u00e9" + FORGED, FORGED * 40])
def test_a_program_s_bytes_in_an_export_are_never_the_kernel_s_word(message: str) -> None:
    found, problem = _parse(KERNEL + _export(message) + KERNEL, ORIGIN)
    assert {x.pci for x in found if isinstance(x, Xid)} == {"0000:67:00.0"}
    # of a length that decoding has spoilt nobody knows where it ends: the rest is not believed
    known = all(byte < 0x80 for byte in len(message.encode()).to_bytes(8, "little"))
    assert (problem is None) is known


def test_verbose_entries_are_read_and_a_program_s_lines_are_not_the_kernel_s() -> None:
    head = "Sat 2026-11-28 03:13:22.123456 UTC [s=498f;i=940;b=48d8;m=a61b;t={:x};x=3b96]\n"
    text = "".join(
        head.format(1795835602123456 + n)
        + f"    _HOSTNAME=gpu-08\n    _TRANSPORT={who}\n    SYSLOG_IDENTIFIER=kernel\n"
        + f"    MESSAGE=NVRM: Xid (PCI:0000:6{n}:00): 79, x\n            _TRANSPORT=kernel\n"
        for n, who in enumerate(("kernel", "syslog", "stdout"))
    )
    assert kernel_log.sniff(text.encode())
    assert own_host(text) == "gpu-08"
    (xid,) = _facts(text, Xid)
    assert (xid.pci, xid.at) == (
        "0000:60:00.0", datetime(2026, 11, 28, 3, 13, 22, 123456, UTC)
    )  # fmt: skip
