"""The files of a new lab: users, keys, host names, Slurm's and sshd's configuration."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import packages, simulators, sysfs

USERS = {"alice": 5001, "bob": 5002}
"""alice owns the jobs; bob is the other user (with accounting: AdminLevel=Operator)."""
MARK = ".sluggish-lab"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    nodes: int = 4
    accounting: bool = False
    gpus: int = 8
    cpus: int = 32
    """A node, as Slurm is told; the machine's own number does not matter."""
    hcas: int = 8
    slurmd_timeout: int = 15
    """Seconds until the controller calls a silent node down."""
    min_job_age: int = 300
    """Seconds for which the controller remembers an ended job."""
    slurm_conf: str = ""
    """Further lines of slurm.conf; they win over the lab's own."""
    job_container: str = ""
    """Lines of job_container.conf, for `JobContainerType=job_container/tmpfs` in `slurm_conf`."""
    sshd_config: str = ""
    """Further lines of sshd_config, such as MaxStartups; they win."""


def write(directory: Path, settings: Settings) -> tuple[str, ...]:
    """Fills the lab's directory and says how its nodes are called."""
    width = max(2, len(str(settings.nodes)))
    names = tuple(f"node{number:0{width}d}" for number in range(1, settings.nodes + 1))
    for part in ("aside", "home", "keys", "log", "munge", "mysql/tmp", "nodes", "root", "state"):
        (directory / part).mkdir(parents=True)
    (directory / MARK).touch()
    (directory / "nodelist").write_text("".join(f"{name}\n" for name in names))
    shutil.copy(Path(__file__).with_name("init.sh"), directory)
    (directory / "source").symlink_to(packages.ROOT)
    if (packages.venv() / ".done").exists():
        (directory / "venv").symlink_to(packages.venv())
    _etc(directory / "etc", addresses(names))
    for name in ("ctl", "login", *names):
        _node(directory / "nodes" / name, settings.gpus)
    simulators.place(directory)
    for number, name in enumerate(names, 1):
        home = directory / "nodes" / name
        sysfs.write(home, sysfs.hcas(number, settings.hcas), settings.gpus)
    _keys(directory, addresses(names))
    _slurm(directory / "etc/slurm", names, settings)
    (directory / "etc/ssh/sshd_config").write_text(settings.sshd_config + _SSHD)
    return names


def addresses(names: tuple[str, ...]) -> dict[str, str]:
    found = {"ctl": "10.77.0.1", "login": "10.77.0.2"}
    return found | {name: f"10.77.1.{number}" for number, name in enumerate(names, 1)}


def _etc(etc: Path, hosts: dict[str, str]) -> None:
    """A copy of the machine's /etc without its secrets, then the lab's own accounts in it."""
    secret = shutil.ignore_patterns(
        "shadow*", "gshadow*", "ssh_host_*", "private", "munge.key", "slurm"
    )
    shutil.copytree("/etc", etc, symlinks=True, ignore=secret, ignore_dangling_symlinks=True)
    (etc / "slurm").mkdir()
    taken = (*USERS, "root")
    passwd = [x for x in (etc / "passwd").read_text().splitlines() if x.split(":")[0] not in taken]
    passwd += ["root:x:0:0:root:/root:/bin/bash"]
    passwd += [f"{user}:x:{uid}:{uid}::/home/{user}:/bin/bash" for user, uid in USERS.items()]
    group = [x for x in (etc / "group").read_text().splitlines() if x.split(":")[0] not in USERS]
    group += [f"{user}:x:{uid}:" for user, uid in USERS.items()]
    (etc / "passwd").write_text("\n".join(passwd) + "\n")
    (etc / "group").write_text("\n".join(group) + "\n")
    (etc / "shadow").touch(mode=0o600)
    (etc / "shadow").write_text("".join(f"{user}:*:19000:0:99999:7:::\n" for user in taken))
    (etc / "hostname").write_text("ctl\n")
    (etc / "hosts").write_text(
        "127.0.0.1 localhost\n" + "".join(f"{ip} {name}\n" for name, ip in hosts.items())
    )
    for name in ("resolv.conf", "ld.so.preload"):
        (etc / name).unlink(missing_ok=True)
    (etc / "resolv.conf").touch()
    (etc / "nsswitch.conf").write_text("passwd: files\ngroup: files\nshadow: files\nhosts: files\n")
    shutil.rmtree(etc / "ssh/ssh_config.d", ignore_errors=True)
    shutil.rmtree(etc / "ssh/sshd_config.d", ignore_errors=True)
    (etc / "ssh/ssh_config").write_text("Host *\n  StrictHostKeyChecking yes\n  ConnectTimeout 5\n")


def _node(home: Path, gpus: int) -> None:
    for part in ("bin", "dev", "log", "spool", "state", "tmp", "vartmp"):
        (home / part).mkdir(parents=True)
    for part in ("tmp", "vartmp"):
        (home / part).chmod(0o1777)
    (home / "hostname").write_text(f"{home.name}\n")
    for number in range(gpus):  # slurmd wants device nodes: /dev/null under another name
        os.mknod(home / f"dev/nvidia{number}", 0o20666, os.makedev(1, 3))
    sluggish = home / "bin/sluggish"
    sluggish.write_text(_SLUGGISH)
    sluggish.chmod(0o755)


