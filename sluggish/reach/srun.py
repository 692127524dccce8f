"""Slurm's own way to a node: a step inside the job's allocation, as the job's owner.

One `srun --overlap` a node, for one dead node ends a whole step of many. The step is charged to
the job's own memory cgroup, cannot read the kernel log as a plain user, and ends with the job.
Facts: srun(1) and RELEASE_NOTES of Slurm 20.11 and 22.05.
"""

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass

from sluggish.reach.command import clean_env
from sluggish.reach.openssh import OpenSshTransport

LAUNCHES = 16
"""Most launches at one time: slurmctld makes a step for each."""
OURS = ("PATH", "SLURM_CONF", "LC_ALL")
"""All of root's environment that the owner's processes see; a token of root's is not among it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoWay:
    """Why a transport that was asked for cannot be the way."""

    why: str


def srun(
    job: str, uid: int | None, parts: Mapping[str, int] | None = None
) -> OpenSshTransport | NoWay:
    """The transport for a running job; only its owner may add a step, so root becomes the owner.

    `parts`: of a heterogeneous job, whose leader `job` then is, the part that each node belongs to.

    The step asks for nothing of its own: it shares the job's CPUs, GPUs and memory (`--mem=0`) and
    starts no MPI.
    """
    if not job.isdigit():
        return NoWay(why=f"{job or 'no number'} is not a running job")
    step = (
        "srun", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist={node}",
        "--mem=0", "--mpi=none", "--quiet", "--unbuffered", "--chdir=/", "sh", "-s",
    )  # fmt: skip
    if parts:  # a step of the leader's number runs in the leader's part, unless it is told another
        step = (*step[:2], "--het-group={part}", *step[2:])
    env = clean_env()
    env.pop("TZ", None)  # srun hands it on, and the node's own zone is asked for there
    me = os.geteuid()
    if uid is None or me not in (0, uid):
        return NoWay(why="only the job's owner may run a step in it")
    if me == uid:
        return OpenSshTransport(
            template=step, name="srun", at_once=LAUNCHES, env=env, parts=parts or {}
        )
    try:
        owner = pwd.getpwuid(uid)
    except KeyError:
        return NoWay(why=f"uid {uid} has no account on this machine")
    become = ("setpriv", f"--reuid={uid}", f"--regid={owner.pw_gid}", "--init-groups", "--")
    own = {name: env[name] for name in OURS if name in env}
    own |= {"HOME": owner.pw_dir, "USER": owner.pw_name, "LOGNAME": owner.pw_name}
    return OpenSshTransport(
        template=(*become, *step), name="srun", at_once=LAUNCHES, env=own, parts=parts or {}
    )
