"""Jobs as a sampler would see them, healthy and hanging: made up, seeded, without sluggish's rules.

A job is a sequence of phases. Each phase says what its GPUs, its log, its io, its ports and its
processes do; the numbers behind them are drawn once a job, so that no two jobs are alike. Watts are
parts of the limit as public captures show them: training 0.5 to 0.97, a spin 0.15 to 0.26, parked
0.09 to 0.19.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sluggish.watch.sample import Gpu, Sample

NODES, A_NODE = 2, 4
EVERY_S = 5.0


class World:
    """One job's machines and habits."""

    def __init__(self, seed: int, nodes: int = NODES, a_node: int = A_NODE) -> None:
        self.seed, self.nodes, self.a_node = seed, nodes, a_node
        self.started_at = 1_000_000.0
        r = self.random = random.Random(seed)
        self.at = self.started_at + r.uniform(0, 3)
        self.limit = r.choice((400.0, 700.0, 1000.0, 1100.0, 1200.0))
        self.work = r.uniform(0.5, 0.95)
        self.noise = r.uniform(0.02, 0.12)
        self.capped = r.random() < 0.2
        """Flat at its power cap while it works."""
        self.spin = r.uniform(0.15, 0.26)
        self.park = r.uniform(0.09, 0.17)
        self.has_ports = r.random() < 0.8
        self.has_io = r.random() < 0.9
        self.has_host = True
        """Processes and logs are seen."""
        self.mapped = r.random() < 0.3
        """Reads its data by mmap: no io is seen."""
        self.log_every = r.uniform(3, 45)
        self.heartbeat = 0.0
        self.io = [0.0] * self.nodes
        self.traffic = [0.0] * self.nodes
        self.cpu = [0.0] * self.nodes
        self.log = 1000.0
        self.log_at = self.at
        self.step = 0.0
        self.memory = 0.0
        self.gone: set[int] = set()
        self.blind: set[int] = set()
        self.lost: set[int] = set()
        self.down: dict[int, tuple[str, ...]] = {}
        self.dead = 0

    # -- what a tick shows

    def tick(self, phase: "Phase") -> Iterator[Sample]:
        """A sample of every node that answers, and the clock goes on."""
        r = self.random
        self.at += EVERY_S * r.uniform(0.98, 1.02)
        if phase.log_s and self.at - self.step >= phase.log_s:
            self.step = self.at
            self._line()
        if self.heartbeat and int(self.at / self.heartbeat) != int(
            (self.at - EVERY_S) / self.heartbeat
        ):
            self._line()
        for node in range(self.nodes):
            if node in self.lost or node in phase.lost:
                continue
            self.io[node] += EVERY_S * (phase.io(self, node) + r.uniform(0, 4000))
            self.traffic[node] += EVERY_S * phase.traffic * r.uniform(0.7, 1.2)
            self.cpu[node] += EVERY_S * phase.cpu * self.a_node * r.uniform(0.9, 1.1)
            yield Sample(
                node=f"gpu-{node:02d}",
                at=self.at + r.uniform(0, 0.4),
                gpus=() if node in self.blind else tuple(self._gpus(phase, node)),
                ranks=self.a_node if self.has_host else 0,
                alive=self._alive(phase, node),
                cpu_s=self.cpu[node] if self.has_host else None,
                io_bytes=self.io[node] if self.has_io else None,
                traffic_bytes=self.traffic[node] if self.has_ports else None,
                down=self.down.get(node, ()),
                log_bytes=self.log if node == 0 and self.has_host else None,
                log_at=self.log_at if node == 0 else None,
            )

    def _alive(self, phase: "Phase", node: int) -> int:
        gone = max(phase.dead, self.dead if node == self.nodes - 1 else 0)
        return self.a_node - gone if self.has_host else 0

    def _line(self) -> None:
        self.log += self.random.randint(60, 200)
        self.log_at = self.at

    def _gpus(self, phase: "Phase", node: int) -> Iterator[Gpu]:
        for local in range(self.a_node):
            number = node * self.a_node + local
            if number in self.gone:
                continue
            util, part = phase.gpu(self, number)
            yield Gpu(
                index=local,
                util=float(round(max(0.0, min(100.0, util)))),
                mem_util=0.0 if part < 0.3 else 30.0,
                power_w=round(max(0.05, min(1.0, part)) * self.limit, 2),
                limit_w=self.limit,
                memory_mib=0.0 if local >= self.a_node - phase.dead else self.memory,
                clock=1.0,
            )


# -- what a GPU does -------------------------------------------------------------------------------

Draw = Callable[[World, int], tuple[float, float]]


def works(world: World, gpu: int) -> tuple[float, float]:
    if world.capped:
        return 100, world.work + world.random.gauss(0, 0.004)
    return world.random.uniform(92, 100), world.work + world.random.gauss(0, world.noise)


