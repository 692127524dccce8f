"""The kernel's log as journalctl and dmesg print it.

Forms: `journalctl -k -o short-unix` (`1795995544.123456 host kernel: text`), `dmesg`
(`[12345.678901] text`), `dmesg -T`, `journalctl -o short-iso`; util-linux 2.38, systemd 252.
"""

from __future__ import annotations

from ..clock import at
from ..world import Node, World


def text(world: World, node: Node) -> str:
    """Lines of this boot up to the look; the log may begin late (`log_from`)."""
    since = node.log_from if node.log_from is not None else node.boot_at
    lines = sorted((t, k, s) for k, (t, s) in enumerate(node.kernel_lines))
    return "".join(
        _line(node, t, part) + "\n"
        for t, _, s in lines
        if since <= t <= world.taken_at - 20
        for part in s.split("\n")
    )


def _line(node: Node, t: float, words: str) -> str:
    wall = t + node.offset_s
    if node.log_form == "short-unix":
        return f"{wall:.6f} {node.name} kernel: {words}"
    if node.log_form == "short-iso":
        return f"{at(wall, node.zone_s):%Y-%m-%dT%H:%M:%S%z} {node.name} kernel: {words}"
    seconds = t - node.boot_at
    if node.log_form == "dmesg":
        return f"[{seconds:12.6f}] {words}"
    return f"[{at(wall, node.zone_s):%a %b %d %H:%M:%S %Y}] {words}"


def xid(gpu_pci: str, code: int, words: str, *, pid: int | None = None, name: str = "") -> str:
    """`NVRM: Xid (PCI:0000:1b:00): 31, pid=4242, name=python3, words` (ogkm kernel_rc.c)."""
    who = ""
    if pid is not None:
        who = f"pid={pid}, name={name}, "
    elif name:
        who = f"pid='<unknown>', name={name}, "
    return f"NVRM: Xid (PCI:{gpu_pci[:-2]}): {code}, {who}{words}"
