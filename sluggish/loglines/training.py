"""The training loop's own words: steps, epochs, checkpoints, evaluation, the end of data."""

import re
from collections.abc import Iterable, Iterator

from sluggish.facts.log import Progress
from sluggish.loglines import steps
from sluggish.loglines.line import Line

NEEDLES: tuple[bytes, ...] = (
    b"aving checkpoint", b"aving model checkpoint", b"aving the checkpoint", b"aved checkpoint",
    b"heckpoint saved", b"saved checkpoint", b"raining completed", b"raining finished",
    b"raining done", b"training is done", b"xhausted", b"StopIteration", b"train_runtime",
    b"Running Evaluation", b"valuation finished", b"Trainer.fit` stopped",
)  # fmt: skip
"""Rare lines only: step lines are seen in the head and the tail of a big log."""

_STEP_WORDS = ("step", "iter", "epoch", "batch", "ep ", "%|", "'loss'")
_MARK_WORDS = (
    "training", "xhausted", "stopiteration", "out of data", "out of batches", "out of samples",
    "no more", "end of", "epoch", "checkpoint", "ckpt", "saving", "saved", "wrote", "writing",
    "evaluat", "validation", "eval_", "eval ", "val loss", "init_process_group",
    "torch distributed", "program at iteration", "all steps", "fit` stopped",
)  # fmt: skip
"""Cheap to look for in lower case: most lines of a log hold none of them."""
_END_WORDS = ("done", "finish", "complete", "end", "over", "left", "leaving")
_NO_LOOP = (
    "Error", "Traceback", "Watchdog", "NCCL ", "failed", "exitcode", "Exception", "Warning: ",
    "slurmstepd", "srun: ",
)  # fmt: skip
"""Lines with these speak of something else, also where they name a step or a checkpoint."""

# bars and lines that move but are not the training loop
_NOT_TRAINING = re.compile(
    r"^\W{0,4}(?:load|map|filter|download|tokeniz|generat|fetch|upload|extract|resolv|creat"
    r"|process|pack|group|saving|shards|make_exp|compil|captur|prefetch|sanity|build|convert"
    r"|prepar|cache|caching|reading|casting|flatten)",
    re.IGNORECASE,
)
_EVAL_BAR = re.compile(r"^\W{0,4}(?:eval|valid|test|predict)", re.IGNORECASE)
# train - INFO - eval batch 240/2048        [eval] step 3/10       validation iter 5 of 9
_EVAL_STEP = re.compile(
    r"(?:^|[-|:\]] ?)\W{0,4}(?:eval\w{0,6}|valid\w{0,6}|val|test\w{0,3}|predict\w{0,3})\b"
    r"|\b(?:eval|evaluation|validation|val|test)[ _-](?:step|batch|iter)"
)

_DONE = re.compile(
    r"\btraining (?:is |has )?(?:done|finished|completed?|ended)\b(?! step)"
    r"|'train_runtime'|`trainer\.fit` stopped|exiting program at iteration"
    r"|\ball (?:epochs|steps) (?:done|finished|completed)",
)
_EXHAUSTED = re.compile(
    r"\bdata ?(?:loader|set|iterator|iter)?\b.{0,30}\bexhausted"
    r"|\bran out of (?:data|batches|samples)|\bno more (?:data|batches|samples)"
    r"|\bend of (?:data|dataset|dataloader|shard)\b"
    r"|^\s*stopiteration\b",
)
# epoch 35 finished after 1193 steps    epoch 35 done at step 1193/1200    end of epoch 35
_EPOCH_END = re.compile(
    r"\bepoch[ :=#]{0,3}(?P<e1>\d{1,7})\b[^\d\n]{0,30}\b(?:done|finished|completed?|ended|ends|end"
    r"|over|left)\b(?P<rest1>.{0,80})"
    r"|\b(?:end of|finished|completed|ended|leaving) epoch[ :=#]{0,3}(?P<e2>\d{1,7})\b"
    r"(?P<rest2>.{0,80})",
)
_AT_STEP = re.compile(
    r"\b(?:step|iter(?:ation)?|batch)[ :=#]{0,8}(?P<s1>\d{1,12})(?: ?(?:/|of) ?(?P<t1>\d{1,12}))?"
    r"|\b(?:after )?(?P<s2>\d{1,12})(?: ?(?:/|of) ?(?P<t2>\d{1,12}))? (?:steps|iter|batches)",
)
_SAVE_END = re.compile(
    r"\b(?:successfully |finished )?(?:saved|wrote)\b.{0,80}\b(?:checkpoint|ckpt|state)"
    r"|\bfinished saving\b|\b(?:checkpoint|ckpt)\b.{0,80}"
    r"\b(?:saved|written|done|completed?|finished|is ready)\b",
)
_SAVE_START = re.compile(
    r"\b(?:saving|writing)\b.{0,60}\b(?:checkpoint|ckpt|model|state|weights)\b"
    r"|\b(?:checkpoint|ckpt)\b.{0,40}\b(?:started|starting|starts|begins?)\b"
    r"|\[torch\] saving ",
)
_NOT_SAVE = re.compile(
    r"\bload|\bresum|\brestor|\bskip|will be|would|every \d|dir(?:ectory)?\b"
    r"|\bif\b|\bwhen\b|not found|default"
)
_EVAL_END = re.compile(
    r"\b(?:evaluation|validation|eval)\b.{0,20}\b(?:done|finished|completed?|took|ended)\b"
    r"|'eval_(?:loss|runtime)'|\bvalidation loss at iteration\b|\bval loss [\d.]",
)
_EVAL_START = re.compile(
    r"\b(?:running|starting|start|begin|beginning|entering) (?:evaluation|validation|eval)\b"
    r"|\bevaluating\b|\b(?:evaluation|validation) (?:starts|started|begins)\b",
)
_INIT = re.compile(
    r"\*{3,5} running training|\b(?:starting|start|begin|beginning) training\b"
    r"|\btraining starts\b|\binitializing torch distributed\b|\binit_process_group\b"
    r"|before the start of training step",
)
_EPOCH_NUMBER = re.compile(r"\bepoch[ :=#\[]{0,3}(\d{1,7})\b")
_HF_EPOCH = re.compile(r"'epoch': '?(?P<epoch>[\d.]{1,20})")
_TEXT_RANK = re.compile(r"\brank[ =:_]{0,2}(?P<rank>\d{1,6})\b", re.IGNORECASE)


