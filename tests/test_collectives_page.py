"""The pages on collectives: their example runs, their settings are those that PyTorch reads."""

import re
from pathlib import Path

import pytest
from fr_scenes import fsdp

DOCS = Path(__file__).parents[1] / "docs"


def block(page: str, number: int = 0, language: str = "") -> str:
    found = re.findall(rf"(?ms)^ *```{language}\n(.*?)^ *```$", (DOCS / page).read_text())
    return found[number]


def test_the_library_example_runs_and_names_the_rank(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "dumps"
    folder.mkdir()
    for rank, content in fsdp(8, 3, "operation").files().items():
        (folder / f"nccl_trace_rank_{rank}").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    exec(compile(block("who-waits.md", language="python"), "who-waits.md", "exec"), {})
    assert capsys.readouterr().out == "mismatch [(3, 'all_reduce [1]')]\n"


@pytest.mark.parametrize(
    "name",
    [
        "TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_TRACE_BUFFER_SIZE",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_NCCL_DUMP_ON_TIMEOUT",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "NCCL_DEBUG", "NCCL_DEBUG_FILE",
    ],
)  # fmt: skip
def test_the_environment_block_sets_each_variable_once(name):
    lines = [line.split("#")[0] for line in block("collectives.md").splitlines()]
    assert [line for line in lines if line.startswith(f"export {name}=")] != []


def test_dumps_go_to_a_folder_of_the_job():
    text = block("collectives.md")
    assert "DUMPS=/shared/dumps/$SLURM_JOB_ID" in text
    assert 'mkdir -p "$DUMPS"' in text


def test_the_key_that_ends_in_abort_stands_under_never():
    never = (DOCS / "collectives.md").read_text().split("## Never")[1]
    assert "`exception_dump`" in never
    assert "SIGABRT" in never


def test_both_pages_are_linked_from_the_readme():
    readme = (DOCS.parent / "README.md").read_text()
    assert "docs/collectives.md" in readme
    assert "docs/who-waits.md" in readme
