"""anonymize(): a Bundle that may leave the house: names, paths and addresses exchanged, one by one.

The same name becomes the same other name everywhere, so that the diagnosis stays what it was.
What stays: times, numbers, ids of jobs and processes, versions, models, the words of the tools.
Free text of the job's log stays too, but for the names in it. Dumps become their compact form.
"""

from collections.abc import Callable
from dataclasses import replace

from sluggish.evidence.model import Bundle, Clock, Evidence, Unread
from sluggish.evidence.naming_away import Names, collect
from sluggish.evidence.scrub import Scrub

DUMPS = "flight_recorder"


def anonymize(bundle: Bundle, compact: Callable[[Evidence], bytes | None]) -> Bundle:
    """The same look under other names, held in memory.

    `compact` makes the compact form of a flight-recorder dump, whose frames lie in a pickle where
    no text can be exchanged; None where it cannot: that dump is left out and said.
    """
    contents = [_content(item, compact) for item in bundle.evidence]
    names = Names()
    for name in (
        *bundle.nodes,
        *(e.node for e in bundle.evidence),
        *(c.node for c in bundle.clocks),
    ):
        names.host(name)
    for item, content in zip(bundle.evidence, contents, strict=True):
        collect(names, item.probe, (content or b"").decode("latin-1"))
        collect(names, "", f"{item.command or ''}\n{item.stderr}")
    scrub = Scrub(names)
    return replace(
        bundle,
        nodes=tuple(scrub.text(node) for node in bundle.nodes),
        clocks=tuple(_clock(clock, scrub) for clock in bundle.clocks),
        evidence=tuple(
            _evidence(item, content, scrub)
            for item, content in zip(bundle.evidence, contents, strict=True)
        ),
        unread=tuple(Unread(path=scrub.text(one.path), why=one.why) for one in bundle.unread),
    )


def _content(item: Evidence, compact: Callable[[Evidence], bytes | None]) -> bytes | None:
    if not item.size:
        return b""
    return compact(item) if item.probe == DUMPS else item.open()


def _clock(clock: Clock, scrub: Scrub) -> Clock:
    boot = scrub.text(clock.boot_id) if clock.boot_id else clock.boot_id
    return replace(clock, node=scrub.text(clock.node), boot_id=boot)


def _evidence(item: Evidence, content: bytes | None, scrub: Scrub) -> Evidence:
    error, told = item.error, scrub.text(item.stderr)
    if content is None:
        error, told, content = "denied", "left out: this dump has no form without names", b""
    kept = scrub.text(content.decode("latin-1")).encode("latin-1")
    return replace(
        item,
        node=scrub.text(item.node) if item.node else item.node,
        path=scrub.text(item.path),
        command=scrub.text(item.command) if item.command else item.command,
        error=error,
        stderr=told,
        size=len(kept),
        open=lambda: kept,
        window=_window(kept),
        file=None,
    )


def _window(content: bytes) -> Callable[[int, int], bytes]:
    def window(offset: int, length: int) -> bytes:
        return content[offset : offset + length]

    return window
