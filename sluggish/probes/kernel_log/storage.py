"""Kernel lines of file systems and block devices that do not answer, or answer again.

Sources: Linux `net/sunrpc/clnt.c`, `drivers/nvme/host`, `block/blk-core.c`, `fs/ext4`, `fs/xfs`,
`net/ceph`, `fs/smb`; Lustre `lustre/ptlrpc`, `lustre/mgc`; GPFS and BeeGFS from public logs.
"""

import re

from sluggish.facts.host import StorageEvent
from sluggish.probes.kernel_log.context import Record
from sluggish.text import safe

NEEDLES = (
    "nfs: server", "NFS: ", "nfs4", "rpcrdma:", "Lustre", "LNetError", "mmfs", "GPFS", "beegfs",
    "nvme", "I/O error", "I/O Error", "critical medium", "critical space", "EXT4-fs", "lockd: ",
    "Aborting journal", "JBD2: ", "XFS (", "fuse: ", "overlayfs: ", "libceph", "ceph: ",
    "CIFS: ",
)  # fmt: skip

_FORMS = (
    # nfs: server filer01 not responding, still trying | timed out | nfs: server filer01 OK
    # lockd: server filer01 not responding, still trying        (fs/lockd: locks of NFSv3)
    ("nfs", re.compile(
        r"^(?:nfs|lockd): server (?P<server>\S{1,255}) (?:not responding|(?P<ok>OK)\b)"
    )),
    # NFS: nfs4_reclaim_open_state: Lock reclaim failed!   NFS: server filer error: fileid changed
    ("nfs", re.compile(r"^NFS: .{0,80}(?:failed|error)")),
    # rpcrdma: connection to 10.0.0.9:20049 closed (-103)
    ("nfs", re.compile(r"^rpcrdma: connection to (?P<server>\S{1,64}?):?[0-9]{0,5} closed")),
    # Lustre: fs-OST0001-osc-ff11: Connection to fs-OST0001 (at 10.0.0.1@o2ib) was lost; in
    #   progress ...
    ("lustre", re.compile(
        r"^Lustre: .{0,200}?Connection (?:to (?P<server>\S{1,128}) .{0,80}was lost"
        r"|(?P<ok>restored)(?: to (?P<server2>\S{1,128}))?)"
    )),
    # Lustre: 812:0:(client.c:2289:ptlrpc_expire_one_request()) @@@ Request sent has timed out for
    #   slow reply
    ("lustre", re.compile(r"^Lustre: .{0,120}@@@ Request sent has (?:timed out|failed)")),
    # LustreError: 167-0: fs-OST0001-osc-ff11: This client was evicted by fs-OST0001; in progress
    #   operations using this service will fail.                    (ptlrpc/import.c)
    ("lustre", re.compile(
        r"^LustreError: .{0,120}This client was evicted by (?P<server>[\w.:@-]{1,128}?);"
    )),
    # LustreError: 11-0: fs-OST0001-osc: operation ost_write to node ... failed: rc = -107
    ("lustre", re.compile(r"^(?:LustreError|LNetError): ")),
    # mmfs: [E] ... / GPFS: 6027-... [E] / mmfs: File system gpfs1 unmounted by the system ...
    ("gpfs", re.compile(
        r"(?:^|\b)(?:mmfs|GPFS)\S{0,12}: .{0,120}(?:\[[EX]\]|panic|unmounted|lost|expel|Stale"
        r"|error)"
    )),
    # GPFS Deadman Switch timer [0] has expired; IOs in progress: 0
    ("gpfs", re.compile(r"^GPFS Deadman Switch timer .{0,20}expired")),
    # beegfs: ...: Communication error: Receive timed out from: beegfs-storage s01 [ID: 3]
    ("beegfs", re.compile(
        r"^beegfs: .{0,200}(?:(?P<ok>Connected|Reconnected)|timed out|[Ee]rror|not available"
        r"|Retrying)"
    )),
    # nvme nvme0: I/O 12 QID 3 timeout, aborting
    # nvme nvme0: controller is down; will reset: CSTS=...
    # (`Shutdown timeout set to 8 seconds` of each start is none)
    ("nvme", re.compile(
        r"^nvme (?P<server>nvme[0-9n]{1,8}): .{0,120}(?:controller is down|Removing after probe"
        r"|Disabling device after"
        r"|Device not ready|frozen state error|Abort status"
        r"|QID [0-9]{1,5} timeout(?!, completion polled))"
    )),
    # EXT4-fs error (device sda1): ext4_find_entry:1455: ...
    # EXT4-fs (sda1): Remounting filesystem read-only
    # (a loop device is a package's or a container's image)
    ("ext4", re.compile(
        r"^EXT4-fs (?:error(?! \(device loop)"
        r"|\(\S{1,64}\): (?:Remounting|I/O error|previous I/O))"
    )),
    # XFS (nvme0n1): log I/O error -5   XFS (nvme0n1): Filesystem has been shut down due to ...
    # XFS (sda1): Log I/O Error Detected.  Shutting down filesystem                     (RHEL 7)
    ("xfs", re.compile(
        r"^XFS \((?P<server>[^)]{1,64})\): .{0,80}(?:[Ee]rror|shut ?down|Shutting down"
        r"|[Cc]orruption|deadlock in)"
    )),
    # Aborting journal on device sda1-8.    JBD2: Detected IO errors while flushing file data on ...
    ("ext4", re.compile(r"^(?:Aborting journal on device|JBD2: Detected IO errors)")),
    # I/O error, dev nvme0n1, sector 812 op 0x0:(READ)   blk_update_request: I/O error, dev sda, ...
    # Buffer I/O error on device sda1, logical block 812    critical medium error, dev sda, ...
    # (an empty floppy or CD drive, as BMCs and virtual machines have, prints so when it is asked)
    ("block", re.compile(
        r"(?:I/O error|critical (?:medium|space allocation) error)(?:,| on) dev(?:ice)? "
        r"(?!fd[0-9]|sr[0-9])(?P<server>[\w!/-]{1,64})"
    )),
    ("fuse", re.compile(r"^fuse: .{0,80}(?:abort|error|timed? ?out)")),
    ("overlay", re.compile(r"^overlayfs: .{0,80}(?:failed|error)")),
    # libceph: osd12 (1)10.0.0.1:6801 socket closed   libceph: mon0 ... session lost
    # ceph: mds0 hung
    ("other", re.compile(
        r"^(?:libceph|ceph): .{0,120}(?:(?P<ok>session established|caps renewed|recovery completed)"
        r"|session lost|socket (?:closed|error)|\bhung\b|caps (?:stale|lost))"
    )),
    # CIFS: VFS: \\server has not responded in 180 seconds. Reconnecting...
    ("other", re.compile(r"^CIFS: .{0,120}(?:has not responded|reconnect)")),
)  # fmt: skip


# Lustre: fs-OST0001-osc-ff11: Connection restored to 10.0.0.1@o2ib (at 10.0.0.1@o2ib)
_LUSTRE_TARGET = re.compile(r"^Lustre: ([\w.]{1,64}-(?:OST|MDT)[0-9a-f]{4})-(?:osc|mdc)-")


def read(record: Record) -> StorageEvent | None:
    """The fact of one storage line, or None: mounting and unmounting are not events."""
    for kind, pattern in _FORMS:
        found = pattern.search(record.text)
        if not found:
            continue
        groups = found.groupdict()
        server = groups.get("server") or groups.get("server2")
        if server and "@" in server and (target := _LUSTRE_TARGET.match(record.text)):
            server = target[1]  # the address of the server is not the name that was lost
        return StorageEvent(
            node=record.node,
            at=record.at,
            kind=kind,
            recovered=bool(groups.get("ok")),
            server=safe(server, 255) if server else None,
            line=record.line,
        )
    return None
