"""Reading the package's own YAML files, which lie beside the code with their sources and dates."""

from importlib.resources import files
from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is fifty times faster


def read(name: str, package: str = "sluggish.catalog") -> Any:
    """The objects of one file."""
    text = files(package).joinpath(name).read_text(encoding="utf-8")
    return yaml.load(text, Loader=_LOADER)
