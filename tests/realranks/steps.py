"""One epoch over unequal data under Gloo, with or without the ranks having agreed on its length.

    steps.py KIND AGREED STEPS    KIND ddp, fsdp (FSDP1), fully_shard (FSDP2), or ask: no training;
                                  AGREED yes or no; STEPS of every rank, e.g. 6,6,6,4

Prints `left after N` when the loop ends and `done` after the barrier behind it; `ask` prints what
the world agreed on, and what the last two ranks did. RANK, WORLD_SIZE and STORE as a launcher sets
them.
"""

import ctypes
import itertools
import logging
import os
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

from sluggish.preflight import agree_on_steps

WAIT_S = 4
"""How long a rank waits in a collective before it raises: the watchdog of this job."""


def sharded(model: torch.nn.Module) -> torch.nn.Module:
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model


def fsdp(model: torch.nn.Module) -> torch.nn.Module:
    return FullyShardedDataParallel(model, device_id=torch.device("cpu"))


KINDS = {"ddp": DistributedDataParallel, "fsdp": fsdp, "fully_shard": sharded}


def ask(own: int) -> None:
    """Both groups, whatever the first one raises; a rank outside the pair is told so at once."""
    size = dist.get_world_size()
    for group in (None, dist.new_group([size - 2, size - 1])):
        try:
            print(f"agreed on {agree_on_steps(own, group)}", flush=True)
        except ValueError as problem:
            print(f"refused: {problem}", flush=True)


def main() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # end with the test, whatever becomes of it
    kind, agreed, told = sys.argv[1:]
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{os.environ['STORE']}", timeout=timedelta(seconds=WAIT_S),
        rank=rank, world_size=int(os.environ["WORLD_SIZE"]),
    )  # fmt: skip
    own = int(told.split(",")[rank])
    if kind == "ask":
        ask(own)
    else:
        train(kind, own, agree_on_steps(own) if agreed == "yes" else own)
    print("done", flush=True)
    dist.destroy_process_group()
    os._exit(0)  # threads of torch may abort an interpreter that ends (seen with FSDP)


def train(kind: str, own: int, steps: int) -> None:
    model = KINDS[kind](torch.nn.Linear(64, 64))
    batches = [torch.ones(4, 64)] * own
    taken = 0
    for batch in itertools.islice(batches, steps):
        model(batch).sum().backward()
        model.zero_grad()
        taken += 1
    print(f"left after {taken}", flush=True)
    dist.all_reduce(torch.ones(1))  # "is everybody there?", as before a checkpoint


if __name__ == "__main__":
    main()
