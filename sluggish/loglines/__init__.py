"""Pure readers of job-log lines: one module a speaker (NCCL, watchdog, Python, Slurm, training)."""
