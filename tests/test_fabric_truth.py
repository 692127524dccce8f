"""What is publicly known of fabric evidence, row by row: kernel lines and NCCL's lines."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from sluggish.facts.host import KernelSpan
from sluggish.facts.origin import Origin
from sluggish.loglines import nccl_net
from sluggish.loglines.prefix import lines
from sluggish.probes import kernel_log

TRUTH: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parent / "fabric_truth.yaml").read_text(encoding="utf-8")
)


def _agrees(found: list[Any], row: dict[str, Any]) -> None:
    told = {key: value for key, value in row.items() if key not in ("line", "level", "fact")}
    if row["fact"] is None:
        assert found == []
        return
    (fact,) = found
    assert type(fact).__name__ == row["fact"]
    got = {key: getattr(fact, key) for key in told}
    assert {k: list(v) if isinstance(v, tuple) else v for k, v in got.items()} == told


@pytest.mark.parametrize("row", TRUTH["kernel"], ids=lambda row: row["line"][:60])
def test_a_kernel_line_of_the_fabric_is_read(row: dict[str, Any]) -> None:
    text = f"[9.000001] {row['line']}\n"
    found = [f for f in kernel_log.parse(text, Origin()) if not isinstance(f, KernelSpan)]
    _agrees(found, row)


@pytest.mark.parametrize("row", TRUTH["nccl"], ids=lambda row: row["line"][:60])
def test_a_line_of_nccl_is_read_in_the_form_of_its_version(row: dict[str, Any]) -> None:
    text = f"gpu-01:100:200 [0] NCCL {row['level']} {row['line']}\n"
    found = list(nccl_net.parse(lines(text, Origin())))
    _agrees(found, row)
    for fact in found:
        assert fact.node == "gpu-01"
    if found:
        assert any(needle in text.encode() for needle in nccl_net.NEEDLES)
