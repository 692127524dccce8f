"""What collectors lay around a job's log is taken off; what belongs to its speakers stays."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from sluggish.facts.log import PythonError
from sluggish.facts.origin import Origin
from sluggish.loglines.line import Line
from sluggish.loglines.prefix import lines
from sluggish.probes import job_log

PLAIN = (
    "0: 2026-11-24 03:00:00,100 - train - INFO - step 10 loss 2.1\n"
    "1: 2026-11-24 03:00:00,200 - train - INFO - step 10 loss 2.1\n"
    "\n"
    "1: Traceback (most recent call last):\n"
    '1:   File "/opt/train/data.py", line 164, in collate\n'
    "1:     mask[i, : len(ids)] = True\n"
    "1: IndexError: index 8192 is out of bounds\n"
    "0: [rank0]:[E1124 03:10:10.909476913 ProcessGroupNCCL.cpp:685] [Rank 0] Watchdog caught\n"
)
NANO = "2026-11-24T03:00:{:02d}.{:09d}Z"


def each(form: Callable[[int, str], str]) -> str:
    return "".join(form(i, row) + "\n" for i, row in enumerate(PLAIN.splitlines()))


def docker(i: int, row: str) -> str:
    return json.dumps({"log": row + "\n", "stream": "stdout", "time": NANO.format(i, i)})


def exporter(i: int, row: str) -> str:
    return json.dumps({"severity": "INFO", "textPayload": row, "timestamp": NANO.format(i, i)})


WRAPPED = {
    "docker": each(docker),
    "an exporter": each(exporter),
    "kubectl": each(lambda i, row: f"[pod/trainer-0-x7k2p/pytorch] {row}"),
    "kubectl with times": each(lambda i, row: f"[pod/t-0-x/pytorch] {NANO.format(i, i)} {row}"),
    "times": each(lambda i, row: f"{NANO.format(i, i)} {row}"),
    "cri": each(lambda i, row: f"{NANO.format(i, i)} stdout F {row}"),
    "compose": each(lambda i, row: f"trainer-1  | {row}"),
    "syslog": each(lambda i, row: f"Nov 24 03:00:{i:02d} gpu-07 slurmstepd[812]: {row}"),
    "journal": each(lambda i, row: f"2026-11-24T03:00:{i:02d}+0000 gpu-07 srun[812]: {row}"),
    "pdsh": each(lambda i, row: f"gpu-07: {row}"),
    "cat -n": each(lambda i, row: f"{i + 1:6d}\t{row}"),
    "grep -H": each(lambda i, row: f"logs/job-48213.out:{row}"),
    "mail": each(lambda i, row: f"> {row}"),
    "mail, blanks lost": each(lambda i, row: f"> {row}".rstrip()),
    "two of them": each(lambda i, row: f"{i + 1:6d}\t[pod/trainer-0/pytorch] {row}"),
}


def read(text: str) -> list[Line]:
    return list(lines(text, Origin()))


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_the_lines_are_what_the_program_printed(wrapped: str) -> None:
    plain, found = read(PLAIN), read(WRAPPED[wrapped])
    assert [(line.text, line.task, line.rank) for line in found] == [
        (line.text, line.task, line.rank) for line in plain
    ]
    assert {line.node for line in found} == {None}  # one host may be where it was collected


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_an_exception_is_found_in_it_and_the_log_is_known(wrapped: str) -> None:
    assert job_log.sniff(WRAPPED[wrapped].encode())
    errors = [f for f in job_log.parse(WRAPPED[wrapped], Origin()) if isinstance(f, PythonError)]
    assert [(e.type, e.message) for e in errors] == [("IndexError", "index 8192 is out of bounds")]


def test_a_collector_s_time_counts_where_the_line_has_none() -> None:
    found = [line.at for line in read(WRAPPED["docker"])]
    assert found[3] == datetime(2026, 11, 24, 3, 0, 3, tzinfo=UTC)


def test_several_hosts_that_sign_are_the_nodes_of_their_lines() -> None:
    text = "".join(f"Nov 24 03:00:0{i} gpu-0{i} srun[8{i}]: step {i} loss 2\n" for i in range(4))
    assert [line.node for line in read(text)] == ["gpu-00", "gpu-01", "gpu-02", "gpu-03"]


def test_a_record_of_several_lines_becomes_several_lines() -> None:
    message = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyError: 7'
    text = "".join(json.dumps({"message": m}) + "\n" for m in ("step 1", "step 2", message))
    assert [line.text for line in read(text)][-1] == "KeyError: 7"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("".join(f"{i}: step {i} loss 2.1\n" for i in range(9)), id="srun's labels"),
        pytest.param("".join(f"INFO: step {i} loss 2.1\n" for i in range(9)), id="a level"),
        pytest.param("".join(f"[rank{i}]: step 1 loss 2.1\n" for i in range(9)), id="torchrun"),
        pytest.param("".join(f'{{"step": {i}, "loss": 2.1}}\n' for i in range(9)), id="metrics"),
        pytest.param("".join(f"ValueError: step {i}\n" for i in range(9)), id="exceptions"),
        pytest.param("".join(f"rank{i}: step 1 loss 2.1\n" for i in range(9)), id="ranks"),
        pytest.param("".join(f"GPU{i}: step 1 loss 2.1\n" for i in range(9)), id="devices"),
        pytest.param("> a\n> b\nstep 1\nstep 2\nstep 3\n", id="a few quotes"),
    ],
)
def test_what_belongs_to_the_speaker_stays(text: str) -> None:
    assert all(line.raw == row for line, row in zip(read(text), text.splitlines(), strict=True))
    assert {line.node for line in read(text)} == {None}


@pytest.mark.parametrize("row", ["[" * 4000 + "]", '{"log":' * 2000, '{"log": "x"', "{" + "}" * 99])
def test_odd_json_is_no_wrapper_and_no_crash(row: str) -> None:
    assert len(read(f"{row}\n" * 5)) == 5
