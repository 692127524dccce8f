"""A throw-away Slurm cluster on one machine, for the tests that need real parts: docs/lab.md."""
