"""The job's output: recorded cases, sniffing, caps, junk."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sluggish.facts.log import LogSpan, Progress, PythonError, SlurmMessage
from sluggish.facts.origin import Origin
from sluggish.loglines import readers
from sluggish.loglines.prefix import lines
from sluggish.loglines.python import is_cuda_oom, is_fallout
from sluggish.loglines.python import parse as parse_python
from sluggish.loglines.training import parse as parse_training
from sluggish.probes import PROBES, job_log

HERE = Path(__file__).parent
CASES = sorted((HERE / "probes" / "job_log").glob("*.yaml"))
TAKEN = Origin(taken_at=datetime(2026, 12, 1, tzinfo=UTC))


def facts(text: str, origin: Origin = TAKEN) -> list[Any]:
    return list(job_log.parse(text, origin))


def of(kind: type, text: str) -> list[Any]:
    return [fact for fact in facts(text) if type(fact) is kind]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_recorded_case_gives_its_facts(path: Path) -> None:
    wanted = yaml.safe_load(path.read_text(encoding="utf-8"))
    source = HERE / wanted["capture"] if "capture" in wanted else path.with_suffix(".txt")
    raw = source.read_bytes()
    found = facts(raw.decode("utf-8", "replace"), Origin(**wanted.get("origin", {})))
    assert job_log.sniff(raw[:65536]) is wanted.get("sniff", True)
    assert dict(Counter(type(fact).__name__ for fact in found)) == wanted["counts"]
    left = list(found)
    for expected in wanted["facts"]:
        name = expected.pop("type")
        asked = {key.rstrip("_"): value for key, value in expected.items()}
        match = [f for f in left if type(f).__name__ == name
                 and all(getattr(f, key) == value for key, value in asked.items())]  # fmt: skip
        assert match, (name, asked, [f for f in left if type(f).__name__ == name])
        left.remove(match[0])
    assert {type(fact) for fact in found} <= set(job_log.FACTS)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_case_is_claimed_by_no_other_probe(path: Path) -> None:
    wanted = yaml.safe_load(path.read_text(encoding="utf-8"))
    source = HERE / wanted["capture"] if "capture" in wanted else path.with_suffix(".txt")
    head = source.read_bytes()[:65536]
    assert [p.ID for p in PROBES if p is not job_log and p.sniff(head)] == []


@pytest.mark.parametrize(
    "path",
    [
        p
        for p in sorted((HERE / "probes").glob("*/*.txt"))
        if p.parent.name != "job_log" and (p.parent.name, p.stem) != ("kernel_log", "junk")
    ]  # its junk is a job log
    + [p for p in sorted((HERE / "captures").glob("*/*")) if p.parent.name != "job_log"],
    ids=lambda path: f"{path.parent.name}-{path.name}",
)
def test_what_other_probes_read_is_not_claimed_as_a_job_log(path: Path) -> None:
    assert not job_log.sniff(path.read_bytes()[:65536])


def test_a_plain_training_log_is_recognised_by_its_loop() -> None:
    log = b"starting\n" + b"".join(b"epoch 1 step %d loss 2.%d\n" % (i, i) for i in range(9))
    assert job_log.sniff(log)
    assert not job_log.sniff(b"a letter\nabout one step 3 taken\nand nothing more\n")


@pytest.mark.parametrize(
    "line",
    [
        b"(Trainer pid=4009) [rank1]: ValueError: x\n",
        b"3: torch.distributed.DistBackendError: NCCL error in: x\n",
        b"gpu-07:1:2 [0] NCCL INFO Using network IB\n",
        b"slurmstepd: error: *** JOB 1 ON a CANCELLED AT 2026-01-01T00:00:00 ***\n",
        b"Traceback (most recent call last):\n",
    ],
)
def test_one_strong_line_is_enough(line: bytes) -> None:
    assert job_log.sniff(line)


def test_ten_thousand_steps_become_some_thousand_facts_first_and_last_ones() -> None:
    log = "".join(f"[rank{i % 4}]: step {i} loss 2.5\n" for i in range(10_000))
    steps = [p.step for p in of(Progress, log)]
    assert steps[0] == 0
    assert steps[-1] == 9_999
    assert 2_000 <= len(steps) <= 2_400
    assert steps == sorted(steps)


def test_every_ranks_last_step_is_kept_though_another_prints_much_more() -> None:
    log = "[rank3]: step 7 loss 2.5\n" + "".join(
        f"[rank0]: step {i} loss 2.5\n" for i in range(5_000)
    )
    assert [p.step for p in of(Progress, log) if p.rank == 3] == [7]


def test_errors_are_capped_and_the_last_ones_stay() -> None:
    log = "".join(f"ValueError: number {i}\n" for i in range(25_000))
    messages = [e.message for e in of(PythonError, log)]
    assert len(messages) == job_log.MOST_OF_A_KIND
    assert (messages[0], messages[-1]) == ("number 0", "number 24999")


@pytest.mark.parametrize(
    ("text", "kind", "step", "total", "epoch", "seconds"),
    [
        (" iteration  100/ 1000 | elapsed time per iteration (ms): 1234.5 | lm loss: 6.7E+00 |",
         "step", 100, 1000, None, 1.2345),
        ("Epoch 3:  45%|##  | 450/1000 [02:30<03:03,  3.00it/s, v_num=0]",
         "step", 450, 1000, 3, 1 / 3),
        ("Validation DataLoader 0:  50%|##  | 5/10 [00:01<00:01,  4.00it/s]",
         "evaluation", 5, 10, None, 0.25),
        ("Map: 50%|##  | 5/10 [00:01<00:01,  4.00it/s]", "bar", 5, 10, None, 0.25),
        ("Epoch: [3][ 100/1000]  Time  0.123 ( 0.130)  Loss 2.30e+00", "step", 100, 1000, 3, None),
        ("Epoch [3/10], Step [100/1000], Loss: 2.3", "step", 100, 1000, 3, None),
        ("[INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[2e-05]",
         "step", 10, None, None, None),
        ("ep 27 train, step 37, ce 5.456, mem_usage:cuda:3 6.7GB, 3.169 sec/step",
         "step", 37, None, 27, 3.169),
        ("eta: 0:10:00  iter: 19  total_loss: 9.6  time: 0.3512  data_time: 0.02",
         "step", 19, None, None, 0.3512),
        ("{'loss': 2.34, 'learning_rate': 2e-05, 'epoch': 1.23}", "step", None, None, 1, None),
        ("train - INFO - eval batch 240/2048", "evaluation", 240, 2048, None, None),
        ("[rank3]: epoch 35 finished after 1193 steps", "epoch_end", 1193, None, 35, None),
        ("end of epoch 35 at step 1193/1200", "epoch_end", 1193, 1200, 35, None),
        ("dataloader exhausted at step 1193", "data_exhausted", 1193, None, None, None),
        ("saving checkpoint at iteration     500 to /ckpt", "checkpoint_start", 500, None, None,
         None),
        ("  successfully saved checkpoint from iteration     500 to /ckpt", "checkpoint_end", 500,
         None, None, None),
        ("***** Running Evaluation *****", "evaluation_start", None, None, None, None),
        ("{'train_runtime': 1.4, 'epoch': 3.0}", "training_done", None, None, None, None),
        ("[after training is done] datetime: 2024-05-07", "training_done", None, None, None, None),
    ],
)  # fmt: skip
def test_a_loops_line_tells_where_it_is(
    text: str, kind: str, step: int, total: int, epoch: int, seconds: float
) -> None:
    (fact,) = parse_training(lines(text, TAKEN))
    assert (fact.kind, fact.step, fact.total_steps, fact.epoch) == (kind, step, total, epoch)
    assert fact.step_time_s == (seconds if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    "text",
    [
        "Loading checkpoint from /x",
        "RuntimeError: failed at step 3/4",
        '  File "train.py", line 3, in step',
        "[E ProcessGroupNCCL.cpp:737] [Rank 2] Watchdog caught ... step 3/4",
        "the next step is to wait",
        "Resuming from checkpoint /x/step_500",
        "total steps 10 (warmup 600), time 3",
        "not found. Defaulting to saving one file if checkpoint is saved in HF format",
        "+ torchrun --nproc_per_node=8 train.py --training.steps=10 --time 3",
    ],
)
def test_a_line_that_is_no_progress_gives_none(text: str) -> None:
    assert list(parse_training(lines(text, TAKEN))) == []


def _errors(text: str) -> list[tuple[str, str | None]]:
    return [(e.type, e.frame) for e in parse_python(lines(text, TAKEN))]


CHAIN = """Traceback (most recent call last):
  File "/opt/a.py", line 1, in read
