"""Rules on host memory: who was killed for it, and whether it is about to run out."""

from sluggish.rules.memory.growth import mem_growth
from sluggish.rules.memory.oom import mem_oom
from sluggish.rules.memory.step import mem_step

RULES = (mem_oom, mem_step, mem_growth)
