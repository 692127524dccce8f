"""The numbers of one step line: step, total, epoch, time of a step, loss."""

import re
from dataclasses import dataclass

# epoch 35 step 1193/1200    iter 83592:    step: 10    step=10,    Step [100/1000]
# iteration      100/    1000 |    [batch=100/1000]    ep 27 train, step 37    global_step: 100
_STEP = re.compile(
    r"\b(?:global[_ ]?step|micro_step|train_step|step|iteration|iter|batch|it)s?\b"
    r"[\"']?\s{0,3}[:=#]?\s{0,8}[\[(]?\s{0,8}(?P<step>\d{1,12})\b"
    r"(?:\s{0,8}(?:/|of)\s{0,8}(?P<total>\d{1,12})\b)?",
)
# Epoch: [3][ 100/1000]      Epoch(train)  [1][ 100/1000]     epoch 001:    100 / 1000 loss=...
_EPOCH_STEP = re.compile(
    r"\bepoch\b[^\d\n]{0,12}(?P<epoch>\d{1,7})[\]:]\s{0,3}\[?\s{0,8}(?P<step>\d{1,12})"
    r"\s{0,3}/\s{0,8}(?P<total>\d{1,12})\b",
)
_EPOCH = re.compile(r"\b(?:epoch|ep)\b[\"']?[ :=#\[(]{0,4}(?P<epoch>\d{1,7})\b")
# 45%|####      | 450/1000 [02:30<03:03,  3.00it/s, v_num=0, loss=2.3]
_BAR = re.compile(
    r"\d{1,3}%\|[^|]{0,400}\| ?(?P<step>\d{1,12})/(?P<total>\d{1,12}) "
    r"\[(?P<elapsed>[\d:]{1,20})<[^,\]]{1,30}(?:, *(?P<rate>[\d.]{1,20}|\?) ?(?P<unit>s/it|it/s))?"
)
_LOSS = re.compile(
    r"\b(?:lm |train[_ ]|total[_ ]|reduced_train_)?loss\b[\"']?(?: train)?\s{0,3}[:=]?\s{0,3}"
    r"[\"']?(?P<loss>\d{1,12}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?|nan|inf)\b",
)
_MILLISECONDS = re.compile(
    r"elapsed time per iteration \(ms\): ?(?P<a>[\d.]{1,20})"
    r"|\b(?:iter |step[_ ])?(?:time|dt)[:= ]{1,3}(?P<b>[\d.]{1,20}) ?ms\b"
    r"|(?P<c>[\d.]{1,20}) ?ms/(?:step|it|iter|iteration|batch)\b",
)
_SECONDS = re.compile(
    r"(?P<a>[\d.]{1,20}) ?(?:s|sec|secs|seconds)/(?:step|it|iter|iteration|batch)\b"
    r"|train_step_timing in s: ?(?P<b>[\d.]{1,20})"
    r"|\b(?:step|iter|iteration|batch)[_ ]time[:= ]{1,3}(?P<c>[\d.]{1,20}) ?(?:s\b|sec|\Z|[,|\s])"
    r"|\btime[:=] ?(?P<d>[\d.]{1,20})(?:s\b|\s|\Z|,)",
)
_RATE = re.compile(r"(?P<a>[\d.]{1,20}) ?(?:it|iter|steps|batches)/s(?:ec)?\b")
_TRAINING_WORD = re.compile(
    r"loss|\blr\b|learning[_ ]rate|grad|tokens?/s|tok/s|\btps\b|samples|mfu|tflops|throughput"
    r"|/step|s/it|it/s|elapsed|\btime\b|\bdt\b|\beta\b|ppl|perplexity|\bacc|skipped=",
)


# total steps 10 (warmup 600)    gradient accumulation steps 1    save_steps 500
_NOT_A_POSITION = re.compile(
    r"(?:total|max|maximum|warmup|num|number of|every|per|accumulation|remaining)[ _-]?\Z"
    r"|(?:save|eval|logging)_\Z"
)


@dataclass(frozen=True, slots=True)
class Step:
    """What one line tells; None where it does not."""

    step: int | None
    total: int | None
    epoch: int | None
    time_s: float | None
    loss: float | None


def bar(text: str) -> Step | None:
    """A tqdm bar (also Lightning's). None where there is none."""
    if "%|" not in text or not (found := _BAR.search(text)):
        return None
    rate = number(found["rate"])
    time_s = rate if found["unit"] == "s/it" else (1 / rate if rate else None)
    lower = text.lower()
    return Step(int(found["step"]), int(found["total"]), _epoch(lower), time_s, _loss(lower))


def step(text: str) -> Step | None:
    """A printed step line, in lower case: a number with a total or another word of training."""
    found = ("epoch" in text and _EPOCH_STEP.search(text)) or _position(text)
    if not found or not (found["total"] or _TRAINING_WORD.search(text)):
        return None
    total = int(found["total"]) if found["total"] else None
    return Step(int(found["step"]), total, _epoch(text), _time(text), _loss(text))


def _position(text: str) -> re.Match[str] | None:
    for found in _STEP.finditer(text):
        if not _NOT_A_POSITION.search(text, max(0, found.start() - 14), found.start()):
            return found
    return None


def _epoch(text: str) -> int | None:
    if "ep" not in text:
        return None
    found = _EPOCH.search(text) or _EPOCH_STEP.search(text)
    return int(found["epoch"]) if found else None


def _loss(text: str) -> float | None:
    found = _LOSS.search(text) if "loss" in text else None
    return number(found["loss"]) if found else None


def _time(text: str) -> float | None:
    if "ms" in text and (found := _MILLISECONDS.search(text)):
        value = number(found["a"] or found["b"] or found["c"])
        return None if value is None else value / 1000
    if ("tim" in text or "s/" in text or "sec" in text) and (found := _SECONDS.search(text)):
        return number(found["a"] or found["b"] or found["c"] or found["d"])
    rate = number(found["a"]) if "/s" in text and (found := _RATE.search(text)) else None
    return 1 / rate if rate else None


def number(text: str | None) -> float | None:
    """A number as printed; None for `?`, `nan`, `1.2.3`."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if abs(value) < 1e15 else None
