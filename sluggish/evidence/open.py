"""load(): paths -> Bundle, whatever they are; text_of(): the edge where bytes become text."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType

from sluggish.evidence.archive import is_archive, is_packed, unpack
from sluggish.evidence.bundle import (
    MANIFEST,
    MAX_MANIFEST,
    bundle_of,
    manifest_of,
    stderr_name,
)
from sluggish.evidence.decode import decode
from sluggish.evidence.loose import WINDOWED, Seen, assemble, look_at
from sluggish.evidence.model import Bundle, Evidence, Unread
from sluggish.evidence.source import EvidenceError, Item, file_item, folder_items, unreadable
from sluggish.text import safe

MAX_BUNDLES = 1_000
"""Each costs a walk over all files beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Files that belong together: a folder, a bundle, an archive, one file."""

    items: tuple[Item, ...]
    where: str
    unread: tuple[Unread, ...] = ()
    archive: bool = False


def load(paths: Sequence[str], probes: Sequence[ModuleType]) -> Bundle:
    """Any mix of bundle directories, bundle archives, loose files and folders as one Bundle.

    Raises EvidenceError in one line where a path does not exist, a bundle is of a newer format,
    or two bundles are of different jobs.
    """
    bundles: list[Bundle] = []
    seen: list[Seen] = []
    unread: list[Unread] = []
    for path in _distinct(paths):
        for group in _groups(path):
            bundle, rest = _split(group)
            if bundle:
                bundles.append(bundle)
            more, why = look_at(rest, probes)
            seen += more
            unread += (*group.unread, *why)
    whole = _join(bundles) if bundles else Bundle(loose=True)
    loose, copies = assemble(seen, whole.nodes)
    nodes = dict.fromkeys((*whole.nodes, *sorted({e.node for e in loose if e.node})))
    return replace(
        whole,
        nodes=tuple(nodes),
        evidence=whole.evidence + tuple(loose),
        unread=(*unread, *copies),
        path=", ".join(paths),
    )


def _distinct(paths: Sequence[str]) -> list[str]:
    kept: dict[str, str] = {}
    for path in paths:
        kept.setdefault(os.path.realpath(path), path)
    return list(kept.values())


def _groups(path: str) -> list[Group]:
    """What lies at a path, in groups that may each be a bundle."""
    if os.path.isdir(path):
        return _folder(path)
    if not os.path.lexists(path):
        raise EvidenceError(f"{_shown(path)}: no such file or folder")
    one = file_item(path)
    if isinstance(one, Unread):
        raise EvidenceError(f"{_shown(path)}: {one.why}")
    packed = _packed(one)
    if isinstance(packed, Unread):
        raise EvidenceError(f"{_shown(path)}: {packed.why}")
    return _archive_groups(unpack(one), path) if packed else [_group([one], path)]


def _packed(item: Item) -> bool | Unread:
    """Whether a file is an archive or zipped; Unread where not even its beginning can be read."""
    try:
        return is_packed(item)
    except OSError as problem:
        return unreadable(item.name, problem)


def _shown(path: str) -> str:
    """The end of a long path tells more, and leaves room for what is wrong with it."""
    return path if len(path) <= 200 else f"…{path[-199:]}"


def _folder(path: str) -> list[Group]:
    plain: list[Item | Unread] = []
    groups: list[Group] = []
    for item in folder_items(path):
        packed = item if isinstance(item, Unread) else _packed(item)
        if isinstance(item, Unread) or isinstance(packed, Unread) or not packed:
            plain.append(packed if isinstance(packed, Unread) else item)
            continue
        inside = unpack(item)
        if is_archive(item):
            groups += _archive_groups(inside, os.path.join(path, item.name))
        else:
            plain += inside
    return _by_manifest(plain, path, archive=False) + groups


def _archive_groups(found: Sequence[Item | Unread], path: str) -> list[Group]:
    plain: list[Item | Unread] = []
    for one in found:
        plain += unpack(one) if isinstance(one, Item) and is_packed(one) else [one]
    return _by_manifest(plain, path, archive=True)


def _by_manifest(found: Sequence[Item | Unread], path: str, *, archive: bool) -> list[Group]:
    """The folders that hold a manifest, each a group of its own, then what lies outside them."""
    items = [one for one in found if isinstance(one, Item)]
    unread = [one for one in found if isinstance(one, Unread)]
    tops = sorted(
        item.name.removesuffix(MANIFEST)
        for item in items
        if item.name == MANIFEST or item.name.endswith("/" + MANIFEST)
    )
    if len(tops) > MAX_BUNDLES:
        raise EvidenceError(f"{_shown(path)}: more than {MAX_BUNDLES} bundles in one place")
    groups: list[Group] = []
    for top in tops:
        inside = [item for item in items if item.name.startswith(top)]
        items = [item for item in items if not item.name.startswith(top)]
        named = [replace(item, name=item.name.removeprefix(top)) for item in inside]
        gone = [replace(one, path=one.path[len(top) :]) for one in unread
                if one.path.startswith(top)]  # fmt: skip
        unread = [one for one in unread if not one.path.startswith(top)]
        where = os.path.join(path, top.rstrip("/")) if top and not archive else path
        groups.append(_group([*named, *gone], where, archive=archive))
    base = os.path.basename(os.path.abspath(path))
    rest = [
        replace(item, name=f"{base}/{item.name}") if item.name != base else item for item in items
    ]
    return [*groups, _group([*rest, *unread], path, archive=archive)]


def _group(found: Sequence[Item | Unread], where: str, *, archive: bool = False) -> Group:
    return Group(
        items=tuple(one for one in found if isinstance(one, Item)),
        unread=tuple(one for one in found if isinstance(one, Unread)),
        where=where,
        archive=archive,
    )


def _split(group: Group) -> tuple[Bundle | None, list[Item | Unread]]:
    """The group as a bundle with the files that its manifest does not name, or as loose files."""
    items = {item.name: item for item in group.items}
    found = items.get(MANIFEST)
    if found is None:
        return None, list(group.items)
    try:
        manifest = manifest_of(found.read(0, min(found.size, MAX_MANIFEST)), group.where)
    except OSError as problem:
        manifest = unreadable(MANIFEST, problem).why
    if isinstance(manifest, str):
        rest = [item for item in group.items if item is not found]
        return None, [*rest, Unread(path=found.name, why=manifest)]
    damaged = group.archive and not all(
        entry.path in items for entry in manifest.evidence if entry.path and not entry.error
    )
    refused = {gone.path: gone.why for gone in group.unread}
    named = {entry.path for entry in manifest.evidence if entry.path}
    named |= {stderr_name(name) for name in named} | {MANIFEST}
    rest = [item for item in group.items if item.name not in named]
    made = bundle_of(manifest, items, group.where, damaged=damaged, refused=refused)
    return made, list(rest)


def _join(bundles: Sequence[Bundle]) -> Bundle:
    jobs = sorted({bundle.job_id for bundle in bundles if bundle.job_id})
    if len(jobs) > 1:
        raise EvidenceError(
            f"bundles of different jobs: {', '.join(safe(job, 40) for job in jobs)}"
        )
    first = max(bundles, key=_age)
    clocks = {clock.node: clock for bundle in (*bundles, first) for clock in bundle.clocks}
    return replace(
        first,
        nodes=tuple(dict.fromkeys(node for bundle in bundles for node in bundle.nodes)),
        clocks=tuple(clocks.values()),
        evidence=tuple(_best(sorted(bundles, key=_age))),
    )


def _age(bundle: Bundle) -> tuple[float, str]:
    return (bundle.taken_at.timestamp() if bundle.taken_at else 0.0, bundle.path)


def _best(bundles: Sequence[Bundle]) -> Iterator[Evidence]:
    """Of several looks each question's best answer: whole before broken, then the newest.

    A question is one probe of one node with all its samples: a delta over two looks is none.
    """
    asked: dict[tuple[object, ...], list[list[Evidence]]] = {}
    for bundle in bundles:
        here: dict[tuple[object, ...], list[Evidence]] = {}
        for item in bundle.evidence:
            where = item.command if item.node is None and item.rank is None else None
            here.setdefault((item.node, item.probe, item.rank, where), []).append(item)
        for question, answer in here.items():
            asked.setdefault(question, []).append(answer)
    for answers in asked.values():
        yield from max(reversed(answers), key=_worth)


def _worth(answer: list[Evidence]) -> tuple[bool, bool]:
    return not any(item.error for item in answer), any(item.size for item in answer)


def text_of(evidence: Evidence, probe: ModuleType) -> str | bytes:
    """What the probe's `parse` wants: bytes, or the decoded text.

    A log may be larger than memory: beyond `WHOLE` bytes its probe gets head, tail and the regions
    of its `NEEDLES` (`AHEAD` gives those that need more behind them).
    """
    if getattr(probe, "BINARY", False):
        return evidence.open()
    small = evidence.size <= getattr(probe, "WHOLE", 0)
    if probe.ID not in WINDOWED or evidence.window is None or small:
        return decode(evidence.open())
    from sluggish.evidence.logscan import excerpt  # the scanner takes as long to load as a log
    from sluggish.evidence.logsource import window_source

    source = window_source(evidence.window, evidence.size)
    limits = {"each": probe.EACH} if hasattr(probe, "EACH") else {}
    needles = [each if isinstance(each, bytes) else each.encode() for each in probe.NEEDLES]
    return excerpt(source, needles, ahead=probe.AHEAD, **limits).text
