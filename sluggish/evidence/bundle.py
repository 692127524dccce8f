"""A bundle by its manifest: docs/bundle-format.md describes every key."""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from sluggish.evidence.loose import MAX_WHOLE, WINDOWED, whole_of
from sluggish.evidence.model import SCHEMA, Bundle, Clock, Evidence
from sluggish.evidence.source import EvidenceError, Item

MANIFEST = "manifest.json"
MAX_MANIFEST = 256 << 20
MAX_STDERR = 64 << 10
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
    clock_offset_s: float | None = None
    clock_error_s: float | None = None
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
    manifest: Manifest, items: Mapping[str, Item], where: str, *, damaged: bool = False
) -> Bundle:
    """The Bundle that a manifest and the files by their relative names make.

    `damaged`: the archive ended early, so what is missing was cut off.
    """
    evidence = [_evidence(entry, items, damaged) for entry in manifest.evidence]
    for node in manifest.nodes:
        if node.error:
            told = {entry.probe for entry in manifest.evidence if entry.node == node.name}
            evidence += [
                Evidence(node=node.name, probe=probe, path="", error=node.error)
                for probe in NODE_PROBES
                if probe not in told
            ]
    return Bundle(
        schema=manifest.schema,
        tool_version=manifest.tool_version,
        job_id=manifest.job_id,
        taken_at=_utc(manifest.taken_at),
        nodes=tuple(dict.fromkeys(node.name for node in manifest.nodes)),
        clocks=tuple(_clock(node) for node in manifest.nodes),
        evidence=tuple(evidence),
        path=where,
    )


def _evidence(entry: FileEntry, items: Mapping[str, Item], damaged: bool) -> Evidence:
    item = items.get(entry.path or "")
    error, told = entry.error, ""
    if entry.path and item is None and not error:
        error = "truncated" if damaged else "not found"
        told = "the archive ends before it" if damaged else "the manifest names it, it is missing"
    if item is not None:
        err = items.get(stderr_name(item.name))
        told = err.read(0, MAX_STDERR).decode("utf-8", "replace") if err else ""
        if item.truncated or (item.size > MAX_WHOLE and entry.probe not in WINDOWED):
            error = error or "truncated"
    return Evidence(
        node=entry.node,
        probe=entry.probe,
        path=entry.path or "",
        sample=entry.sample,
        rank=entry.rank,
        command=entry.command,
        rights=entry.rights,
        started_at=_utc(entry.started_at),
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


def stderr_name(name: str) -> str:
    stem, dot, _ = name.rpartition(".")
    return f"{stem if dot else name}.err"


def _clock(node: NodeEntry) -> Clock:
    return Clock(
        node=node.name,
        offset_s=node.clock_offset_s,
        error_s=node.clock_error_s,
        now=_utc(node.now),
        uptime_s=node.uptime_s,
        boot_id=node.boot_id,
        utc_offset_s=node.utc_offset_s,
    )


def _utc(at: datetime | None) -> datetime | None:
    """A time without a zone is UTC by the format."""
    if at is None:
        return None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
