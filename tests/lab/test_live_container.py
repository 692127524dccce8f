"""Ranks in user and mount namespaces with another root and a /tmp of their own, as pyxis makes."""

from collections.abc import Iterator

import pytest

from . import cluster, live, sims
from .cluster import Lab
from .live import Job

pytestmark = pytest.mark.usefixtures("torch_in_lab")

NODES = ("node01", "node02")
FOLDER = "/home/alice/contained"
ODD = "rank_desync/collective_mismatch"
# the node's own /tmp stays within reach as /var/tmp: there test and ranks tell each other things
_CONTAINER = """\
set -e
root=/dev/shm/root.$SLURM_JOB_ID.$SLURM_PROCID
mkdir -p $root
mount --rbind / $root
mount --rbind /tmp $root/var/tmp
mount -t tmpfs tmpfs $root/tmp
for name in beat.$SLURM_JOB_ID.$SLURM_PROCID fault.$SLURM_JOB_ID; do
    ln -s /var/tmp/$name $root/tmp/$name
done
exec /usr/sbin/chroot $root "$@"
"""
_SUBMIT = f"""
mkdir -p {FOLDER} && cd {FOLDER} && sbatch --parsable -J contained -N2 -w {",".join(NODES)} \
    --ntasks-per-node=2 --gres=gpu:2 -o {FOLDER}/job.out --wrap "
export GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1
export TORCH_FR_DUMP_TEMP_FILE=/tmp/fr_\\${{SLURM_JOB_ID}}_
srun unshare --user --map-root-user --mount sh {FOLDER}/container.sh \
    /opt/venv/bin/python -u /opt/sluggish/tests/lab/train.py odd 2 {FOLDER}"
"""


@pytest.fixture
def job(lab: Lab) -> Iterator[Job]:
    """Rank 2 is in another collective; every dump lies in a /tmp that only its rank sees."""
    lab.sh("login", f"mkdir -p {FOLDER}", "alice")
    lab.path("login", f"{FOLDER}/container.sh").write_text(_CONTAINER)
    number = lab.sh("login", _SUBMIT, "alice").strip()
    found = Job(lab=lab, id=number, case="odd", culprit=2, nodes=NODES)
    try:
        cluster.wait_for(lambda: min(found.steps()) >= 5, 60, "the ranks do not train")
        found.fault()
        live.wait_quiet(found)
        live.gpus_wait(found, found.culprit)
        yield found
    finally:
        lab.exec("ctl", ["scancel", "-f", number])
        for node in NODES:
            sims.gpus(lab, node)
        queue = ["squeue", "-h", "-j", number]
        cluster.wait_for(lambda: not lab.exec("ctl", queue).stdout, 60, "it does not end")


def test_dumps_come_out_of_the_containers_and_the_warning_stands_before_scancel(job: Job) -> None:
    lab = job.lab
    assert lab.exec(NODES[0], ["sh", "-c", f"ls /tmp/fr_{job.id}_*"]).returncode != 0
    found = live.looks(job)
    for way, told in found.items():
        assert (told.verdict, told.places) == (ODD, [("node02", 2)]), (
            way,
            told.document["verdict"],
        )
        (ending,) = [
            step for step in told.document["remedies"] if f"scancel {job.id}" in step["commands"]
        ]
        assert ending["precondition"].startswith("ranks on node[01-02] have mounts of their own"), (
            way
        )
    argv = ["diagnose", "--job", job.id, "--transport", "ssh", "--window", "1"]
    process = live.sluggish(lab, argv, None)
    out, _ = process.communicate(timeout=60)
    lines = out.decode().splitlines()
    cancel = lines.index(f"   scancel {job.id}")
    assert any("mounts of their own" in line for line in lines[cancel - 5 : cancel]), lines
