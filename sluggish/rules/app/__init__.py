"""What the program and its launcher say: exceptions, signals, exits, GPU memory."""

from sluggish.findings import Rule
from sluggish.rules.app.cuda_memory import mem_cuda
from sluggish.rules.app.ends import app_exit, app_signal
from sluggish.rules.app.exception import app_exception, gpu_cuda

RULES: tuple[Rule, ...] = (app_exception, app_signal, app_exit, mem_cuda, gpu_cuda)
