"""nvidia-smi, GPU samples and the PCI bus: every data case, every capture, junk."""

import importlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sluggish.facts import smi_values
from sluggish.facts.gpu import Gpu, GpuCount, SmiFailure
from sluggish.facts.origin import Origin

HERE = Path(__file__).parent
IDS = ("nvidia_smi", "gpu_samples", "gpu_bus", "imex", "fabric_manager")
PROBES = {name: importlib.import_module(f"sluggish.probes.{name}") for name in IDS}
TAKEN = datetime(2026, 11, 24, 3, 22, 10, tzinfo=UTC)


def _cases() -> list[Any]:
    found = [path for name in IDS for path in sorted((HERE / "probes" / name).glob("*.yaml"))]
    return [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in found]


def _text(path: Path) -> str:
    wanted = yaml.safe_load(path.read_text(encoding="utf-8"))
    source = HERE / wanted["capture"] if "capture" in wanted else path.with_suffix(".txt")
    return source.read_bytes().decode("utf-8", "replace")


def _parse(name: str, text: str, **origin: Any) -> tuple[list[Any], str | None]:
    """Facts up to the end or the ValueError, and its words; another exception fails the test."""
    found: list[Any] = []
    try:
        for fact in PROBES[name].parse(text, Origin(**{"taken_at": TAKEN, **origin})):
            found.append(fact)
    except ValueError as problem:
        return found, str(problem)
    return found, None


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("path", _cases())
def test_a_recorded_case_gives_its_facts(path: Path) -> None:
    wanted = yaml.safe_load(path.read_text(encoding="utf-8"))
    text, name = _text(path), path.parent.name
    assert PROBES[name].sniff(text.encode()[:65536]) is wanted.get("sniff", True)
    found, problem = _parse(name, text, **wanted.get("origin", {}))
    assert wanted.get("error", "") in (problem or "")
    assert (problem is None) is ("error" not in wanted)
    assert len(found) == len(wanted["facts"])
    for fact, expected in zip(found, wanted["facts"], strict=True):
        assert type(fact).__name__ == expected.pop("type")
        assert {key: _plain(getattr(fact, key)) for key in expected} == expected


@pytest.mark.parametrize("path", _cases())
def test_a_case_is_claimed_by_no_other_of_these_probes(path: Path) -> None:
    head = _text(path).encode()[:65536]
    assert [n for n in IDS if n != path.parent.name and PROBES[n].sniff(head)] == []


@pytest.mark.parametrize("name", IDS)
def test_every_probe_has_cases_of_each_kind(name: str) -> None:
    stems = {path.stem for path in (HERE / "probes" / name).glob("*.yaml")}
    assert {"normal", "faulty", "empty", "truncated", "version", "junk", "public"} <= stems


@pytest.mark.parametrize("name", IDS)
@settings(max_examples=60, deadline=None)
@given(text=st.text())
def test_any_text_is_facts_or_a_value_error(name: str, text: str) -> None:
    _, problem = _parse(name, text)
    assert problem is None or problem.startswith("expected ")


_words = st.sampled_from(
    [
        "<nvidia_smi_log>",
        "</nvidia_smi_log>",
        '<gpu id="00000000:1B:00.0">',
        "</gpu>",
        "<pci>",
        "&x;",
        "</pci>",
        "<processes>",
        "<process_info>",
        "<pid>7</pid>",
        "</process_info>",
        "</processes>",
        "<",
        "<supported_clocks>",
        "</supported_clocks>",
        "==NVSMI LOG==",
        "GPU 00000000:83:00.0",
        "    ECC",
        "    Processes",
        "        Process ID : 7",
        "| NVIDIA-SMI 580.1  Driver Version: 1 |",
        "|   0  NVIDIA H200   On  | 00000000:83:00.0 Off | 0 |",
        "| N/A 37C P0 85W / 700W | 0MiB / 1MiB |",
        "| Processes:",
        "index, power.draw [W], utilization.gpu [%]",
        "0, 1 W, 2 %",
        "0, ERR!, [N/A]",
        "# gpu pwr sm",
        "GPU 0: NVIDIA H200 (UUID: GPU-11111111-2222-3333-4444-555555555550)\n",
        "\t Link 0: 26.562 GB/s\n",
        "\t Link 1: <inactive>\n",
        "\t Link 1: Link recovery failed events: 3\n",
        "\tGPU0\tGPU1\n",
        "GPU0\t X \tNV18\n",
        "# gpu pid type sm command\n",
        " 0 7 C 1 python\n",
        "gpu_uuid, pid, process_name\n",
        "GPU-1, 7, python\n",
        "[Nov 24 2026 03:04:17] [ERROR] [tid 8] ",
        "[Feb 31 2026 03:04:17] [ERROR] [tid 8] ",
        "detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0",
        "0 85 -",
        "# Idx W %",
        "/sys/bus/pci/devices/0000:1b:00.0/class:0x030200",
        "1b:00.0 3D controller: NVIDIA Corporation x (rev ff)",
        "GPU is lost",
        "\x00",
        "\ud7ff",
        "Unable to determine the device handle for GPU1: 0000:3C:00.0: Unknown Error",
        ":",
        "=",
        "1e999",
    ]
)


