"""The way to the nodes, as the command line and the configuration tell it."""

import shlex
from collections.abc import Mapping, Sequence
from functools import partial

from sluggish.cli.notes import Notes
from sluggish.config import Config
from sluggish.evidence.source import EvidenceError
from sluggish.reach.choose import NAMES, choose
from sluggish.reach.model import Transport
from sluggish.reach.srun import NoWay
from sluggish.reach.ssh import SshTransport
from sluggish.text import safe


def known_way(name: str) -> str:
    """The name of a transport; EvidenceError names those that there are."""
    if name not in NAMES:
        raise EvidenceError(f"--transport {safe(name, 40)}: one of {', '.join(NAMES)}")
    return name


def way_to(
    name: str,
    nodes: Sequence[str],
    config: Config,
    notes: Notes,
    *,
    job: str | None,
    uid: int | None,
    running: bool,
    parts: Mapping[str, int] | None = None,
) -> Transport:
    """The transport, said with its reason; EvidenceError where the one asked for is no way."""
    ssh = config.ssh
    found = choose(
        name,
        nodes,
        job=job,
        uid=uid,
        running=running,
        ssh=partial(SshTransport, user=ssh.user, config_file=ssh.config, connect_s=ssh.connect_s),
        command=shlex.split(config.openssh_command),
        parts=parts,
    )
    if isinstance(found, NoWay):
        raise EvidenceError(f"{name} is no way to the nodes: {found.why}")
    notes.say(f"by {found.transport.name}: {found.why}")
    return found.transport
