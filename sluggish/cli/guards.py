"""The commands before, during and after a run: preflight, watch, history."""

from pathlib import Path
from typing import Annotated

import typer

from sluggish.cli.options import Cloud, Sudo, Way


def preflight(
    counts: Annotated[
        Path | None,
        typer.Option(
            "--counts",
            metavar="FILE",
            help="How many blocks each rank has: CSV, JSON, .npy, Arrow.",
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset", metavar="GLOB", help="The ranks' files, counted: 'shards/rank_*.jsonl'."
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size",
            min=1,
            max=10**9,
            metavar="B",
            help="Blocks of one rank in one forward pass. Needed by --counts and --dataset.",
        ),
    ] = None,
    grad_accum: Annotated[
        int,
        typer.Option(
            "--grad-accum",
            min=1,
            max=10**9,
            metavar="A",
            help="Forward passes in one step of the optimizer.",
        ),
    ] = 1,
    drop_last: Annotated[
        bool,
        typer.Option("--drop-last", help="As DataLoader's: an unfinished batch is left out."),
    ] = False,
    script: Annotated[
        Path | None,
        typer.Option(
            "--script",
            metavar="FILE",
            help="A batch script: what it does when a rank dies. Not run.",
        ),
    ] = None,
    nodes: Annotated[
        str | None, typer.Option("--nodes", metavar="LIST", help="Look at nodes: gpu[01-16].")
    ] = None,
    job: Annotated[
        str | None, typer.Option("--job", metavar="ID", help="At the nodes of this Slurm job.")
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="At this node alone: for a prolog or health check.")
    ] = False,
    hardware_only: Annotated[
        bool, typer.Option("--hardware-only", help="Of nodes: exit 40 for failed hardware alone.")
    ] = False,
    transport: Way = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON document.")] = False,
) -> None:
    """Tell before the start whether a job is fit to run: steps, launch, nodes. Exit 40: not."""
    asked = (counts, dataset, script, nodes, job, local or None)
    if sum(one is not None for one in asked) != 1:
        words = "--counts FILE, --dataset GLOB, --script FILE, --nodes LIST, --job ID, --local"
        raise typer.BadParameter(f"give one of {words}")
    at_nodes = nodes is not None or job is not None or local
    if not at_nodes and (hardware_only or transport is not None):
        raise typer.BadParameter("--hardware-only and --transport go with --nodes, --job, --local")
    if local and transport is not None:
        raise typer.BadParameter("--local takes no --transport: it asks nobody else")
    of_steps = batch_size is not None or grad_accum != 1 or drop_last
    if of_steps and (at_nodes or script is not None):
        raise typer.BadParameter(
            "--batch-size, --grad-accum and --drop-last go with --counts or --dataset"
        )
    if at_nodes:
        from sluggish.cli.preflight_nodes import run_nodes
        from sluggish.config import load

        code = run_nodes(
            nodes=nodes, job=job, here=local, config=load().config, transport=transport,
            as_json=as_json, hardware_only=hardware_only,
        )  # fmt: skip
        raise typer.Exit(code)
    from sluggish.cli.preflight import run_counts, run_script
    from sluggish.preflight.counts import Plan

    if script is not None:
        raise typer.Exit(run_script(script, as_json=as_json))
    if batch_size is None:
        raise typer.BadParameter("--batch-size is needed: blocks become steps by it")
    plan = Plan(batch_size=batch_size, grad_accum=grad_accum, drop_last=drop_last)
    raise typer.Exit(run_counts(counts, dataset, plan, as_json=as_json))


def history(
    node: Annotated[
        str | None, typer.Option("--node", metavar="NODE", help="One node: every job it was in.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="From then on: 12h, 7d, 4w or a date (UTC)."),
    ] = None,
    db: Annotated[
        Path | None, typer.Option("--db", metavar="PATH", help="This ledger, not the site's.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON document.")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="As a table: a row a look or alert.")
    ] = False,
) -> None:
    """Tell which nodes come back and what each cause cost, from the looks of this site."""
    from sluggish.cli.history import run
    from sluggish.config import load

    config = load().config
    code = run(config, db=db, node=node, since=since, as_json=as_json, as_csv=as_csv)
    raise typer.Exit(code)


def watch(
    job: Annotated[
        list[str] | None,
        typer.Option("--job", metavar="ID", help="Follow this job; may be given several times."),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="Follow this user's jobs.")] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", help="Follow the jobs of this partition.")
    ] = None,
    interval: Annotated[
        int, typer.Option("--interval", min=1, max=60, metavar="S", help="Seconds between samples.")
    ] = 5,
    notice: Annotated[
        float, typer.Option("--notice", min=4, max=3600, metavar="S", help="Quiet before it says.")
    ] = 120.0,
    alert: Annotated[
        float, typer.Option("--alert", min=4, max=86400, metavar="S", help="Before it alarms.")
    ] = 300.0,
    execute: Annotated[
        str | None, typer.Option("--exec", metavar="CMD", help="Run on an alert; JSON on stdin.")
    ] = None,
    webhook: Annotated[
        str | None, typer.Option("--webhook", metavar="URL", help="Post JSON there on an alert.")
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option("--prometheus", metavar="URL", help="DCGM's metrics instead of sessions."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Events as lines of JSON.")] = False,
    cloud: Cloud = False,
    transport: Way = None,
    sudo: Sudo = False,
) -> None:
    """Follow jobs from outside; look at once where one stalls. Changes nothing."""
    from sluggish.cli.watch import order, run
    from sluggish.config import load

    if not (job or user or partition):
        raise typer.BadParameter("give --job ID, --user NAME or --partition NAME")
    wanted = order(
        jobs=job or (), user=user, partition=partition, transport=transport, interval=interval,
        notice=notice, alert=alert, execute=execute, webhook=webhook, as_json=as_json, cloud=cloud,
        sudo=sudo, prometheus=prometheus,
    )  # fmt: skip
    raise typer.Exit(run(wanted, load().config))
