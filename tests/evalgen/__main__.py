"""`python -m evalgen OUTDIR [NAME...]`: write stories as OUTDIR/NAME/{bundle/,expected.json}."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from .bundle import write
from .stories import STORIES


def main(argv: list[str]) -> int:
    if not argv or argv[0].startswith("-"):
        print(f"{__doc__}\n\nstories: {' '.join(STORIES)}")
        return 2
    root, names = Path(argv[0]), argv[1:] or list(STORIES)
    unknown = [n for n in names if n not in STORIES]
    if unknown:
        print(f"no such story: {' '.join(unknown)}; there are: {' '.join(STORIES)}")
        return 2
    for name in names:
        world, expected = STORIES[name]()
        target = root / name
        shutil.rmtree(target / "bundle", ignore_errors=True)
        write(world, target / "bundle")
        document = json.dumps(expected.document(world), indent=1)
        (target / "expected.json").write_text(document + "\n")
        print(f"{target}: {expected.cause}/{expected.subtype}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
