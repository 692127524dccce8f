"""Runs inside a lab, on its login node: asks nodes as told in JSON on stdin, tells in JSON.

Input: a list of rounds, all begun at once: {name, nodes, transport: {kind, ...}, script, workers,
rate, deadline_s, overall_s, frames}. Output: {name: {wall_s, answers, frames, bytes, threads}}.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from sluggish.reach.fanout import ask_all
from sluggish.reach.frames import Frames
from sluggish.reach.local import local
from sluggish.reach.model import Frame, Progress, Transport
from sluggish.reach.openssh import DEFAULT, OpenSshTransport
from sluggish.reach.srun import NoWay, srun
from sluggish.reach.ssh import SshTransport

END = b"<the end>\n"


class Raw:
    """A parser for scripts that frame nothing: all bytes are counted, a few are kept."""

    def __init__(self, boundary: str = "") -> None:
        self._frames = Frames(boundary) if boundary else None
        self.ended = False
        self.noise = b""
        self.count = 0
        self.first = b""
        self._last = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        self.count += len(data)
        self.first = (self.first + data)[:200].removesuffix(END)
        self._last = (self._last + data)[-len(END) :]
        self.ended = self._last == END
        if self._frames:
            yield from self._frames.feed(data)
            self.ended = self._frames.ended
            self.noise = self._frames.noise

    def close(self) -> tuple[Frame, ...]:
        return self._frames.close() if self._frames else ()


def transport(told: dict) -> Transport:
    kind = told.pop("kind", "ssh")
    if kind == "ssh":
        told["known_hosts"] = [Path(file) for file in told.get("known_hosts", [])]
        return SshTransport(**told)
    if kind == "openssh":
        return OpenSshTransport(template=told.get("template", DEFAULT))
    if kind == "local":
        return local()
    step = srun(told["job"], told["uid"])
    if isinstance(step, NoWay):
        raise SystemExit(step.why)
    return step


def one(told: dict, out: dict) -> None:
    parsers: list[Raw] = []
    kinds: list[str] = []
    frames: dict[str, list[str]] = {}

    def parser() -> Raw:
        made = Raw(told.get("boundary", ""))
        parsers.append(made)
        return made

    def note(event: Progress) -> None:
        kinds.append(event.kind)
        if event.frame:
            frames.setdefault(event.node, []).append(event.frame.probe)

    script = told.get("script", "hostname")
    if not told.get("boundary"):
        script += f"\necho '{END.decode().strip()}'\n"
    began = time.monotonic()
    way = transport(told.get("transport", {}))
    answers = ask_all(
        told["nodes"],
        lambda _node: script.encode(),
        way,
        frames=parser,
        workers=told.get("workers", 32),
        rate=told.get("rate"),
        deadline_s=told.get("deadline_s", 10),
        overall_s=told.get("overall_s", 30),
        on_event=note,
    )
    wall = time.monotonic() - began
    way.close()
    out[told["name"]] = {
        "wall_s": wall,
        "answers": [asdict(answer) for answer in answers],
        "bytes": [parser.count - len(END) * parser.ended for parser in parsers],
        "first": [parser.first.decode("latin-1") for parser in parsers],
        "frames": frames,
        "kinds": kinds,
        "threads": threading.active_count(),
    }


def main() -> None:
    rounds = json.load(sys.stdin)
    out: dict = {}
    threads = [threading.Thread(target=one, args=(told, out)) for told in rounds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    json.dump(out, sys.stdout)
    sys.stdout.flush()
    if os.environ.get("HARD_EXIT"):
        os._exit(0)


if __name__ == "__main__":
    main()
