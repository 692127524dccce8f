"""`squeue -o '%i|%A|%U|%u|%T|%N'`: ids, owners and nodes, in columns that no user can forge.

A job's name is free text and may imitate the fields of `scontrol show job`; none of these columns
can hold a blank or a bar.
"""

from sluggish.job import Neighbour
from sluggish.slurmtext.fields import nodes, number, word

FORMAT = "%i|%A|%U|%u|%T|%N"
HEADER = ["JOBID", "JOBID", "UID", "USER", "STATE", "NODELIST"]


def rows(text: str) -> tuple[Neighbour, ...]:
    """One a row; none below the header is legal. Raises ValueError without the header."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # behind `CLUSTER: name`, where a site has several
    at = next((n for n, line in enumerate(lines) if _cells(line) == HEADER), None)
    if at is None:
        raise ValueError(f"expected squeue's header line {'|'.join(HEADER)}")
    return tuple(_row(line) for line in lines[at + 1 :])


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def _row(line: str) -> Neighbour:
    cells = _cells(line)
    if len(cells) != len(HEADER):
        raise ValueError(f"expected {len(HEADER)} columns as in the header, found {len(cells)}")
    shown, raw, uid, user, state, held = cells
    if not raw.isascii() or not raw.isdigit():
        raise ValueError("expected a job number in the second column")
    return Neighbour(
        id=shown, raw_id=raw, uid=number(uid), user=word(user), state=state, nodes=nodes(held)
    )
