"""The answer to `--counts` and `--dataset`, for people and for scripts."""

from collections.abc import Iterator

from sluggish.causes import EXIT_UNFIT
from sluggish.preflight.counts import Evenness, even_when_dropped, fewest, many, most, who
from sluggish.preflight.documents import LONG, CountsDocument, RankDoc, written
from sluggish.preflight.screen import block, finished, steps, wrapped
from sluggish.report.terminal import Look
from sluggish.text import safe

SHOWN = 3
"""Groups of ranks at each end of the table; who is in the middle decides nothing."""
UNSEEN_PCT = 1.0
"""A spread below this is lost in the noise of every graph."""
ADVICE = (
    "take the fewest on every rank, in the training code before the loop:",
    (
        "from sluggish.preflight import agree_on_steps",
        "steps = agree_on_steps(len(loader))       # all-reduce MIN over all ranks",
        "for batch in itertools.islice(loader, steps):",
    ),
)


def render(answer: Evenness, look: Look) -> str:
    """The screen."""
    return finished(_lines(answer, look), look)


def _lines(answer: Evenness, look: Look) -> Iterator[str]:
    plan, counted = answer.plan, answer.counted
    title = [
        f"sluggish preflight  {safe(counted.source, 60)}  {many(len(counted.blocks), 'rank')}",
        f"{many(plan.batch_size, 'block')} a batch",
    ]
    title += [f"{plan.grad_accum:,} batches a step"] * (plan.grad_accum > 1)
    title += ["drop-last" if plan.drop_last else "last partial batch kept"]
    yield from wrapped("", "  ".join(title), look)
    yield ""
    yield from block("FIT" if answer.fit else "NOT FIT", [answer.says()], look)
    yield from block("BLOCKS", [_spread(answer)], look)
    if not answer.even:
        yield from block("STEPS", _table(answer), look)
        yield from block("THEN", [_then(answer)], look)
    if counted.how:
        yield from block("COUNTED", [counted.how], look)
    if not answer.even:
        yield ""
        yield "DO THIS"
        yield from steps(_advice(answer), look)
    yield ""
    yield f" exit {0 if answer.fit else EXIT_UNFIT}   docs/preflight.md"


def _spread(answer: Evenness) -> str:
    low, who_low = fewest(answer)
    high, who_high = most(answer)
    if low == high:
        return f"{low:,} on every rank"
    says = f"{low:,} on {who(who_low)} to {high:,} on {who(who_high)}: "
    says += f"a spread of {answer.spread_pct:.2f} %"
    if answer.even:
        return f"{says}, within the last batch"
    return says + (", which no other metric shows" if answer.spread_pct < UNSEEN_PCT else "")


def _table(answer: Evenness) -> list[str]:
    rows = [f"{count:,}  {who(ranks)}" for count, ranks in answer.ranks_by_steps().items()]
    if len(rows) <= 2 * SHOWN + 1:
        return rows
    between = len(rows) - 2 * SHOWN
    return [*rows[:SHOWN], f"... {between} more counts between ...", *rows[-SHOWN:]]


def _then(answer: Evenness) -> str:
    least, ranks = next(iter(answer.ranks_by_steps().items()))
    waiting = len(answer.steps) - len(ranks)
    if not waiting:
        return "the ranks with fewer batches go on alone to what follows the epoch"
    waits = f"{waiting} ranks wait" if waiting > 1 else "one rank waits"
    goes = "go" if len(ranks) > 1 else "goes"
    return (
        f"after step {least:,} {who(ranks)} {goes} on to what follows the epoch (checkpoint, "
        f"evaluation, barrier) while {waits} in step {least + 1:,}: GPUs at 100 %, no progress, "
        "until a watchdog ends the job; what was not saved by then is lost"
    )


def _advice(answer: Evenness) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield ADVICE
    low, _ = fewest(answer)
    cut = f"cut all to {low:,} blocks, or " if low else ""
    yield (
        f"or give every rank as much: {cut}pad the short ones (PyTorch's "
        "DistributedSampler does it; a sharded iterable dataset does not)",
        (),
    )
    if even_when_dropped(answer):
        yield ("drop_last=True alone makes these ranks even; the next data set may need more", ())
    yield ("PyTorch's Join covers neither FSDP nor a barrier of your own", ())


def document(answer: Evenness) -> str:
    """The same as one JSON document; docs/preflight.schema.json describes it."""
    counted, plan = answer.counted, answer.plan
    of_ranks = zip(counted.blocks, answer.batches, answer.steps, strict=True)
    return written(
        CountsDocument(
            fit=answer.fit,
            exit_code=0 if answer.fit else EXIT_UNFIT,
            says=answer.says(),
            source=safe(counted.source, LONG),
            how=counted.how,
            batch_size=plan.batch_size,
            grad_accum=plan.grad_accum,
            drop_last=plan.drop_last,
            gap_steps=answer.gap,
            spread_pct=round(answer.spread_pct, 4),
            ranks=[
                RankDoc(rank=rank, blocks=blocks, batches=batches, steps=steps)
                for rank, (blocks, batches, steps) in enumerate(of_ranks)
            ],
        )
    )
