"""The JSON Schema of the diagnosis, made from the types that write it."""

import json
from typing import Any

import msgspec

from sluggish.report.json import SCHEMA, Document


def schema() -> dict[str, Any]:
    """JSON Schema 2020-12: closed objects, every key required, closed enums."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"sluggish diagnosis, schema {SCHEMA}",
    }
    return head | msgspec.json.schema(Document)


def page() -> str:
    """The text of docs/diagnosis.schema.json."""
    return json.dumps(schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
