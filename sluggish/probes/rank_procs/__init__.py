"""Processes of the job's ranks, twice: state, what they wait on, CPU time, RSS, io, environment.

The job's own user or root; milliseconds. Traps:
- a name in `stat` may hold blanks and parentheses: it ends at the last `)`;
- `wchan` reads 0 for a running process, and for everybody where the kernel hides it;
- loader workers inherit RANK from their rank; the batch script carries SLURM_PROCID=0 too;
  a torchrun agent's SLURM_PROCID counts nodes, its children have RANK;
- `environ` is that of the start: what Python sets later does not show;
- `stat` counts resident pages of 4 or 64 KiB, so RSS is taken from `status`;
- foreign `environ`, `io`, `fd`, `stack` are denied: the fields stay empty.
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
listed=
if [ -n "$SLUGGISH_JOB" ]; then
  listed=$(scontrol listpids "$SLUGGISH_JOB" 2>/dev/null | while read -r pid _; do
    case $pid in *[!0-9]*|"") ;; *) [ -d "/proc/$pid" ] && printf ' %s' "$pid" ;; esac
  done)
fi
ours() {
  up=$1
  while [ "${up:-0}" -gt 1 ] && [ -n "$SLUGGISH_SELF" ]; do
    [ "$up" = "$SLUGGISH_SELF" ] && return 0
    read -r line < "/proc/$up/stat" || return 1
    line=${line##*) }; line=${line#* }; up=${line%% *}
  done 2>/dev/null
  return 1
}
n=0
for p in /proc/[0-9]*; do
  [ -r "$p/cgroup" ] || continue
  if [ -n "$SLUGGISH_JOB" ]; then
    case "$listed " in *" ${p#/proc/} "*) ;; *)
      grep -q "job_$SLUGGISH_JOB/" "$p/cgroup" 2>/dev/null ||
        tr '\\0' '\\n' < "$p/environ" 2>/dev/null | grep -qx "SLURM_JOB_ID=$SLUGGISH_JOB" ||
        continue ;;
    esac
  else
    tr '\\0' '\\n' < "$p/environ" 2>/dev/null | grep -Eq '^(RANK|SLURM_STEP_ID)=' || continue
  fi
  ours "${p#/proc/}" && continue
  n=$((n + 1)); [ "$n" -gt 4096 ] && break
  for f in stat status wchan io limits cgroup stack; do
    [ -r "$p/$f" ] && echo "==> $p/$f <==" && cat "$p/$f" 2>/dev/null && echo
  done
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
done
if [ "$n" = 0 ] && [ -n "$SLUGGISH_UID" ] && [ "$(id -u)" != 0 ] &&
  [ "$(id -u)" != "$SLUGGISH_UID" ]; then
  echo "environments of uid $SLUGGISH_UID are not readable: its processes are not known" >&2
  exit 77
fi
if [ "$n" = 0 ] && [ -n "$SLUGGISH_JOB" ] && [ -n "$(scontrol listpids "$SLUGGISH_JOB" 2>/dev/null |
  while read -r pid job step _; do [ "$job" = "$SLUGGISH_JOB" ] && [ "$pid" != -1 ] &&
    case $step in *[!0-9]*) ;; *) echo "$pid" ;; esac; done)" ]; then
  echo "Slurm lists processes of the job that are not visible here" >&2
  exit 77
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
