"""The desync report of TORCH_NCCL_DESYNC_DEBUG: it spans lines and lists ranks in brackets."""

import re
from collections.abc import Iterator

from sluggish.facts.collective import LaggingRanks
from sluggish.loglines.line import Line

# - To our best knowledge, ranks [3] are the lagging ranks that caused this timeout. They never
#   joined any collectives                                          (pytorch TraceUtils.h, 2.4)
_NEVER = re.compile(r"ranks \[(?P<ranks>[\d, ]{1,4000})\] are the lagging ranks")
# - [1, 2] joined but didn't finish collective #5 (count from 1)
_NOT_FINISHED = re.compile(
    r"\[(?P<ranks>[\d, ]{1,4000})\] joined but didn't finish collective #(?P<seq>\d{1,18})"
)
#   [7] finished collective #182, but didn't join collective #183 (count from 1)
_NOT_JOINED = re.compile(
    r"\[(?P<ranks>[\d, ]{1,4000})\] finished collective #\d{1,18}, but didn't join collective "
    r"#(?P<seq>\d{1,18})"
)
# Timeout at collective: ALLREDUCE, #315
_AT = re.compile(r"Timeout at collective: (?P<op>\w{3,40}), #(?P<seq>\d{1,18})")

_FORMS = (
    ("never_joined", _NEVER),
    ("not_joined", _NOT_JOINED),
    ("not_finished", _NOT_FINISHED),
)


def desync_lines(rows: list[Line]) -> Iterator[LaggingRanks]:
    """Ranks that the report calls lagging, each kind once a set of ranks."""
    op: str | None = None
    seen: set[object] = set()
    for line in rows:
        text = line.text[:8000]
        head = _AT.search(text)
        if head:
            op = head["op"].lower()
        if "lagging" not in text and "collective #" not in text:
            continue
        for kind, form in _FORMS:
            for found in form.finditer(text):
                seq = found.groupdict().get("seq")
                ranks = tuple(sorted({int(r) for r in re.findall(r"\d{1,7}", found["ranks"])}))
                if not ranks or (kind, ranks, seq) in seen:
                    continue
                seen.add((kind, ranks, seq))
                yield LaggingRanks(
                    node=line.node,
                    ranks=ranks,
                    kind=kind,
                    reporter=line.rank,
                    seq=int(seq) if seq else None,
                    op=op,
                    at=line.at,
                    order=line.order,
                    line=line.raw[:400],
                )
