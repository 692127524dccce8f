"""sluggish: why a multi-node GPU training job under Slurm has stopped, and what to run next."""

__version__ = "0.1.0"
