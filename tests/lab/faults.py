"""Every way in which a connection goes wrong, as aliases of one ssh_config in the lab.

The misbehaving listeners and the further sshds run on login; the answer of each is asked by
`asker.py`, which runs there too.
"""

import contextlib
import json
import subprocess
from collections.abc import Iterator

from .cluster import Lab, end, wait_for

PLACE = "/run/lab/faults"
BLACK_HOLE = "10.77.9.9"
NOBODY = "10.77.5.5"

# 2301 says nothing, 2302 its first line alone, 2303 junk for ever, 2304 hangs up at once
LISTENERS = r"""
import socket, threading, time
def serve(port, first, again=b"", stay=True):
    listener = socket.create_server(("", port), backlog=50)
    def one(client):
        try:
            client.sendall(first)
            while stay:
                time.sleep(0.3)
                client.sendall(again)
        except OSError:
            pass
        client.close()
    while True:
        threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()
for told in (2301, b""), (2302, b"SSH-2.0-OpenSSH_9.2\r\n"), (2303, b"x\r\n", b"x\r\n"):
    threading.Thread(target=serve, args=told).start()
threading.Thread(target=serve, args=(2304, b"", b"", False)).start()
"""
SSHDS = {
    2222: ["AuthorizedKeysFile=none", "AuthorizedKeysCommand=/run/slow-keys",
           "AuthorizedKeysCommandUser=root"],
    2223: [],
    2224: ["UsePAM=yes"],
    2225: ["MaxStartups=2:100:3"],
    2226: ["ForceCommand=/usr/sbin/nologin"],
    2227: ["ForceCommand=exec /no/such/sh -s"],
}  # fmt: skip
CONFIG = f"""
Include {PLACE}/included.d/*.conf
Host refused
  HostName login
  Port 2299
Host silent
  HostName login
  Port 2301
Host half
  HostName login
  Port 2302
Host junk
  HostName login
  Port 2303
Host hangup
  HostName login
  Port 2304
Host slowkeys
  HostName login
  Port 2222
Host otherport
  HostName login
  Port 2223
Host adopt
  HostName login
  Port 2224
  User alice
Host gateway
  HostName login
  Port 2225
Host nologin
  HostName login
  Port 2226
Host nosh
  HostName login
  Port 2227
Host blackhole
  HostName {BLACK_HOLE}
Host noarp
  HostName {NOBODY}
Host badkey
  HostName node01
  IdentityFile {PLACE}/stranger
  IdentitiesOnly yes
Host unknown
  HostName node01
  UserKnownHostsFile {PLACE}/empty
Host unknownport
  HostName login
  Port 2223
  UserKnownHostsFile {PLACE}/empty
Host changed
  HostName node01
  UserKnownHostsFile {PLACE}/changed
Host revoked
  HostName node01
  UserKnownHostsFile {PLACE}/revoked
Host hashed
  HostName node02
  UserKnownHostsFile {PLACE}/hashed
Host signed
  HostName node01
  UserKnownHostsFile {PLACE}/signed
Host here
  HostName node02
Host *
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  ConnectTimeout 2
"""


def place(lab: Lab) -> None:
    """Writes the files: ssh_config, known_hosts of every kind, a key that nobody accepts."""
    folder = lab.path("ctl", PLACE)
    (folder / "included.d").mkdir(parents=True)
    known = {
        line.split()[0].split(",")[0]: line.split()[1:]
        for line in lab.path("ctl", "/root/.ssh/known_hosts").read_text().splitlines()
    }
    (folder / "config").write_text(CONFIG)
    (folder / "empty").touch()
    (folder / "changed").write_text(f"node01 {' '.join(known['node04'])}\n")
    (folder / "revoked").write_text(
        f"node01 {' '.join(known['node01'])}\n@revoked * {' '.join(known['node01'])}\n"
    )
    (folder / "signed").write_text(f"@cert-authority node* {' '.join(known['node04'])}\n")
    (folder / "hashed").write_text(f"node02 {' '.join(known['node02'])}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(folder / "hashed")], check=True,
                   capture_output=True)  # fmt: skip
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "stranger")],
                   check=True)  # fmt: skip
    (folder / "included.d/jump.conf").write_text(
        "".join(
            f"Host t{number:02d}\n  HostName {lab.nodes[number % len(lab.nodes)]}\n"
            "  ProxyJump gateway\n"
            for number in range(64)
        )
    )
    (folder / "included.d/wrong.conf").write_text(
        "Host lostgate\n  HostName node01\n  ProxyJump refused\n"
        "Host command\n  HostName node01\n  ProxyCommand nc node01 22\n"
    )


@contextlib.contextmanager
def running(lab: Lab) -> Iterator[None]:
    """The listeners and sshds on login; the neighbour that leads nowhere."""
    place(lab)
    pam = "account required pam_slurm_adopt.so\nsession required pam_permit.so\n"
    before = lab.path("ctl", "/etc/pam.d/sshd").read_text()
    lab.path("ctl", "/etc/pam.d/sshd").write_text(pam)
    lab.sh("login", "printf '#!/bin/sh\\nsleep 60\\n' >/run/slow-keys; chmod 755 /run/slow-keys")
    lab.sh(
        "login", f"ip neigh replace {BLACK_HOLE} lladdr 02:00:00:00:99:99 nud permanent dev eth0"
    )
    null = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [lab.popen("login", ["python3", "-c", LISTENERS], None, **null)]
    for port, options in SSHDS.items():
        log = ["-E", f"{PLACE}/sshd{port}.log"]
        more = [word for option in options for word in ("-o", option)]
        argv = ["/usr/sbin/sshd", "-D", *log, "-p", str(port), *more]
        started.append(lab.popen("login", argv, None, **null))
    try:
        ports = "|".join(map(str, (2301, 2302, 2303, 2304, *SSHDS)))
        ask = f"[ $(ss -Hltn | grep -cE ':({ports}) .*0.0.0.0:') -ge {4 + len(SSHDS)} ]"
        wait_for(lambda: lab.exec("login", ["sh", "-c", ask]).returncode == 0, 10, "no listeners")
        yield
    finally:
        for process in started:
            end(process)
        lab.path("ctl", "/etc/pam.d/sshd").write_text(before)
        lab.sh("login", f"ip neigh del {BLACK_HOLE} dev eth0; rm -rf {PLACE}")


def asking(
    lab: Lab, rounds: list[dict], user: str | None = None, env: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Starts the asker on login with these rounds."""
    python = ["/opt/venv/bin/python", "-B", "-m", "lab.asker"]
    more = [f"{name}={value}" for name, value in (env or {}).items()]
    path = "PYTHONPATH=/opt/sluggish:/opt/sluggish/tests"
    pipe = subprocess.PIPE
    argv = ["env", path, *more, *python]
    process = lab.popen("login", argv, user, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin
    process.stdin.write(json.dumps(rounds).encode())
    process.stdin.close()
    process.stdin = None
    return process


def told(process: subprocess.Popen[bytes], seconds: float = 60) -> dict[str, dict]:
    """What it found out, by the names of the rounds."""
    try:
        out, err = process.communicate(timeout=seconds)
    finally:
        end(process)
    assert process.returncode == 0, err.decode()
    assert b"Traceback" not in err, err.decode()
    return json.loads(out)


def ask(lab: Lab, rounds: list[dict], user: str | None = None, **more: object) -> dict[str, dict]:
    """Asks and waits."""
    return told(asking(lab, rounds, user), **more)  # pyright: ignore
