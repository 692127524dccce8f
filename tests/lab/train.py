"""A small training program under Gloo, one rank a Slurm task, that a fault of the lab stops.

    srun python train.py CASE CULPRIT FOLDER

It trains until /tmp/stop.JOB appears. The culprit waits while what it uses is broken: its simulated
GPU, its data on storage; it computes as fast as that GPU is clocked. /tmp/fault.JOB starts the
faults that only a program can have.
/tmp/beat.JOB.RANK holds the rank's pid and counts its steps.
"""

import logging
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.utils.data import DataLoader, IterableDataset

DATA = Path("/mnt/data/alice")
GPUS = Path("/run/node/gpus")
STEP_S = 0.1
"""Of computing at the full clock."""
CLOCK_MHZ = 1920.0
WATCHDOG_S = 2.0
"""Without a step for so long the flight recorder is dumped, once: NCCL's watchdog does it later."""
HELD = ("killed", "memory")
"""Cases in which a thread of the program keeps a rank alive whose main thread has raised."""

CASE, CULPRIT, FOLDER = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
RANK, WORLD = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
LOCAL = int(os.environ["SLURM_LOCALID"])
IS_CULPRIT = RANK == CULPRIT
SM_CLOCK = re.compile(rf"^{LOCAL}\.clocks\.sm=(\d+)$", re.MULTILINE)


class Beat:
    """Counts steps where the test can see them."""

    def __init__(self) -> None:
        self.steps = 0
        # on the node's own disk: whatever becomes of the shared ones
        self.place = Path(f"/tmp/beat.{os.environ['SLURM_JOB_ID']}.{RANK}")

    def __call__(self) -> None:
        self.steps += 1
        self.place.write_text(f"{os.getpid():07d} {self.steps:07d}\n")


def asked(what: str) -> bool:
    return Path(f"/tmp/{what}.{os.environ['SLURM_JOB_ID']}").exists()


# -- what the faults stop -----------------------------------------------------------------------


class Shards(IterableDataset):
    """Batches without end, each read from storage by the loader's worker."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            for shard in sorted(DATA.glob("shard*")):
                yield torch.tensor(list(shard.read_bytes()[:64])).float()


def batches() -> Iterator[torch.Tensor]:
    if CASE == "loader" and IS_CULPRIT:
        yield from DataLoader(Shards(), batch_size=None, num_workers=1, prefetch_factor=2)
    while True:
        yield torch.ones(64)


def wait_for_gpu() -> None:
    """What cudaStreamSynchronize does once the GPU has fallen off the bus: nothing, for ever."""
    while CASE == "gpu" and IS_CULPRIT and f"{LOCAL}.lost=1" in _text(GPUS):
        time.sleep(0.2)


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text()
    return ""


# -- the training -------------------------------------------------------------------------------


def train(beat: Beat) -> None:
    for step, batch in enumerate(batches()):
        if told_to_stop():
            return
        train_step(step, batch)
        beat()


def told_to_stop() -> bool:
    """Everybody hears of the end at the same step."""
    told = torch.tensor([int(RANK == 0 and asked("stop"))])
    dist.broadcast(told, src=0)
    return bool(told.item())


def train_step(step: int, batch: torch.Tensor) -> None:
    compute()
    wait_for_gpu()
    if CASE == "odd" and IS_CULPRIT and asked("fault"):
        out_of_data()
    if CASE == "memory" and IS_CULPRIT and asked("fault"):
        keep_every_batch()
    shards = [torch.empty(256) for _ in range(WORLD)]
    dist.all_gather(shards, torch.ones(256))
    dist.all_reduce(torch.ones(1024))
    if RANK == 0:
        logging.info("step %d loss %.4f", step, 1 + batch.mean().item() / (step + 1))
    if CASE == "checkpoint" and asked("fault"):
        checkpoint(step)


def compute() -> None:
    clock = CLOCK_MHZ
    if CASE == "straggler" and IS_CULPRIT and (told := SM_CLOCK.search(_text(GPUS))):
        clock = float(told[1])
    time.sleep(STEP_S * CLOCK_MHZ / clock)


def out_of_data() -> None:
    """Asks the world whether anybody is out of data; nobody else does."""
    dist.all_reduce(torch.ones(1))


def keep_every_batch() -> None:
    kept: list[bytearray] = []
    while True:
        kept.append(bytearray(b"x" * (1 << 20)))


def checkpoint(step: int) -> None:
    """Rank 0 writes, slowly and steadily; the others wait at the barrier."""
    if RANK == 0:
        logging.info("saving checkpoint at step %d to %s", step, FOLDER / f"step{step}.pt")
        with (FOLDER / f"step{step}.pt").open("wb", buffering=0) as file:
            while asked("fault"):
                file.write(os.urandom(1 << 16))
                os.fsync(file.fileno())
                time.sleep(0.02)
        logging.info("saved checkpoint")
    dist.barrier()


# -- what a rank is besides -----------------------------------------------------------------------


def watchdog(beat: Beat) -> None:
    """Dumps the flight recorder once the steps stand still; again after they have gone on."""
    seen, since, dumped = -1, time.monotonic(), False
    while True:
        if beat.steps != seen:
            seen, since, dumped = beat.steps, time.monotonic(), False
        if seen and not dumped and time.monotonic() - since > WATCHDOG_S:
            dump()
            dumped = True
        time.sleep(0.1)


def dump() -> None:
    place = Path(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(RANK))
    half = place.with_name(f".{place.name}")
    # frames import half of torch, a second of CPU: the culprit's are enough
    half.write_bytes(c10d._dump_fr_trace(includeStackTraces=IS_CULPRIT))
    half.rename(place)


def prefetch(wanted: "queue.Queue[None]") -> None:
    wanted.get()


def main() -> None:
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stdout,
        format=f"%(asctime)s [rank{RANK}] %(levelname)s %(message)s",
    )
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{FOLDER}/store",
        rank=RANK,
        world_size=WORLD,
        timeout=timedelta(minutes=10),
    )
    beat = Beat()
    if CASE not in ("healthy", "checkpoint", "straggler"):
        threading.Thread(target=watchdog, args=(beat,), name="watchdog", daemon=True).start()
    wanted: queue.Queue[None] = queue.Queue()
    held = CASE in HELD
    threading.Thread(target=prefetch, args=(wanted,), name="prefetch", daemon=not held).start()
    train(beat)
    if RANK == 0:
        logging.info("training done")
    wanted.put(None)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
