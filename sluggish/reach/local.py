"""The script on this machine itself: a job of one node, looked at from that node."""

from sluggish.reach.openssh import OpenSshTransport


def local() -> OpenSshTransport:
    """A transport whose courier is no network at all."""
    return OpenSshTransport(template=("sh", "-s"), name="local")
