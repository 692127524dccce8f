"""`sluggish preflight --nodes LIST | --job ID | --local`: the node probes before a start."""

import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sluggish.cli.notes import Notes
from sluggish.cli.screen import look_of, show
from sluggish.cli.way import known_way, way_to
from sluggish.config import Config
from sluggish.diagnose import gather
from sluggish.evidence.model import Evidence
from sluggish.evidence.source import EvidenceError
from sluggish.hostlist import expand, fold
from sluggish.preflight import nodes_report
from sluggish.preflight.fitness import judge
from sluggish.preflight.node_setup import ID as SETUP
from sluggish.preflight.nodes_report import Checked
from sluggish.probes import PROBES
from sluggish.reach import slurm
from sluggish.reach.collect import Limits, Look, ask_round
from sluggish.reach.local import local
from sluggish.reach.model import Ask, Progress, Transport
from sluggish.reach.pick import job_id
from sluggish.text import is_node_name, safe

ASKED = ("identity", "kernel_log", "nvidia_smi", "gpu_bus", "ib_ports", "memory", "mounts", SETUP)
STARTED = ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """Which nodes are asked, and on whose behalf."""

    nodes: tuple[str, ...]
    job: str | None = None
    """Slurm's raw job number: its own processes are no leftovers."""
    uid: int | None = None
    running: bool = False
    gpus: int | None = None
    """GPUs that the job has on each node."""
    here: bool = False
    """This machine alone, without a network."""


def run_nodes(
    *,
    nodes: str | None,
    job: str | None,
    here: bool,
    config: Config,
    transport: str | None,
    as_json: bool,
    hardware_only: bool,
) -> int:
    """Print a verdict a node; 40 where one is unfit."""
    began = time.monotonic()
    notes = Notes()
    who = _who(nodes, job, here)
    way = local()
    if not who.here:
        name = known_way(transport or config.transport)
        way = way_to(name, who.nodes, config, notes, job=who.job, uid=who.uid, running=who.running)
    with tempfile.TemporaryDirectory(prefix="sluggish-") as folder:
        look = Look(folder=Path(folder), nodes=who.nodes, job=who.job)
        if not who.here:  # a prolog asks no Slurm command: slurmctld may wait for it
            look.add([slurm.node_records(who.nodes)])
        _ask(look, who, way, config, notes)
        probes = _probes()
        facts = gather(look.bundle(probes, datetime.now(UTC)), probes)
    checked = Checked(
        found=judge(facts, who.nodes, job=who.job, gpus=who.gpus),
        took_s=time.monotonic() - began,
        hardware_only=hardware_only,
    )
    if as_json:
        show(nodes_report.document(checked))
    else:
        show(nodes_report.render(checked, look_of(sys.stdout)))
    return checked.exit_code


def _probes():
    from sluggish.preflight import node_setup

    return (*PROBES, node_setup)


def _who(nodes: str | None, job: str | None, here: bool) -> Who:
    if here:
        given = os.environ.get("SLURM_JOB_GPUS", "")  # set in a prolog: `0,1,2,3`
        return Who(
            nodes=(_this_node(),),
            job=_raw(os.environ.get("SLURM_JOB_ID")),
            gpus=len(given.split(",")) if re.fullmatch(r"\d{1,3}(,\d{1,3})*", given) else None,
            here=True,
        )
    if nodes is not None:
        return Who(nodes=_listed(nodes))
    try:
        view = slurm.look(job_id(job or ""))
    except ValueError as problem:
        raise EvidenceError(str(problem)) from None
    if not view.nodes:
        state = view.job.state if view.job else None
        why = f"it is {state}" if state else "; ".join(view.notes[:1]) or "Slurm knows no such job"
        raise EvidenceError(f"job {job}: no nodes yet ({safe(why, 200)}): give --nodes LIST")
    known = view.job
    return Who(
        nodes=view.nodes,
        job=_raw(known.raw_id or known.id) if known else None,
        uid=view.uid,
        running=bool(known and known.state in STARTED),
        gpus=known.gpus_per_node if known else None,
    )


def _this_node() -> str:
    """As Slurm calls it, where slurmd says so; else the host name without its domain."""
    name = os.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
    if not is_node_name(name):
        raise EvidenceError(f"{safe(name, 60)}: this machine's name is no host name")
    return name


def _raw(job: str | None) -> str | None:
    return job if job and job.isascii() and job.isdigit() else None


def _listed(text: str) -> tuple[str, ...]:
    try:
        names = tuple(dict.fromkeys(expand(text)))
    except ValueError as problem:
        raise EvidenceError(f"--nodes {safe(text, 60)}: {problem}") from None
    if not names:
        raise EvidenceError("--nodes: it names no node")
    bad = next((name for name in names if not is_node_name(name)), None)
    if bad is not None:
        raise EvidenceError(f"--nodes {safe(text, 60)}: {safe(bad, 60)} is no name of a node")
    return names


def _ask(look: Look, who: Who, way: Transport, config: Config, notes: Notes) -> None:
    ask = Ask(
        job=who.job, uid=who.uid, probes=ASKED, window_s=0.0, probe_s=config.probe_s,
        sudo=config.sudo,
    )  # fmt: skip
    limits = Limits(
        workers=config.ssh.workers, connect_rate=config.ssh.rate, overall_s=config.deadline_s
    )
    notes.total = len(who.nodes)
    if not who.here:
        notes.say(f"asking {len(who.nodes)} nodes ({fold(who.nodes)}) over {way.name}")

    def tell(event: Progress, made: Evidence | None) -> None:
        if not who.here:
            notes.of_node(event, None, look.clocks.get(event.node))

    try:
        ask_round(look, who.nodes, lambda _: ask, way, _probes(), limits, tell)
    finally:
        way.close()
