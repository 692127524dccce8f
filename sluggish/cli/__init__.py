"""The command line: a thin translation; each command imports what it needs when it runs."""

import errno
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""A disk that takes no more of a report."""

app = typer.Typer(
    name="sluggish",
    help="Why has this multi-node GPU training job under Slurm stopped?",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: rich takes twice as long to load as all the rest
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from sluggish import __version__

        print(f"sluggish {__version__}")
        raise typer.Exit


@app.callback()
def _common(  # pyright: ignore[reportUnusedFunction]
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


Job = Annotated[str, typer.Option("--job", metavar="ID", help="Slurm's job id, also 123_4, 123+0.")]
Way = Annotated[
    str | None,
    typer.Option("--transport", help="auto, ssh, openssh, srun or local.", metavar="WAY"),
]
Window = Annotated[
    float | None,
    typer.Option("--window", min=0, max=600, metavar="S", help="Seconds between samples."),
]
Cloud = Annotated[
    bool,
    typer.Option("--cloud", help="The nodes are a provider's instances: given back, not reset."),
]
Sudo = Annotated[bool, typer.Option("--sudo", help="Read the kernel log through sudo -n.")]
Poke = Annotated[
    bool, typer.Option("--poke", help="Also what touches the job: recorder pipes, py-spy, RAS.")
]


@app.command()
def diagnose(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH...", help="Bundles, archives, loose files, folders."),
    ] = None,
    job: Annotated[
        str | None, typer.Option("--job", metavar="ID", help="Look at this Slurm job now.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on stdout instead of the screen.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also print the path through the decision tree.")
    ] = False,
    cloud: Cloud = False,
    transport: Way = None,
    window: Window = None,
    sudo: Sudo = False,
    poke: Poke = False,
) -> None:
    """Name the cause, of a job or out of recorded evidence, and what to run next.

    Probes only read; the commands are printed, not run.
    """
    from sluggish.cli.diagnose import run, run_live

    if bool(paths) == bool(job):
        raise typer.BadParameter("give either --job ID or the PATHs of recorded evidence")
    if job:
        from sluggish.cli.live import wish
        from sluggish.config import load

        config = load().config
        wanted = wish(job, config, transport=transport, window_s=window, sudo=sudo, poke=poke)
        code = run_live(wanted, config, as_json=as_json, explain=explain, cloud=cloud)
    else:
        code = run(paths or [], as_json=as_json, explain=explain, cloud=cloud)
    raise typer.Exit(code)


@app.command()
def collect(
    job: Job,
    out: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The bundle, FILE.tar.gz.")
    ],
    anonymize: Annotated[
        bool, typer.Option("--anonymize", help="Hosts, users and paths under other names.")
    ] = False,
    transport: Way = None,
    window: Window = None,
    sudo: Sudo = False,
    poke: Poke = False,
) -> None:
    """Save the evidence of a job as a bundle, to be diagnosed anywhere. Changes nothing."""
    from sluggish.cli.collect import run
    from sluggish.cli.live import wish
    from sluggish.config import load

    config = load().config
    wanted = wish(job, config, transport=transport, window_s=window, sudo=sudo, poke=poke)
    raise typer.Exit(run(wanted, out, config, anonymous=anonymize))


@app.command()
def ranks(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Dumps, RAS answers, logs, stacks, bundles."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON document.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="One row a rank and group.")] = False,
) -> None:
    """Tell which rank the others wait for, from what the collectives left behind."""
    from sluggish.cli.ranks import run

    raise typer.Exit(run(paths, as_json=as_json, as_csv=as_csv))


@app.command()
def demo(
    name: Annotated[
        str | None, typer.Argument(help="Which story; the seed story without it.")
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the packaged stories.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="With the path.")] = False,
) -> None:
    """Diagnose a packaged story: see a verdict without a cluster."""
    from sluggish.cli.demo import run

    raise typer.Exit(run(name, list_them=list_them, as_json=as_json, explain=explain))


@app.command()
def explain(
    topic: Annotated[
        str, typer.Argument(help="A rule id (GPU-XID), an Xid (79) or a kernel line.")
    ],
) -> None:
    """Explain a rule of the report, an Xid or an SXid."""
    from sluggish.cli.explain import run

    raise typer.Exit(run(topic))


@app.command()
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


@app.command()
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


@app.command()
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


settings = typer.Typer(help="The site's settings.", no_args_is_help=True)
app.add_typer(settings, name="config")


@settings.command("show")
def config_show() -> None:
    """Print every setting and where it came from: file, variable or default."""
    from sluggish.cli.config import run

    raise typer.Exit(run())


@settings.callback()
def _settings() -> None:  # pyright: ignore[reportUnusedFunction]
    pass


def main() -> None:
    """Entry point: a user's mistake is one line and exit 2, never a traceback."""
    from sluggish.causes import EXIT_USAGE

    if sys.__stdout__ is None:  # `>&-`
        _complain("stdout is closed: there is nowhere to print to")
        sys.exit(EXIT_USAGE)
    try:
        app(prog_name="sluggish")  # also by `python -m sluggish`
    except BrokenPipeError:  # `sluggish diagnose ... | head`
        _silence_stdout()
        sys.exit(1)
    except KeyboardInterrupt:
        _complain("stopped")
        sys.exit(130)
    except MemoryError:
        _complain("out of memory: give it fewer files at once")
        sys.exit(1)
    except OSError as problem:
        if problem.errno not in FULL:
            raise
        _silence_stdout()
        _complain(f"cannot print: {problem.strerror}")
        sys.exit(1)
    except ValueError as problem:
        from sluggish.evidence.source import EvidenceError

        if not isinstance(problem, EvidenceError):
            raise
        from sluggish.text import safe

        _complain(safe(str(problem)))
        sys.exit(EXIT_USAGE)


def _complain(what: str) -> None:
    if sys.__stderr__ is not None:
        print(f"sluggish: {what}", file=sys.stderr)


def _silence_stdout() -> None:
    """What is still buffered goes nowhere, so that the interpreter's last flush cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
