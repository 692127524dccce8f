"""`sluggish config show`: every setting, and where it came from."""

from typing import Any

from sluggish.config import keys, load, value_of
from sluggish.text import safe


def run() -> int:
    """Print the settings in force."""
    loaded = load()
    width = max(len(key) for key in keys())
    for key in keys():
        value = _shown(value_of(loaded.config, key))
        print(f"{key:<{width}}  {value}  # {safe(loaded.origins[key], 200)}")
    return 0


def _shown(value: Any) -> str:
    if value is None or value == ():
        return "(none)"
    if isinstance(value, bool):
        return "true" if value else "false"
    return safe(", ".join(value) if isinstance(value, tuple) else str(value), 300)