def spins(world: World, gpu: int) -> tuple[float, float]:
    return 100, world.spin + 0.004 * (gpu % 5) + world.random.gauss(0, 0.003)


def parks(world: World, gpu: int) -> tuple[float, float]:
    return 0, world.park + 0.003 * (gpu % 4) + world.random.gauss(0, 0.002)


def one_parks(who: int) -> Draw:
    return lambda world, gpu: (parks if gpu == who else spins)(world, gpu)


def evaluates(world: World, gpu: int) -> tuple[float, float]:
    r = world.random
    return r.uniform(40, 100), r.uniform(0.25, 0.25 + world.work * 0.4)


def first_evaluates(world: World, gpu: int) -> tuple[float, float]:
    return (evaluates if gpu == 0 else spins)(world, gpu)


def sawtooth(period_s: float, stages: int) -> Draw:
    def draw(world: World, gpu: int) -> tuple[float, float]:
        turn = (world.at / period_s + gpu / max(1, stages)) % 1.0
        if turn < 0.35:  # the bubble: it waits in a receive
            return 100, world.spin + world.random.gauss(0, 0.01)
        return world.random.uniform(90, 100), world.work * world.random.uniform(0.7, 1.0)

    return draw


def bursts(busy_s: float, wait_s: float, who: int | None) -> Draw:
    def draw(world: World, gpu: int) -> tuple[float, float]:
        if world.at % (busy_s + wait_s) < busy_s:
            return works(world, gpu)
        return parks(world, gpu) if who is None or gpu == who else spins(world, gpu)

    return draw


def bound(world: World, gpu: int) -> tuple[float, float]:
    """Memory-bound code: always busy, low and flat."""
    return 100, 0.235 + world.random.gauss(0, 0.004)


# -- phases ----------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Phase:
    """What the whole job does for a while."""

    name: str
    seconds: float
    gpu: Draw
    log_s: float = 0.0
    """Between lines; 0: it prints nothing."""
    read: float = 0.0
    write: float = 0.0
    """Bytes a second: of each node; of the first node alone."""
    writers: int = 1
    pauses: float = 0.0
    """Part of the time in which nothing is written, in stretches of half a minute."""
    traffic: float = 0.0
    cpu: float = 1.0
    """Cores a rank."""
    lost: tuple[int, ...] = ()
    """Nodes of which nothing is seen."""
    dead: int = 0
    """Ranks of each node that have gone, with their memory."""
    memory: float = 48_000.0
    """MiB in use of each GPU."""

    def io(self, world: World, node: int) -> float:
        if self.pauses and (world.at / 30) % 1.0 < self.pauses:
            return 0.0
        return self.read + (self.write if node < self.writers else 0.0)


def train(world: World, seconds: float, gpu: Draw = works) -> Phase:
    r = world.random
    return Phase(
        name="train", seconds=seconds, gpu=gpu, log_s=world.log_every,
        read=0.0 if world.mapped else r.uniform(1e6, 2e8),
        traffic=r.uniform(1e9, 4e10), cpu=r.uniform(0.9, 1.3),
    )  # fmt: skip


def checkpoint(world: World) -> Phase:
    r = world.random
    seconds = r.uniform(15, 260) if r.random() < 0.9 else r.uniform(260, 480)
    whole = r.random() < 0.4  # every rank writes its shard
    return Phase(
        name="checkpoint", seconds=seconds, gpu=parks if whole else one_parks(0),
        write=r.uniform(2e6, 2e9), writers=world.nodes if whole else 1,
        pauses=r.choice((0.0, 0.0, 0.3, 0.6)), cpu=1.0,
    )  # fmt: skip


def evaluation(world: World) -> Phase:
    r = world.random
    return Phase(
        name="evaluation", seconds=r.uniform(60, 1500),
        gpu=r.choice((evaluates, evaluates, first_evaluates)),
        read=0.0 if world.mapped else r.uniform(1e5, 5e7), traffic=r.uniform(0, 1e8),
        log_s=r.choice((0.0, 0.0, 60.0)), cpu=1.0,
    )  # fmt: skip


def gap(world: World) -> Phase:
    """Between epochs: workers start anew, the first batches are read."""
    r = world.random
    return Phase(
        name="epoch gap", seconds=r.uniform(10, 240), gpu=parks, read=r.uniform(5e5, 2e8),
        cpu=r.uniform(1.0, 6.0),
    )  # fmt: skip


def start(world: World, compiles: bool | None = None) -> list[Phase]:
    """Imports and set-up; then compilation, always, never, or as it comes."""
    r = world.random
    phases = [
        Phase(name="init", seconds=r.uniform(20, 900), gpu=parks, read=r.uniform(0, 1e8),
              cpu=r.uniform(0.3, 3.0), log_s=r.choice((0.0, 30.0))),
    ]  # fmt: skip
    if compiles if compiles is not None else r.random() < 0.6:
        gpu = r.choice((parks, one_parks(0), one_parks(world.a_node)))
        phases.append(
            Phase(name="compile", seconds=r.uniform(30, 460), gpu=gpu, cpu=r.uniform(1.0, 9.0))
        )
    return phases


