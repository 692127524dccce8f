"""A bundle by its manifest: docs/bundle-format.md describes every key."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from sluggish.evidence.loose import MAX_WHOLE, WINDOWED, whole_of
from sluggish.evidence.model import SCHEMA, Bundle, Clock, Evidence
from sluggish.evidence.source import EvidenceError, Item, sane

MANIFEST = "manifest.json"
MAX_MANIFEST = 64 << 20
"""Twenty thousand nodes and ranks are 10 MB."""
MAX_STDERR = 64 << 10
MAX_SECONDS = 4e9
"""More than a century of uptime or of clock error is no measurement."""
MAX_ZONE = 26 * 3600
MAX_RANK = 1 << 20
NODE_PROBES = (
    "identity",
    "kernel_log",
    "nvidia_smi",
    "gpu_samples",
    "gpu_bus",
    "ibstat",
    "ib_ports",
    "ib_counters",
    "rank_procs",
    "memory",
    "mounts",
)
"""What every node is asked: a node without any answer is blind in all of it."""


class NodeEntry(msgspec.Struct, kw_only=True):
    """One node that was asked."""

    name: str
    error: str | None = None
    says: str = ""
    clock_offset_s: float | None = None
    clock_error_s: float | None = None
    clock_drift_s: float | None = None
    now: datetime | None = None
    uptime_s: float | None = None
    boot_id: str | None = None
    utc_offset_s: int = 0


class FileEntry(msgspec.Struct, kw_only=True):
    """One file, or a probe that left none."""

    path: str | None = None
    node: str | None = None
    probe: str
    sample: str = ""
    rank: int | None = None
    command: str | None = None
    rights: str | None = None
    started_at: datetime | None = None
    duration_s: float | None = None
    exit_code: int | None = None
    error: str | None = None
    says: str = ""


class Manifest(msgspec.Struct, kw_only=True):
    """manifest.json."""

    schema: int
    tool_version: str = ""
    taken_at: datetime | None = None
    job_id: str | None = None
    nodes: list[NodeEntry] = []
    evidence: list[FileEntry] = []


class _Number(msgspec.Struct):
    schema: int


def manifest_of(content: bytes, where: str) -> Manifest | str:
    """The manifest, or why it is none: the files beside it are loose then.

    A newer format raises EvidenceError before any other key is looked at.
    """
    try:
        number = msgspec.json.decode(content, type=_Number).schema
        if number > SCHEMA:
            raise EvidenceError(
                f"{where}: bundle format {number} is newer than this version reads ({SCHEMA}): "
                "update sluggish"
            )
        return msgspec.json.decode(content, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as problem:
        return f"not a readable manifest ({problem}): the files beside it are read as loose files"


def bundle_of(
    manifest: Manifest,
    items: Mapping[str, Item],
    where: str,
    *,
    damaged: bool = False,
    refused: Mapping[str, str] | None = None,
) -> Bundle:
    """The Bundle that a manifest and the files by their relative names make.

    `damaged`: the archive ended early, so what is missing was cut off. `refused`: files and
    folders that are there and could not be read, with the reason.
    """
    evidence = [_evidence(entry, items, damaged, refused or {}) for entry in manifest.evidence]
    for node in manifest.nodes:
        if node.error:
            told = {entry.probe for entry in manifest.evidence if entry.node == node.name}
            evidence += [
                Evidence(node=node.name, probe=probe, path="", error=node.error, stderr=node.says)
                for probe in NODE_PROBES
                if probe not in told
            ]
    return Bundle(
        schema=manifest.schema,
        tool_version=manifest.tool_version,
        job_id=manifest.job_id,
        taken_at=sane(manifest.taken_at),
        nodes=tuple(dict.fromkeys(node.name for node in manifest.nodes)),
        clocks=tuple(_clock(node) for node in manifest.nodes),
        evidence=tuple(evidence),
        path=where,
    )


def _evidence(
    entry: FileEntry, items: Mapping[str, Item], damaged: bool, refused: Mapping[str, str]
) -> Evidence:
    item = items.get(entry.path or "")
    error, told = entry.error, entry.says
    if entry.path and item is None and not error:
        error, told = _missing(entry.path, damaged, refused)
    if item is not None:
        err = items.get(stderr_name(item.name))
        told = _stderr(err) if err else told
        if item.truncated or (item.size > MAX_WHOLE and entry.probe not in WINDOWED):
            error = error or "truncated"
    return Evidence(
        node=entry.node,
        probe=entry.probe,
        path=entry.path or "",
        sample=entry.sample,
        rank=entry.rank if entry.rank is not None and 0 <= entry.rank < MAX_RANK else None,
        command=entry.command,
        rights=entry.rights,
        started_at=sane(entry.started_at),
        duration_s=entry.duration_s,
        exit_code=entry.exit_code,
        error=error,
        stderr=told,
        size=item.size if item else 0,
        open=whole_of(item) if item else bytes,
        file=item.file if item else None,
        mtime=item.mtime if item else None,
        window=item.read if item else None,
    )


def _stderr(item: Item) -> str:
    try:
        return item.read(0, MAX_STDERR).decode("utf-8", "replace")
    except OSError as problem:
        return f"its stderr is not readable: {problem.strerror or problem}"


def _missing(path: str, damaged: bool, refused: Mapping[str, str]) -> tuple[str, str]:
    """Error and reason of a file that the manifest names and that was not read."""
    if refused:
        parts = path.split("/")
        places = ("/".join(parts[:end]) for end in range(len(parts), 0, -1))
        why = next((refused[place] for place in places if place in refused), None)
        if why is not None:
            return "denied", why.removeprefix("not readable: ")
    if damaged:
        return "truncated", "the archive ends before it"
    return "not found", "the manifest names it, it is missing"


def stderr_name(name: str) -> str:
    stem, dot, _ = name.rpartition(".")
    return f"{stem if dot else name}.err"


def _clock(node: NodeEntry) -> Clock:
    return Clock(
        node=node.name,
        offset_s=_sound(node.clock_offset_s),
        error_s=_sound(node.clock_error_s),
        drift_s=_sound(node.clock_drift_s),
        now=sane(node.now),
        uptime_s=_sound(node.uptime_s) if (node.uptime_s or 0) >= 0 else None,
        boot_id=node.boot_id,
        utc_offset_s=node.utc_offset_s if abs(node.utc_offset_s) <= MAX_ZONE else 0,
    )


def _sound(seconds: float | None) -> float | None:
    return seconds if seconds is not None and abs(seconds) <= MAX_SECONDS else None
