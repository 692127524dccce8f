"""What Slurm knows of a job: its commands side by side, each with its own deadline."""

import queue
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from sluggish.evidence.model import Evidence
from sluggish.hostlist import fold
from sluggish.job import Job, Neighbour, NodeState, Step
from sluggish.probes import sacct as sacct_probe
from sluggish.probes import squeue as squeue_probe
from sluggish.probes import topology as topology_probe
from sluggish.reach import paths, pick, slurm_says
from sluggish.reach.command import Ran, run
from sluggish.reach.pick import JobId
from sluggish.slurmtext import logpath, site
from sluggish.slurmtext.node import node_states
from sluggish.slurmtext.queue import FORMAT, rows
from sluggish.text import is_node_name, safe

TIMEOUT_S = 5.0
"""Slurm's own retry of an unreadable slurm.conf or a dead controller lasts a minute."""
PATHS_S = 2.0
MORE_FIELDS = ("User", "UID", "NNodes", "NTasks", "AllocTRES", "Timelimit", "Submit", "Partition",
               "Restarts", "FailedNode", "WorkDir", "StdOut", "StdErr")  # fmt: skip
"""Asked of sacct only where `sacct -e` lists them: an unknown field fails the whole call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmView:
    """Everything that Slurm told of one job. What it did not tell stands in `notes`."""

    asked: JobId
    job: Job | None = None
    runs: tuple[Job, ...] = ()
    """The runs in accounting, oldest first; () where it was not asked or does not answer."""
    step: Step | None = None
    """The training step: numeric, the most tasks."""
    nodes: tuple[str, ...] = ()
    """The nodes of the training."""
    nodes_from: str = ""
    """Where they come from, e.g. `step 2.0`, `job 2`, `accounting, run that ended 03:10:00Z`."""
    node_states: tuple[NodeState, ...] = ()
    log_paths: tuple[str, ...] = ()
    """Existing files, or literal paths whose storage did not answer; read them by `reach.paths`."""
    uid: int | None = None
    """The owner, from columns that nobody can forge; None: read nothing of theirs."""
    user: str | None = None
    parts: Mapping[str, int] = field(default_factory=dict[str, int])
    """Of a heterogeneous job: node -> the part that runs there; {} for every other job."""
    other_jobs: Mapping[str, tuple[Neighbour, ...]] | None = None
    """Node -> jobs of others or other jobs of the owner there; None: not known."""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()
    """What could not be seen or had to be chosen, one safe line each."""
    evidence: tuple[Evidence, ...] = ()
    no_job: str = ""
    """Where `job` is None, why, in one line: Slurm's own no, or that it could not be asked."""


def look(
    job: JobId | str,
    *,
    timeout_s: float = TIMEOUT_S,
    env: Mapping[str, str] | None = None,
    early: Callable[[SlurmView], None] | None = None,
    log_patterns: Sequence[str] = (),
) -> SlurmView:
    """Ask Slurm for a job. Never raises for what Slurm does; ValueError for an id that is none.

    `early` is called with what the first round tells (job, nodes, owner), before nodes, other jobs,
    accounting and logs are asked for. Each of the two rounds ends within `timeout_s`.
    `log_patterns`: where a site keeps logs that Slurm does not name.
    """
    asked = pick.job_id(job) if isinstance(job, str) else job
    first = _side_by_side(
        {
            "job": ("scontrol", "-o", "-d", "show", "job", asked.job),
            "step": ("scontrol", "-o", "show", "step", asked.job),
            "queue": ("squeue", "-t", "all", "-j", asked.job, "-o", FORMAT),
            "config": ("scontrol", "show", "config"),
            "topology": ("scontrol", "show", "topology"),
        },
        timeout_s,
        env,
    )
    chosen = pick.from_scontrol(asked, first["job"].text, first["step"].text)
    known = _owner(_first_view(asked, first, chosen), first["queue"])
    if early:
        early(known)
    second = _second_round(known, timeout_s, env)
    view = _second_view(known, second)
    if view.job:
        return _with_logs(view, log_patterns)
    why = slurm_says.no_job(first["job"], first["queue"], second.get("sacct"), view.settings)
    return replace(view, no_job=why)


