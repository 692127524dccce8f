"""How long a user waits: `sluggish --help` and the seed story, beside plain imports.

    scripts/run >/dev/null; .venv/bin/python -m pip install pandas
    .venv/bin/python scripts/bench/start_up.py [ROUNDS]

Prints the medians of interleaved rounds in one run, and their ratios:
help / `import typer` (goal: at most 1.3) and demo / (2 x `import pandas` + 0.3 s) (at most 1).
"""

import statistics
import subprocess
import sys
import time

PYTHON = sys.executable
HELP = [PYTHON, "-m", "sluggish", "--help"]
TYPER = [PYTHON, "-c", "import typer"]
DEMO = [PYTHON, "-m", "sluggish", "demo"]
PANDAS = [PYTHON, "-c", "import pandas"]


def seconds(command: list[str]) -> float:
    """Wall time of one run; its verdict's exit code is not an error."""
    start = time.perf_counter()
    ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    took = time.perf_counter() - start
    if ended.returncode not in (0, 12, 20):
        sys.exit(f"{' '.join(command)}: {ended.stderr.strip().splitlines()[-1:]}")
    return took


def medians(commands: dict[str, list[str]], rounds: int) -> dict[str, float]:
    """Interleaved, so that a busy machine slows all of them alike; the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            took = seconds(command)
            if number:
                times[name].append(took)
    return {name: statistics.median(taken) for name, taken in times.items()}


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    found = medians({"help": HELP, "typer": TYPER, "demo": DEMO, "pandas": PANDAS}, rounds)
    for name, took in found.items():
        print(f"{name:8} {took:6.3f} s")
    print(f"help / import typer                {found['help'] / found['typer']:5.2f}  (goal 1.3)")
    goal = 2 * found["pandas"] + 0.3
    print(f"demo / (2 x import pandas + 0.3 s) {found['demo'] / goal:5.2f}  (goal 1.0)")


if __name__ == "__main__":
    main()
