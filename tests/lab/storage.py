"""Storage that really hangs: ext4 on a loop file inside a FUSE mount whose daemon is stopped.

Whoever touches it then is in state D and cannot be killed, as on dead NFS with a hard mount.
`stat -f` on the ext4 still answers, from memory; the FUSE below it, /mnt/fuse-HOST, does not.
Dead it must not stay for long: a `sync` anywhere on the machine may wait for it.
"""

import shlex

from .cluster import Lab, wait_for

SHARED = "/mnt/shared"
"""Mounted on ctl, seen by every node: one file system for all, as homes and data are."""
OWN = "/mnt/data"
"""One node's own."""

_MOUNT = """
set -e
d=/run/node/storage
fuse=/mnt/fuse-$(hostname)
mkdir -p $d/back $fuse
truncate -s 64M $d/back/disk
mkfs.ext4 -q -O ^has_journal -E lazy_itable_init=0 $d/back/disk
bindfs -f -o allow_other,subtype=bindfs $d/back $fuse >/dev/null 2>&1 &
echo $! >$d/pid
until [ -e $fuse/disk ]; do sleep 0.02; done
mount -n -o loop,noatime $fuse/disk "$1"
mkdir -p "$1/alice" "$1/bob"
chown alice:alice "$1/alice"
chown bob:bob "$1/bob"
"""

_UNMOUNT = """
d=/run/node/storage
kill -CONT "$(cat $d/pid)"
umount -n "$1" && umount -n /mnt/fuse-$(hostname) && rmdir /mnt/fuse-$(hostname) && rm -rf $d
"""

# what is cached would still be served: forget names, blocks and the file below, then stop it
_HANG = """
set -e
d=/run/node/storage
sync -f "$1"
echo 2 >/proc/sys/vm/drop_caches
blockdev --flushbufs "$(findmnt -n -o SOURCE "$1")"
dd if=/mnt/fuse-$(hostname)/disk iflag=nocache count=0 status=none
kill -STOP "$(cat $d/pid)"
"""


def mount(lab: Lab, where: str = "ctl") -> str:
    """Mounts healthy storage, says where: `ctl` for all (`SHARED`), a node for itself (`OWN`)."""
    path = _path(where)
    lab.exec(where, ["bash", "-c", _MOUNT, "mount", path], check=True)
    return path


def hang(lab: Lab, where: str = "ctl") -> None:
    """The storage stops answering."""
    lab.exec(where, ["bash", "-c", _HANG, "hang", _path(where)], check=True)


def mend(lab: Lab, where: str = "ctl") -> None:
    """It answers again; who waited goes on."""
    lab.exec(where, ["sh", "-c", "kill -CONT $(cat /run/node/storage/pid)"], check=True)


def unmount(lab: Lab, where: str = "ctl") -> None:
    """Takes the storage away, mended first; waits for those who still use it."""
    mend(lab, where)
    undo = ["bash", "-c", _UNMOUNT, "unmount", _path(where)]
    wait_for(lambda: lab.exec(where, undo).returncode == 0, 20, "the storage is still in use")


def home_on(lab: Lab, user: str = "alice") -> None:
    """The user's home lies on the shared storage from now on, on every node and on login.

    The ssh keys move with it: once the storage hangs, logging in as this user hangs too.
    """
    there, home = shlex.quote(f"{SHARED}/{user}"), shlex.quote(f"/home/{user}")
    lab.sh("ctl", f"cp -a {home}/. {there}/ && mount -n --bind {there} {home}")


def home_back(lab: Lab, user: str = "alice") -> None:
    lab.sh("ctl", f"umount -n -l {shlex.quote(f'/home/{user}')}")


def _path(where: str) -> str:
    return SHARED if where == "ctl" else OWN