@pytest.mark.parametrize("name", IDS)
@settings(max_examples=200, deadline=None)
@given(words=st.lists(_words, max_size=40), glue=st.sampled_from(["", " ", "\n"]))
def test_text_that_looks_right_is_facts_or_a_value_error(
    name: str, words: list[str], glue: str
) -> None:
    text = glue.join(words)
    _, problem = _parse(name, text)
    assert problem is None or problem.startswith("expected ")
    assert PROBES[name].sniff(text.encode("utf-8", "surrogatepass")) in (True, False)


def test_entities_of_a_document_type_never_reach_the_parser() -> None:
    bomb = (
        '<?xml version="1.0"?><!DOCTYPE nvidia_smi_log [<!ENTITY a "boom"><!ENTITY b "&a;&a;">]>'
        "<nvidia_smi_log><gpu id='00000000:1B:00.0'><uuid>&b;</uuid></gpu></nvidia_smi_log>"
    )
    found, problem = _parse("nvidia_smi", bomb)
    assert found == []
    assert problem is not None


def test_deep_nesting_and_a_long_line_are_read_in_bounded_time() -> None:
    deep = "<nvidia_smi_log><gpu id='00000000:1B:00.0'>" + "<a>" * 100_000
    assert _parse("nvidia_smi", deep)[1] is not None
    for line in (
        "| NVIDIA-SMI 5 " + " " * 2_000_000,
        "Unable to determine " * 100_000,
        "1," * 900_000,
    ):
        for name in IDS:
            PROBES[name].sniff(line.encode()[:65536])
            assert _parse(name, line)[1] is not None


@pytest.mark.parametrize(
    ("line", "kind", "pci"),
    [
        (
            "Unable to determine the device handle for GPU3: 0000:5F:00.0: Unknown Error",
            "gpu_lost",
            "0000:5f:00.0",
        ),
        (
            "Unable to determine the device handle for GPU 0000:01:00.0: Not Found",
            "gpu_lost",
            "0000:01:00.0",
        ),
        (
            "Unable to determine the device handle for GPU0000:25:00.0: Unknown Error",
            "gpu_lost",
            "0000:25:00.0",
        ),
        ("Unable to determine the device handle for GPU2: Unknown Error", "gpu_lost", None),
        (
            "Unable to determine the device handle for gpu 0000:1b:00.0: GPU is lost.  Reboot",
            "gpu_lost",
            "0000:1b:00.0",
        ),
        (
            "Unable to determine the device handle for GPU 0000:1B:00.0: Insufficient Permissions",
            "denied",
            "0000:1b:00.0",
        ),
        ("No devices were found", "no_devices", None),
        ("Failed to initialize NVML: Driver/library version mismatch", "version_mismatch", None),
        ("Failed to initialize NVML: Unknown Error", "unknown_error", None),
        ("GPU requires reset", "reset_required", None),
    ],
)
def test_every_failure_text_is_told_apart_also_on_stderr(
    line: str, kind: str, pci: str | None
) -> None:
    for text, stderr in ((line, ""), ("", line)):
        found, problem = _parse("nvidia_smi", text, stderr=stderr, exit_code=255)
        assert [(f.kind, f.pci) for f in found if isinstance(f, SmiFailure)] == [(kind, pci)]
        assert problem is not None


@pytest.mark.parametrize(
    ("code", "kind"), [(124, "timeout"), (137, "timeout"), (9, "no_driver"), (15, "gpu_lost")]
)
def test_an_exit_code_speaks_where_no_text_does(code: int, kind: str) -> None:
    found, problem = _parse("nvidia_smi", "", exit_code=code)
    assert [f.kind for f in found] == [kind]
    assert problem is not None


