"""`nvidia-smi -q -x` of each generation of its document: where a value stands, by driver.

Where each name moved was measured on public samples of drivers 418 to 595 (influxdata/telegraf).
"""

from typing import Any

import pytest

from sluggish.facts.gpu import Gpu
from sluggish.facts.origin import Origin
from sluggish.probes import gpu_samples, nvidia_smi

V10 = '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v10.dtd">\n'
V11, V12, V13 = (V10.replace("v10", f"v{n}") for n in (11, 12, 13))


def gpu(doctype: str, body: str) -> Gpu:
    text = (
        f'<?xml version="1.0" ?>\n{doctype}<nvidia_smi_log>\n<driver_version>1.0</driver_version>\n'
        f'<gpu id="00000000:01:00.0">\n<product_name>X</product_name>\n{body}\n</gpu>\n'
        "</nvidia_smi_log>\n"
    )
    assert nvidia_smi.sniff(text.encode())
    (found,) = [f for f in nvidia_smi.parse(text, Origin(node="a")) if isinstance(f, Gpu)]
    return found


OLD_POWER = "<power_readings><power_draw>61.20 W</power_draw><enforced_power_limit>300.00 W" \
    "</enforced_power_limit></power_readings>"  # fmt: skip
MID_POWER = "<gpu_power_readings><power_draw>61.20 W</power_draw><current_power_limit>300.00 W" \
    "</current_power_limit></gpu_power_readings>"  # fmt: skip
NEW_POWER = "<gpu_power_readings><average_power_draw>61.20 W</average_power_draw>" \
    "<instant_power_draw>60.00 W</instant_power_draw><current_power_limit>300.00 W" \
    "</current_power_limit></gpu_power_readings>"  # fmt: skip


@pytest.mark.parametrize(
    ("doctype", "body"),
    [("", OLD_POWER), (V10, OLD_POWER), (V11, OLD_POWER), (V12, MID_POWER), (V12, NEW_POWER),
     (V13, NEW_POWER)],
)  # fmt: skip
def test_power_and_its_limit(doctype: str, body: str) -> None:
    found = gpu(doctype, body)
    assert (found.power_w, found.power_limit_w) == (61.2, 300.0)


@pytest.mark.parametrize(
    ("doctype", "outer", "inner"),
    [(V11, "clocks_throttle_reasons", "clocks_throttle_reason"),
     (V12, "clocks_throttle_reasons", "clocks_throttle_reason"),
     (V12, "clocks_event_reasons", "clocks_event_reason"),
     (V13, "clocks_event_reasons", "clocks_event_reason")],
)  # fmt: skip
def test_reasons_of_the_clock(doctype: str, outer: str, inner: str) -> None:
    body = f"<{outer}><{inner}_hw_thermal_slowdown>Active</{inner}_hw_thermal_slowdown>" \
        f"<{inner}_gpu_idle>Not Active</{inner}_gpu_idle></{outer}>"  # fmt: skip
    assert gpu(doctype, body).throttle == ("hw_thermal_slowdown",)


FLAGS = "<gpu_reset_status><reset_required>{}</reset_required><drain_and_reset_recommended>{}" \
    "</drain_and_reset_recommended></gpu_reset_status>"  # fmt: skip


@pytest.mark.parametrize(
    ("doctype", "body", "word"),
    [
        (V12, FLAGS.format("No", "No"), "None"),
        (V12, FLAGS.format("Yes", "No"), "Reset"),
        (V12, FLAGS.format("No", "Yes"), "Drain and Reset"),
        (V12, FLAGS.format("No", "No") + "<gpu_recovery_action>Reboot</gpu_recovery_action>",
         "Reboot"),
        (V13, "<gpu_recovery_action>None</gpu_recovery_action>", "None"),
        (V11, "", None),
    ],
)  # fmt: skip
def test_the_recovery_action_and_the_flags_before_it(
    doctype: str, body: str, word: str | None
) -> None:
    assert gpu(doctype, body).recovery_action == word


def ecc(inner: str) -> str:
    return f"<ecc_errors><volatile>{inner}</volatile></ecc_errors>"


@pytest.mark.parametrize(
    ("doctype", "inner", "count"),
    [
        (V10, "<double_bit><device_memory>2</device_memory><total>2</total></double_bit>", 2),
        (V12, "<sram_uncorrectable>1</sram_uncorrectable><dram_uncorrectable>1"
         "</dram_uncorrectable>", 2),
        (V13, "<sram_uncorrectable_parity>1</sram_uncorrectable_parity>"
         "<sram_uncorrectable_secded>0</sram_uncorrectable_secded><dram_uncorrectable>1"
         "</dram_uncorrectable>", 2),
        (V13, "<dram_uncorrectable>N/A</dram_uncorrectable>", None),
    ],
)  # fmt: skip
def test_uncorrectable_errors_in_every_spelling(
    doctype: str, inner: str, count: int | None
) -> None:
    assert gpu(doctype, ecc(inner)).ecc_volatile_uncorrectable == count


def test_row_remap_that_mig_hides_is_not_zero() -> None:
    assert gpu(V12, "<remapped_rows>N/A</remapped_rows>").remap_pending is None
    told = "<remapped_rows><remapped_row_pending>Yes</remapped_row_pending>" \
        "<remapped_row_failure>No</remapped_row_failure></remapped_rows>"  # fmt: skip
    found: Any = gpu(V13, told)
    assert (found.remap_pending, found.remap_failed) == (True, False)


def test_processes_are_listed_or_known_to_be_none() -> None:
    listed = "<processes><process_info><gpu_instance_id>N/A</gpu_instance_id><pid>4711</pid>" \
        "<type>C</type><process_name>python</process_name><used_memory>71000 MiB</used_memory>" \
        "</process_info></processes>"  # fmt: skip
    assert [p.pid for p in gpu(V13, listed).processes] == [4711]
    assert gpu(V13, "<processes></processes>").processes_listed
    assert not gpu(V13, "").processes_listed


def test_a_repair_that_is_pending_and_one_that_is_exhausted() -> None:
    told = "<ecc_errors><channel_repair_pending>Yes</channel_repair_pending>" \
        "<tpc_repair_pending>No</tpc_repair_pending><unrepairable_memory>Yes" \
        "</unrepairable_memory></ecc_errors>"  # fmt: skip
    found = gpu(V13, told)
    assert (found.repair_pending, found.unrepairable_memory) == (True, True)
    assert gpu(V12, "").repair_pending is None


def test_a_field_that_the_driver_does_not_know_loses_the_whole_call_and_is_said() -> None:
    text = 'Field "reset_status.reset_required" is not a valid field to query.\n'
    with pytest.raises(ValueError, match=r"^expected "):
        list(gpu_samples.parse(text, Origin(node="a", exit_code=2)))


def test_a_lost_gpu_of_the_table_is_told_by_its_memory_cell() -> None:
    text = (
        "| NVIDIA-SMI 570.124.06   Driver Version: 570.124.06   CUDA Version: 12.8 |\n"
        "|   1  NVIDIA H100 80GB HBM3      On  |   00000000:43:00.0 ERR! |       ERR!           |\n"
        "| ERR!  ERR!  ERR!        ERR! / ERR! |      GPU is lost        |   ERR!     Default   |\n"
        "| Processes:                                                                     |\n"
    )
    (found,) = [f for f in nvidia_smi.parse(text, Origin(node="a")) if isinstance(f, Gpu)]
    assert "memory: GPU is lost" in found.errors
    assert found.memory_used_mib is None
