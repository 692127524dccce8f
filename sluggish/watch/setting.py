"""The job's own watchdog, out of its ranks' environment and arguments."""

LEAST_S, MOST_S = 30.0, 86_400.0
_MINUTES = ("DEEPSPEED_TIMEOUT", "distributed_timeout_minutes", "distributed-timeout-minutes")
_SECONDS = ("NCCL_TIMEOUT", "ddp_timeout", "ddp-timeout")


def watchdog_s(name: str, value: str) -> float | None:
    """Seconds after which the job ends itself; None where this setting does not tell.

    DeepSpeed (`DEEPSPEED_TIMEOUT`, constants.py) and Megatron (`--distributed-timeout-minutes`)
    count minutes, Transformers' `--ddp_timeout` seconds. TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC is the
    monitor of the watchdog thread itself: it does not end a job whose collective waits.
    """
    try:
        number = float(value)
    except ValueError:
        return None
    if name in _MINUTES:
        number *= 60
    elif name not in _SECONDS:
        return None
    return number if LEAST_S <= number <= MOST_S else None
