"""The Xid catalogue: closed lists, what advice rests on, decoding, explanations, load time."""

import csv
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from sluggish.catalog.explain import ACTION_WORDS, HANG_WORDS, explain_xid
from sluggish.catalog.xid import (
    decode_nvlink5,
    decode_xid74,
    recovery_action,
    subcode,
    sxid,
    xid,
    xid_unused,
)
from sluggish.catalog.xidline import split_sxid, split_xid

CATALOG = Path(__file__).parents[1] / "sluggish" / "catalog"
KNOWN = [entry for code in range(1, 200) if (entry := xid(code))]


def test_every_code_uses_the_closed_lists() -> None:
    assert len(KNOWN) == 128
    assert {e.hang for e in KNOWN} == set(HANG_WORDS)
    assert {e.action for e in KNOWN} <= set(ACTION_WORDS)
    assert {e.fault for e in KNOWN} == {"hardware", "driver", "application", "fabric"}
    assert {e.kind for e in KNOWN} == {"bus", "ecc", "nvlink", "gsp", "other"}
    assert {e.severity for e in KNOWN} == {"info", "low", "medium", "high", "critical"}


@pytest.mark.parametrize(
    ("code", "hang", "action"),
    [(13, "cause_app", "restart_app"), (31, "cause_app", "restart_app"), (43, "follow_on", "none"),
     (45, "follow_on", "none"), (48, "cause", "reset_gpu"), (63, "no", "none"),
     (64, "possible", "rma"),
     (74, "cause", "reset_gpu"), (79, "cause", "reboot_node"), (94, "cause", "restart_app"),
     (95, "cause", "reset_gpu"), (119, "cause", "reset_gpu"), (154, "marker", "none")],
)  # fmt: skip
def test_the_codes_that_decide_say_what_they_should(code: int, hang: str, action: str) -> None:
    entry = xid(code)
    assert entry is not None
    assert (entry.hang, entry.action) == (hang, action)


def test_a_code_of_a_newer_driver_is_not_known() -> None:
    assert xid(999) is None
    assert not xid_unused(999)
    assert xid(17) is None
    assert xid_unused(17)


@pytest.mark.parametrize(("number", "action"), [(0, "none"), (1, "reset_gpu"), (2, "reboot_node"),
                                                (4, "reset_gpu"), (7, "reboot_node")])  # fmt: skip
def test_a_recovery_action_is_known_by_its_number(number: int, action: str) -> None:
    found = recovery_action(number)
    assert found is not None
    assert found.action == action


def test_a_recovery_number_of_a_newer_driver_is_not_known() -> None:
    assert recovery_action(42) is None


def test_switch_errors_keep_the_drivers_word_and_the_guides_class() -> None:
    entry = sxid(12028)
    assert entry is not None
    assert (entry.prints, entry.guide, entry.action) == ("non-fatal", "non-fatal", "none")
    assert sxid(99999) is None


@pytest.mark.parametrize(
    ("code", "unit", "word", "status", "peer"),
    [(149, "NETIR_LINK_EVT", 0x004505C6, 0, False), (149, "NETIR_LINK_EVT", 0x021425C6, 0, True),
     (145, "RLW_RXPIPE", 0x0409A0C2, 8, False)],
)  # fmt: skip
def test_a_link_error_finds_its_one_row(
    code: int, unit: str, word: int, status: int, peer: bool
) -> None:
    row = decode_nvlink5(code, unit, word, status)
    assert row is not None
    assert row.peer_is_source is peer
    assert row.subcode == subcode(word)


def test_either_spelling_of_a_unit_fits() -> None:
    word = 0x004505C6
    units = ("NETIR_LINK_EVT", "NETIR_LINK_DOWN", "NETIR_LINK_EVT/NETIR_LINK_DOWN")
    rows = {decode_nvlink5(149, unit, word, 0) for unit in units}
    assert len(rows) == 1
    assert None not in rows


def test_a_link_error_without_a_row_has_none() -> None:
    assert decode_nvlink5(144, "SAW_EGR", 0x21, 0x80000000) is None


def test_every_row_of_the_table_is_found_by_its_own_pattern() -> None:
    text = (CATALOG / "nvlink5.csv").read_text()
    rows = list(csv.DictReader(line for line in text.splitlines() if line[0] != "#"))
    assert len(rows) == 94
    for row, column in product(rows, ("intr_v1_lt_r575", "intr_v2_ge_r575")):
        word = int(row[column].replace("-", "0"), 2)
        found = decode_nvlink5(int(row["xid"]), row["unit"], word, int(row["status"], 16))
        assert found is not None
        assert (found.subcode, found.unit) == (int(row["subcode"], 16), row["unit"])


def test_bits_of_a_74_tell_their_class() -> None:
    (bit,) = decode_xid74((0, 0, 0x80000, 0, 0, 0, 0))
    assert (bit.word, bit.bit, bit.kind) == (2, 19, "field_diag_if_repeated")
    assert decode_xid74((0, 0xFF, 0, 0, 0, 0xFF, 0xFF)) == ()
    assert decode_xid74((1 << 31,))[0].kind == "unknown"


def test_a_process_name_may_hold_blanks_and_colons() -> None:
    parts = split_xid("NVRM: Xid (PCI:0000:65:00): 45, pid=7, name=ray::IDLE worker, Ch 00000002")
    assert parts is not None
    assert (parts.pid, parts.process, parts.words) == (7, "ray::IDLE worker", "Ch 00000002")


def test_the_first_number_after_a_colon_is_not_taken_for_the_code() -> None:
    assert split_xid("NVRM: GPU at PCI:0000:9b:00: 3, GPU-1234") is None
    assert split_sxid("nvidia-nvswitch2: SXid (PCI:0000:c1:00.0): 12028") is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("79", "fell off the bus"), ("Xid 79", "fell off the bus"), ("149:0x021425c6", "other end"),
     ("S12028", "NVSwitch"), ("12028", "NVSwitch"), ("17", "not used"),
     ("999", "not in the catalogue"),
     ("NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (x)",
      "2 = Node Reboot Required"),
     ("NVRM: Xid (PCI:0000:65:00): 45, pid=1, name=p, channel 0x2 caused by previous Xid 149",
      "the driver names Xid 149"),
     ("NVRM: Xid (PCI:0004:05:00): 74, NVLink: fatal error detected on link 9(0x0, 0x0, 0x80000)",
      "word 2 bit 19"),
     ("nvidia-nvswitch1: SXid (PCI:0000:c2:00.0): 20034, Fatal, Link 22 LTSSM Fault Up", "fatal")],
)  # fmt: skip
def test_a_code_or_a_pasted_line_is_explained(text: str, wanted: str) -> None:
    lines = explain_xid(text)
    assert lines is not None
    assert any(wanted in line for line in lines)


@pytest.mark.parametrize("text", ["", "hello", "GPU-XID", "-1", "79:zz", "٣"])
def test_what_is_no_code_is_not_explained(text: str) -> None:
    assert explain_xid(text) is None


def test_the_tables_are_read_only_when_asked() -> None:
    code = (
        "import sluggish.catalog.xid as x, sluggish.rules.xid, sluggish.probes.kernel_log\n"
        "assert x._xids.cache_info().currsize == 0\n"
        "x.xid(79)\n"
        "assert x._sxids.cache_info().currsize == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
