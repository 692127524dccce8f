"""Pure: what scontrol and sacct print -> Job, Step, NodeState. No clock, no process, no network."""
