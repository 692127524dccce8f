"""A live look: Slurm, the job's logs, the nodes; the bundle is saved before anything is judged."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from sluggish.cli.notes import Notes
from sluggish.cli.way import known_way
from sluggish.config import Config
from sluggish.evidence.model import Evidence
from sluggish.evidence.open import text_of
from sluggish.evidence.source import EvidenceError
from sluggish.facts.store import parsed, read
from sluggish.hostlist import fold
from sluggish.job import WAITS, ends_before
from sluggish.probes import job_log
from sluggish.reach import slurm
from sluggish.reach.collect import Limits, Look, ask_round
from sluggish.reach.logs import not_here, read_logs
from sluggish.reach.model import Ask, Progress, Transport
from sluggish.reach.pick import JobId, job_id, looked_at, number_of
from sluggish.reach.slurm import SlurmView
from sluggish.report import live

OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a person asked for, with the configuration behind it."""

    job: JobId
    transport: str = "auto"
    window_s: float = 10.0
    probe_s: float = 8.0
    sudo: bool = False
    poke: bool = False
    limits: Limits = field(default_factory=Limits)
    log_patterns: tuple[str, ...] = ()


def wish(
    job: str, config: Config, *, transport: str | None, window_s: float | None, sudo: bool,
    poke: bool,
) -> Wanted:  # fmt: skip
    """What the command line asks for over the configuration; EvidenceError for no job id."""
    try:
        known = job_id(job)
    except ValueError as problem:
        raise EvidenceError(str(problem)) from None
    way = known_way(transport or config.transport)
    limits = Limits(
        workers=config.ssh.workers, connect_rate=config.ssh.rate, overall_s=config.deadline_s
    )
    return Wanted(
        job=known,
        transport=way,
        window_s=config.window_s if window_s is None else window_s,
        probe_s=config.probe_s,
        sudo=sudo or config.sudo,
        poke=poke,
        limits=limits,
        log_patterns=config.log_patterns,
    )


@dataclass(slots=True)
class Taken:
    """What a look brought home, and whether it was stopped before its end."""

    look: Look
    view: SlurmView
    taken_at: datetime
    stopped: bool = False


def take(
    wanted: Wanted, folder: Path, transport_for: Callable[[SlurmView], Transport], notes: Notes
) -> Taken:
    """One look at a job. Ctrl-C ends it early; what has come home by then is kept."""
    notes.say(f"preliminary: what is seen while the probes run (job {wanted.job})")
    now = datetime.now(UTC)
    known: list[SlurmView] = []

    def early(first: SlurmView) -> None:
        known.append(first)
        if first.job:
            notes.say(live.of_job(first.job, now))

    stopped = False
    try:
        view = slurm.look(wanted.job, early=early, log_patterns=wanted.log_patterns)
    except KeyboardInterrupt:
        if not known or not known[0].job:
            raise
        view, stopped = known[0], True
    look = Look(folder=folder, nodes=view.nodes, job=view.asked.job)
    look.add(view.evidence)
    taken = Taken(look=look, view=view, taken_at=now)
    try:
        if stopped:
            raise KeyboardInterrupt
        _tell_slurm(view, notes)
        look.logs = read_logs(view.log_paths, view.uid)
        _tell_logs(look.logs, view, notes)
        _ask_nodes(wanted, view, look, transport_for, notes)
        # whether it steps shows at the end
        look.logs = read_logs(view.log_paths, view.uid, search=True)
    except KeyboardInterrupt:
        taken.stopped = True
        notes.say("stopped: the verdict rests on what has come home so far")
    taken.taken_at = datetime.now(UTC)
    return taken


def _tell_slurm(view: SlurmView, notes: Notes) -> None:
    job = view.job
    if job and job.state not in OVER:
        notes.say("do not cancel the job yet: what only its nodes hold would go with it")
    own = [state for state in view.node_states if state.node in view.nodes]
    notes.say(live.of_nodes(own, job.started_at if job else None))
    notes.say(live.of_lost(job, view.runs, view.node_states) if job else ())
    if view.other_jobs:
        others = {node: [n.id for n in jobs] for node, jobs in view.other_jobs.items()}
        notes.say(live.of_others(others))
    notes.say(view.notes)