def node_records(
    nodes: Sequence[str], *, timeout_s: float = TIMEOUT_S, env: Mapping[str, str] | None = None
) -> Evidence:
    """What Slurm tells of nodes without a job: their state, and how many GPUs each should have."""
    argv = ("scontrol", "-o", "show", "node", fold(node for node in nodes if is_node_name(node)))
    ran = _side_by_side({"node": argv}, timeout_s, env)["node"]
    return _evidence("slurm_node", ran, content=ran.stdout)


def _side_by_side(
    calls: Mapping[str, tuple[str, ...]], timeout_s: float, env: Mapping[str, str] | None
) -> dict[str, Ran]:
    """All of them at once. A program on dead storage holds its own thread, and nothing else."""
    done: queue.SimpleQueue[tuple[str, Ran]] = queue.SimpleQueue()
    until = time.monotonic() + timeout_s + 1.0

    def call(name: str, argv: tuple[str, ...]) -> None:
        done.put((name, run(argv, timeout_s, env=env)))

    for name, argv in calls.items():
        threading.Thread(target=call, args=(name, argv), daemon=True).start()
    ran: dict[str, Ran] = {}
    while len(ran) < len(calls):
        try:
            name, result = done.get(timeout=max(0.01, until - time.monotonic()))
        except queue.Empty:
            break
        ran[name] = result
    lost = {n: Ran(argv=a, error="stuck", duration_s=timeout_s) for n, a in calls.items()}
    return {**lost, **ran}


def _first_view(asked: JobId, first: Mapping[str, Ran], chosen: pick.Choice) -> SlurmView:
    job, ran, steps = chosen.job, first["job"], first["step"]
    notes = [*chosen.notes, *slurm_says.complaints(ran), *slurm_says.complaints(steps, said=ran)]
    step = pick.training_step(job, asked.step) if job else None
    nodes, origin = pick.nodes_of(job, step, chosen.parts)
    settings = {} if first["config"].error else site.settings(first["config"].text)
    text = "\n".join(part for part in (chosen.job_text, chosen.step_text) if part.strip())
    shown = f"{_command(ran)}; {_command(steps)}"
    return SlurmView(
        asked=asked,
        job=job,
        step=step,
        nodes=nodes,
        nodes_from=origin,
        settings=settings,
        notes=tuple(notes),
        evidence=(
            _evidence("slurm_job", ran, command=shown, content=text.encode()),
            *_topology(first["topology"]),
        ),
    )


def _topology(ran: Ran) -> tuple[Evidence, ...]:
    """Slurm's tree where it has one; a flat cluster is nothing that could not be seen."""
    if ran.error in slurm_says.LOST or (ran.error is None and "Name=" in ran.text):
        return (_evidence(topology_probe.ID, ran, content=ran.stdout),)
    return ()


def _owner(view: SlurmView, ran: Ran) -> SlurmView:
    """Who owns the job, and its nodes once more: from columns that hold no free text."""
    try:
        told = rows(ran.text)
    except ValueError:
        return replace(view, notes=(*view.notes, *slurm_says.complaints(ran, said=None)))
    mine = pick.of_job(told, view.asked, view.job)
    owners = {(one.uid, one.user) for one in mine}
    if len(owners) != 1:
        return view
    uid, user = owners.pop()
    held = tuple(dict.fromkeys(node for one in mine for node in one.nodes))
    job = view.job or pick.from_queue(mine)
    if view.job and held and set(held) != set(view.job.nodes):
        told_nodes = f"squeue says {safe(fold(held), 200)}, scontrol another list: squeue's is used"
        job = replace(view.job, nodes=held)
        view = replace(view, notes=(*view.notes, told_nodes), step=None)
    nodes, origin = pick.nodes_of(job, view.step, len(mine))
    parts = pick.het_parts(mine)
    return replace(
        view, job=job, uid=uid, user=user, nodes=nodes, nodes_from=origin, parts=parts
    )  # fmt: skip


