"""A small training script under Gloo that stops in the way its first argument names.

    train.py CASE FOLDER CULPRIT    with RANK and WORLD_SIZE as a launcher sets them

FOLDER/beat counts calls a rank, FOLDER/fault appears when the culprit stands at its fault,
FOLDER/stop ends a healthy run, whose last dumps go to FOLDER/finished.
"""

import ctypes
import logging
import mmap
import os
import queue
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import witness
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, IterableDataset

FAULT_STEP = 3
UNSHARD, GRADIENT = 256, 1024
TENSOR_PARALLEL = 4
FOREVER = 3600.0


@dataclass
class Job:
    """One rank's run."""

    case: str
    folder: Path
    rank: int
    culprit: int
    beat: mmap.mmap
    calls: int = 0

    def odd(self, step: int, *cases: str) -> bool:
        """Whether this rank is to do one of these faults now; leaves the mark that it is there."""
        now = self.rank == self.culprit and step == FAULT_STEP and self.case in cases
        if now:
            (self.folder / "fault").touch()
        return now


def beat(job: Job) -> None:
    """Count a call into torch.distributed: from outside this tells who still moves."""
    job.calls += 1
    struct.pack_into("q", job.beat, 8 * job.rank, job.calls)


def unshard(job: Job, size: int) -> None:
    beat(job)
    shards = [torch.empty(size) for _ in range(dist.get_world_size())]
    dist.all_gather(shards, torch.ones(size))


def sum_gradient(job: Job, group: object = None) -> None:
    beat(job)
    dist.all_reduce(torch.ones(GRADIENT), group=group)


def clip_norm(job: Job) -> None:
    beat(job)
    dist.all_reduce(torch.ones(1))


class Tokens(IterableDataset):
    """Batches without end; the culprit's storage stops answering."""

    def __init__(self, job: Job) -> None:
        self.blocked = job.rank == job.culprit and job.case == "never_arrives"
        self.mark = job.folder / "fault"

    def __iter__(self) -> Iterator[torch.Tensor]:
        step = 0
        while True:
            if self.blocked and step == FAULT_STEP:
                self.mark.touch()
                time.sleep(FOREVER)
            yield torch.ones(16, 16)
            step += 1


def flat(job: Job) -> None:
    """Per step two unshards and a gradient on the world group, as sharded data parallel does."""
    workers = 1 if job.case == "never_arrives" else 0
    batches = iter(DataLoader(Tokens(job), batch_size=None, num_workers=workers))
    step = 0
    while not stopped(job):
        batch = next(batches)
        train_step(job, step, batch)
        step += 1


def train_step(job: Job, step: int, batch: torch.Tensor) -> None:
    if job.odd(step, "odd_collective"):
        out_of_data(job)
    if job.odd(step, "sigstop", "sigkill"):
        compute_on_and_on(batch)
    if job.odd(step, "killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    if job.odd(step, "exception", "raised"):
        raise ValueError(f"batch {step} has 15 labels for 16 samples")
    unshard(job, UNSHARD)
    size = {"size_small": UNSHARD // 4, "size_large": UNSHARD * 4}.get(job.case, UNSHARD)
    unshard(job, size if job.odd(step, "size_small", "size_large") else UNSHARD)
    loss = (batch @ batch).mean().item()
    sum_gradient(job)
    report(job, step, loss)


def out_of_data(job: Job) -> None:
    """Asks the world whether anybody is out of data; nobody else does."""
    beat(job)
    dist.all_reduce(torch.ones(1))


def compute_on_and_on(batch: torch.Tensor) -> None:
    while True:
        batch = torch.tanh(batch @ batch)


def mesh(job: Job) -> None:
    """Two all_reduces in the row of four, then one in the column."""
    shape = (dist.get_world_size() // TENSOR_PARALLEL, TENSOR_PARALLEL)
    grid = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
    step = 0
    while not stopped(job):
        if job.odd(step, "cascade"):
            load_batch()
        sum_gradient(job, grid.get_group("tp"))
        sum_gradient(job, grid.get_group("tp"))
        sum_gradient(job, grid.get_group("dp"))
        report(job, step, 1.0)
        step += 1


def load_batch() -> None:
    """A read from storage that never returns."""
    time.sleep(FOREVER)


def two_orders(job: Job) -> None:
    """The gradient of a row of four, then the norm over the world; the odd rank reverses them."""
    rows = [
        dist.new_group(list(range(first, first + TENSOR_PARALLEL)), group_desc="expert_parallel")
        for first in range(0, dist.get_world_size(), TENSOR_PARALLEL)
    ]
    row = rows[job.rank // TENSOR_PARALLEL]
    step = 0
    while not stopped(job):
        if job.odd(step, "inversion"):
            clip_norm(job)
            sum_gradient(job, row)
        else:
            sum_gradient(job, row)
            clip_norm(job)
        report(job, step, 1.0)
        step += 1


def stopped(job: Job) -> bool:
    """Everybody hears of the end at the same step."""
    told = torch.tensor([int(job.rank == 0 and (job.folder / "stop").exists())])
    beat(job)
    dist.broadcast(told, src=0)
    time.sleep(0.02)
    return bool(told.item())


def report(job: Job, step: int, loss: float) -> None:
    if job.rank == 0:
        logging.info("step %d loss %.4f", step, loss)


def prefetch(wanted: queue.Queue) -> None:
    """A thread of the program that nobody ends when the main thread raises."""
    while wanted.get() is not None:
        pass


ENDS = ("raised", "killed")
"""Cases in which no thread keeps a failed rank alive: its launcher sees it end."""
LOOPS = {"cascade": mesh, "inversion": two_orders}


def main() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # end with the test, whatever becomes of it
    case, folder, culprit = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stdout,
        format=f"%(asctime)s [rank{rank}] %(levelname)s %(message)s",
    )
    torch.set_num_threads(1)
    with (folder / "beat").open("r+b") as file:
        job = Job(case, folder, rank, culprit, mmap.mmap(file.fileno(), 0))
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=world,
        timeout=timedelta(minutes=10),
    )
    healthy = case == "healthy"
    frames = rank in (0, culprit) and not healthy
    witness.start(folder, rank, late_s=0.15 * healthy, frames=frames)
    wanted: queue.Queue = queue.Queue()
    held = case not in ENDS
    threading.Thread(target=prefetch, args=(wanted,), name="prefetch", daemon=not held).start()
    LOOPS.get(case, flat)(job)
    if rank == 0:
        logging.info("training done")
    wanted.put(None)
    dist.barrier()
    witness.testify(folder / "finished", rank, frames=False)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
