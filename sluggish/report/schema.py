"""The JSON Schema of the diagnosis, made from the types that write it."""

import json
from typing import Any

import msgspec

from sluggish.report import ranks
from sluggish.report.json import SCHEMA, Document


def schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of `diagnose`: closed objects, every key required, closed enums."""
    return _head(f"sluggish diagnosis, schema {SCHEMA}") | msgspec.json.schema(Document)


def ranks_schema() -> dict[str, Any]:
    """The same of `ranks`."""
    return _head(f"sluggish ranks, schema {ranks.SCHEMA}") | msgspec.json.schema(
        ranks.RanksDocument
    )


def described(title: str, document: Any) -> dict[str, Any]:
    """The same of any type that msgspec writes: it leaves no key out, so each is required."""
    told = _head(title) | msgspec.json.schema(document)
    for each in told["$defs"].values():
        if each.get("type") == "object":
            each |= {"additionalProperties": False, "required": sorted(each["properties"])}
            for key in each["properties"].values():
                key.pop("default", None)
    return told


def _head(title: str) -> dict[str, Any]:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}


def page(of: dict[str, Any] | None = None) -> str:
    """The text of docs/diagnosis.schema.json, or of another schema."""
    return json.dumps(of or schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