def _second_round(
    view: SlurmView, timeout_s: float, env: Mapping[str, str] | None
) -> Mapping[str, Ran]:
    calls: dict[str, tuple[str, ...]] = {}
    if pick.wants_accounting(view.job):
        fields = _sacct_fields(timeout_s, env)
        job = view.job.id if view.job and "[" not in view.job.id else view.asked.job
        calls["sacct"] = ("sacct", "-D", "-P", "-j", job, "-o", ",".join(fields))
    nodes = fold(node for node in view.nodes if is_node_name(node))
    if nodes:
        calls |= _of_nodes(nodes)
    ran = _side_by_side(calls, timeout_s, env)
    if "sacct" not in ran:
        return ran
    past = pick.from_accounting(view.asked, view.job, ran["sacct"].text)
    if not nodes:  # a requeued or forgotten job: only now its nodes are known
        nodes = fold(node for node in past.nodes if is_node_name(node))
        if nodes:
            ran |= _side_by_side(_of_nodes(nodes), timeout_s, env)
        return ran
    lost = set(pick.lost_nodes(view.job, past.runs)) - set(view.nodes)
    if elsewhere := fold(sorted(node for node in lost if is_node_name(node))):
        ran["node"] = _both(ran["node"], _side_by_side({"lost": _show(elsewhere)}, timeout_s, env))
    return ran


def _both(now: Ran, more: Mapping[str, Ran]) -> Ran:
    """The states of the job's nodes, and below them those of the run that it lost."""
    return replace(now, stdout=now.stdout + b"".join(ran.stdout for ran in more.values()))


def _show(nodes: str) -> tuple[str, ...]:
    return ("scontrol", "-o", "show", "node", nodes)


def _of_nodes(nodes: str) -> dict[str, tuple[str, ...]]:
    states = "running,completing,suspended,stopped"
    return {
        "node": _show(nodes),
        "others": ("squeue", "-t", states, "-w", nodes, "-o", FORMAT),
    }


def _sacct_fields(timeout_s: float, env: Mapping[str, str] | None) -> list[str]:
    asked = sacct_probe.COMMAND.rpartition(" ")[2].split(",")
    listed = set(run(("sacct", "-e"), timeout_s, env=env).text.split())
    # the name stays last: it may hold the bar that parts the columns
    return [*asked[:-1], *(name for name in MORE_FIELDS if name in listed), asked[-1]]


def _second_view(view: SlurmView, ran: Mapping[str, Ran]) -> SlurmView:
    if "sacct" in ran:
        view = _with_accounting(view, ran["sacct"])
    if "node" in ran:
        view = _with_nodes(view, ran["node"])
    if "others" in ran:
        view = _with_others(view, ran["others"])
    return view


def _with_accounting(view: SlurmView, ran: Ran) -> SlurmView:
    past = pick.from_accounting(view.asked, view.job, ran.text)
    notes = [*view.notes, *slurm_says.complaints(ran, said=None), *past.notes]
    lasting = past.runs[-1] if past.runs else None
    job = view.job or lasting
    step = view.step or (pick.training_step(job, view.asked.step) if job else None)
    nodes, origin = (view.nodes, view.nodes_from)
    if not nodes:
        nodes, origin = past.nodes, past.nodes_from
    uid, user = view.uid, view.user
    if uid is None and len(past.owners) == 1:
        uid, user = next(iter(past.owners))
    content = past.text.encode() if past.runs else b""
    evidence = _evidence("sacct", ran, content=content)
    return replace(
        view, job=job, runs=past.runs, step=step, nodes=nodes, nodes_from=origin, uid=uid,
        user=user, notes=tuple(notes), evidence=(*view.evidence, evidence),
    )  # fmt: skip


