"""Pure: what the settings of a launch hide, and how long a hang then lasts.

Sources: NCCL's documentation, "Environment Variables"; PyTorch's ProcessGroupNCCL and
FlightRecorder sources; docs/collectives.md.
"""

import re
from collections.abc import Iterator

from sluggish.catalog.nccl import BASE_TIMEOUT_S
from sluggish.preflight import batch
from sluggish.preflight.note import OFF, ON, Note, is_one_of, line_of, number, of_setting, span
from sluggish.preflight.shell import Script

LONG_S = 3_600
"""An hour: PyTorch's own is 10 min with NCCL; whoever needs more lets one rank work alone."""
IB_TIMEOUT = 22
"""From here on a dead path is noticed after 2 min (4.096 us * 2^timeout * 7 retries)."""


def watchdog(script: Script) -> Iterator[Note]:
    """Settings that take the job its own way out of a hang."""
    for name in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"):
        setting = script.settings.get(name)
        if setting and is_one_of(setting, OFF):
            yield of_setting(
                setting,
                "PyTorch's watchdog ends no hanging job: it holds its GPUs until "
                "the end of the allocation",
                unfit=True,
            )
    for name in ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT"):
        setting = script.settings.get(name)
        if setting and is_one_of(setting, ON):
            yield of_setting(
                setting,
                "there is no watchdog thread then, so no dump of a hang",
            )
    setting = script.settings.get("TORCH_NCCL_ENABLE_MONITORING")
    if setting and is_one_of(setting, OFF):
        yield of_setting(
            setting,
            "a watchdog that hangs itself is noticed by nobody, and no dump is "
            "written on its behalf",
        )


def timeouts(script: Script) -> Iterator[Note]:
    """How long a hang lasts before anybody hears of it."""
    limit = time_limit_s(script)
    for name, line, seconds, better in _told_timeouts(script):
        if limit and seconds >= limit:
            yield Note(
                unfit=True,
                line=line,
                says=f"{name}: {span(seconds)} is not less than the time limit of {span(limit)}: "
                "a hang ends with the allocation, without a word and without a dump",
                better=better,
            )
        elif seconds > LONG_S:
            yield Note(
                unfit=False,
                line=line,
                says=f"{name}: a hang is noticed after {span(seconds)} at the earliest, and "
                f"{_cost(script, seconds)}; let no rank work alone for so long instead",
                better=better,
            )
    setting = script.settings.get("NCCL_TIMEOUT")
    if setting:
        yield of_setting(
            setting,
            "neither NCCL nor PyTorch reads it: the timeout is an argument of "
            "init_process_group, or an option of the framework",
        )
    yield from _ib_timeouts(script)


def _told_timeouts(script: Script) -> Iterator[tuple[str, int, float, tuple[str, ...]]]:
    """(name, line, seconds, corrected lines) of every timeout of collectives that is told."""
    setting = script.settings.get("DEEPSPEED_TIMEOUT")
    if setting and (minutes := number(setting)) is not None:
        better = ("export DEEPSPEED_TIMEOUT=30",)
        yield f"DEEPSPEED_TIMEOUT={setting.value}", setting.line, minutes * 60, better
    setting = script.settings.get("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC")
    if setting and (seconds := number(setting)) is not None:
        yield f"{setting.name}={setting.value}", setting.line, seconds, ()
    for match in _OPTION_TIMEOUT.finditer(script.text):
        minutes = "minutes" in match[1]
        better = (f"--{match[1]} {30 if minutes else 1800}",)
        seconds = float(match[2]) * (60 if minutes else 1)
        yield f"--{match[1]} {match[2]}", line_of(script, match), seconds, better
    for match in _TIMEDELTA.finditer(script.text):
        seconds = float(match[2]) * {"s": 1, "m": 60, "h": 3_600, "d": 86_400}[match[1][0]]
        better = ("timeout=timedelta(minutes=30)",)
        yield match[0], line_of(script, match), seconds, better


