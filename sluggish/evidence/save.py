"""save(): a Bundle on disk, as a directory or `.tar.gz`; the same bundle makes the same bytes."""

import gzip
import io
import os
import re
import tarfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from sluggish.evidence.bundle import MANIFEST, FileEntry, Manifest, NodeEntry
from sluggish.evidence.environment import allowed
from sluggish.evidence.model import SCHEMA, Bundle, Evidence
from sluggish.text import is_node_name

_PLAIN = re.compile(r"[a-z0-9_]{1,40}\Z")
BINARY = ("flight_recorder",)
MOST_SAID = 1_000
"""Characters of an error's own words in the manifest."""
_SECRETS: tuple[tuple[re.Pattern[bytes], bytes], ...] = (
    # WANDB_API_KEY=0123...   export HF_TOKEN='hf_...'
    (
        re.compile(
            rb"(\b[A-Z][A-Z0-9_]{0,60}(?:TOKEN|SECRET|PASSWORD|PASSWD|API_KEY|ACCESS_KEY|PRIVATE_KEY)"
            rb"[\"']?[=:] ?[\"']?)[^\s\"']{4,}"
        ),
        rb"\1[redacted]",
    ),
    # well-known shapes: Hugging Face, GitHub, GitLab, AWS, Slack, OpenAI
    (
        re.compile(
            rb"\b(?:hf_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|sk-)[A-Za-z0-9_-]{16,}"
            rb"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
        ),
        b"[redacted]",
    ),
    # https://bucket/x?X-Amz-Signature=...&sig=...
    (
        re.compile(rb"(?i)([?&](?:x-amz-[a-z-]{3,30}|x-goog-[a-z-]{3,30}|sig|signature|token)=)[^&\s\"']+"),
        rb"\1[redacted]",
    ),
    # Authorization: Bearer ...
    (re.compile(rb"(?i)(authorization: *(?:bearer|basic) +)\S+"), rb"\1[redacted]"),
    # https://user:password@host/
    (re.compile(rb"(://[^/\s:@]{1,64}:)[^/\s@]{1,128}(?=@)"), rb"\1[redacted]"),
)  # fmt: skip


def redact(content: bytes) -> bytes:
    """Text without tokens, passwords and signed addresses."""
    for pattern, instead in _SECRETS:
        content = pattern.sub(instead, content)
    return content


def save(bundle: Bundle, path: Path) -> None:
    """Write a bundle: a directory, or an archive where the name ends in `.tar.gz`.

    FileExistsError where something lies there already; OSError where it cannot be written.
    """
    if path.name.endswith((".tar.gz", ".tgz")):
        with (
            open(path, "xb", opener=_private) as out,
            gzip.GzipFile("", "wb", 6, out, mtime=0) as packed,
        ):
            _pack(bundle, packed)
        return
    path.mkdir(parents=True, mode=0o700)
    for name, content, mtime in _files(bundle):
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        if mtime is not None:
            os.utime(file, (mtime.timestamp(), mtime.timestamp()))


def _private(path: str, flags: int) -> int:
    """For the owner alone: a bundle holds slices of logs, which hold anything."""
    return os.open(path, flags, 0o600)


def _pack(bundle: Bundle, packed: gzip.GzipFile) -> None:
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content, mtime in _files(bundle):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mtime = mtime.timestamp() if mtime else 0
            tar.addfile(info, io.BytesIO(content))


def _files(bundle: Bundle) -> Iterator[tuple[str, bytes, datetime | None]]:
    """Name, content, time; the manifest first: half an archive still tells what is missing."""
    names = _names(bundle)
    entries = [
        _entry(evidence, name) for evidence, name in zip(bundle.evidence, names, strict=True)
    ]
    manifest = Manifest(
        schema=SCHEMA,
        tool_version=bundle.tool_version,
        taken_at=bundle.taken_at,
        job_id=bundle.job_id,
        nodes=_nodes(bundle),
        evidence=entries,
    )
    yield MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n", None
    for evidence, name in zip(bundle.evidence, names, strict=True):
        if name is None:
            continue
        content = evidence.open()
        kept = content if evidence.probe in BINARY else redact(content)
        if evidence.probe == "rank_procs":
            kept = allowed(kept)
        yield name, kept, evidence.mtime
        if evidence.stderr:
            yield name.rpartition(".")[0] + ".err", redact(evidence.stderr.encode()), None


def _names(bundle: Bundle) -> list[str | None]:
    """A path for every piece of evidence, made of checked parts only."""
    taken: set[str] = set()
    names: list[str | None] = []
    for evidence in bundle.evidence:
        if (evidence.error and not evidence.size) or not _PLAIN.match(evidence.probe):
            names.append(None)
            continue
        stem = _stem(evidence)
        name = stem + ".txt"
        count = 1
        while name in taken:
            count += 1
            name = f"{stem}.{count}.txt"
        taken.add(name)
        names.append(name)
    return names


def _stem(evidence: Evidence) -> str:
    if evidence.rank is not None:
        return f"ranks/{evidence.probe}.{evidence.rank}"
    sample = f".{evidence.sample}" if evidence.sample in ("a", "b") else ""
    if evidence.node and is_node_name(evidence.node):
        return f"nodes/{evidence.node}/{evidence.probe}{sample}"
    return f"job/{evidence.probe}{sample}"


def _entry(evidence: Evidence, name: str | None) -> FileEntry:
    return FileEntry(
        path=name,
        node=evidence.node,
        probe=evidence.probe,
        sample=evidence.sample,
        rank=evidence.rank,
        command=evidence.command,
        rights=evidence.rights,
        started_at=evidence.started_at,
        duration_s=evidence.duration_s,
        exit_code=evidence.exit_code,
        error=evidence.error,
        says="" if name else _words(evidence.stderr),
    )


def _words(stderr: str) -> str:
    """What was said where no file was left: a line or two for the manifest."""
    return redact(stderr[:MOST_SAID].encode()).decode("utf-8", "replace")


def _nodes(bundle: Bundle) -> list[NodeEntry]:
    clocks = {clock.node: clock for clock in bundle.clocks}
    spoke = {e.node for e in bundle.evidence if e.size}
    silent = {e.node: e for e in bundle.evidence if e.error and e.node not in spoke}
    entries: list[NodeEntry] = []
    for node in bundle.nodes:
        entry = NodeEntry(name=node)
        if node in silent:
            entry.error, entry.says = silent[node].error, _words(silent[node].stderr)
        clock = clocks.get(node)
        if clock:
            entry.clock_offset_s, entry.clock_error_s = clock.offset_s, clock.error_s
            entry.clock_drift_s = clock.drift_s
            entry.now, entry.uptime_s, entry.boot_id = clock.now, clock.uptime_s, clock.boot_id
            entry.utc_offset_s = clock.utc_offset_s
        entries.append(entry)
    return entries
