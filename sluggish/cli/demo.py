"""`sluggish demo [NAME]`: the packaged stories."""

import sys
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from sluggish.causes import EXIT_USAGE
from sluggish.text import safe

if TYPE_CHECKING:
    from sluggish.evidence.model import Bundle

SEED = "seed"
ENDING = ".tar.gz"


def stories() -> list[str]:
    """Names of the packaged stories, the seed story first."""
    names = [
        entry.name.removesuffix(ENDING)
        for entry in files("sluggish.demo").iterdir()
        if entry.name.endswith(ENDING)
    ]
    return sorted(names, key=lambda name: (not name.startswith(SEED), name))


def run(name: str | None, *, list_them: bool, as_json: bool, explain: bool) -> int:
    """Diagnose one packaged story."""
    known = stories()
    if list_them:
        print("\n".join(known))
        return 0
    name = name or next(iter(known), "")
    if name not in known:
        print(
            f"sluggish: no story named {safe(name, 60)}; there are: {', '.join(known) or 'none'}",
            file=sys.stderr,
        )
        return EXIT_USAGE
    from sluggish.cli.diagnose import report

    return report(bundle_of(name), as_json=as_json, explain=explain)


def bundle_of(name: str) -> "Bundle":
    """The evidence of one packaged story."""
    from dataclasses import replace

    from sluggish.evidence.open import load
    from sluggish.probes import PROBES

    with as_file(files("sluggish.demo") / f"{name}{ENDING}") as path:
        return replace(load([str(path)], PROBES), path=f"packaged story {name}")
