"""What fanout.py runs in the lab: our fan-out with a given script; an answer's lines as clush's.

fanout_client.py FAN_OUT SESSIONS SCRIPT_FILE NAME...; SESSIONS is `many`, as in a look, where a
node that samples for its window holds up nobody else, or `few`: at most FAN_OUT, as clush has.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from sluggish.reach.fanout import ask_all
from sluggish.reach.model import Answer, Frame, Progress
from sluggish.reach.ssh import SshTransport


class Whole:
    """A parser for which a node's whole answer is one frame."""

    def __init__(self) -> None:
        self.ended = False
        self.noise = b""
        self._text = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        self._text += data
        self.ended = b"the-end-of " in self._text
        yield from ()

    def close(self) -> tuple[Frame, ...]:
        return (Frame(probe="all", content=self._text),)


class Few(SshTransport):
    """Says of no connection that it stands: its slot is free when the node is done."""

    def run(
        self,
        node: str,
        script: bytes,
        deadline_s: float,
        sink: Callable[[bytes], None],
        on_connect: Callable[[], None],
    ) -> Answer:
        return super().run(node, script, deadline_s, sink, lambda: None)


def tell(event: Progress) -> None:
    """As clush does: every line with the node's name in front, as soon as a node is done."""
    if event.frame:
        lines = event.frame.content.decode("utf-8", "replace").splitlines()
        sys.stdout.write("".join(f"{event.node}: {line}\n" for line in lines))
        sys.stdout.flush()


def main() -> None:
    fan_out, sessions, file, *names = sys.argv[1:]
    script = Path(file).read_bytes()
    way = Few() if sessions == "few" else SshTransport()
    answers = ask_all(
        names, lambda _: script, way, frames=Whole, workers=int(fan_out),
        deadline_s=120, overall_s=300, on_event=tell,
    )  # fmt: skip
    way.close()
    for answer in answers:
        if answer.failure:
            print(f"{answer.node}: {answer.failure}: {answer.says}", file=sys.stderr)


if __name__ == "__main__":
    main()
