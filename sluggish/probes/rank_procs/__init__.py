"""Processes of the job's ranks, twice: state, what they wait on, CPU time, RSS, io, environment.

The job's own user or root; milliseconds. Traps:
- a name in `stat` may hold blanks and parentheses: it ends at the last `)`;
- `wchan` reads 0 for a running process, and for everybody where the kernel hides it;
- loader workers inherit RANK from their rank; the batch script carries SLURM_PROCID=0 too;
  a torchrun agent's SLURM_PROCID counts nodes, its children have RANK;
- `environ` is that of the start: what Python sets later does not show;
- `stat` counts resident pages of 4 or 64 KiB, so RSS is taken from `status`;
- foreign `environ`, `io`, `fd`, `stack` are denied: the fields stay empty;
- over srun we stand in the job's own mounts, where Slurm gives it a private /tmp: that shows in
  what is mounted there, `/run/private/n1/48213/.48213 /tmp` (job_container/tmpfs, 22.05);
- anybody may give his process the job's number: what is known by Slurm's list or the environment
  alone must be the owner's too.
"""

import re
from collections.abc import Iterator

from sluggish.evidence.environment import ENVIRONMENT as ENVIRONMENT
from sluggish.facts.host import RankProcess
from sluggish.facts.origin import Origin
from sluggish.facts.sections import sections
from sluggish.probes.rank_procs.proc_files import processes
from sluggish.probes.rank_procs.ps_table import is_aux_row, is_ps_header, table
from sluggish.probes.rank_procs.whose import with_inheritance

ID = "rank_procs"
COMMAND = (
    """\
for tool in cut grep tr find; do
  command -v "$tool" > /dev/null || { echo "$tool: not found" >&2; exit 127; }
done
job=$SLUGGISH_JOB
real_user() {
  while read -r key value _; do
    [ "$key" = Uid: ] && echo "$value" && break
  done < "/proc/$1/status"
} 2>/dev/null
is_owner() { [ -z "$SLUGGISH_UID" ] || [ "$(real_user "$1")" = "$SLUGGISH_UID" ]; }
ours() {
  up=$1
  while [ "${up:-0}" -gt 1 ] && [ -n "$SLUGGISH_SELF" ]; do
    [ "$up" = "$SLUGGISH_SELF" ] && return 0
    read -r line < "/proc/$up/stat" || return 1
    line=${line##*) }; line=${line#* }; up=${line%% *}
  done 2>/dev/null
  return 1
}
number() { cut -d / -f 3; }
private_tmp() {
  [ -n "$job" ] && grep -qsE \
    "^[0-9]+ [0-9]+ [0-9:]+ [^ ]*[^0-9 ]$job([^0-9 ][^ ]*)? /(tmp|var/tmp|dev/shm) " \
    /proc/self/mountinfo
}
node_mounts=$(readlink /proc/1/ns/mnt 2>/dev/null) ||
  { private_tmp && node_mounts=ours-too; } || node_mounts=$(readlink /proc/self/ns/mnt 2>/dev/null)
seen=' '
n=0
show() {
  [ -r "/proc/$1/stat" ] && ! ours "$1" && [ "$n" -lt 4096 ] || return
  case $seen in *" $1 "*) return ;; esac
  seen="$seen$1 "; n=$((n + 1)); p=/proc/$1
  for f in stat status wchan io limits cgroup stack; do
    [ -r "$p/$f" ] && echo "==> $p/$f <==" && cat "$p/$f" 2>/dev/null && echo
  done
  echo "==> $p/source <=="; echo "$2"
  case $(readlink "$p/ns/mnt" 2>/dev/null) in
    ''|"$node_mounts") ;;
    *) echo "==> $p/mounts <=="; echo own ;;
  esac
  echo "==> $p/cmdline <=="; tr '\\0\\n' '  ' < "$p/cmdline"; echo
  echo "==> $p/environ <=="
  tr '\\n\\0' ' \\n' < "$p/environ" 2>/dev/null | grep -E '^("""
    + ENVIRONMENT
    + """)='
  echo "==> $p/fd <=="; ls -l "$p/fd" 2>/dev/null | grep -F -- '-> /'
  for t in "$p"/task/*; do
    case $(cat "$t/stat" 2>/dev/null) in
      *') D '*)
        echo "==> $t/stat <=="; cat "$t/stat"
        echo "==> $t/wchan <=="; cat "$t/wchan"; echo ;;
    esac
  done
}
if [ -n "$job" ]; then
  limit=; command -v timeout > /dev/null && limit='timeout 3'
  listed=$($limit scontrol listpids "$job" 2>/dev/null)
  [ $? = 124 ] && echo "scontrol listpids: no answer in 3 s" >&2
  steps=$(echo "$listed" | while read -r pid owner step _; do
    [ "$owner" = "$job" ] || continue
    case $pid in *[!0-9]*|'') ;; *) echo "$pid $step" ;; esac
  done)
  for pid in $(echo "$steps" | cut -d ' ' -f 1); do is_owner "$pid" && show "$pid" listpids; done
  for pid in $(grep -ls "/job_$job\\(/\\|\\$\\)" /proc/[0-9]*/cgroup | number); do
    grep -q '/user@' "/proc/$pid/cgroup" 2>/dev/null || show "$pid" cgroup
  done
  for pid in $(grep -lszFx "SLURM_JOB_ID=$job" /proc/[0-9]*/environ 2>/dev/null | number); do
    is_owner "$pid" && show "$pid" environment
  done
  if [ -n "$SLUGGISH_UID" ]; then
    for pid in $(find /proc -maxdepth 1 -name '[0-9]*' -user "$SLUGGISH_UID" 2>/dev/null | number)
    do
      ls -l "/proc/$pid/fd" 2>/dev/null | grep -q -- '-> /dev/nvidia[0-9]' || continue
      grep -qs '/job_[0-9]' "/proc/$pid/cgroup" ||
        grep -qsz '^SLURM_JOB_ID=' "/proc/$pid/environ" 2>/dev/null || show "$pid" gpu
    done
  fi
else
  for pid in $(grep -lszE '^(RANK|SLURM_STEP_ID)=' /proc/[0-9]*/environ 2>/dev/null | number); do
    show "$pid" environment
  done
fi
if [ "$n" = 0 ] && [ -n "$SLUGGISH_UID" ] && [ "$(id -u)" != 0 ] &&
  [ "$(id -u)" != "$SLUGGISH_UID" ]; then
  echo "environments of uid $SLUGGISH_UID are not readable: its processes are not known" >&2
  exit 77
fi
if [ "$n" = 0 ] && [ -n "$job" ]; then
  case $(echo "$steps" | cut -d ' ' -f 2) in *[0-9]*)
    echo "Slurm lists processes of the job that are not visible here" >&2
    exit 77 ;;
  esac
  if ! grep -qsx slurmd /proc/[0-9]*/comm; then
    echo "no slurmd is visible: hidden, dead, or another PID namespace than the job's" >&2
    exit 77
  fi
fi
echo "==> processes <=="; echo "$n"
"""
)
FACTS: tuple[type, ...] = (RankProcess,)
BINARY = False

