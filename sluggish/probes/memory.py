"""Memory of the host and of the job's cgroups, and how long tasks stall for it.

Plain user, milliseconds. Two samples. Traps: `memory.current` counts page cache, so a cgroup at
its limit is normal by itself; `/proc/pressure` is missing where PSI is off; cgroup v1 prints a
limit of about 9.2 EB for "none"; HugePages and shared memory are not in MemFree.
"""

import re
from collections.abc import Iterator

from sluggish.facts.host import CgroupMemory, HostMemory, Pressure
from sluggish.facts.origin import Origin
from sluggish.facts.sections import sections

ID = "memory"
COMMAND = """\
for f in /proc/meminfo /proc/pressure/memory /proc/pressure/io /proc/pressure/cpu; do
  [ -r "$f" ] && echo "==> $f <==" && cat "$f"
done
for d in $(cat /proc/[0-9]*/cgroup 2>/dev/null | grep -o '/[^:]*job_[0-9].*' | sort -u); do
  for f in memory.current memory.max memory.peak memory.events \\
           memory.usage_in_bytes memory.limit_in_bytes memory.oom_control; do
    for r in /sys/fs/cgroup /sys/fs/cgroup/memory; do
      [ -r "$r$d/$f" ] && echo "==> $r$d/$f <==" && cat "$r$d/$f"
    done
  done
done
"""
FACTS: tuple[type, ...] = (HostMemory, Pressure, CgroupMemory)
BINARY = False

NO_LIMIT = 1 << 62
"""cgroup v1 prints 9223372036854771712 where there is no limit."""

# MemAvailable:   123456 kB
_MEMINFO = re.compile(
    r"^([A-Z][\w()]{1,40}):[ \t]+(\d{1,18})(?: kB)?[ \t\r]*$", re.MULTILINE | re.ASCII
)
# some avg10=0.12 avg60=0.34 avg300=0.10 total=159886802
_PRESSURE = re.compile(r"^(some|full) avg10=(\d{1,3}\.\d{1,4}) ", re.MULTILINE | re.ASCII)
# Mem:    2113408  1200000   13408  900  900000  850000   (free, in the unit of its flag)
_FREE = re.compile(
    r"^(Mem|Swap):[ \t]+([\d.]+[A-Za-z]*(?:[ \t]+[\d.]+[A-Za-z]*){2,5})[ \t]*$", re.MULTILINE
)
_FREE_HEAD = re.compile(
    r"^[ \t]+total[ \t]+used[ \t]+free[ \t]+shared[ \t]+buff/cache[ \t]+available[ \t]*$",
    re.MULTILINE,
)
_CGROUP = re.compile(r"(/\S{1,400})/(memory\.[a-z_.]{1,40})\Z")
_EVENT = re.compile(r"^oom_kill (\d{1,12})$", re.MULTILINE | re.ASCII)
_SNIFF = re.compile(
    rb"^==> (?:/proc/meminfo|/proc/pressure/\w+|/\S*/memory\.(?:current|max|events|usage_in_bytes))"
    rb" <==|\A[ \t]*MemTotal: +\d+ kB\s"
    rb"|^[ \t]+total[ \t]+used[ \t]+free[ \t]+shared[ \t]+buff/cache[ \t]+available[ \t\r]*$",
    re.MULTILINE,
)
_UNITS = {"": 1, "B": 1, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50}


def sniff(head: bytes) -> bool:
    """Sections of this probe, /proc/meminfo alone, or the table of `free`."""
    return bool(_SNIFF.search(head))


def parse(text: str, origin: Origin) -> Iterator[HostMemory | Pressure | CgroupMemory]:
    """Host memory, pressure by resource, cgroups by path."""
    found = dict(sections(text))
    meminfo = found.get("/proc/meminfo", text if not found else "")
    host = _host(meminfo, origin) or (_free(text, origin) if not found else None)
    pressures = [p for name, body in found.items() if (p := _pressure(name, body, origin))]
    groups = list(_cgroups(found, origin))
    if host is None and not pressures and not groups:
        raise ValueError("expected /proc/meminfo, /proc/pressure or memory cgroup files")
    if host is not None:
        yield host
    yield from pressures
    yield from groups


