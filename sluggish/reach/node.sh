# What runs on a node, fed to `sh -s`. Above it stand the values of this look and the probes as
# functions p_ID. It reads; it writes only below its own directory and ends only what it started.

# the system's own first: an entry of PATH may lie on the storage that hangs
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin${PATH:+:$PATH}
LC_ALL=C
export PATH LC_ALL
umask 077
cd / 2>/dev/null # a home is closed to the child that becomes the owner, or hangs
[ -n "${BASH_VERSION:-}" ] && set -o posix # there ulimit counts in 512 bytes
SLUGGISH_SELF=$$
export SLUGGISH_SELF SLUGGISH_JOB SLUGGISH_UID
ID=$(id -u 2>/dev/null)
[ "$ID" = 0 ] && RIGHTS=root || RIGHTS=user

now() { # hundredths of a second since the boot, without a new process
    read -r up _ </proc/uptime || up=0.00
    cs=${up#*.}
    NOW=$((${up%.*} * 100 + 1${cs} - 100))
}

family() { # PID: its descendants, from /proc
    kids=
    for f in /proc/[0-9]*/stat; do
        read -r line <"$f" || continue
        rest=${line##*) }
        rest=${rest#* }
        [ "${rest%% *}" = "$1" ] && kids="$kids ${line%% *}"
    done 2>/dev/null
    for kid in $kids; do
        echo "$kid"
        ( family "$kid" )
    done
}
gone() { # PID of a child: it has ended
    { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 0
    case ${line##*) } in Z* | X*) return 0 ;; esac
    return 1
}
in_kernel() { # PID...: says of each that hangs in the kernel where; 1 if none does
    none=1
    for p; do
        { read -r line <"/proc/$p/stat"; } 2>/dev/null || continue
        case ${line##*) } in
        D*)
            none=0
            echo "stuck in the kernel: $line"
            cat "/proc/$p/wchan" && echo
            cat "/proc/$p/stack"
            ;;
        esac
    done 2>/dev/null
    return $none
}
parent() { # -> PARENT: who started this script, or who took it over
    PARENT=
    { read -r line <"/proc/$$/stat"; } 2>/dev/null || return
    line=${line##*) }
    line=${line#* }
    PARENT=${line%% *}
}
parent
STARTED_BY=$PARENT
nap() { sleep 0.05 2>/dev/null || sleep 1; }
if [ "$(printf ab | head -c 1 2>/dev/null)" = a ]; then
    take() { head -c "$1" "$2"; } # COUNT FILE
else
    take() { [ "$1" -eq 0 ] || dd bs="$1" count=1 if="$2"; }
fi 2>/dev/null
command -v mktemp >/dev/null 2>&1 || mktemp() { # -d [TEMPLATE]
    made=${2:-$TMPDIR/tmp.XXXXXXXX}
    made=${made%XXXXXXXX}$(printf '%08d' $$)
    mkdir "$made" && echo "$made"
}

# -- a directory of our own ----------------------------------------------------------------------

answers() { # DIRECTORY: it does so within a second
    [ -n "$1" ] || return 1
    ( [ -d "$1" ] ) >/dev/null 2>&1 </dev/null &
    asked=$!
    tries=0
    until gone "$asked"; do
        tries=$((tries + 1))
        [ "$tries" -gt 20 ] && return 1
        nap
    done
}
T=
answers "${TMPDIR:-}" || TMPDIR= # it may lie on the storage that hangs
for place in "${TMPDIR:-/tmp}" /tmp /dev/shm "/run/user/$ID"; do
    [ -d "$place" ] && [ -w "$place" ] || continue
    T=$(mktemp -d "$place/sluggish.XXXXXXXX" 2>/dev/null) || { T= && continue; }
    dd if=/dev/zero of="$T/room" bs=65536 count=16 2>/dev/null &&
        [ "$(wc -c <"$T/room" 2>/dev/null)" -eq 1048576 ] && rm "$T/room" && break
    rm -rf "$T" # full, or the tools for files are missing
    T=
done 2>/dev/null
[ -n "$T" ] && TMPDIR=$T && export TMPDIR # a probe's own temporary files lie there too
CHILD=
clean() { # also where the connection broke: a sampler left alone would run for ever
    trap '' HUP INT TERM PIPE
    [ -n "$CHILD" ] && kill -TERM $(family "$CHILD") "$CHILD"
    case $T in
    */sluggish.????????)
        for f in "$T"/*.pid; do
            [ -e "$f" ] && [ ! -e "${f%pid}done" ] && pid=$(cat "$f") &&
                kill -TERM "$pid" $(family "$pid")
        done
        rm -rf "$T"
        ;;
    esac
} 2>/dev/null
trap clean EXIT
trap 'exit 130' HUP INT TERM PIPE

# -- frames --------------------------------------------------------------------------------------

# the head: what, which sample, rank, rights, start, duration, exit code, error, lengths; then bytes
head_of() { # PROBE SAMPLE RANK START RC ERROR NAMELEN OUTLEN ERRLEN PACKED
    printf '%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s\n' \
        "$BOUNDARY" "$1" "$2" "$3" "$RIGHTS" "$4" "$((NOW - $4))" "$5" "$6" "$7" "$8" "$9" "${10}"
}
said() { # PROBE SAMPLE RANK ERROR NAME WORDS: a frame without content
    now
    head_of "$1" "$2" "$3" "$NOW" "" "$4" "${#5}" 0 "${#6}" 0
    printf '%s%s\n' "$5" "$6"
}
send() { # SLOT PROBE SAMPLE RANK START RC ERROR NAME
    now
    packed=0
    file=$T/$1.out
    size=$(wc -c <"$file" 2>/dev/null) || size=0
    if [ "$size" -gt 65536 ] && gzip -1 -c "$file" >"$file.gz" 2>/dev/null; then
        packed=1
        file=$file.gz
        size=$(wc -c <"$file")
    fi
    errs=$(wc -c <"$T/$1.err" 2>/dev/null) || errs=0
    SENT=$((SENT + size))
    if [ "$SENT" -gt "$NODE_CAP" ]; then
        said "$2" "$3" "$4" truncated "$8" "the answer of this node is full: not sent"
    else
        head_of "$2" "$3" "$4" "$5" "$6" "$7" "${#8}" "$((size))" "$((errs))" "$packed"
        printf '%s' "$8"
        take "$((size))" "$file" 2>/dev/null
        take "$((errs))" "$T/$1.err" 2>/dev/null
        echo
    fi
    rm -f "$T/$1".* 2>/dev/null
}
SENT=0
GONE=

# -- running -------------------------------------------------------------------------------------

# writes what it has at once, so that a program that hangs leaves what it printed; ends at the cap
first() { (
    ulimit -c 0
    ulimit -f "$((($1 + 511) / 512))"
    exec cat
) 2>/dev/null; }
# both outputs go to files below a cap, so that no flood fills a disk and no child holds the line
start() { # SLOT FUNCTION [ARGUMENT...]
    slot=$1
    shift
    now
    eval "B_$slot=$NOW"
    (
        trap - EXIT
        {
            {
                (
                    read -r me _ </proc/self/stat
                    echo "$me" >"$T/$slot.pid"
                    "$@"
                )
                echo $? >"$T/$slot.rc"
            } 2>&1 >&3 3>&- | { first 65536 >"$T/$slot.err"; cat >/dev/null 2>&1; }
        } 3>&1 | first "$CAP" >"$T/$slot.out" || : >"$T/$slot.cut" # at the cap, or the disk is full
        : >"$T/$slot.done"
    ) </dev/null >/dev/null 2>&1 &
}
wait_for() { # SLOT UNTIL: 0 if it ended in time
    while [ ! -e "$T/$1.done" ]; do
        now
        [ "$NOW" -ge "$2" ] && return 1
        nap
    done
}
end() { # SLOT: asks it to stop; STATE tells whether it hangs in the kernel
    STATE=ended
    pid=$(cat "$T/$1.pid" 2>/dev/null)
    ours="$pid $(family "$pid")"
    for p in $ours; do kill -TERM "$p" 2>/dev/null; done
    now
    wait_for "$1" $((NOW + 100)) && return
    STATE=alive
    if in_kernel $ours >"$T/$1.where"; then
        STATE=stuck
        cat "$T/$1.where" >>"$T/$1.err"
    fi
}
# what a program that has ended left behind: PROBE RC SIZE CAP WORDS -> PROBLEM
judge() {
    PROBLEM=
    if [ "$3" -ge "$4" ]; then
        PROBLEM=truncated
    elif [ "$3" -eq 0 ]; then
        case $2,$5 in
        127,* | *': not found'* | *'command not found'*) PROBLEM='not found' ;;
        *'not permitted'* | *'ermission denied'* | *'assword is required'*) PROBLEM=denied ;;
        *)
            # a journal that hides the kernel's lines ends well and prints nothing
            [ "$1" = kernel_log ] && [ "$RIGHTS" != root ] && PROBLEM=denied
            ;;
        esac
    fi
    [ "$2" != 77 ] || PROBLEM=denied
}
finish() { # SLOT PROBE SAMPLE [NAME] [UNTIL]: waits for its deadline, sends what there is
    eval "began=\$B_$1"
    until=${5:-$((began + PROBE_CS))}
    problem=
    STATE=ended
    if ! wait_for "$1" "$until"; then
        end "$1"
        [ "$STATE" = stuck ] && problem=stuck || problem=timeout
        [ -n "${5:-}" ] && [ "$STATE" != stuck ] && problem=
    fi
    rc=$(cat "$T/$1.rc" 2>/dev/null)
    if [ -z "$problem" ] && [ "$STATE" = ended ]; then
        size=$(wc -c <"$T/$1.out" 2>/dev/null) || size=0
        judge "$2" "$rc" "$((size))" "$CAP" "$(take 4096 "$T/$1.err" 2>/dev/null)"
        problem=$PROBLEM
        if [ -z "$problem" ] && { [ -e "$T/$1.cut" ] || [ -z "$rc" ]; }; then problem=truncated; fi
    fi
    GONE=$problem
    send "$1" "$2" "$3" "" "$began" "$rc" "$problem" "${4:-}"
}
# what a function prints, as the file SLOT; where it does not end, the words are said of the probe
listed() { # SLOT PROBE WORDS FUNCTION [ARGUMENT...]
    slot=$1 probe=$2 words=$3
    shift 3
    start "$slot" "$@"
    if ! wait_for "$slot" $((NOW + PROBE_CS)); then
        end "$slot"
        [ "$STATE" = stuck ] || STATE=timeout
        said "$probe" "" "" "$STATE" "" "$words"
    fi
    cp "$T/$slot.out" "$T/$slot" 2>/dev/null
    rm -f "$T/$slot".* 2>/dev/null
}
one() { # PROBE [SAMPLE]: start it and wait for it
    wanted "$1" || return 0
    start "$1$2" "p_$1"
    finish "$1$2" "$1" "$2"
}
wanted() {
    case " $PROBES " in
    *" $1 "*) return 0 ;;
    esac
    return 1
}
many() { # SAMPLE PROBE...: side by side, four at a time
    sample=$1
    shift
    while [ $# -gt 0 ]; do
        batch=
        running=0
        while [ $# -gt 0 ] && [ "$running" -lt 4 ]; do
            wanted "$1" && start "$1$sample" "p_$1" && batch="$batch $1" && running=$((running + 1))
            shift
        done
        for probe in $batch; do finish "$probe$sample" "$probe" "$sample"; done
    done
}

# -- the look --------------------------------------------------------------------------------------

look() {
    now
    one identity
    now
    one kernel_log
    [ "$GONE" = denied ] && [ -n "$SUDO" ] && with_sudo
    now
    FIRST=$NOW
    many a $PAIRS
    if [ -n "$POKE" ] && wanted flight_recorder; then
        find_groups
        pipes
    fi
    GPU=
    if wanted nvidia_smi; then
        start nvidia_smi p_nvidia_smi
        GPU=asked
    fi
    many "" $STATIC
    if [ -n "$GPU" ]; then
        finish nvidia_smi nvidia_smi ""
        case $GONE in
        stuck | timeout)
            wanted gpu_samples && said gpu_samples "" "" "$GONE" "" \
                "nvidia-smi did not end: no second GPU command was started"
            GPU=lost
            ;;
        esac
    fi
    now
    UNTIL=$((FIRST + WINDOW_CS))
    [ "$UNTIL" -lt $((NOW + 150)) ] && [ "$WINDOW_CS" -gt 0 ] && UNTIL=$((NOW + 150))
    SAMPLED=
    if [ "$GPU" != lost ] && [ "$WINDOW_CS" -gt 0 ] && wanted gpu_samples; then
        start gpu_samples p_gpu_samples
        SAMPLED=yes
    fi
    [ -n "$RAS" ] && ras a
    if [ -z "$POKED" ] && { [ -n "$LOGS" ] || wanted flight_recorder; }; then find_groups; fi
    logs
    wanted flight_recorder && nccl_logs
    wanted flight_recorder && dumps_written && dumps
    [ -n "$POKE" ] && stacks
    if [ "$WINDOW_CS" -gt 0 ]; then
        now
        while [ "$NOW" -lt "$UNTIL" ]; do
            nap
            now
            parent # nothing is written now, so only this shows that nobody listens any more
            [ "$PARENT" = "$STARTED_BY" ] || exit 130
        done
        many b $PAIRS
        [ -n "$SAMPLED" ] && finish gpu_samples gpu_samples "" "" "$UNTIL"
        [ -n "$RAS" ] && ras b
    fi
    # a clock that was set meanwhile shows in what it gained on the uptime
    if wanted identity; then start clock p_clock && finish clock clock ""; fi
}
p_clock() {
    echo '==> date +%s.%N <=='
    date +%s.%N
    echo '==> /proc/uptime <=='
    cat /proc/uptime
}
with_sudo() { # the only commands that it ever runs
    own=$RIGHTS
    RIGHTS=sudo
    start sudo p_sudo
    finish sudo kernel_log ""
    RIGHTS=$own
}
p_sudo() {
    sudo -n journalctl -q -k -b -o short-unix --no-pager | { head -c 1; cat; } >"$T/journal" &&
        [ -s "$T/journal" ] && cat "$T/journal" && return
    sudo -n dmesg
}