def _with_nodes(view: SlurmView, ran: Ran) -> SlurmView:
    states: tuple[NodeState, ...] = ()
    notes = slurm_says.complaints(ran, said=None)
    try:
        states = node_states(ran.text, 0)
    except ValueError as problem:
        notes = notes or [f"scontrol show node: {safe(str(problem), 120)}"]
    evidence = _evidence("slurm_node", ran, content=ran.stdout)
    return replace(
        view,
        node_states=states,
        notes=(*view.notes, *notes),
        evidence=(*view.evidence, evidence),
    )


def _with_others(view: SlurmView, ran: Ran) -> SlurmView:
    """The jobs that share these nodes; behind PrivateData nobody but an operator sees them."""
    evidence = _evidence(squeue_probe.ID, ran, content=ran.stdout)
    hidden = pick.hides_jobs(view.settings)
    if hidden:
        evidence = replace(evidence, error="denied", stderr=hidden)
    others: dict[str, tuple[Neighbour, ...]] | None = None
    notes = [hidden] if hidden else slurm_says.complaints(ran, said=None)
    try:
        found = rows(ran.text)
        if not hidden:
            others = pick.others(found, view.nodes, view.job)
    except ValueError:
        pass
    return replace(
        view,
        other_jobs=others,
        notes=(*view.notes, *notes),
        evidence=(*view.evidence, evidence),
    )


def _with_logs(view: SlurmView, site: Sequence[str]) -> SlurmView:
    """The job's own output files. Looked for as their owner; as root not at all without one."""
    if view.job is None:
        return view
    told = logpath.patterns(view.job)
    if view.uid is None:
        note = "the job's owner is not known for sure: none of its files was looked at"
        return replace(view, notes=(*view.notes, note))
    found, note = _files((*told, *logpath.of_site(site, view.job)), view.uid)
    if note is None and not found:
        guessed, note = _files(logpath.guesses(view.job), view.uid)
        found = logpath.matches(guessed, view.job)[:20]
        if not found and note is None:
            where = "Slurm names no output file" if not told else f"no file {safe(told[0], 200)}"
            note = f"{where}, and none in WorkDir carries the job's number"
    return replace(view, log_paths=found, notes=(*view.notes, *[note] * bool(note)))


def _files(patterns: Sequence[str], uid: int) -> tuple[tuple[str, ...], str | None]:
    """Files behind the globs; where storage is silent the plain paths, to be tried, and a note."""
    if not patterns:
        return (), None
    found = paths.expand(patterns, uid=uid, timeout_s=PATHS_S)
    if not isinstance(found, paths.Found):
        return found, None
    plain = tuple(one for one in patterns if not re.search(r"[*?\[]", one))
    return plain, f"{safe(found.path, 120)}: {found.error}, {safe(found.says, 120)}"


def _command(ran: Ran) -> str:
    """As it ran, with the zone: that is how a reader knows in which its times are."""
    return "TZ=UTC " + " ".join(_quoted(word) for word in ran.argv)


def _quoted(word: str) -> str:
    return f"'{word}'" if re.search(r"[|%\s]", word) else word


def _evidence(probe: str, ran: Ran, *, content: bytes, command: str = "") -> Evidence:
    """The answer of one command. An empty one is a failure with its words, never silence."""
    error = ran.error
    if error is None and not content.strip():
        error = slurm_says.why_empty(ran)
    kept = content if content.strip() else b""
    return Evidence(
        node=None,
        probe=probe,
        path=f"job/{probe}.txt" if kept else "",
        command=command or _command(ran),
        started_at=datetime.fromtimestamp(time.time() - ran.duration_s, UTC),
        duration_s=round(ran.duration_s, 3),
        exit_code=ran.exit_code,
        error=error,
        stderr=ran.stderr[: 64 << 10],
        size=len(kept),
        open=lambda: kept,
    )
