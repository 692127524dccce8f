# What runs on a node, fed to `sh -s`. Above it stand the values of this look and the probes as
# functions p_ID. It reads; it writes only below its own directory and ends only what it started.

PATH=${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
LC_ALL=C
export PATH LC_ALL
umask 077
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

# -- a directory of our own ----------------------------------------------------------------------

T=
for place in "${TMPDIR:-/tmp}" /tmp /dev/shm "/run/user/$ID"; do
    [ -d "$place" ] && [ -w "$place" ] || continue
    T=$(mktemp -d "$place/sluggish.XXXXXXXX" 2>/dev/null) || { T= && continue; }
    if printf '%4096s' x >"$T/room" 2>/dev/null && [ "$(wc -c <"$T/room" 2>/dev/null)" -eq 4096 ]; then
        break
    fi
    rm -rf "$T" 2>/dev/null # full
    T=
done
[ -n "$T" ] && TMPDIR=$T && export TMPDIR # a probe's own temporary files lie there too
clean() {
    case $T in
    */sluggish.????????) rm -rf "$T" 2>/dev/null ;;
    esac
}
trap clean EXIT
trap 'exit 130' HUP INT TERM

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
        head -c "$((size))" "$file" 2>/dev/null
        head -c "$((errs))" "$T/$1.err" 2>/dev/null
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
        } 3>&1 | first "$CAP" >"$T/$slot.out"
        : >"$T/$slot.done"
    ) </dev/null >/dev/null 2>&1 &
}
family() { # PID: its descendants, from /proc
    kids=
    for f in /proc/[0-9]*/stat; do
        read -r line <"$f" 2>/dev/null || continue
        rest=${line##*) }
        rest=${rest#* }
        [ "${rest%% *}" = "$1" ] && kids="$kids ${line%% *}"
    done 2>/dev/null
    for kid in $kids; do
        echo "$kid"
        ( family "$kid" )
    done
}
wait_for() { # SLOT UNTIL: 0 if it ended in time
    while [ ! -e "$T/$1.done" ]; do
        now
        [ "$NOW" -ge "$2" ] && return 1
        sleep 0.05 2>/dev/null || sleep 1
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
    for p in $ours; do
        read -r line <"/proc/$p/stat" 2>/dev/null || continue
        case ${line##*) } in
        D*)
            STATE=stuck
            {
                echo "stuck in the kernel: $line"
                cat "/proc/$p/wchan" && echo
                cat "/proc/$p/stack"
            } >>"$T/$1.err" 2>/dev/null
            ;;
        esac
    done
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
    size=$(wc -c <"$T/$1.out" 2>/dev/null) || size=0
    words=$(head -c 4096 "$T/$1.err" 2>/dev/null)
    if [ -z "$problem" ]; then
        if [ "$((size))" -ge "$CAP" ]; then
            problem=truncated
        elif [ "$rc" = 127 ] && [ "$((size))" -eq 0 ]; then
            problem='not found'
        elif [ "$((size))" -eq 0 ]; then
            case $words in
            *'not permitted'* | *'ermission denied'* | *'assword is required'*) problem=denied ;;
            esac
            # a journal that hides the kernel's lines ends well and prints nothing
            [ "$2" = kernel_log ] && [ "$RIGHTS" != root ] && problem=denied
        fi
        if [ "$rc" = 77 ]; then problem=denied; fi
    fi
    GONE=$problem
    send "$1" "$2" "$3" "" "$began" "$rc" "$problem" "${4:-}"
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
        while [ $# -gt 0 ] && [ "$(echo $batch | wc -w)" -lt 4 ]; do
            wanted "$1" && start "$1$sample" "p_$1" && batch="$batch $1"
            shift
        done
        for probe in $batch; do finish "$probe$sample" "$probe" "$sample"; done
    done
}

# -- what the job's owner names is read as the owner ----------------------------------------------

if [ "$ID" = 0 ] && [ -n "$SLUGGISH_UID" ] && [ "$SLUGGISH_UID" != 0 ]; then
    if command -v setpriv >/dev/null 2>&1; then
        as_owner() { setpriv --reuid "$SLUGGISH_UID" --regid "$GID" --clear-groups -- "$@"; }
    else
        as_owner() { echo "setpriv is missing: not read as root" >&2; return 77; }
    fi
elif [ "$ID" = 0 ] && [ -z "$SLUGGISH_UID" ]; then
    as_owner() { echo "the job's owner is not known: not read as root" >&2; return 77; }
else
    as_owner() { "$@"; }
fi
GID=$(id -g "$SLUGGISH_UID" 2>/dev/null) || GID=65534

# PATH: prints the file; only a regular file of the owner, no link, never more than the cap
p_file() { # PATH FROM COUNT(in bytes)
    kind=$(as_owner stat -c '%F|%u|%s' -- "$1" 2>&1) || {
        echo "$kind" >&2
        case $kind in *'ermission denied'* | *'not read as root'*) return 77 ;; esac
        return 2
    }
    case $kind in
    'regular file|'* | 'regular empty file|'*) ;;
    *)
        echo "not a regular file: ${kind%%|*}" >&2
        return 77
        ;;
    esac
    rest=${kind#*|}
    if [ -n "$SLUGGISH_UID" ] && [ "${rest%%|*}" != "$SLUGGISH_UID" ]; then
        echo "belongs to uid ${rest%%|*}, not to the job's $SLUGGISH_UID" >&2
        return 77
    fi
    size=${rest#*|}
    if [ "$2" = whole ] && [ "$size" -gt "$3" ]; then
        echo "$size bytes, more than $3: not read" >&2
        return 78
    fi
    if [ "$2" = whole ] || [ "$size" -le "$3" ]; then
        as_owner dd if="$1" bs=65536 iflag=nofollow,nonblock status=none
    else
        echo "of $size bytes the first $2 and the last $(($3 - $2))" >&2
        as_owner dd if="$1" bs="$2" count=1 iflag=nofollow,nonblock,fullblock status=none
        printf '\n[... %s bytes not read ...]\n' "$((size - $3))"
        as_owner dd if="$1" bs=65536 iflag=nofollow,nonblock,skip_bytes \
            skip="$((size - $3 + $2))" status=none | head -c "$(($3 - $2))"
        return 79
    fi
}
file() { # PROBE PATH RANK FROM COUNT
    FILES=$((FILES + 1))
    start "f$FILES" p_file "$2" "$4" "$5"
    began=$NOW
    problem=
    STATE=ended
    if ! wait_for "f$FILES" $((began + PROBE_CS)); then
        end "f$FILES"
        [ "$STATE" = stuck ] && problem=stuck || problem=timeout
    fi
    rc=$(cat "$T/f$FILES.rc" 2>/dev/null)
    case $problem$rc in
    0) problem= ;;
    77) problem=denied ;;
    78 | 79) problem=truncated ;;
    2) problem='not found' ;;
    esac
    [ "$rc" = 78 ] && rc=0
    send "f$FILES" "$1" "" "$3" "$began" "$rc" "$problem" "$2"
}
FILES=0

