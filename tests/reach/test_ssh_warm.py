"""What SSH needs is loaded while Slurm is asked, and never by two threads at once."""

import subprocess
import sys

START = """
import sys, threading
from sluggish.reach.ssh import SshTransport, warm_up
sys.setswitchinterval(1e-5)
warm_up()
ways = [SshTransport(config_file="/dev/null") for _ in range(4)]
done = []
def one(way):
    done.append(way.run("127.0.0.2", b":", 0.5, lambda _: None, lambda: None))
threads = [threading.Thread(target=one, args=(way,)) for way in ways]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(done) == 4
print([answer.says for answer in done if "internal" in answer.says or "import" in answer.says])
"""


def test_many_that_begin_at_once_get_whole_modules() -> None:
    for _ in range(3):
        ran = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True)
        assert (ran.stdout, ran.stderr) == ("[]\n", "")


def test_a_program_that_ends_while_it_is_loaded_ends_quietly() -> None:
    code = "from sluggish.reach.ssh import warm_up; warm_up()"
    for _ in range(3):
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (0, "")
