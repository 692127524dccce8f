"""Pure: one remark on a launch script, and how its settings are read."""

import re
from dataclasses import dataclass

from sluggish.preflight.shell import Script, Setting
from sluggish.text import safe

ON = ("1", "true", "yes", "y", "t", "on")
OFF = ("0", "false", "no", "n", "f", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One thing that is wrong with the launch, and what to write instead."""

    unfit: bool
    """True: a fault will cost the allocation. False: it costs speed, or the evidence."""
    line: int | None
    """None: it is missing."""
    says: str
    better: tuple[str, ...] = ()
    """Corrected lines; empty: the line goes."""


def of_setting(
    setting: Setting, says: str, *, unfit: bool = False, better: tuple[str, ...] = ()
) -> Note:
    """A remark on a setting that is there."""
    told = f"{setting.name}={safe(setting.value, 60)}"
    return Note(unfit=unfit, line=setting.line, says=f"{told}: {says}", better=better)


def is_one_of(setting: Setting, words: tuple[str, ...]) -> bool:
    """Whether it is written as one of these, in whatever case."""
    return setting.value.strip().lower() in words


def number(setting: Setting) -> float | None:
    """Its value where that is a plain number."""
    value = setting.value.strip()
    return float(value) if re.match(r"\d{1,9}\Z", value) else None


def line_of(script: Script, match: re.Match[str]) -> int:
    """The line of a match in the script's text."""
    return script.text.count("\n", 0, match.start()) + 1


def span(seconds: float) -> str:
    """`30 s`, `10 min`, `2 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.3g} h"
