"""A watch that goes on after a time in which nothing was seen: what of its state still holds. Pure.

A watcher that was killed, or whose connections all broke, comes back with the stretch of quiet that
it knew. Meanwhile the job may have moved, and be in its next checkpoint by now.
"""

from msgspec.structs import replace

from sluggish.watch.state import Job, Node, Rules, Sign


def taken_up(job: Job, now: float) -> Job:
    """A state out of its file. An alert of which nobody was told will be made again."""
    if job.alerted and not job.told:
        job = replace(job, alerted=False)
    newest = max((node.at for node in job.nodes.values()), default=now)
    return shifted(job, now - newest) if newest > now else job


def shifted(job: Job, by: float) -> Job:
    """All its times moved: the watcher's clock was set back, and no sample would count till then.

    The start of the job stays: that is Slurm's word, and tells which run this is.
    """
    nodes = {name: _node(node, by) for name, node in job.nodes.items()}
    return replace(
        job,
        nodes=nodes,
        log=_sign(job.log, by),
        begun_at=_plus(job.begun_at, by),
        moving_since=_plus(job.moving_since, by),
        moved_at=_plus(job.moved_at, by),
        quiet_since=_plus(job.quiet_since, by),
        dip_at=tuple(at + by for at in job.dip_at),
        hard_at=_plus(job.hard_at, by),
        blind_from=_plus(job.blind_from, by),
        blind_until=_plus(job.blind_until, by),
    )


def _node(node: Node, by: float) -> Node:
    return replace(
        node, at=node.at + by, gpu_at=_plus(node.gpu_at, by), short_at=_plus(node.short_at, by),
        io=_sign(node.io, by), traffic=_sign(node.traffic, by), cpu=_sign(node.cpu, by),
    )  # fmt: skip


def _sign(sign: Sign, by: float) -> Sign:
    return replace(
        sign, at=_plus(sign.at, by), since=_plus(sign.since, by), grew_at=_plus(sign.grew_at, by)
    )


def _plus(at: float | None, by: float) -> float | None:
    return None if at is None else at + by


def seen_again(job: Job, at: float, rules: Rules) -> Job:
    """Notes the time in which no node at all was seen, where it is longer than a window."""
    last = max((node.at for node in job.nodes.values()), default=at)
    if at - last <= rules.window_s:
        return job
    return replace(job, blind_from=last, blind_until=at, moving_since=None)


def went_on(job: Job, at: float, rules: Rules) -> Job:
    """Forgets the quiet before such a time, if its first readings after it had grown.

    After an alert a short one changes nothing: lines of a heartbeat would make it a second time.
    """
    if job.blind_from is None or job.blind_until is None or job.quiet_since is None:
        return job
    if job.quiet_since >= job.blind_until or at - job.blind_until > rules.window_s:
        return job
    if job.alerted and job.blind_until - job.blind_from < rules.alert_s:
        return job
    nodes = job.nodes.values()
    signs = (job.log, *(n.io for n in nodes), *(n.traffic for n in nodes))
    if not any(s.grew_at is not None and s.grew_at >= job.blind_until for s in signs):
        return job
    return replace(job, quiet_since=None, noticed=False, alerted=False, told=False)