_SNIFF = re.compile(
    rb"^==> /proc/\d{1,10}/(?:stat|status|wchan|io|cmdline|environ|fd|cgroup|limits) <==\r?$"
    rb"|\A==> processes <==\r?\n\d{1,6}\s*\Z",
    re.MULTILINE,
)


def sniff(head: bytes) -> bool:
    """`/proc/PID` sections, or a table that `ps` printed."""
    if _SNIFF.search(head):
        return True
    first = head[:4096].decode("utf-8", "replace").splitlines()
    if any(is_ps_header(line) for line in first[:5]):
        return True
    rows = [line for line in first if line.strip()]
    return bool(rows) and all(is_aux_row(line) for line in rows[:5])


def parse(text: str, origin: Origin) -> Iterator[RankProcess]:
    """One RankProcess a process; none where the count says so, or an empty run ended well.

    Raises ValueError behind its processes where the count at the end is missing or another: an
    answer that was cut must not make the processes that it lost look like ended ones.
    """
    if not text.strip() and origin.exit_code == 0:
        return
    found = list(sections(text))
    if any(name.startswith("/proc/") for name, _ in found):
        listed = processes(found, origin)
    elif ("processes", "0") in [(name, body.strip()) for name, body in found]:
        return
    else:
        listed = table(text, origin)
    if not listed:
        raise ValueError("expected ==> /proc/PID/stat <== sections or a table of ps")
    yield from with_inheritance(listed)
    _check_count(found)


_PID = re.compile(r"/proc/(\d{1,10})/", re.ASCII)


def _check_count(found: list[tuple[str, str]]) -> None:
    pids = {match[1] for name, _ in found if (match := _PID.match(name))}
    if pids and found[-1] != ("processes", str(len(pids))):
        raise ValueError(f"expected the number of processes behind {len(pids)} of them: cut")