def slow_loader(world: World, seconds: float) -> Phase:
    r = world.random
    gpu = bursts(r.uniform(4, 30), r.uniform(5, 100), r.choice((None, 0, 3)))
    return Phase(
        name="slow loader", seconds=seconds, gpu=gpu, read=r.uniform(4e5, 3e7),
        log_s=r.uniform(20, 200), traffic=r.uniform(1e7, 1e9), cpu=r.uniform(1.0, 3.0),
    )  # fmt: skip


def bubbles(world: World, seconds: float) -> Phase:
    r = world.random
    gpu = sawtooth(r.uniform(2, 45), r.choice((2, 4, 8)))
    return train(world, seconds, gpu)


KINDS = (
    "checkpoint", "evaluation", "compile", "slow-loader", "init", "pipeline-bubble", "mixed",
    "memory-bound",
)  # fmt: skip


def healthy(world: World, kind: str, seconds: float) -> Iterator[Phase]:
    """A day in the life of a job; the first phases are its start."""
    r = world.random
    yield from start(world)
    left = seconds
    while left > 0:
        spell = r.uniform(300, 3600)
        if kind == "checkpoint":
            phases = [train(world, spell), checkpoint(world)]
        elif kind == "evaluation":
            phases = [train(world, spell), evaluation(world)]
        elif kind == "slow-loader":
            phases = [slow_loader(world, spell), train(world, r.uniform(60, 600))]
        elif kind == "pipeline-bubble":
            phases = [bubbles(world, spell), checkpoint(world)]
        elif kind == "memory-bound":
            phases = [train(world, spell, bound), checkpoint(world)]
        elif kind in ("compile", "init"):  # restarts within the job, again and again
            phases = [*start(world, compiles=kind == "compile"), train(world, spell)]
        else:
            phases = [train(world, spell), checkpoint(world), gap(world), evaluation(world)]
        for phase in phases:
            left -= phase.seconds
            yield phase


# -- hangs -----------------------------------------------------------------------------------------

HANGS = (
    "rank elsewhere", "all in collectives", "host deadlock", "storage of one rank",
    "checkpoint on dead storage", "gpu off the bus", "nvidia-smi hangs", "node lost",
    "rank killed", "port down", "log goes on", "memory-bound", "kernel without end",
    "found hanging", "in evaluation",
)  # fmt: skip


def hang(world: World, kind: str) -> Phase:
    """What the job shows from the fault on; nothing of it ends by itself."""
    r = world.random
    who = r.randrange(world.nodes * world.a_node)
    gpu: Draw = one_parks(who)
    if kind in ("all in collectives", "port down"):
        gpu = spins
    elif kind == "host deadlock":
        gpu = parks
    elif kind == "memory-bound":
        gpu = bound
    elif kind == "kernel without end":
        gpu = lambda w, g: (100, 0.55 if g == who else w.spin)  # noqa: E731
    if kind == "gpu off the bus":
        world.gone.add(who)
    elif kind == "nvidia-smi hangs":
        world.blind.add(who // world.a_node)
    elif kind == "node lost":
        world.lost.add(world.nodes - 1)
    elif kind == "rank killed":
        world.dead = 1
    elif kind == "port down":
        world.down[r.randrange(world.nodes)] = ("mlx5_3/1",)
    elif kind == "log goes on":
        world.heartbeat = r.uniform(10, 60)
    cpu = 0.1 if kind == "host deadlock" else 1.0
    return Phase(name=kind, seconds=1500, gpu=cooling(gpu, world), cpu=cpu)


def cooling(draw: Draw, world: World) -> Draw:
    """Power falls to its level within some twenty seconds, not at once."""
    began = world.at
    time_s = world.random.uniform(2, 8)

    def drawn(w: World, gpu: int) -> tuple[float, float]:
        util, part = draw(w, gpu)
        left = max(0.0, 1 - (w.at - began) / (4 * time_s)) ** 2
        return util, part + 0.25 * left * max(0.0, w.work - part)

    return drawn


def before(world: World, kind: str) -> list[Phase]:
    """What the job did until it hung."""
    r = world.random
    usual = bound if kind == "memory-bound" else works
    phases = [*start(world), train(world, r.uniform(600, 2400), usual)]
    if r.random() < 0.6 and kind != "found hanging":
        phases += [checkpoint(world), train(world, r.uniform(60, 900), usual)]
    if kind == "in evaluation":
        phases.append(evaluation(world))
    return phases