def _host(text: str, origin: Origin) -> HostMemory | None:
    kib = {key: int(value) * 1024 for key, value in _MEMINFO.findall(text)}
    if "MemTotal" not in kib:
        return None
    return HostMemory(
        node=origin.node,
        sample=origin.sample,
        total_bytes=kib["MemTotal"],
        available_bytes=kib.get("MemAvailable"),
        free_bytes=kib.get("MemFree"),
        cached_bytes=kib.get("Cached"),
        shmem_bytes=kib.get("Shmem"),
        swap_total_bytes=kib.get("SwapTotal"),
        swap_free_bytes=kib.get("SwapFree"),
    )


def _free(text: str, origin: Origin) -> HostMemory | None:
    """`free`, `-b`, `-h`; of `-m` and `-g` the unit is not printed: only shares can be right."""
    rows = {m[1]: [_size(cell, origin) for cell in m[2].split()] for m in _FREE.finditer(text)}
    mem, swap = rows.get("Mem", []), rows.get("Swap", [])
    if not _FREE_HEAD.search(text) or len(mem) != 6:
        return None
    return HostMemory(
        node=origin.node,
        sample=origin.sample,
        total_bytes=mem[0],
        free_bytes=mem[2],
        shmem_bytes=mem[3],
        cached_bytes=mem[4],
        available_bytes=mem[5],
        swap_total_bytes=swap[0] if len(swap) == 3 else None,
        swap_free_bytes=swap[2] if len(swap) == 3 else None,
    )


def _size(cell: str, origin: Origin) -> int | None:
    """`123` is KiB unless the command says otherwise; `1.5Ti` says its unit."""
    match = re.match(r"(\d{1,18}(?:\.\d{1,3})?)([BKMGTP]?)i?\Z", cell, re.ASCII)
    if not match:
        return None
    if match[2]:
        power = _UNITS[match[2]]
        return int(float(match[1]) * (1 << power if power > 1 else 1))
    flag = re.search(r"\bfree\b.* -(\w)", origin.command or "")
    shift = {"b": 0, "k": 10, "m": 20, "g": 30}.get(flag[1] if flag else "k", 10)
    return int(float(match[1])) << shift


def _pressure(name: str, body: str, origin: Origin) -> Pressure | None:
    resource = name.rpartition("/proc/pressure/")[2]
    values = {kind: float(share) for kind, share in _PRESSURE.findall(body)}
    if resource not in ("memory", "io", "cpu") or not values:
        return None
    return Pressure(
        node=origin.node,
        sample=origin.sample,
        resource=resource,
        some_avg10=values.get("some"),
        full_avg10=values.get("full"),
    )


def _cgroups(found: dict[str, str], origin: Origin) -> Iterator[CgroupMemory]:
    groups: dict[str, dict[str, str]] = {}
    for name, body in found.items():
        match = _CGROUP.match(name)
        if match:
            groups.setdefault(match[1], {})[match[2]] = body
    for path, files in groups.items():
        events = files.get("memory.events") or files.get("memory.oom_control") or ""
        kills = _EVENT.search(events)
        yield CgroupMemory(
            node=origin.node,
            sample=origin.sample,
            path=path,
            current_bytes=_bytes(files, "memory.current", "memory.usage_in_bytes"),
            limit_bytes=_bytes(files, "memory.max", "memory.limit_in_bytes"),
            peak_bytes=_bytes(files, "memory.peak", "memory.max_usage_in_bytes"),
            oom_kills=int(kills[1]) if kills else None,
        )


def _bytes(files: dict[str, str], *names: str) -> int | None:
    for name in names:
        text = files.get(name, "").strip()
        if re.match(r"\d{1,20}\Z", text, re.ASCII):
            value = int(text)
            return value if value < NO_LIMIT else None
    return None
