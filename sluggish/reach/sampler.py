"""The POSIX sh script that follows a node: values of this watch, owner.sh and watch.sh.

Cost on the node, without `nvidia-smi` itself: one `awk` and two `sleep` a sample (docs/watch.md).
It ends by itself after `life_s`, so that a lost connection leaves nothing running for ever.
"""

import re
import shlex
from collections.abc import Sequence
from importlib.resources import files

LIFE_S = 3600
_DIGITS = re.compile(r"\d{1,12}\Z", re.ASCII)
_PATH = re.compile(r"/[^\0\n]{0,4000}\Z")
_HEAD = """\
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin${PATH:+:$PATH}
LC_ALL=C
export PATH LC_ALL
ID=$(id -u 2>/dev/null)
SLUGGISH_SELF=$$
export SLUGGISH_SELF
"""


def build(
    *, job: str, uid: int | None, logs: Sequence[str] = (), every_s: int = 5, life_s: int = LIFE_S
) -> bytes:
    """The script for one node. ValueError for a job or a path that is none.

    `logs` are sized as the job's owner, on the node where they are written: a size that another
    client of network storage sees may be a minute old.
    """
    if not _DIGITS.match(job) or not all(map(_PATH.match, logs)):
        raise ValueError("not fit for a script")
    values = {
        "SLUGGISH_JOB": job,
        "SLUGGISH_UID": "" if uid is None else str(int(uid)),
        "LOGS": "" if uid is None else "\n".join(logs),
        "DUMPS": "",
        "DUMPS_AFTER": "",
        "EVERY": str(max(1, int(every_s))),
        "BEATS": str(max(1, life_s // max(1, int(every_s)))),
    }
    head = "\n".join(f"{name}={shlex.quote(value)}" for name, value in values.items())
    parts = (files("sluggish.reach").joinpath(name).read_text("utf-8") for name in PARTS)
    text = "\n".join((head, _HEAD, *parts, "watch"))
    return f"sluggish_watch() {{\n{text}\n}}\nsluggish_watch\n".encode()


PARTS = ("owner.sh", "watch.sh")
