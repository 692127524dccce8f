"""A launch script is read and never run: what it will do when something breaks, line by line."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluggish.preflight.script import check, fit, not_checked
from sluggish.preflight.script_report import render
from sluggish.preflight.settings import time_limit_s
from sluggish.preflight.shell import read_script, resolved
from sluggish.report.terminal import Look

GOOD = """#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=8
#SBATCH --time=1-00:00:00
set -euo pipefail
DUMPS=/shared/dumps/$SLURM_JOB_ID
mkdir -p "$DUMPS"
export TORCH_FR_BUFFER_SIZE=20000 TORCH_NCCL_TRACE_BUFFER_SIZE=20000
export TORCH_FR_DUMP_TEMP_FILE=$DUMPS/rank_
export TORCH_NCCL_DEBUG_INFO_TEMP_FILE="${DUMPS}/rank_"
export TORCH_NCCL_DUMP_ON_TIMEOUT=1
export NCCL_DEBUG=WARN
srun hostname   # don't count me
srun --kill-on-bad-exit=1 --ntasks-per-node 8 python train.py --save_steps 500
"""


def notes(text: str):
    return check(read_script(text))


def said(text: str) -> str:
    return " | ".join(f"{n.line}: {n.says} -> {'; '.join(n.better)}" for n in notes(text))


def with_line(line: str) -> str:
    """The good script with one line more before its launch, as line 12."""
    head, _, tail = GOOD.partition("srun hostname")
    return f"{head}{line}\nsrun hostname{tail}"


def test_a_good_script_has_nothing_to_improve() -> None:
    assert notes(GOOD) == ()
    assert list(not_checked(read_script(GOOD))) == []


@pytest.mark.parametrize(
    ("launch", "better"),
    [
        ("srun python t.py", "srun --kill-on-bad-exit=1 python t.py"),
        ("srun -K0 python t.py", "srun --kill-on-bad-exit=1 python t.py"),
        ("srun --kill-on-bad-exit=0 python t.py", "srun --kill-on-bad-exit=1 python t.py"),
        ("if ! srun -N 2 \\\n  bash r.sh -K; then", "srun --kill-on-bad-exit=1 -N 2 bash r.sh -K"),
        ("A=1 srun --chdir /x a.py -K", "A=1 srun --kill-on-bad-exit=1 --chdir /x a.py -K"),
        ("L='srun -n 16'\n$L python t.py", "export SLURM_KILL_BAD_EXIT=1"),
        ("srun -l ./train.py -K", "srun --kill-on-bad-exit=1 -l ./train.py -K"),
        ("srun -N2 -n16 ./train.py -K", "srun --kill-on-bad-exit=1 -N2 -n16 ./train.py -K"),
        ("srun -u --overlap ./t -K", "srun --kill-on-bad-exit=1 -u --overlap ./t -K"),
        ("timeout -k 5 3600 srun python t.py", "5 3600 srun --kill-on-bad-exit=1 python t.py"),
        ("env A=1 srun python t.py", "env A=1 srun --kill-on-bad-exit=1 python t.py"),
        ("eval 'srun python t.py'", "eval 'srun --kill-on-bad-exit=1 python t.py'"),
        ("C='srun python t.py'\neval $C", "export SLURM_KILL_BAD_EXIT=1"),
        ("f() { srun python t.py; }; f", "srun --kill-on-bad-exit=1 python t.py"),
        ("function f {\n  srun python t.py\n}", "srun --kill-on-bad-exit=1 python t.py"),
        ("for i in 1 2; do srun python t.py & done; wait", "srun --kill-on-bad-exit=1 python"),
        ("case $1 in\n a) srun python t.py ;;\nesac", "srun --kill-on-bad-exit=1 python t.py"),
        ("out=$(srun python t.py)", "srun --kill-on-bad-exit=1 python t.py"),
        ("x=$((1<<3))\nsrun python t.py", "srun --kill-on-bad-exit=1 python t.py"),
        ("for ((i=0; i<3; i++)); do srun python t.py; done", "srun --kill-on-bad-exit=1 python"),
        ("cat <<< text\nsrun python t.py", "srun --kill-on-bad-exit=1 python t.py"),
        ("cat <<E-1\nx\nE-1\nsrun python t.py", "srun --kill-on-bad-exit=1 python t.py"),
        ("cat <<A; cat <<-'B C'\nx\nA\ny\n\tB C\nsrun python t.py", "srun --kill-on-bad-exit=1"),
        ("echo $'it\\'s'\nsrun python t.py", "srun --kill-on-bad-exit=1 python t.py"),
        ("echo ${#a[@]} \\# x # 'y\nsrun python t.py", "srun --kill-on-bad-exit=1 python t.py"),
        ("(srun singularity exec x.sif python t.py) &", "srun --kill-on-bad-exit=1 singularity"),
    ],
)  # fmt: skip
def test_a_launch_that_outlives_a_dead_rank_is_unfit(launch: str, better: str) -> None:
    found = [n for n in notes(launch) if n.unfit]
    assert len(found) == 1
    assert found[0].says.startswith("srun without --kill-on-bad-exit")
    assert better in found[0].better[0]


@pytest.mark.parametrize(
    "launch",
    [
        "srun -K python t.py",
        "srun -K1 --mpi=pmix python t.py",
        "srun --kill-on-bad-exit python t.py",
        "export SLURM_KILL_BAD_EXIT=1\nsrun python t.py",
        "L='srun -K -n 16'\n$L python t.py",
        "srun --ntasks=1 nvidia-smi -L",
        'ARGS=(\n  -K\n  --mpi=pmix\n)\nsrun "${ARGS[@]}" python t.py',
        "srun $ARGS --ntasks 8 python t.py",
        "# srun python t.py",
        "echo 'srun python t.py'",
        "cat <<EOF\nsrun python t.py\nEOF",
    ],
)
def test_a_launch_that_ends_or_is_none_is_fit(launch: str) -> None:
    assert fit(notes(launch)), said(launch)


BATCH = "#!/bin/bash\n#SBATCH --nodes=4\n"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("#!/bin/bash\r\n#SBATCH -N2\r\nsrun -K python t.py\r\n", 1, "ends with CR LF"),
        ("#!/bin/sh\necho\r\n", 2, "ends with CR LF"),
        ("\ufeff#!/bin/bash\n#SBATCH -N2\nsrun -K python t.py\n", 1, "byte order mark"),
        ("#SBATCH -N2\nsrun -K python t.py\n", 1, "begins with #!"),
        ("\n#!/bin/bash\n#SBATCH -N2\nsrun -K python t.py\n", 1, "begins with #!"),
    ],
)
def test_what_sbatch_refuses_is_unfit(text: str, line: int, says: str) -> None:
    """All of it was shown to the sbatch of Slurm 22.05."""
    (note,) = [n for n in notes(text) if n.unfit]
    assert (note.line, says in note.says) == (line, True)


@pytest.mark.parametrize(
    "text",
    [
        "import os\r\nos.environ['NCCL_DEBUG'] = 'WARN'\r\n",
        "\ufeffimport os\n",
        "srun -K python t.py\n",
        "#!/usr/bin/env -S bash -e\n#SBATCH -N2\nsrun -K python t.py\n",
        "#! /bin/sh -l\n#SBATCH -N2\nsrun -K python t.py\n",
        "#!/usr/bin/python3\n#SBATCH -N2\nprint()\n",
    ],
)
def test_what_sbatch_takes_or_never_sees_is_not_refused(text: str) -> None:
    assert fit(notes(text)), said(text)


def test_settings_and_lines_of_a_script_from_windows_are_those_of_any_other() -> None:
    dos = [n for n in notes("\ufeff" + GOOD.replace("\n", "\r\n")) if n.line != 1]
    assert dos == []


def test_options_behind_the_first_command_are_told_once_with_their_lines() -> None:
    text = BATCH + "module load cuda\n#SBATCH --time=1:00:00\n#SBATCH -p gpu\nsrun -K python t.py\n"
    (note,) = [n for n in notes(text) if "#SBATCH" in n.says]
    assert (note.line, note.unfit) == (4, False)
    assert "2 #SBATCH lines" in note.says
    assert "the first command (line 3)" in note.says
    assert note.better == ("#SBATCH --time=1:00:00", "#SBATCH -p gpu")
    assert time_limit_s(read_script(text)) is None


def test_a_blank_before_an_option_line_is_told() -> None:
    (note,) = [n for n in notes(BATCH + "  #SBATCH --time=1\nsrun -K a\n") if "#SBATCH" in n.says]
    assert (note.line, note.better) == (3, ("#SBATCH --time=1",))


@pytest.mark.parametrize(
    "text",
    [
        BATCH + "  # a comment\n\n#SBATCH --time=1\nsrun -K a\n",
        BATCH + "##SBATCH --time=1\n# SBATCH -p x\nsrun -K a\n",
        BATCH + "#SBATCH--time=1\nsrun -K a\n",
        BATCH + "sbatch <<E\n#!/bin/sh\n#SBATCH -N2\nsrun a\nE\nsrun -K a\n",
        BATCH + "srun -K a\n# see #SBATCH --time above\n",
    ],
)
def test_other_comments_are_no_lost_options(text: str) -> None:
    assert "#SBATCH" not in said(text)


def test_options_are_read_with_their_quotes_and_without_a_blank() -> None:
    text = "#!/bin/sh\n#SBATCH--time=\"1:00:00\" --comment='a -N9'\n   # x\n#SBATCH -N 4 # -N 5\n"
    (part,) = read_script(text).batch.parts
    assert part == {"--time": ("1:00:00", 2), "--comment": ("a -N9", 2), "-N": ("4", 4)}


HET = """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=8 --time=4:00:00
#SBATCH hetjob
#SBATCH --nodes=4 --gres=gpu:b300:8,ssd:1 --time=1:00:00
export DEEPSPEED_TIMEOUT=180
"""


def test_a_heterogeneous_job_has_its_parts() -> None:
    text = HET + "srun -K python t.py\n"
    assert [part["--nodes"][0] for part in read_script(text).batch.parts] == ["1", "4"]
    assert time_limit_s(read_script(text)) == 3_600
    assert "srun without --het-group starts ranks in the first alone" in said(text)
    assert "srun --het-group=0-1 -K python t.py" in said(text)
    long = text.replace("=1:00:00", "=9:00:00")
    assert "120 GPU-hours are gone" in said(long.replace("=4:00:00", "=9:00:00"))


@pytest.mark.parametrize(
    "launch",
    ["srun -K --het-group=0,1 python t.py", "srun -K python a.py : python b.py",
     "srun -K --het-group=0 a &\nsrun -K --het-group=1 b", "srun -K $WHERE python t.py"],
)  # fmt: skip
def test_a_launch_that_names_its_parts_is_in_order(launch: str) -> None:
    assert "starts ranks in the first alone" not in said(HET + launch)


@pytest.mark.parametrize(
    "line",
    ["torchrun --nnodes 4 t.py", "python -m torch.distributed.run t.py", "accelerate launch t.py",
     "time python3 -m torch.distributed.launch t.py"],
)  # fmt: skip
def test_an_agent_of_one_node_in_a_job_of_several_is_told(line: str) -> None:
    (note,) = [n for n in notes(BATCH + line) if n.line == 3]
    assert "starts ranks on the first of 4 nodes alone" in note.says
    assert note.better == (f"srun --kill-on-bad-exit=1 --ntasks-per-node=1 {line}",)
    assert any(told.startswith("the launch: ") for told in not_checked(read_script(BATCH + line)))


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\n#SBATCH -N1\ntorchrun t.py",
        BATCH + "run() { torchrun t.py; }\nexport -f run\nsrun -K bash -c run",
        BATCH + "for n in $NODES; do ssh $n torchrun t.py & done\ntorchrun t.py",
        BATCH + "pdsh -w $NODES torchrun t.py\ntorchrun t.py",
        BATCH + "accelerate config\nmpirun python t.py",
        BATCH + "deepspeed --hostfile h t.py",
        "torchrun t.py",
    ],
)
def test_an_agent_that_somebody_starts_everywhere_is_not_told(text: str) -> None:
    assert "nodes alone" not in said(text)


@pytest.mark.parametrize(
    ("line", "unfit"),
    [
        ("deepspeed --launcher slurm t.py", True),
        ("deepspeed --launcher=SLURM t.py", True),
        ("python -m deepspeed.launcher.runner --launcher slurm t.py", True),
        ("deepspeed --launcher slurm --launcher_args '--kill-on-bad-exit=1' t.py", False),
        ("deepspeed --launcher slurm --launcher_args='-K --mpi=x' t.py", False),
        ("export SLURM_KILL_BAD_EXIT=1\ndeepspeed --launcher slurm t.py", False),
        ("deepspeed --launcher pdsh t.py", False),
        ("deepspeed t.py", False),
        ("mpirun -np 16 python t.py", False),
    ],
)
def test_a_launcher_that_calls_srun_is_judged_as_srun(line: str, unfit: bool) -> None:
    assert fit(notes(BATCH + line)) is not unfit


def test_who_launches_where_no_srun_does_is_said() -> None:
    told = list(not_checked(read_script(BATCH + "mpiexec -n 4 python t.py\n")))
    assert told[0].startswith("the launch: mpirun starts the ranks")
    inner = BATCH + "sbatch <<E\n#!/bin/sh\nsrun a\nE\ncat <<F\nno\nF\n"
    told = list(not_checked(read_script(inner)))
    assert "the script in the here-document at line 4: give it as a file of its own" in told
    assert len([line for line in told if "here-document" in line]) == 1
    open_ = list(not_checked(read_script(BATCH + "cat <<E\nsrun a\n")))
    assert open_[0].startswith("what follows line 3: a quote or here-document")


@pytest.mark.parametrize(
    "line",
    ["bash -c 'srun python t.py'", "ssh n1 srun python t.py", "x=`srun python t.py`",
     'x="$(srun python t.py)"', "trap 'srun python t.py' EXIT", "echo a | xargs srun python",
     "coproc srun python t.py", "bash -c '/usr/bin/srun python t.py'"],
)  # fmt: skip
def test_a_launch_that_is_not_looked_into_is_said(line: str) -> None:
    told = list(not_checked(read_script(f"{BATCH}{line}\n")))
    assert [one for one in told if one.startswith("line 3: srun stands in quotes")]


@pytest.mark.parametrize(
    "line", ["echo 'srun a'", "# srun a", "srun --version", "srun -lK a", "which srun", "x=srun"]
)
def test_what_starts_no_step_is_no_launch(line: str) -> None:
    assert fit(notes(BATCH + line))
    assert "in quotes" not in " ".join(not_checked(read_script(BATCH + line)))


@pytest.mark.parametrize(
    ("launch", "told"),
    [
        ("srun -K torchrun --node_rank=$SLURM_NODEID t.py", True),
        ("srun -K torchrun --node_rank ${SLURM_PROCID} t.py", True),
        ('srun -K bash -c "python t.py --rank $SLURM_PROCID"', True),
        ("srun -K bash -c 'python t.py --rank $SLURM_PROCID'", False),
        ('srun -K bash -c "python t.py --rank \\$SLURM_PROCID"', False),
        ("srun -K python t.py --name $SLURM_JOB_ID", False),
        ("srun -N1 echo $SLURM_PROCID", False),
    ],
)
def test_a_rank_s_own_variable_is_filled_in_by_the_rank(launch: str, told: bool) -> None:
    assert ("every rank gets 0" in said(launch)) is told


def test_options_in_a_variable_from_elsewhere_are_told_as_not_seen() -> None:
    (note, *_) = [n for n in notes("srun $ARGS python t.py") if n.line]
    assert not note.unfit
    assert "(what $ARGS holds is not seen here)" in note.says


@pytest.mark.parametrize(
    ("line", "says", "better"),
    [
        ("export NCCL_IB_DISABLE=1", "many times slower; it hides a port", ""),
        ("export NCCL_P2P_DISABLE=1", "it hides PCIe ACS", ""),
        ("NCCL_P2P_LEVEL=NVL", "hides why they failed", ""),
        ("export NCCL_SHM_DISABLE=1", "/dev/shm that is too small", ""),
        ("export NCCL_SOCKET_IFNAME=eth0", "called otherwise", "NCCL_SOCKET_IFNAME=^lo,docker"),
        ("export NCCL_SOCKET_IFNAME='=enp1s0f0'", "called otherwise", "NCCL_SOCKET_IFNAME=^lo"),
        ("export NCCL_IB_TIMEOUT=23", "noticed after 4 min", "NCCL_IB_TIMEOUT=20"),
        ("export NCCL_IB_RETRY_CNT=15", "the field has 3 bits", "NCCL_IB_RETRY_CNT=7"),
        ("export NCCL_TIMEOUT=7200", "neither NCCL nor PyTorch reads it", ""),
        ("export TORCH_NCCL_BLOCKING_WAIT=1", "no watchdog thread", ""),
        ("export TORCH_FR_BUFFER_SIZE=0", "the flight recorder is off", "FR_BUFFER_SIZE=20000"),
        ("export TORCH_NCCL_DUMP_ON_TIMEOUT=0", "no dump is written", "DUMP_ON_TIMEOUT=1"),
        ("export TORCH_FR_DUMP_TEMP_FILE=/tmp/rank_", "gone when it is", "$SLURM_JOB_ID/rank_"),
        ("export TORCH_FR_DUMP_TEMP_FILE=/shared/rank_", "next job overwrites", "$SLURM_JOB_ID"),
        ("unset NCCL_DEBUG", "NCCL_DEBUG is not set", "NCCL_DEBUG=WARN"),
        ("export TORCH_DISTRIBUTED_DEBUG=DETAIL", "slows each call", "DEBUG=INFO"),
        ("export CUDA_LAUNCH_BLOCKING=1", "hides races", ""),
        ("export DEEPSPEED_TIMEOUT=180", "48 GPU-hours are gone", "DEEPSPEED_TIMEOUT=30"),
        ("python - <<'E'\nos.environ['NCCL_IB_DISABLE'] = '1'\nE", "many times slower", ""),
        ("python t.py --ddp_timeout=7200", "noticed after 2 h", "--ddp_timeout 1800"),
        ("python t.py --distributed-timeout-minutes 90", "after 90 min", "timeout-minutes 30"),
        ("srun -K --export=NONE python t.py", "do not reach the ranks", "--export=ALL python"),
    ],
)  # fmt: skip
def test_a_setting_is_told_with_what_it_hides(line: str, says: str, better: str) -> None:
    text = with_line(line)
    found = notes(text)
    assert len(found) == 1, said(text)
    assert says in found[0].says
    assert not found[0].unfit
    assert better in "; ".join(found[0].better)
    assert found[0].line in (12, 13, None)


@pytest.mark.parametrize(
    "line",
    [
        "export NCCL_IB_DISABLE=0",
        "export NCCL_SOCKET_IFNAME=^lo,docker",
        "export NCCL_SOCKET_IFNAME=bond",
        "export NCCL_IB_TIMEOUT=20",
        "python t.py --ddp_timeout 1800",
        "# python t.py --ddp_timeout 99999",
        "export TORCH_NCCL_DUMP_ON_TIMEOUT=${DUMP:-1}",
    ],
)
def test_what_is_in_order_is_not_told(line: str) -> None:
    assert notes(with_line(line)) == (), said(with_line(line))


@pytest.mark.parametrize(
    "line",
    [
        "python t.py --ddp_timeout 86400",
        'python -c "dist.init_process_group(timeout=timedelta(days=2))"',
        "export TORCH_NCCL_ASYNC_ERROR_HANDLING=0",
    ],
)
def test_a_hang_that_ends_with_the_allocation_is_unfit(line: str) -> None:
    found = notes(with_line(line))
    assert [n.unfit for n in found] == [True]
    assert (
        "the end of the allocation" in found[0].says or "ends with the allocation" in found[0].says
    )


@pytest.mark.parametrize("words", ["--save_strategy epoch", "--checkpointing_steps=epoch",
                                   'save_strategy="epoch"', "--save-every-epoch"])  # fmt: skip
def test_a_checkpoint_only_at_the_end_of_the_epoch_is_told(words: str) -> None:
    text = GOOD.replace("--save_steps 500", words)
    assert "deadlock: that epoch is lost whole" in said(text)
    assert notes(GOOD + f"\n# {words}\n") == ()


def test_what_the_script_leaves_to_others_is_not_checked() -> None:
    told = list(not_checked(read_script("source ./env.sh\npython x.py\necho 'open\n")))
    assert told[0].startswith("what follows line 3: a quote or here-document begins there")
    assert told[1].startswith("settings of ./env.sh: read by the script, not looked into")
    assert told[2].startswith("the launch: no srun")
    assert told[3].startswith("how often a checkpoint is saved")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("90", 5_400), ("1:30", 90), ("2:00:00", 7_200), ("1-12", 129_600), ("1-0:30", 88_200),
     ("UNLIMITED", None), ("", None)],
)  # fmt: skip
def test_the_time_limit_is_read_as_slurm_writes_it(value: str, seconds: int | None) -> None:
    assert time_limit_s(read_script(f"#SBATCH --time={value}\n")) == seconds


def test_directives_end_at_the_first_command() -> None:
    told = read_script("#!/bin/sh\n#SBATCH -N4 -t 5  # x\n\n# c\ntrue\n#SBATCH -N9\n").batch
    assert told.parts == ({"-N": ("4", 2), "-t": ("5", 2)},)


def test_a_variable_that_names_itself_ends() -> None:
    settings = read_script("A=$B\nB=$A\nC=x$C\n").settings
    assert resolved("$A", settings)
    assert len(resolved("$C", settings)) < 20


def test_settings_of_one_value_do_not_grow_without_end() -> None:
    text = "A=" + "$B$B$B$B" * 50 + "\nB=" + "$C" * 200 + "\nC=" + "$D" * 200 + "\nD=" + "x" * 200
    assert len(resolved("$A", read_script(text).settings)) <= 4_000


@given(st.text(alphabet="srun -K\\\n'\"#;&|()<E=$A{}:.1", max_size=200))
def test_any_text_is_read(text: str) -> None:
    script = read_script(text)
    check(script)
    for width in (80, 100):
        assert "\x1b" not in render(script, "x", Look(width=width))


def test_the_screen_and_the_exit_code(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    file = tmp_path / "train.sbatch"
    file.write_text(f"#!/bin/sh\ntouch {marker}\n$(touch {marker})\nsrun python t.py \x1b[2J\n")
    command = [sys.executable, "-m", "sluggish", "preflight", "--script", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 40
    assert done.stdout.splitlines()[2].startswith("NOT FIT   one line costs the allocation")
    assert " ✗ line 4    srun without --kill-on-bad-exit" in done.stdout
    assert "     write    srun --kill-on-bad-exit=1 python t.py" in done.stdout
    assert "\x1b" not in done.stdout
    assert not marker.exists()
    told = json.loads(subprocess.run([*command, "--json"], capture_output=True).stdout)
    assert told["fit"] is False
    assert told["notes"][0]["line"] == 4


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "empty"), (b"\0\1", "not a text: it holds zero bytes"), (None, "no such file")],
)
def test_what_is_no_script_is_one_line(content: bytes | None, says: str, tmp_path: Path) -> None:
    file = tmp_path / "x"
    if content is not None:
        file.write_bytes(content)
    command = [sys.executable, "-m", "sluggish", "preflight", "--script", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"sluggish: {file}: {says}\n"


@pytest.mark.parametrize(
    "text",
    [
        "srun a b c\n" * 20_000,
        "srun " + "x" * 900_000,
        'export X="' + "$Y" * 200_000 + '"\nY="$X"\nsrun a\n',
        "".join(f'A{n}="' + f"$A{n + 1}" * 9 + '"\n' for n in range(100)),
        "(" * 200_000,
        "cat <<A\nsrun a\nA\n" * 20_000,
        "#!/bin/sh\ntrue\n" + "#SBATCH -N1\n" * 50_000,
        "timeout 5 " * 90_000,
    ],
    ids=["lines", "word", "uses", "chain", "parentheses", "documents", "options", "wrappers"],
)
def test_the_time_grows_with_the_size_alone(text: str) -> None:
    began = time.process_time()
    script = read_script(text)
    check(script)
    assert len(list(not_checked(script))) < 9
    assert time.process_time() - began < 3
