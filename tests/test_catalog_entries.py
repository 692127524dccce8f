"""The other catalogue entries: what is publicly known of each, and that each changes an answer.

What stands here was written from the public sources that the catalogue's files name. An entry
counts as covered where the answer is another one once it is taken out.
"""

from collections.abc import Callable
from typing import Any

import pytest

from sluggish.catalog import data, gpu_models, nccl
from sluggish.catalog import xid as catalogue
from sluggish.catalog.explain import explain_xid
from sluggish.cli.explain_line import explain_line
from sluggish.rules.fabric import counters

# mlx5: IBV_WC_* in the order of rdma-core's verbs.h, and who is blamed (NVIDIA/nccl issues 214,
# 426, 902, 928, 1353)
COMPLETIONS = {
    0: ("SUCCESS", "nobody"), 1: ("LOC_LEN_ERR", "the program"),
    2: ("LOC_QP_OP_ERR", "the program"), 3: ("LOC_EEC_OP_ERR", "the program"),
    4: ("LOC_PROT_ERR", "the host that printed it"), 5: ("WR_FLUSH_ERR", "nobody"),
    6: ("MW_BIND_ERR", "the host that printed it"), 7: ("BAD_RESP_ERR", "the host that printed it"),
    8: ("LOC_ACCESS_ERR", "the host that printed it"), 9: ("REM_INV_REQ_ERR", "the program"),
    10: ("REM_ACCESS_ERR", "the other end"), 11: ("REM_OP_ERR", "the program"),
    12: ("RETRY_EXC_ERR", "the other end"), 13: ("RNR_RETRY_EXC_ERR", "the other end"),
    14: ("LOC_RDD_VIOL_ERR", "the program"), 15: ("REM_INV_RD_REQ_ERR", "the program"),
    16: ("REM_ABORT_ERR", "the other end"), 17: ("INV_EECN_ERR", "the program"),
    18: ("INV_EEC_STATE_ERR", "the program"), 19: ("FATAL_ERR", "the host that printed it"),
    20: ("RESP_TIMEOUT_ERR", "the way between"), 21: ("GENERAL_ERR", "the host that printed it"),
}  # fmt: skip
VENDOR = {81: "0x51", 129: "0x81", 135: "0x87", 136: "0x88", 249: "0xf9"}


def _completion(status: int, vendor: int = 0) -> str:
    line = (
        "gpu-01:10:11 [0] NCCL WARN NET/IB: Got completion from peer 10.0.0.2<1> with "
        f"status={status} opcode=0 len=0 vendor err {vendor} (Send) hca mlx5_0"
    )
    return "\n".join(explain_line(line) or [])


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, int], None]:
    """Takes one entry out of a table of a catalogue file."""

    def take(name: str, table: str, key: int) -> None:
        whole: dict[str, Any] = data.read(name)
        less = whole | {table: {k: v for k, v in whole[table].items() if k != key}}
        monkeypatch.setattr(data, "read", lambda _: less)

    return take


@pytest.mark.parametrize("status", [pytest.param(s, id=f"completion-{s}") for s in COMPLETIONS])
def test_a_completion_status_is_named_and_points_somewhere(
    status: int, without: Callable[[str, str, int], None]
) -> None:
    name, blamed = COMPLETIONS[status]
    told = _completion(status)
    assert f"status {status} {name}" in told
    assert f"points at {blamed}" in told
    without("mlx5.yaml", "completion_status", status)
    assert name not in _completion(status)


@pytest.mark.parametrize("vendor", [pytest.param(v, id=f"vendor-{v}") for v in VENDOR])
def test_a_vendor_code_is_decimal_and_told_in_hex(
    vendor: int, without: Callable[[str, str, int], None]
) -> None:
    line = f"{vendor} = {VENDOR[vendor]}"
    assert line in _completion(12, vendor)
    without("mlx5.yaml", "vendor_error", vendor)
    assert line not in _completion(12, vendor)


def test_the_adapter_s_tables_are_whole_and_the_rules_hold_the_same_numbers() -> None:
    table: dict[str, Any] = data.read("mlx5.yaml")
    assert set(table["completion_status"]) == set(COMPLETIONS)
    assert set(table["vendor_error"]) == set(VENDOR)
    assert table["saturate_at"] == counters.SATURATED
    heard = {*counters.LINK, *counters.RATES, *counters.LOSS, *counters.CONGESTION}
    assert not heard & set(table["never_a_fault"])


# Xid 74: word -> class -> bits (NVIDIA NVSentinel, design of the NVLink workflow)
LINK_BITS: dict[int, dict[str, tuple[int, ...]]] = {
    0: {
        "ignore": (0, 23, 30), "secondary": (1, 20), "ecc_parity_repeat_gt2_same_link": (4, 5),
        "hardware_reseat": (8, 9, 12, 16, 17, 24, 28), "signal_integrity": (21, 22),
        "report_if_repeated": (27, 29),
    },
    2: {
        "ecc_parity_repeat_gt2_same_link": (0, 1, 2, 6), "unexpected": (13,),
        "field_diag_if_repeated": (16, 19), "report_if_repeated": (17, 18),
    },
    3: {"secondary": (16, 17), "secondary_but_fabric_reset": (18,)},
    4: {
        "ecc_parity_repeat_gt2_same_link": (18, 19, 21, 22, 24, 25, 27, 28),
        "corrected_threshold_only": (20, 23, 26, 29),
    },
}  # fmt: skip
BITS = [
    pytest.param(word, bit, kind, id=f"xid74-{word}.{bit}")
    for word, classes in LINK_BITS.items()
    for kind, bits in classes.items()
    for bit in bits
]


