"""The command line: a thin translation; each command imports what it needs when it runs."""

import errno
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from sluggish.cli import guards
from sluggish.cli.options import Cloud, Job, Poke, Sudo, Way, Window

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


for guard in (guards.preflight, guards.history, guards.watch):
    app.command()(guard)


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
    from sluggish.cli.interrupt import wait_for_imports

    wait_for_imports()
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
