"""The only room that talks to machines: Slurm's commands, SSH, srun, and the script a node runs."""