def _keys(directory: Path, hosts: dict[str, str]) -> None:
    munge = directory / "keys/munge.key"
    munge.write_bytes(os.urandom(1024))
    munge.chmod(0o400)
    known = ""
    for name, ip in hosts.items():
        kind, key = _ssh_key(directory / f"nodes/{name}/hostkey")
        known += f"{name},{ip} {kind} {key}\n"
    homes = {"root": directory / "root"} | {user: directory / "home" / user for user in USERS}
    public: dict[str, str] = {}
    for user, home in homes.items():
        ssh = home / ".ssh"
        ssh.mkdir(parents=True, mode=0o700)
        home.chmod(0o700 if user == "root" else 0o755)
        public[user] = " ".join(_ssh_key(ssh / "id_ed25519"))
        (ssh / "known_hosts").write_text(known)
        (ssh / "authorized_keys").write_text(f"{public['root']}\n{public[user]}\n")
        (ssh / "authorized_keys").chmod(0o600)
        uid = USERS.get(user, 0)
        for path in (home, ssh, *ssh.iterdir()):
            os.chown(path, uid, uid)


def _ssh_key(path: Path) -> tuple[str, str]:
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(path)]
    subprocess.run(make, check=True)
    kind, key, _ = path.with_suffix(".pub").read_text().split()
    return kind, key


def _slurm(etc: Path, names: tuple[str, ...], settings: Settings) -> None:
    half = (len(names) + 1) // 2
    leaves = [leaf for leaf in (names[:half], names[half:]) if leaf]
    topology = [f"SwitchName=leaf{i} Nodes={','.join(leaf)}" for i, leaf in enumerate(leaves, 1)]
    topology.append(
        f"SwitchName=spine Switches={','.join(f'leaf{i + 1}' for i in range(len(leaves)))}"
    )
    (etc / "topology.conf").write_text("\n".join(topology) + "\n")
    (etc / "gres.conf").write_text(
        f"Name=gpu Type=b300 File=/run/node/dev/nvidia[0-{settings.gpus - 1}]\n"
    )
    # loaded at start although proctrack/linuxproc never uses it; Slurm 22.05 knows no "disabled"
    (etc / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    if settings.job_container:
        (etc / "job_container.conf").write_text(settings.job_container)
    (etc / "slurmdbd.conf").write_text(_SLURMDBD)
    (etc / "slurmdbd.conf").chmod(0o600)
    storage = "slurmdbd" if settings.accounting else "none"
    own = {line.partition("=")[0].strip() for line in settings.slurm_conf.splitlines()}
    lines = [line for line in _SLURM.splitlines() if line.partition("=")[0] not in own]
    lines += [
        f"AccountingStorageType=accounting_storage/{storage}",
        *(["AccountingStorageHost=ctl", "AccountingStorageTRES=gres/gpu"] * settings.accounting),
        *[f"SlurmdTimeout={settings.slurmd_timeout}", f"MinJobAge={settings.min_job_age}"],
        settings.slurm_conf,
        f"NodeName=DEFAULT CPUs={settings.cpus} Boards=1 SocketsPerBoard=2 ThreadsPerCore=1 "
        f"CoresPerSocket={settings.cpus // 2} RealMemory=64000 Gres=gpu:b300:{settings.gpus}",
        *(f"NodeName={name} NodeAddr={addresses(names)[name]}" for name in names),
        "PartitionName=gpu Nodes=ALL Default=YES MaxTime=7-0 State=UP",
    ]
    (etc / "slurm.conf").write_text("\n".join(lines) + "\n")


_SLUGGISH = """\
#!/bin/sh
PYTHONPATH=/opt/sluggish PYTHONDONTWRITEBYTECODE=1 exec /opt/venv/bin/python -m sluggish "$@"
"""

_SSHD = """\
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
HostKey /run/node/hostkey
PidFile none
Subsystem sftp internal-sftp
"""

_SLURM = """\
ClusterName=lab
SlurmctldHost=ctl(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=/run/lab/state
SlurmctldPidFile=/run/slurmctld.pid
SlurmctldLogFile=/run/lab/log/slurmctld.log
SlurmdSpoolDir=/run/node/spool
SlurmdPidFile=/run/slurmd-%n.pid
SlurmdLogFile=/var/log/slurmd.log
SlurmdParameters=config_overrides
SlurmctldParameters=reboot_from_controller
RebootProgram=/run/lab/reboot
ResumeTimeout=60
ReturnToService=1
KillWait=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0
TopologyPlugin=topology/tree
MpiDefault=none
GresTypes=gpu
"""

_SLURMDBD = """\
AuthType=auth/munge
DbdHost=ctl
DbdAddr=10.77.0.1
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StorageUser=slurm
StoragePass=lab
StorageLoc=slurm_acct
LogFile=/run/lab/log/slurmdbd.log
PidFile=/run/slurmdbd.pid
"""