# -- dumps of this job's ranks ---------------------------------------------------------------------

# PREFIX ROOT: files PREFIX<rank>, as the owner sees them; ROOT is /proc/PID/root of a container
p_dumps() {
    for f in "$2$1"[0-9] "$2$1"[0-9][0-9] "$2$1"[0-9][0-9][0-9] "$2$1"[0-9][0-9][0-9][0-9]*; do
        printf '%s\n' "$f"
    done
}
dump_places() { # one line a place: ROOT PREFIX
    for prefix in /tmp/nccl_trace_rank_ /tmp/comm_lib_trace_rank_; do echo "- $prefix"; done
    printf '%s\n' "$DUMPS" | while read -r prefix; do [ -n "$prefix" ] && echo "- $prefix"; done
    for p in $(job_pids); do
        env=$(tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null) || continue
        root=-
        [ "$(readlink "/proc/$p/ns/mnt" 2>/dev/null)" != "$(readlink /proc/self/ns/mnt)" ] &&
            root=/proc/$p/root
        home=$(printf '%s\n' "$env" | sed -n 's/^HOME=//p' | head -n 1)
        cache=$(printf '%s\n' "$env" | sed -n 's/^XDG_CACHE_HOME=//p' | head -n 1)
        printf '%s\n' "$env" |
            sed -n 's/^TORCH_\(NCCL_DEBUG_INFO_TEMP_FILE\|FR_DUMP_TEMP_FILE\)=\//\//p' |
            while read -r prefix; do echo "$root $prefix"; done
        [ -n "$home$cache" ] && echo "$root ${cache:-$home/.cache}/torch/comm_lib_trace_rank_"
        [ "$root" != - ] && echo "$root /tmp/nccl_trace_rank_" && echo "$root /tmp/comm_lib_trace_rank_"
    done
}
job_pids() {
    [ -n "$SLUGGISH_JOB" ] || return 0
    for p in /proc/[0-9]*; do
        tr '\0' '\n' <"$p/environ" 2>/dev/null | grep -qx "SLURM_JOB_ID=$SLUGGISH_JOB" || continue
        is_ours "${p#/proc/}" || echo "${p#/proc/}"
    done
}
is_ours() { # PID: this script or something below it; over srun it has the job's own environment
    up=$1
    while [ "${up:-0}" -gt 1 ]; do
        [ "$up" = "$$" ] && return 0
        read -r line <"/proc/$up/stat" 2>/dev/null || return 1
        line=${line##*) }
        line=${line#* }
        up=${line%% *}
    done
    return 1
}
p_places() { dump_places | sort -u | head -n 64; }
p_list() { # PREFIX ROOT AFTER: regular files of the owner behind a prefix, new enough
    set -- "$1" "$2" "$3" "${1%/*}" "${1##*/}"
    as_owner find "$2$4/" -maxdepth 1 -type f -name "$5[0-9]*" ${3:+-newermt "@$3"}
}
dumps() {
    start places p_places
    began=$NOW
    wait_for places $((began + PROBE_CS)) || end places
    cp "$T/places.out" "$T/places" 2>/dev/null
    rm -f "$T"/places.* 2>/dev/null
    while read -r root prefix; do
        [ "$root" = - ] && root=
        case $prefix in /*) ;; *) continue ;; esac
        start list p_list "$prefix" "$root" "$DUMPS_AFTER"
        began=$NOW
        if ! wait_for list $((began + PROBE_CS)); then
            end list
            said flight_recorder "" "" "$STATE" "$root$prefix" "this place does not answer"
        fi
        cp "$T/list.out" "$T/list" 2>/dev/null
        rm -f "$T"/list.* 2>/dev/null
        while read -r path; do
            rank=${path##*_}
            case $rank in *[!0-9]* | '' | ???????*) continue ;; esac
            file flight_recorder "$path" "$rank" whole "$CAP"
        done <"$T/list"
    done <"$T/places"
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
    [ -n "$RAS" ] && one nccl_ras a
    printf '%s\n' "$LOGS" >"$T/logs"
    while read -r path; do
        [ -n "$path" ] && file job_log "$path" "" 262144 4456448
    done <"$T/logs"
    wanted flight_recorder && dumps
    [ -n "$POKE" ] && stacks
    if [ "$WINDOW_CS" -gt 0 ]; then
        now
        while [ "$NOW" -lt "$UNTIL" ]; do
            sleep 0.1 2>/dev/null || sleep 1
            now
        done
        many b $PAIRS
        [ -n "$SAMPLED" ] && finish gpu_samples gpu_samples "" "" "$UNTIL"
        [ -n "$RAS" ] && one nccl_ras b
    fi
    said end "" "" "" "" ""
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
stacks() {
    command -v py-spy >/dev/null 2>&1 || { said stacks "" "" 'not found' "" "no py-spy here" && return; }
    for pid in $(job_pids); do
        tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -q '^RANK=' || continue
        FILES=$((FILES + 1))
        start "f$FILES" as_owner py-spy dump --nonblocking --pid "$pid"
        finish "f$FILES" stacks "" "$pid"
    done
}
bare() { # no directory to write to: one probe after the other, through a variable
    for probe in $PROBES; do
        case $probe in gpu_samples | flight_recorder | mounts) continue ;; esac
        now
        began=$NOW
        text=$( ( "p_$probe" ) 2>&1 </dev/null | head -c 65536)
        now
        head_of "$probe" "" "" "$began" "" "" 0 "${#text}" 0 0
        printf '%s\n' "$text"
    done
    said gpu_samples "" "" "not run" "" "no directory could be written: one probe at a time"
    said end "" "" "" "" ""
}
if [ -n "$T" ]; then look; else bare; fi