_OPTION_TIMEOUT = re.compile(
    # --ddp_timeout 7200                  (transformers, seconds)
    # --distributed-timeout-minutes 60    (Megatron-LM)
    r"--(ddp[_-]timeout|distributed[_-]timeout[_-]minutes)[= ]+(\d{1,9})\b"
)
_TIMEDELTA = re.compile(
    # init_process_group("nccl", timeout=timedelta(hours=2))
    r"timeout\s*=\s*(?:datetime\.)?timedelta\((seconds|minutes|hours|days)=(\d{1,9})\)"
)


def _ib_timeouts(script: Script) -> Iterator[Note]:
    setting = script.settings.get("NCCL_IB_TIMEOUT")
    told = number(setting) if setting else None
    if setting and told is not None and IB_TIMEOUT <= told <= 31:
        after = BASE_TIMEOUT_S * 2**told * 7
        yield of_setting(
            setting,
            f"a dead path is noticed after {span(after)}, up to four times that "
            "in hardware: it hides a link that flaps and cures none; ticket the link",
            better=("export NCCL_IB_TIMEOUT=20",),
        )
    setting = script.settings.get("NCCL_IB_RETRY_CNT")
    told = number(setting) if setting else None
    if setting and told is not None and told > 7:
        yield of_setting(
            setting,
            "the field has 3 bits: more than 7 means nothing",
            better=("export NCCL_IB_RETRY_CNT=7",),
        )


_HIDES = {
    "NCCL_IB_DISABLE": "all traffic goes over TCP sockets, many times slower; it hides a port, "
    "driver or limit that is broken on some node (ibstat, ulimit -l)",
    "NCCL_P2P_DISABLE": "GPUs talk through host memory; it hides PCIe ACS, an IOMMU or an NVLink "
    "fault, and is good for one short run that proves it",
    "NCCL_SHM_DISABLE": "it hides a /dev/shm that is too small or a container without one",
    "NCCL_NET_GDR_DISABLE": "it hides PCIe ACS or a missing nvidia-peermem",
    "CUDA_LAUNCH_BLOCKING": "every kernel is waited for: it hides races and order faults, and is "
    "slow; use it to reproduce",
}
_INTERFACE = re.compile(r"=?(?!\^)(?:en|eth|ib|bond)\w*\d[\w.]*(?:,.*)?\Z")


def folklore(script: Script) -> Iterator[Note]:
    """Settings that go from script to script, and what they hide."""
    for name, hides in _HIDES.items():
        setting = script.settings.get(name)
        if setting and is_one_of(setting, ON):
            yield of_setting(setting, hides)
    setting = script.settings.get("NCCL_P2P_LEVEL")
    if setting:
        yield of_setting(
            setting,
            "NCCL knows the topology; a level by hand turns NVLink or PCIe paths "
            "off, and hides why they failed",
        )
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        setting = script.settings.get(name)
        if setting and _INTERFACE.match(setting.value):
            better = ("export NCCL_SOCKET_IFNAME=^lo,docker,virbr",) * (name[0] == "N")
            says = (
                "one name for all nodes: a node whose interface is called otherwise does not "
                "start, or takes another network"
            )
            yield of_setting(setting, says, better=better)
    setting = script.settings.get("TORCH_DISTRIBUTED_DEBUG")
    if setting and setting.value.upper() == "DETAIL":
        yield of_setting(
            setting,
            "compares every collective on all ranks, which slows each call: use it to reproduce",
            better=("export TORCH_DISTRIBUTED_DEBUG=INFO",),
        )


def time_limit_s(script: Script) -> float | None:
    """Slurm's forms of --time: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S; of several parts the least."""
    told = [_seconds(batch.of(part, ("--time", "-t"))) for part in script.batch.parts]
    return min((one for one in told if one is not None), default=None)


def _seconds(value: str) -> float | None:
    match = re.match(r"(?:(\d{1,4})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?\Z", value)
    if not match:
        return None
    a, b, c = (int(match[n] or 0) for n in (2, 3, 4))
    if match[1]:
        return int(match[1]) * 86_400 + a * 3_600 + b * 60 + c
    return a * 3_600 + b * 60 + c if match[4] else a * 60 + b


def _cost(script: Script, seconds: float) -> str:
    gpus = sum(batch.gpus(part) or 0 for part in script.batch.parts)
    if not gpus:
        return "the whole allocation waits so long"
    return f"{gpus * seconds / 3_600:,.0f} GPU-hours are gone then"
