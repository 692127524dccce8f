"""`==> /proc/PID/FILE <==` sections -> RankProcess."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

from sluggish.facts.host import RankProcess
from sluggish.facts.origin import Origin

TICKS = 100
"""USER_HZ of every Linux that runs GPUs: unit of utime, stime and starttime."""
SOURCES = ("listpids", "cgroup", "environment", "gpu")
"""How a process is known to be the job's: Slurm, the kernel, its start, a GPU that it holds."""
MAX_FILES = 64
MAX_STACK = 48

Files = dict[str, str]

# /proc/4711/task/4712/stat
_NAME = re.compile(r"/proc/(\d{1,10})/(?:task/(\d{1,10})/)?(\w{1,20})\Z", re.ASCII)
# 4711 (pt_main_thread (x)) S 4700 4711 ... : the name ends at the last parenthesis
_STAT = re.compile(r"\s*(\d{1,10}) \((.*)\) ([A-Za-z]) (.*)\Z", re.DOTALL | re.ASCII)
# VmRSS:	  123456 kB
_STATUS = re.compile(r"^(\w{1,30}):[ \t]+(\S.*?)[ \t\r]*$", re.MULTILINE)
# rchar: 323934931
_IO = re.compile(r"^(rchar|wchar|read_bytes|write_bytes): (\d{1,20})", re.MULTILINE | re.ASCII)
# Max locked memory         8388608              unlimited            bytes
_MEMLOCK = re.compile(r"^Max locked memory[ \t]+(\d{1,20}|unlimited)[ \t]", re.MULTILINE | re.ASCII)
# lrwx------ 1 alice alice 64 Nov 24 03:00 3 -> /data/shard-0042.tar
_FD = re.compile(r" -> (/.{1,400})$", re.MULTILINE)
# [<0>] rpc_wait_bit_killable+0x24/0x90 [sunrpc]
_FRAME = re.compile(r"^(?:\[<[0-9a-fx]*>\] )?([A-Za-z_][\w.]{0,99})(?:\+0x|\s|\Z)", re.ASCII)
# 0::/system.slice/slurmstepd.scope/job_48213/step_0/user/task_3
_JOB = re.compile(r"/job_(\d{1,12})(?:/|$)", re.MULTILINE | re.ASCII)
_ENV = re.compile(r"([A-Za-z_]\w{0,99})=(.*)\Z", re.DOTALL | re.ASCII)
_KERNEL_MAX = 1 << 62


def processes(found: Iterable[tuple[str, str]], origin: Origin) -> list[RankProcess]:
    """One process a pid that has `stat` or `status`, in the order of the sections."""
    by_pid: dict[int, Files] = {}
    threads: dict[int, dict[int, Files]] = {}
    for name, body in found:
        match = _NAME.match(name)
        if not match:
            continue
        pid = int(match[1])
        files = by_pid.setdefault(pid, {})
        if match[2]:
            files = threads.setdefault(pid, {}).setdefault(int(match[2]), {})
        files.setdefault(match[3], body)
    return [
        _process(pid, files, threads.get(pid, {}), origin)
        for pid, files in by_pid.items()
        if _STAT.match(files.get("stat", "")) or _STATUS.search(files.get("status", ""))
    ]


def _process(pid: int, files: Files, threads: dict[int, Files], origin: Origin) -> RankProcess:
    name, letter, numbers = _stat(files.get("stat", ""))
    status = dict(_STATUS.findall(files.get("status", "")))
    io = {key: int(value) for key, value in _IO.findall(files.get("io", ""))}
    job = _JOB.search(files.get("cgroup", ""))
    return RankProcess(
        node=origin.node,
        pid=pid,
        sample=origin.sample,
        at=origin.taken_at,
        ppid=_int(numbers, 0) or _leading(status.get("PPid", "")),
        name=name or status.get("Name", ""),
        cmdline=" ".join(files.get("cmdline", "").replace("\0", " ").split())[:2000],
        state=letter or (status.get("State", "")[:1] or None),
        wchan=_wchan(files.get("wchan", "")),
        cpu_s=_cpu(numbers),
        started_at=_started(numbers, origin),
        rss_bytes=_kib(status.get("VmRSS", "")),
        threads=_int(numbers, 16) or _leading(status.get("Threads", "")),
        read_bytes=io.get("rchar"),
        written_bytes=io.get("wchar"),
        env=_environment(files.get("environ", "")),
        kernel_stack=_stack(files.get("stack", "")),
        open_files=tuple(dict.fromkeys(_FD.findall(files.get("fd", ""))))[:MAX_FILES],
        blocked_threads=_blocked(pid, threads),
        memlock_bytes=_memlock(files.get("limits", "")),
        job_id=job[1] if job else None,
        own_mounts=files.get("mounts", "").strip() == "own",
        found_by=_found_by(files.get("source", "")),
    )


def _found_by(text: str) -> str:
    return text.strip() if text.strip() in SOURCES else ""


def _stat(text: str) -> tuple[str, str | None, list[str]]:
    """Name, state, and the fields from ppid on."""
    match = _STAT.match(text)
    if not match:
        return "", None, []
    return match[2].strip(), match[3], match[4].split()


def _int(numbers: list[str], place: int) -> int | None:
    text = numbers[place] if place < len(numbers) else ""
    return int(text) if re.match(r"\d{1,19}\Z", text, re.ASCII) else None


def _leading(text: str) -> int | None:
    match = re.match(r"\d{1,15}", text, re.ASCII)
    return int(match[0]) if match else None


def _kib(text: str) -> int | None:
    value = _leading(text)
    return value * 1024 if value is not None and text.endswith("kB") else None


def _cpu(numbers: list[str]) -> float | None:
    """utime + stime, fields 14 and 15 of proc(5)."""
    user, system = _int(numbers, 10), _int(numbers, 11)
    return None if user is None or system is None else (user + system) / TICKS


def _started(numbers: list[str], origin: Origin) -> datetime | None:
    """Field 22 of proc(5) counts from the boot."""
    ticks = _int(numbers, 18)
    if ticks is None or origin.boot_at is None or ticks > TICKS * 3_200_000_000:
        return None
    return origin.boot_at + timedelta(seconds=ticks / TICKS)


def _wchan(text: str) -> str | None:
    """`0` is "runs, or hidden": no place to wait at."""
    word = text.strip()[:100]
    return word if re.match(r"[A-Za-z_][\w.]*\Z", word, re.ASCII) else None


def _environment(text: str) -> tuple[tuple[str, str], ...]:
    """Entries are separated by NUL as the kernel prints them, or by newlines."""
    entries = text.split("\0") if "\0" in text else text.split("\n")
    found = [match for entry in entries if (match := _ENV.match(entry.strip("\r\n")))]
    return tuple((match[1], match[2][:500]) for match in found[:500])


def _stack(text: str) -> tuple[str, ...]:
    found = [match[1] for line in text.splitlines() if (match := _FRAME.match(line.strip()))]
    return tuple(found[:MAX_STACK])


def _blocked(pid: int, threads: dict[int, Files]) -> tuple[tuple[int, str], ...]:
    return tuple(
        (tid, _wchan(files.get("wchan", "")) or "?")
        for tid, files in threads.items()
        if tid != pid and _stat(files.get("stat", ""))[1] == "D"
    )


def _memlock(text: str) -> int | None:
    match = _MEMLOCK.search(text)
    if not match:
        return None
    return -1 if match[1] == "unlimited" or int(match[1]) > _KERNEL_MAX else int(match[1])
