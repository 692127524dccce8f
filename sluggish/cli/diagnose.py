"""`sluggish diagnose PATH...`: recorded evidence in, verdict out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sluggish.causes import EXIT_CODES, EXIT_NOTHING
from sluggish.cli.reading import mapper
from sluggish.cli.screen import look_of, show
from sluggish.config import Config
from sluggish.config import load as settings
from sluggish.evidence.model import Bundle
from sluggish.text import safe

if TYPE_CHECKING:
    from sluggish.cli.live import Wanted
    from sluggish.verdict.model import Diagnosis


def run(
    paths: Sequence[str], *, as_json: bool = False, explain: bool = False, cloud: bool = False
) -> int:
    """Print the diagnosis of what lies at these paths; the exit code tells the class."""
    bundle = _loaded(paths)
    if not any(item.size for item in bundle.evidence):
        nothing(bundle)
        if not as_json:
            return EXIT_NOTHING
    return report(bundle, as_json=as_json, explain=explain, cloud=cloud)


def run_live(wanted: Wanted, config: Config, *, as_json: bool, explain: bool, cloud: bool) -> int:
    """Look at a job on its cluster, keep the evidence, print what the saved bundle says."""
    from sluggish.cli.collect import STOPPED, collected
    from sluggish.cli.history import remember

    kept = collected(wanted, config)
    if kept is None:
        return EXIT_NOTHING
    bundle = _loaded([str(kept.path)])

    def then(diagnosis: Diagnosis) -> None:
        remember(diagnosis, config, wanted.job.job, kept.silent)

    code = report(bundle, as_json=as_json, explain=explain, cloud=cloud, config=config, then=then)
    return STOPPED if kept.taken.stopped else code


def report(
    bundle: Bundle,
    *,
    as_json: bool,
    explain: bool,
    cloud: bool = False,
    config: Config | None = None,
    then: Callable[[Diagnosis], None] | None = None,
) -> int:
    """Print the diagnosis of a bundle; `then` sees it afterwards, also where nobody reads on."""
    from sluggish.diagnose import diagnose

    config = config or settings().config
    cloud = cloud or config.cloud
    diagnosis = diagnose(bundle, mapper(), cloud=cloud, reason=config.reason_template)
    try:
        if as_json:
            from sluggish.report.json import render

            show(render(diagnosis))
        else:
            from sluggish.report import terminal

            show(terminal.render(diagnosis, look_of(sys.stdout), explain=explain))
    finally:
        if then is not None:
            then(diagnosis)
    if not any(item.size for item in bundle.evidence):
        return EXIT_NOTHING
    return EXIT_CODES[diagnosis.verdict.cause]


def _loaded(paths: Sequence[str]) -> Bundle:
    from sluggish.evidence.open import load
    from sluggish.probes import PROBES

    return load(paths, PROBES)


def nothing(bundle: Bundle, what: str = "nothing here could be recognised as evidence") -> None:
    """Say on stderr that there is nothing to go by, and which files were not read."""
    print(f"sluggish: {what}", file=sys.stderr)
    for gone in bundle.unread[:10]:
        print(f"  {safe(gone.path, 200)}: {safe(gone.why, 200)}", file=sys.stderr)
    if len(bundle.unread) > 10:
        print(f"  and {len(bundle.unread) - 10} more", file=sys.stderr)