def test_the_loss_on_stderr_lowers_the_count_of_a_clean_looking_answer() -> None:
    text = (HERE / "probes/nvidia_smi/one_asked.txt").read_text()
    stderr = "Unable to determine the device handle for GPU1: 0000:3C:00.0: Unknown Error\n"
    found, _ = _parse("nvidia_smi", text, stderr=stderr, exit_code=0)
    assert [f.count for f in found if isinstance(f, GpuCount)] == [1]


def test_a_job_log_that_begins_with_the_table_is_not_claimed() -> None:
    table = (HERE / "probes/nvidia_smi/version.txt").read_text()
    log = table + "".join(f"step {n} loss 2.1\n" for n in range(50))
    assert not PROBES["nvidia_smi"].sniff(log.encode())


def test_a_clock_of_another_zone_is_turned_to_utc() -> None:
    text = (HERE / "probes/nvidia_smi/version.txt").read_text()
    found, _ = _parse("nvidia_smi", text, utc_offset_s=7200)
    gpus = [f for f in found if isinstance(f, Gpu)]
    assert gpus[0].at == datetime(2026, 11, 23, 20, 10, 4, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("77.71 W", 77.71),
        ("345 MHz", 345),
        ("16x", 16),
        ("3072 bank(s)", 3072),
        ("371 KB/s", 371),
        ("[N/A]", None),
        ("N/A", None),
        ("[Not Supported]", None),
        ("[Unknown Error]", None),
        ("Requested functionality has been deprecated", None),
        ("ERR!", None),
        ("", None),
        ("0 us", 0),
    ],
)
def test_units_are_dropped_and_absence_is_no_number(text: str, number: float | None) -> None:
    assert smi_values.number(text) == number


def test_broken_is_evidence_and_absent_is_not() -> None:
    assert smi_values.broken("[Unknown Error]") == "Unknown Error"
    assert smi_values.broken("[N/A]") is None
    assert smi_values.reasons("0x00000000000001ff")[-1] == "display_clocks_setting"
    assert smi_values.reasons("Active") == ()


def test_errors_before_the_document_do_not_hide_it() -> None:
    xml = (HERE / "probes" / "nvidia_smi" / "faulty.txt").read_bytes()
    assert xml.startswith(b"<?xml")
    error = b"Unable to determine the device handle for GPU7: 0000:DF:00.0: Unknown Error\n"
    assert PROBES["nvidia_smi"].sniff(error * 2 + xml)
    assert not PROBES["nvidia_smi"].sniff(
        error + b"step 1\nstep 2\nstep 3\nstep 4\nstep 5\nstep 6\n"
    )


def test_lists_of_processes_name_each_once_and_an_idle_gpu_has_none() -> None:
    found, _ = _parse("nvidia_smi", (HERE / "probes/nvidia_smi/pmon.txt").read_text())
    told = [[(p.pid, p.name, p.kind) for p in gpu.processes] for gpu in found]
    assert told == [[(4711, "python3 train.py", "C"), (4800, "dcgm", "C")], []]
    found, _ = _parse("nvidia_smi", (HERE / "probes/nvidia_smi/apps.txt").read_text())
    told = [[(p.pid, p.name, p.memory_mib) for p in gpu.processes] for gpu in found]
    assert told == [[(4711, "/usr/bin/python3", 71000)], [(4712, "/usr/bin/python3", None)]]


@pytest.mark.parametrize("name", ["list", "nvlink_status", "topology", "pmon", "apps"])
def test_a_job_log_that_begins_with_a_list_is_not_claimed(name: str) -> None:
    text = (HERE / f"probes/nvidia_smi/{name}.txt").read_text()
    log = text + "".join(f"step {n} loss 2.1\n" for n in range(500))
    assert not PROBES["nvidia_smi"].sniff(log.encode())


def test_the_times_of_fabric_manager_are_the_node_s_local_ones() -> None:
    text = (HERE / "probes/fabric_manager/faulty.txt").read_text()
    found, _ = _parse("fabric_manager", text, utc_offset_s=3600)
    assert [f.at for f in found] == [datetime(2026, 11, 24, 2, 4, 17, tzinfo=UTC)]
    odd, _ = _parse("fabric_manager", text.replace("Nov 24", "Feb 31"))
    assert [f.at for f in odd] == [None]
