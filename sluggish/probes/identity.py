"""Who a node is, since when it runs, how its clock reads.

Plain user, milliseconds. Trap: a kernel log's seconds can be turned into wall time only with a
`date` and an uptime that were read together, so they stand in one command.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from sluggish.facts.host import Machine, NodeIdentity
from sluggish.facts.origin import Origin
from sluggish.facts.sections import sections
from sluggish.text import is_node_name

ID = "identity"
COMMAND = """\
echo '==> hostname <=='; hostname
echo '==> uname -a <=='; uname -a
echo '==> date +%s.%N <=='; date +%s.%N
echo '==> /proc/uptime <=='; cat /proc/uptime
echo '==> date +%z <=='; date +%z
echo '==> /proc/sys/kernel/random/boot_id <=='; cat /proc/sys/kernel/random/boot_id
echo '==> /proc/cmdline <=='; cat /proc/cmdline
for name in sys_vendor product_name chassis_asset_tag; do
  echo "==> /sys/class/dmi/id/$name <=="; cat "/sys/class/dmi/id/$name" 2>/dev/null
done
:
"""
FACTS: tuple[type, ...] = (NodeIdentity, Machine)
BINARY = False
DMI = ("sys_vendor", "product_name", "chassis_asset_tag")

# 1795400530.123456789; a busybox without nanoseconds prints .%N or .N
_EPOCH = re.compile(r"(\d{9,11})(?:\.(\d{1,9})|\.%?N)?\Z", re.ASCII)
# 5040123.44 80012345.10
_UPTIME = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(?:\s+[\d.]+)?\Z", re.ASCII)
# 0d8b6d0e-6c1b-4e6c-9a59-1f0c2b3a4d5e
_BOOT_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
# Linux gpu-07 6.8.0-1021-nvidia #22-Ubuntu SMP Thu Oct 1 12:00:00 UTC 2026 x86_64 x86_64 GNU/Linux
_UNAME = re.compile(r"(\w+) (\S+) (\S+) ")
_ARCH = re.compile(r" (x86_64|aarch64|ppc64le|arm64|riscv64)(?= |\Z)")
_ZONE = re.compile(r"([+-])(\d\d):?(\d\d)\Z", re.ASCII)
_SNIFF = re.compile(rb"^==> (?:uname -a|hostname|[/\w]*boot_id|date \+%s\.%N) <==", re.MULTILINE)
_SNIFF_UNAME = re.compile(rb"\ALinux \S+ \d+\.\d+\.\S+ #\d+[^\n]*\n?\Z")


def sniff(head: bytes) -> bool:
    """Sections of this probe, or the one line of `uname -a`."""
    return bool(_SNIFF.search(head) or _SNIFF_UNAME.match(head[:1000]))


def parse(text: str, origin: Origin) -> Iterator[NodeIdentity | Machine]:
    """One fact, fields that are missing or broken stay None; and the machine, if DMI told."""
    found = {name: body.strip() for name, body in sections(text)}
    if not found and _UNAME.match(text):
        found = {"uname -a": text.strip()}
    boot_id = found.get("/proc/sys/kernel/random/boot_id", found.get("boot_id", ""))
    stamp = _EPOCH.match(found.get("date +%s.%N", ""))
    now, uptime = _now(stamp), _uptime(found.get("/proc/uptime", ""))
    uname = found.get("uname -a", "")
    host = found.get("hostname", "") or _part(uname, 2)
    if not (is_node_name(host or "") or now or _BOOT_ID.match(boot_id)):
        raise ValueError("expected sections hostname, uname -a, date, /proc/uptime, boot_id")
    arch = _ARCH.search(uname)
    node = origin.node or (host if is_node_name(host or "") else None)
    yield NodeIdentity(
        node=node,
        hostname=host if is_node_name(host or "") else None,
        boot_id=boot_id if _BOOT_ID.match(boot_id) else None,
        now=now,
        now_error_s=0.5 if stamp and not stamp[2] else 0.0,
        uptime_s=uptime,
        boot_at=now - timedelta(seconds=uptime) if now and uptime is not None else None,
        kernel=_part(uname, 3),
        arch=arch[1] if arch else None,
        kernel_cmdline=found.get("/proc/cmdline") or None,
        utc_offset_s=_zone(found.get("date +%z", "")),
    )
    dmi = [found.get(f"/sys/class/dmi/id/{name}", "").strip()[:80] for name in DMI]
    if any(dmi):
        yield Machine(node=node, words=" ".join(word for word in dmi if word), source=ID)


def _part(uname: str, group: int) -> str | None:
    match = _UNAME.match(uname)
    return match[group] if match else None


def _now(match: re.Match[str] | None) -> datetime | None:
    if not match:
        return None
    micros = int((match[2] or "0").ljust(9, "0")[:6])
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(match[1]), microseconds=micros)


def _uptime(text: str) -> float | None:
    match = _UPTIME.match(text)
    seconds = float(match[1]) if match else None
    return seconds if seconds is not None and seconds < 3.2e9 else None  # a century


def _zone(text: str) -> int | None:
    match = _ZONE.match(text)
    if not match:
        return None
    seconds = int(match[2]) * 3600 + int(match[3]) * 60
    return -seconds if match[1] == "-" else seconds
