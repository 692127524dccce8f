"""Stands in for a rank's InfiniBand link: while its port is not Active, the rank hears no peer.

    python link.py PID STATEFILE    on the rank's node, as root

A filter that lets no packet in sits on each TCP connection of the process meanwhile.
"""

import ctypes
import os
import socket
import stat
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

PIDFD_GETFD = 438
ATTACH, DETACH = 26, 27  # SO_ATTACH_FILTER, SO_DETACH_FILTER: the socket module lacks them
_NOTHING = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # "ret #0"
_PROGRAM = struct.pack("HL", 1, ctypes.addressof(_NOTHING))


def deafen(pid: int, yes: bool) -> None:
    process = os.pidfd_open(pid)
    libc = ctypes.CDLL(None, use_errno=True)
    for name in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.stat(f"/proc/{pid}/fd/{name}").st_mode):
                continue
        ours = libc.syscall(PIDFD_GETFD, process, int(name), 0)
        if ours < 0:
            continue
        with socket.socket(fileno=ours) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                connection.setsockopt(
                    socket.SOL_SOCKET, ATTACH if yes else DETACH, _PROGRAM if yes else 0
                )
    os.close(process)


def main() -> None:
    pid, state = int(sys.argv[1]), Path(sys.argv[2])
    deaf = False
    while True:
        down = "ACTIVE" not in state.read_text()
        if down != deaf:
            deafen(pid, down)
            deaf = down
        time.sleep(0.05)


if __name__ == "__main__":
    main()
