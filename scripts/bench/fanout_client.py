"""What fanout.py runs in the lab: our fan-out with a given script; an answer's lines as clush's.

fanout_client.py FAN_OUT SCRIPT_FILE NAME...
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from sluggish.reach.fanout import ask_all
from sluggish.reach.model import Frame, Progress
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


def tell(event: Progress) -> None:
    """As clush does: every line with the node's name in front, as soon as a node is done."""
    if event.frame:
        lines = event.frame.content.decode("utf-8", "replace").splitlines()
        sys.stdout.write("".join(f"{event.node}: {line}\n" for line in lines))
        sys.stdout.flush()


def main() -> None:
    fan_out, script, names = int(sys.argv[1]), Path(sys.argv[2]).read_bytes(), sys.argv[3:]
    way = SshTransport()
    answers = ask_all(
        names, lambda _: script, way, frames=Whole, workers=fan_out,
        deadline_s=120, overall_s=300, on_event=tell,
    )  # fmt: skip
    way.close()
    for answer in answers:
        if answer.failure:
            print(f"{answer.node}: {answer.failure}: {answer.says}", file=sys.stderr)


if __name__ == "__main__":
    main()
