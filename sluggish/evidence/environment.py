"""Which variables of a process may be kept: the node sends no other, save() keeps no other."""

import re

ENVIRONMENT = (
    "RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK|MASTER_ADDR|MASTER_PORT|"
    "SLURM_PROCID|SLURM_LOCALID|SLURM_NODEID|SLURM_NTASKS|SLURM_JOB_ID|SLURM_STEP_ID|"
    "SLURM_STEP_GPUS|SLURM_JOB_GPUS|SLURM_TOPOLOGY_ADDR|SLURM_RESTART_COUNT|"
    "OMPI_COMM_WORLD_(RANK|LOCAL_RANK|SIZE)|PMI_(RANK|SIZE)|PMIX_RANK|CUDA_VISIBLE_DEVICES|"
    "(NCCL|TORCH|UCX|FI|GLOO|TP|MLX5)_[A-Z0-9_]*|OMP_NUM_THREADS|LD_PRELOAD"
)
"""Allow-list: nothing else of an environment leaves the node, or is kept."""
_HEADER = re.compile(rb"==> (.{1,200}) <==\r?\Z")
_ALLOWED = re.compile(rf"(?:{ENVIRONMENT})=".encode())


def allowed(content: bytes) -> bytes:
    """The text of rank_procs without variables that the list does not know.

    For bundles from elsewhere, and for the day the list on the node is wrong.
    """
    kept: list[bytes] = []
    inside = False
    for line in content.split(b"\n"):
        header = _HEADER.match(line)
        if header:
            inside = header[1].endswith(b"/environ")
        if header or not inside or not line.strip() or _ALLOWED.match(line):
            kept.append(line)
    return b"\n".join(kept)