def parse(lines: Iterable[Line]) -> Iterator[Progress]:
    """One Progress a line that shows where the loop is. Never from an error's text."""
    for line in lines:
        text = line.text
        lower = text.lower()
        steppy = any(word in lower for word in _STEP_WORDS)
        marked = any(word in lower for word in _MARK_WORDS)
        if not (steppy or marked) or _speaks_of_else(text):
            continue
        if found := _of(text, lower, marked=marked):
            kind, numbers = found
            yield _fact(line, kind, numbers)


def _speaks_of_else(text: str) -> bool:
    start = text.lstrip()[:14]
    if start.startswith("StopIteration"):
        return False
    if start.startswith(("File ", "warn", "+ ")) or text.count(" --") > 1:  # code, a command line
        return True
    return any(word in text for word in _NO_LOOP)


def _of(text: str, lower: str, *, marked: bool) -> tuple[str, steps.Step] | None:
    if marked and (kind := _mark(text, lower)):
        return kind, _numbers(text, kind)
    if numbers := steps.bar(text):
        if _NOT_TRAINING.match(text):
            return "bar", numbers
        return ("evaluation" if _EVAL_BAR.match(text) else "step"), numbers
    if _NOT_TRAINING.match(text):
        return None
    if "'loss'" in text and text.lstrip().startswith("{"):
        return "step", _hf(text)
    if numbers := steps.step(lower):
        return ("evaluation" if _EVAL_STEP.search(lower) else "step"), numbers
    return None


def _mark(text: str, lower: str) -> str | None:
    """The kind of a line that is not a step; ends before starts, they hold the same words."""
    if len(text) > 1_000 or "%|" in text:
        return None
    ends = any(word in lower for word in _END_WORDS)
    if _DONE.search(lower):
        return "training_done"
    if _EXHAUSTED.search(lower):
        return "data_exhausted"
    if ends and "epoch" in lower and _EPOCH_END.search(lower):
        return "epoch_end"
    return _saving(lower) or _evaluating(lower) or ("init" if _INIT.search(lower) else None)


def _saving(lower: str) -> str | None:
    if not any(word in lower for word in ("sav", "checkpoint", "ckpt", "writing", "wrote")):
        return None
    if _NOT_SAVE.search(lower):
        return None
    if _SAVE_END.search(lower):
        return "checkpoint_end"
    return "checkpoint_start" if _SAVE_START.search(lower) else None


def _evaluating(lower: str) -> str | None:
    if "eval" not in lower and "val" not in lower:
        return None
    if _EVAL_END.search(lower):
        return "evaluation_end"
    return "evaluation_start" if _EVAL_START.search(lower) else None


def _numbers(text: str, kind: str) -> steps.Step:
    text = text.lower()
    if kind == "epoch_end" and (found := _EPOCH_END.search(text)):
        rest = found["rest1"] or found["rest2"] or ""
        at = _AT_STEP.search(rest) or _AT_STEP.search(text[: found.start()])
        step = int(at["s1"] or at["s2"]) if at else None
        total = (at["t1"] or at["t2"]) if at else None
        epoch = int(found["e1"] or found["e2"])
        return steps.Step(step, int(total) if total else None, epoch, None, None)
    at = _AT_STEP.search(text)
    step = int(at["s1"] or at["s2"]) if at else None
    epoch = _EPOCH_NUMBER.search(text)
    return steps.Step(step, None, int(epoch[1]) if epoch else None, None, None)


def _hf(text: str) -> steps.Step:
    """Transformers' Trainer prints a dict without the step, with a broken epoch."""
    found = _HF_EPOCH.search(text)
    epoch = steps.number(found["epoch"]) if found else None
    plain = steps.step("step 0 " + text.lower())
    return steps.Step(
        None, None, int(epoch) if epoch is not None else None, None, plain.loss if plain else None
    )


def _fact(line: Line, kind: str, numbers: steps.Step) -> Progress:
    rank = line.rank
    if rank is None and (found := _TEXT_RANK.search(line.text[:80])):
        rank = int(found["rank"])
    return Progress(
        node=line.node, rank=rank, at=line.at, step=numbers.step, total_steps=numbers.total,
        epoch=numbers.epoch, step_time_s=numbers.time_s, loss=numbers.loss, kind=kind,
        line=line.raw, order=line.order,
    )  # fmt: skip