KeyError: 'x'

{word}

Traceback (most recent call last):
  File "/opt/b.py", line 2, in main
{last}: late
"""


def test_of_a_chain_raised_from_another_the_first_is_the_story() -> None:
    word = "The above exception was the direct cause of the following exception:"
    assert _errors(CHAIN.format(word=word, last="RuntimeError")) == [
        ("KeyError", "/opt/a.py:1 in read")
    ]


def test_of_a_chain_while_handling_control_flow_the_last_is_the_story() -> None:
    word = "During handling of the above exception, another exception occurred:"
    assert _errors(CHAIN.format(word=word, last="RuntimeError")) == [
        ("RuntimeError", "/opt/b.py:2 in main")
    ]


def test_of_a_chain_that_ends_in_fallout_the_first_is_the_story() -> None:
    word = "During handling of the above exception, another exception occurred:"
    assert _errors(CHAIN.format(word=word, last="ConnectionResetError")) == [
        ("KeyError", "/opt/a.py:1 in read")
    ]


def test_the_frame_is_the_innermost_of_the_users_own_code() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/opt/train.py", line 9, in main\n'
        '  File "/e/lib/python3.11/site-packages/torch/nn/module.py", line 7, in _call_impl\n'
        "ValueError: bad\n"
    )
    assert _errors(text) == [("ValueError", "/opt/train.py:9 in main")]


def test_a_boxed_traceback_is_read() -> None:
    text = (
        "╭──── Traceback (most recent call last) ────╮\n"
        "│ /opt/train.py:12 in main                  │\n"
        "│ ❱ 12     step(batch)                      │\n"
        "╰───────────────────────────────────────────╯\n"
        "ValueError: bad\n"
    )
    assert _errors(text) == [("ValueError", "/opt/train.py:12 in main")]


@pytest.mark.parametrize(
    ("kind", "message", "fallout", "oom"),
    [
        ("torch.distributed.DistBackendError", "NCCL error in: x", True, False),
        ("RuntimeError", "[1] is setting up NCCL communicator ... Socket Timeout", True, False),
        ("RuntimeError", "Connection closed by peer [10.0.0.1]:4", True, False),
        ("torch.cuda.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB", False, True),
        ("torch.cuda.OutOfMemoryError", "Tried to allocate more than 1EB memory.", True, False),
        ("ValueError", "bad shape", False, False),
        ("ray.exceptions.NodeDiedError", "Task failed: the node was dead.", True, False),
        ("errors_impl.UnavailableError", "failed to connect to all addresses", True, False),
        ("XlaRuntimeError", "UNAVAILABLE: The following tasks are unhealthy", True, False),
        ("XlaRuntimeError", "DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: x", True, False),
        ("XlaRuntimeError", "INTERNAL: NCCL operation ncclGroupEnd() failed", True, False),
        ("XlaRuntimeError", "RESOURCE_EXHAUSTED: Out of memory while trying", False, True),
        ("XlaRuntimeError", "RESOURCE_EXHAUSTED: quota of requests", False, False),
    ],
)
def test_fallout_and_memory_are_told_from_the_programs_own_errors(
    kind: str, message: str, fallout: bool, oom: bool
) -> None:
    assert is_fallout(kind, message) is fallout
    assert is_cuda_oom(kind, message) is oom


def test_every_reader_names_strings_that_stand_in_what_it_reads() -> None:
    assert all(isinstance(needle, bytes) and len(needle) >= 5 for needle in readers.NEEDLES)
    assert len(set(readers.NEEDLES)) == len(readers.NEEDLES)


@given(st.text())
def test_any_text_gives_facts_and_no_exception(text: str) -> None:
    found = facts(text)
    assert type(found[0]) is LogSpan


@given(
    st.lists(
        st.sampled_from(
            ["[rank1]: ", "Traceback (most recent call last):", "\n", "\r", "ValueError: x",
             '  File "a", line 1, in f', "srun: error: a: tasks 1-", "step 3/4 loss ", "\x1b[3",
             "100%|#| 3/4 [00:01<00:02, 1.2s/it]", "slurmstepd: error: *** STEP 1 ON a",
             "exitcode  : 1 (pid: 3)", "rank      : 3 (local_rank: 1)", "9" * 30, " 3: ",
             "CUDA error: ", "wait timeout after ", "rank: 3 (world_size=", "│", "é\0"]
        ),
        max_size=30,
    )
)  # fmt: skip
def test_torn_records_give_facts_and_no_exception(parts: list[str]) -> None:
    assert type(facts("".join(parts))[0]) is LogSpan


def test_srun_names_the_node_that_could_not_start_its_tasks() -> None:
    line = "srun: error: Task launch for StepId=48213.0 failed on node gpu-07: Prolog failed\n"
    (found,) = [f for f in job_log.parse(line, Origin()) if isinstance(f, SlurmMessage)]
    assert (found.kind, found.node, found.job_id) == ("launch_failed", "gpu-07", "48213")


@pytest.mark.parametrize(
    "text",
    [
        "F0302 10:11:12.1 812 client.h:80] Terminating process because the JAX distributed service "
        "detected fatal errors.\n",
        "ORTE has lost communication with a remote daemon.\n",
        "[gpu-03:4192:0] ib_mlx5_log.c:177  Transport retry count exceeded on mlx5_3:1/IB\n",
    ],
)
def test_words_of_other_runtimes_are_a_job_s_log(text: str) -> None:
    assert job_log.sniff(text.encode())