@pytest.mark.parametrize(("word", "bit", "kind"), BITS)
def test_a_bit_of_a_74_is_of_its_class(
    word: int, bit: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = tuple(1 << bit if n == word else 0 for n in range(7))
    shown = ", ".join(f"0x{w:x}" for w in words)
    line = (
        "NVRM: Xid (PCI:0000:1b:00): 74, pid=7, name=python3, NVLink: fatal error detected on "
        f"link 14({shown})"
    )
    told = f"word {word} bit {bit}  {kind}: "
    assert any(text.startswith(told) for text in explain_xid(line) or [])
    whole = catalogue._xid_file()
    bits = {w: {k: [b for b in found if (w, b) != (word, bit)] for k, found in classes.items()}
            for w, classes in whole["xid74"]["bits"].items()}  # fmt: skip
    less = whole | {"xid74": whole["xid74"] | {"bits": bits}}
    monkeypatch.setattr(catalogue, "_xid_file", lambda: less)
    (left,) = catalogue.decode_xid74(words)
    assert left.kind == "unknown"


def test_no_bit_of_a_74_is_left_out() -> None:
    table: dict[int, dict[str, list[int]]] = catalogue._xid_file()["xid74"]["bits"]
    assert {w: {k: tuple(b) for k, b in c.items()} for w, c in table.items()} == LINK_BITS


# GPU models: a name as nvidia-smi prints it -> the entry that must be taken, and its limit
MODELS = {
    "NVIDIA GB300": ("GB300", 1400), "NVIDIA GB200": ("GB200", 1200),
    "NVIDIA B300 SXM6 AC": ("B300", 1100), "NVIDIA B200": ("B200", 1000),
    "NVIDIA GH200 480GB": ("GH200", 900), "NVIDIA H200 NVL": ("H200 NVL", 600),
    "NVIDIA H200": ("H200", 700), "NVIDIA H100 NVL": ("H100 NVL", 400),
    "NVIDIA H100 PCIe": ("H100 PCIe", 350), "NVIDIA H100 80GB HBM3": ("H100 SXM", 700),
    "NVIDIA A100 80GB PCIe": ("A100 PCIe 80GB", 300), "NVIDIA A100-PCIE-40GB": ("A100 PCIe", 250),
    "NVIDIA A100-SXM4-80GB": ("A100 SXM", 400), "NVIDIA L40S": ("L40S", 350),
    "Tesla V100-SXM2-32GB": ("V100 SXM2", 300),
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(n, id=f"model-{MODELS[n][0]}") for n in MODELS])
def test_a_product_name_is_of_its_model_and_of_no_other(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, limit = MODELS[name]
    found = gpu_models.model(name)
    assert found is not None
    assert (found.name, found.limit_w) == (wanted, limit)
    assert all(low <= limit for low in (*found.idle_w, *found.spin_w, *found.work_w))
    rest = tuple(m for m in gpu_models.models() if m.name != wanted)
    monkeypatch.setattr(gpu_models, "models", lambda: rest)
    left = gpu_models.model(name)
    assert left is None or left.name != wanted


def test_no_model_is_left_out_and_an_unknown_one_has_none() -> None:
    assert [m.name for m in gpu_models.models()] == [wanted for wanted, _ in MODELS.values()]
    assert gpu_models.model("AMD Instinct MI300X") is None


# NCCL: id -> (a version and machine that have it, one that has not)
BUGS: dict[str, tuple[tuple[str, str | None], tuple[str, str | None]]] = {
    "proxy-slot-leak": (("2.28.9", "aarch64"), ("2.29.3", "aarch64")),
    "regression-2-29-2": (("2.29.2", "x86_64"), ("2.29.3", None)),
    "nvls-2-17": (("2.17.1", None), ("2.18.1", None)),
    "ras-init-crash": (("2.26.2", None), ("2.26.5", None)),
    "ras-json-comma": (("2.28.9", None), ("2.28.10", None)),
    "silent-net-mismatch": (("2.30.4", None), ("2.29.7", None)),
}


@pytest.mark.parametrize("bug", [pytest.param(b, id=f"ncclbug-{b}") for b in BUGS])
def test_a_known_bug_is_of_its_versions_and_machines(bug: str) -> None:
    has, lacks = BUGS[bug]
    assert bug in [b.id for b in nccl.bugs(*has)]
    assert bug not in [b.id for b in nccl.bugs(*lacks)]
    (entry,) = [b for b in nccl.bugs(*has) if b.id == bug]
    assert entry.fix
    assert entry.source


def test_no_bug_is_left_out() -> None:
    table: list[dict[str, Any]] = data.read("nccl.yaml")["bugs"]
    assert {row["id"] for row in table} == set(BUGS)


# Xid 154: number -> first word and what is done (NVIDIA/open-gpu-kernel-modules ctrl2080gpu.h)
RECOVERY = {0: "None", 1: "GPU Reset Required", 2: "Node Reboot Required", 3: "Drain P2P",
            4: "Drain and Reset", 5: "Recover IMEX Domain", 6: "Bus Reset",
            7: "System Reboot"}  # fmt: skip


@pytest.mark.parametrize("number", [pytest.param(n, id=f"recovery-{n}") for n in RECOVERY])
def test_a_recovery_action_is_keyed_by_its_number(number: int) -> None:
    line = (
        "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to "
        f"0x{number:x} (other words)"
    )
    assert any(
        text.startswith(f"recovery  {number} = {RECOVERY[number]}")
        for text in explain_xid(line) or []
    )
