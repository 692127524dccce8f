"""A job's log that is too long to come home: searched as its owner, kept in slices."""

import io
import json
import tarfile

import pytest

from sluggish.probes import job_log

from .cluster import Lab
from .test_slurm_view import running, submitted

WRITES = """
seq -f 'step %.0f loss 2.5 and so on, a line like so many others' 300000
echo 'Traceback (most recent call last):'
echo '  File "/opt/train.py", line 5, in main'
echo 'ValueError: odd shape in the middle'
seq -f 'step %.0f loss 2.5 and so on, a line like so many others' 300001 950000
srun sleep 600
"""


@pytest.mark.parametrize("user", [None, "alice"])
def test_what_stands_in_the_middle_of_a_long_log_is_found(lab: Lab, user: str | None) -> None:
    with submitted(lab, "-N1 -o /home/alice/long-%j.log", WRITES) as job:
        running(lab, job)
        out = f"/home/alice/long-{job}-{user}.tar.gz"
        told = lab.sh("login", f"sluggish collect --job {job} --window 0 -o {out} 2>&1", user)
        size = int(lab.sh("login", f"stat -c %s /home/alice/long-{job}.log"))
        packed = lab.path("login", out).read_bytes()
        lab.sh("login", f"rm {out} /home/alice/long-{job}.log")
    assert size > 50e6
    assert len(packed) < 4e6, told
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        manifest = json.load(tar.extractfile("manifest.json") or io.BytesIO())
        (entry,) = (e for e in manifest["evidence"] if e["probe"] == job_log.ID)
        text = (tar.extractfile(entry["path"]) or io.BytesIO()).read().decode()
    assert "ValueError: odd shape in the middle" in text
    assert "bytes not searched" not in text
    assert text.count("next is byte ") >= 2
    assert text.startswith("step 1 loss")
