"""The cheapest next look where the cause is not proved: never a guess instead."""

from sluggish.causes import Cause, Level, Phase
from sluggish.verdict.case import Case
from sluggish.verdict.model import Confidence

BY_SUBTYPE = {
    "all_joined": "compare port counters twice, 10 s apart, and NCCL's library versions over the "
    "nodes: every rank joined, so the transport or the library is next",
    "shutdown_hang": "py-spy dump of one rank: training is done, the teardown hangs",
    "start_up_hang": "NCCL_DEBUG=INFO at the next start; now: ps and py-spy dump on every node",
    "unobserved": "collect what is missing first: the job's nodes were not all seen",
    "hang": "ask NCCL RAS twice, 30 s apart: printf 'verbose status\\n' | nc localhost 28028 on "
    "one node",
    "no_evidence": "give the job's log and the kernel log of its nodes",
}


def next_probe(cause: Cause, subtype: str | None, sure: Confidence, case: Case) -> str | None:
    """One sentence, or None where the verdict is sure."""
    if cause in (Cause.PROGRESSING, Cause.NOT_RUNNING) or sure.level is Level.HIGH:
        return None
    if cause is Cause.UNKNOWN:
        return _of_unknown(subtype, case)
    if subtype == "tie":
        return "the stacks of both sides (py-spy dump): they differ one against one"
    if cause in (Cause.CONFIG, Cause.APP_CRASH, Cause.MEMORY):
        return "the log lines before the first error, on the rank that printed it"
    if case.phase.phase in (Phase.START_UP, Phase.UNKNOWN) and cause is Cause.RANK_DESYNC:
        return "on the node of the missing rank: does its process live (ps), what did it print last"
    if case.wait is None or not case.wait.observed:
        return "flight-recorder dumps or NCCL RAS would show which rank the others wait for"
    if case.wait.unobserved:
        ranks = ", ".join(str(r) for r in case.wait.unobserved[:4])
        return f"the state of rank {ranks}: is its process alive (ps), what does it do (py-spy)?"
    return "the probes under 'not checked' on the culprit's node"


def _of_unknown(subtype: str | None, case: Case) -> str:
    roots = case.wait.roots if case.wait else ()
    if roots:
        ranks = ", ".join(str(root.rank) for root in roots[:4])
        return f"py-spy dump of rank {ranks}: the others wait for it"
    if subtype == "hang" and case.facts.answered.get("nccl_ras"):
        return "py-spy dump on every rank: the smallest group of equal stacks is the suspect"
    return BY_SUBTYPE.get(subtype or "", BY_SUBTYPE["no_evidence"])
