"""The step of a watch: one sample more, and what is to be told because of it. Pure."""

from msgspec.structs import replace

from sluggish.watch import shape, signs
from sluggish.watch.judge import judge
from sluggish.watch.resume import seen_again
from sluggish.watch.sample import Sample
from sluggish.watch.state import Event, Job, Node, Rules, Sign

KEPT_HARD = 8


def advance(job: Job, sample: Sample, rules: Rules) -> tuple[Job, list[Event]]:
    """The job with this sample, and its events."""
    if job.nodes.get(sample.node, Node()).at > sample.at:
        return job, []
    events: list[Event] = []
    job = seen_again(job, sample.at, rules)
    moving = _teaches(job, sample.at, rules)
    node = job.nodes.get(sample.node, Node())
    before = _gone(node)
    node = _gpus(node, sample, rules)
    node = _signs(node, sample, moving, rules)
    node, more = _changes(node, sample, job.job, rules.gone_s)
    for index in sorted(_gone(node) - before):
        says = f"GPU {index} is not listed any more"
        more.append(Event(kind="gpu gone", at=sample.at, job=job.job, node=sample.node, says=says))
    events += more
    job = replace(
        job,
        nodes={**job.nodes, sample.node: node},
        log=signs.touched(
            job.log,
            sample.log_bytes,
            sample.log_at,
            sample.at,
            moving and _unbroken(job.log, sample.at, rules),
        ),
    )
    for event in more:
        if event.kind == "gpu gone" or (event.kind == "rank gone" and not _ending(job)):
            job = hard(job, f"{event.says} on {sample.node}", event.at)
    job, more = judge(job, sample.at, rules)
    return job, events + more


def _teaches(job: Job, at: float, rules: Rules) -> bool:
    """Whether pauses of now are those of a job that moves; flat power alone does not say so."""
    if job.shape != shape.STEADY:
        return job.shape == shape.MOVING
    life = [sign for sign in signs.of_life(job, at, rules) if sign != "cpu"]
    return len(life) >= min(2, signs.seen(job))


def hard(job: Job, says: str, at: float) -> Job:
    """An event that stops a job by itself, e.g. a fatal Xid: with quiet GPUs it is enough."""
    return replace(job, hard=(*job.hard, says)[-KEPT_HARD:], hard_at=at)


def softened(job: Job, begins: str) -> Job:
    """Takes such an event back: it has shown to be none, e.g. the node answers again."""
    return replace(job, hard=tuple(says for says in job.hard if not says.startswith(begins)))


def _ending(job: Job) -> bool:
    """Half of its ranks have left: that is how jobs end, rank 0 last; what breaks takes a few."""
    nodes = job.nodes.values()
    return 2 * sum(node.alive for node in nodes) <= sum(node.ranks for node in nodes)


def _gone(node: Node) -> set[int]:
    """The job's GPUs that are missing."""
    return {n for n, track in node.own().items() if track.shape == shape.GONE}


def _gpus(node: Node, sample: Sample, rules: Rules) -> Node:
    if node.at and sample.at - node.at > rules.window_s:
        # a hole: a window across it would lie; what was learned stays
        emptied = {n: replace(t, util=(), power=()) for n, t in node.tracks.items()}
        node = replace(node, tracks=emptied)
    if not sample.gpus:
        return replace(node, at=sample.at)
    here = {gpu.index for gpu in sample.gpus}
    tracks = {n: t if n in here else shape.absent(t) for n, t in node.tracks.items()}
    for gpu in sample.gpus:
        before = tracks.get(gpu.index, shape.Track())
        tracks[gpu.index] = shape.advance(before, gpu, rules.length)
    return replace(node, at=sample.at, gpu_at=sample.at, tracks=tracks)


def _unbroken(sign: Sign, at: float, rules: Rules) -> bool:
    """Not read for longer than a window: the pause between two lines was perhaps none."""
    return sign.at is None or at - sign.at <= rules.window_s


def _signs(node: Node, sample: Sample, moving: bool, rules: Rules) -> Node:
    at = sample.at
    cores = signs.CPU_CORES * max(1, sample.alive)
    io, traffic = (moving and _unbroken(sign, at, rules) for sign in (node.io, node.traffic))
    return replace(
        node,
        io=signs.grown(node.io, sample.io_bytes, at, signs.IO_RATE, io),
        traffic=signs.grown(
            node.traffic, sample.traffic_bytes, at, signs.TRAFFIC_RATE, traffic, 0.02
        ),
        cpu=signs.grown(node.cpu, sample.cpu_s if sample.alive else None, at, cores, False),
    )


def _changes(node: Node, sample: Sample, job: str, gone_s: float) -> tuple[Node, list[Event]]:
    """Ports that went down or came back, ranks that ended."""
    events: list[Event] = []

    def tell(kind: str, says: str) -> None:
        events.append(Event(kind=kind, at=sample.at, job=job, node=sample.node, says=says))

    if node.down is not None:
        for port in sorted(set(sample.down) - set(node.down)):
            tell("port down", f"{port} is not active any more")
        for port in sorted(set(node.down) - set(sample.down)):
            tell("port up", f"{port} is active again")
    ranks = max(node.ranks, sample.ranks)
    node = replace(node, down=sample.down, ranks=ranks, alive=sample.alive)
    if not sample.alive or sample.alive == ranks:  # none is left: the step ended or begins anew
        return replace(node, short_at=None, told_short=False), events
    since = node.short_at if node.short_at is not None else sample.at
    due = not node.told_short and sample.at - since >= gone_s
    if due:
        tell("rank gone", f"{sample.alive} of {ranks} ranks are there")
    told = node.told_short or due
    return replace(node, short_at=since, told_short=told), events