def _tell_logs(logs: tuple[Evidence, ...], view: SlurmView, notes: Notes) -> None:
    facts: list[object] = []
    ended = ends_before((*view.runs, *((view.job,) if view.job else ())))
    for log in logs:
        if log.error:
            notes.say(f"log {log.stderr or log.error}")
            continue
        facts += parsed(None, log, job_log, {}, text_of, ended).found
    newest = max((log.mtime for log in logs if log.mtime), default=None)
    if facts or newest:
        notes.say(live.of_log(facts, datetime.now(UTC), newest))


def _ask_nodes(
    wanted: Wanted,
    view: SlurmView,
    look: Look,
    transport_for: Callable[[SlurmView], Transport],
    notes: Notes,
) -> None:
    if not view.nodes:
        notes.say("no node is known: none is asked")
        return
    transport = transport_for(view)
    job = view.job
    run = looked_at(job, view.runs)
    ask = Ask(
        job=number_of(job) if job else None,
        uid=view.uid,
        user=view.user,
        window_s=0.0 if job and job.state in (*OVER, *WAITS) else wanted.window_s,
        probe_s=wanted.probe_s,
        dumps_after=run.started_at if run else None,
        asked_at=datetime.now(UTC),
        poke=wanted.poke,
        sudo=wanted.sudo,
    )
    notes.total = len(view.nodes)
    notes.say(f"asking {len(view.nodes)} nodes ({fold(view.nodes)}) over {transport.name}")
    if wanted.poke:
        notes.say(POKED)

    def tell(event: Progress, made: Evidence | None) -> None:
        notes.of_node(event, made, look.clocks.get(event.node))

    from sluggish.probes import PROBES

    try:
        # logs that lie on a node's own disk lie on the first one: the batch script ran there
        elsewhere = not_here(look.logs)
        with_logs = {view.nodes[0]: replace(ask, logs=elsewhere)} if elsewhere else {}
        nodes, limits = view.nodes, wanted.limits
        ask_round(look, nodes, lambda n: with_logs.get(n, ask), transport, PROBES, limits, tell)
        notes.folded()
        _ask_ras(wanted, look, ask, transport, notes)
    finally:
        transport.close()


POKED = (
    "--poke touches the ranks: a byte into each recorder's pipe (it writes its dump), py-spy stops"
    " each for a moment, NCCL RAS is asked"
)


def _ask_ras(wanted: Wanted, look: Look, ask: Ask, transport: Transport, notes: Notes) -> None:
    """The second round: one node, and only where a query cannot harm or a person said so."""
    alive = [node for node, answer in look.answers.items() if answer.failure is None]
    if not alive or wanted.window_s <= 0:
        return
    why = None if wanted.poke else _why_not_ask(look)
    if why:
        look.add([Evidence(node=None, probe="nccl_ras", path="", error="not asked", stderr=why)])
        return
    from sluggish.probes import PROBES

    again = replace(ask, probes=("nccl_ras",), ras=True, window_s=5.0, poke=False)
    notes.say(f"asking NCCL RAS on {alive[0]}")
    limits = wanted.limits
    ask_round(look, alive[:1], lambda _: again, transport, PROBES, limits, tell=None)


def _why_not_ask(look: Look) -> str | None:
    """The version, which the logs tell, mostly says no: then nothing else need be read."""
    from sluggish.correlate.ras_gate import why_not_ask_ras, why_not_this_version
    from sluggish.diagnose import gather
    from sluggish.probes import PROBES

    bundle = look.bundle(PROBES, datetime.now(UTC))
    logs = tuple(item for item in bundle.evidence if item.probe == job_log.ID)
    told = read(replace(bundle, evidence=logs), (job_log,), text_of)
    return why_not_this_version(told) or why_not_ask_ras(gather(bundle, PROBES))
