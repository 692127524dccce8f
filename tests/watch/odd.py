"""More jobs that are healthy though they look odd: habits of real training besides."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import traces
from .traces import Draw, Phase, World, one_parks, parks, train

KINDS = (
    "growing-checkpoint", "buffered-log", "long-steps", "rl", "profiler", "cached-loader",
    "slow-init", "other-watts", "reconnects", "cpu-offload", "ends", "seen-by-prometheus",
)  # fmt: skip


def change(world: World, kind: str) -> None:
    """What is other about these machines, or about what is seen of them."""
    r = world.random
    if kind == "buffered-log":
        world.log_every = r.uniform(600, 2400)
    elif kind == "long-steps":
        world.log_every = r.uniform(120, 900)
    elif kind == "other-watts":
        world.work = r.uniform(0.34, 0.97)
        world.spin = r.uniform(0.3, 0.55) * world.work
        world.park = r.uniform(0.04, 0.9) * world.spin
        world.noise = r.uniform(0.01, 0.15)
    elif kind == "seen-by-prometheus":
        world.has_io = world.has_ports = world.has_host = False


def healthy(world: World, kind: str, seconds: float) -> Iterator[Phase]:
    """A day of such a job."""
    r = world.random
    change(world, kind)
    if kind == "slow-init":
        yield from slow_start(world)
    else:
        yield from traces.start(world)
    left, turn = seconds, 0
    while left > 0:
        turn += 1
        for phase in _round(world, kind, turn, r.uniform(300, 2400)):
            left -= phase.seconds
            yield phase
    if kind == "ends":
        yield from ending(world)


def _round(world: World, kind: str, turn: int, spell: float) -> list[Phase]:
    r = world.random
    if kind == "growing-checkpoint":
        return [train(world, 900), saved(world, min(480.0, 20 * 1.12**turn))]
    if kind == "rl":
        return reinforced(world)
    if kind == "profiler":
        return [train(world, spell), profiled(world), train(world, spell)]
    if kind == "cached-loader":
        return [loads(world, max(3.0, r.uniform(30, 150) / turn), spell)]
    if kind == "cpu-offload":
        return [offloads(world, spell), traces.checkpoint(world)]
    if kind == "reconnects" and r.random() < 0.7:
        gone = train(world, r.uniform(20, 400))
        gone.lost = (r.randrange(world.nodes),) if r.random() < 0.7 else tuple(range(world.nodes))
        after = traces.checkpoint(world) if r.random() < 0.5 else train(world, 100)
        return [train(world, spell), gone, after]
    if kind == "slow-init":
        return [train(world, spell), *slow_start(world)]
    return [train(world, spell), traces.checkpoint(world)]


def saved(world: World, seconds: float) -> Phase:
    """A checkpoint of just this length."""
    phase = traces.checkpoint(world)
    phase.seconds = seconds
    return phase


def slow_start(world: World) -> list[Phase]:
    """Up to 25 minutes in which weights come from slow storage, by mmap perhaps."""
    r = world.random
    read = 0.0 if world.mapped else r.uniform(3e5, 2e8)
    context = Phase(name="init", seconds=r.uniform(60, 500), gpu=parks, read=read / 10, cpu=1.0)
    weights = Phase(
        name="weights", seconds=r.uniform(300, 1000), gpu=parks, read=read,
        cpu=r.uniform(0.2, 1.0), log_s=r.choice((0.0, 0.0, 200.0)),
    )  # fmt: skip
    return [context, weights]


def reinforced(world: World) -> list[Phase]:
    """Generate, wait for the longest answer, judge on the host or elsewhere, train."""
    r = world.random
    busy = r.uniform(0.28, 0.6)
    last = r.randrange(world.nodes * world.a_node)

    def generates(w: World, gpu: int) -> tuple[float, float]:
        return w.random.uniform(70, 100), busy + w.random.gauss(0, 0.04)

    def longest(w: World, gpu: int) -> tuple[float, float]:
        # one short batch: memory-bound, low, and never quite flat
        return generates(w, gpu) if gpu == last else parks(w, gpu)

    return [
        Phase(name="generate", seconds=r.uniform(60, 900), gpu=generates, cpu=r.uniform(0.8, 2.0)),
        Phase(name="longest answer", seconds=r.uniform(10, 400), gpu=longest, cpu=1.0),
        Phase(name="judge", seconds=r.uniform(10, 280), gpu=parks, cpu=r.uniform(0.3, 8.0),
              log_s=r.choice((0.0, 20.0))),
        train(world, r.uniform(60, 900)),
    ]  # fmt: skip


def profiled(world: World) -> Phase:
    """A trace is put together in memory by one core, then written."""
    r = world.random
    who = r.randrange(world.nodes * world.a_node)
    return Phase(name="profiler", seconds=r.uniform(20, 280), gpu=one_parks(who), cpu=1.0,
                 write=r.choice((0.0, 3e6)))  # fmt: skip


def loads(world: World, wait_s: float, seconds: float) -> Phase:
    """A first epoch from slow storage, the next ones from the page cache."""
    r = world.random
    return Phase(
        name="loader", seconds=seconds, gpu=traces.bursts(r.uniform(3, 12), wait_s, None),
        read=0.0 if world.mapped else r.uniform(3e5, 1e8), log_s=r.uniform(20, 200),
        traffic=r.uniform(1e6, 1e9), cpu=r.uniform(1.0, 3.0),
    )  # fmt: skip


def offloads(world: World, seconds: float) -> Phase:
    """The optimizer runs on the host: half of each step the GPUs are idle."""
    r = world.random
    draw: Draw = traces.bursts(r.uniform(5, 60), r.uniform(5, 60), None)
    return train(world, seconds, draw)


def ending(world: World) -> list[Phase]:
    """The last checkpoint is put together by rank 0; the others wait, or have gone; an upload."""
    r = world.random
    phases = [
        Phase(name="consolidate", seconds=r.uniform(60, 250), gpu=one_parks(0), write=5e7, cpu=1.0),
    ]
    if r.random() < 0.5:
        alone = Phase(name="rank 0 alone", seconds=r.uniform(30, 220), gpu=parks, write=5e7)
        alone.dead = world.a_node - 1
        phases.append(alone)
    upload = Phase(name="upload", seconds=r.uniform(60, 2400), gpu=parks, cpu=0.0)
    upload.dead = world.a_node
    upload.memory = 0.0
    return [*phases, upload]


# -- hangs of such jobs ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """How one of the usual hangs is met by an odd job."""

    base: str = "rank elsewhere"
    habit: str = ""
    watchdog_s: float = 600.0
    before: Callable[[World], list[Phase]] | None = None
    """What it did until then; None: as usual."""


def _brisk(world: World) -> list[Phase]:
    """Without a dip that a short watchdog would have ended."""
    return [*traces.start(world, compiles=False), train(world, 900)]


HANGS = {
    "a log in a buffer": Hang(habit="buffered-log"),
    "steps of minutes": Hang(habit="long-steps"),
    "other watts": Hang(habit="other-watts"),
    "seen by Prometheus": Hang(habit="seen-by-prometheus"),
    "watchdog of 2 min": Hang(watchdog_s=120.0, before=_brisk),
    "watchdog of 30 min": Hang(watchdog_s=1800.0),
    "the first collective": Hang(base="all in collectives", before=traces.start),
    "100 s after the start": Hang(before=lambda w: [*traces.start(w), train(w, 100)]),
    "after generating": Hang(
        before=lambda w: [*traces.start(w), *reinforced(w), *reinforced(w), train(w, 300)]
    ),
    "loader of an offloading job": Hang(
        base="host deadlock", before=lambda w: [*traces.start(w), offloads(w, 900)]
    ),
}
