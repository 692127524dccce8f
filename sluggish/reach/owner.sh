# What the job's owner names (logs, dumps) is read as the owner: a link that is swapped between a
# check and the reading then opens nothing that the owner could not open anyway.

# -- becoming the owner ----------------------------------------------------------------------------

OWN_GROUP=65534
OTHER_GROUPS=--clear-groups
if [ "$ID" != 0 ] || [ "$SLUGGISH_UID" = 0 ]; then
    as_owner() { "$@"; }
elif [ -z "$SLUGGISH_UID" ]; then
    as_owner() { echo "the job's owner is not known: not read as root" >&2; return 77; }
elif setpriv --reuid "$SLUGGISH_UID" --regid 65534 --clear-groups -- true 2>/dev/null; then
    as_owner() {
        setpriv --reuid "$SLUGGISH_UID" --regid "$OWN_GROUP" "$OTHER_GROUPS" -- "$@"
    }
else
    as_owner() { echo "no setpriv here that becomes the owner: not read as root" >&2; return 77; }
fi
p_groups() { id -g "$SLUGGISH_UID" && id -G "$SLUGGISH_UID"; }
find_groups() { # asks the directory of users, which may hang: so with a deadline
    [ "$ID" = 0 ] && [ -n "$SLUGGISH_UID" ] || return 0
    start groups p_groups
    wait_for groups $((NOW + 200)) || end groups
    {
        read -r group && [ -n "$group" ] && OWN_GROUP=$group
        read -r groups && OTHER_GROUPS=--groups=$(echo $groups | tr ' ' ,)
    } <"$T/groups.out" 2>/dev/null
    rm -f "$T"/groups.* 2>/dev/null
}

# files on the node's own disk carry its clock: where that is behind, the job began earlier by it
if [ -n "$DUMPS_AFTER" ] && [ -n "$ASKED_AT" ]; then
    here=$(date +%s 2>/dev/null)
    case $here in
    '' | *[!0-9]*) ;;
    *) [ "$here" -lt $((ASKED_AT - 60)) ] && DUMPS_AFTER=$((DUMPS_AFTER - ASKED_AT + here)) ;;
    esac
fi

# -- one file --------------------------------------------------------------------------------------

# PATH FIRST MOST: a regular file of the owner, no link. FIRST is `whole`, or the bytes of the head
# that a longer file is cut to before its tail
p_file() {
    kind=$(as_owner stat -c '%F|%u|%s|%Y' -- "$1" 2>&1) || {
        echo "$kind" >&2
        case $kind in *'No such file'*) return 2 ;; esac
        return 77
    }
    case $kind in
    'regular file|'* | 'regular empty file|'*) ;;
    *)
        echo "not a regular file but a ${kind%%|*}: not read" >&2
        return 77
        ;;
    esac
    rest=${kind#*|}
    if [ -n "$SLUGGISH_UID" ] && [ "${rest%%|*}" != "$SLUGGISH_UID" ]; then
        echo "belongs to uid ${rest%%|*}, not to the job's $SLUGGISH_UID" >&2
        return 77
    fi
    rest=${rest#*|}
    size=${rest%%|*}
    if [ "$2" = whole ] && [ -n "$DUMPS_AFTER" ] && [ "${rest#*|}" -lt "$DUMPS_AFTER" ]; then
        return 80
    fi
    if [ "$2" = whole ] && [ "$size" -gt "$3" ]; then
        echo "$size bytes, more than $3: not read" >&2
        return 78
    fi
    if ! dd if=/dev/null iflag=nofollow,nonblock,skip_bytes,count_bytes 2>/dev/null; then
        echo "the dd of this node cannot refuse links: not read" >&2
        return 77
    fi
    if [ "$2" = whole ] || [ "$size" -le "$3" ]; then
        part "$1" 0 "$3"
    else
        echo "of $size bytes the first $2 and the last $(($3 - $2))" >&2
        part "$1" 0 "$2" && printf '\n[... %s bytes not searched ...]\n' "$((size - $3))" &&
            part "$1" "$((size - $3 + $2))" "$(($3 - $2))" && return 79
    fi
}
part() { # PATH SKIP COUNT
    as_owner dd if="$1" bs=65536 skip="$2" count="$3" \
        iflag=nofollow,nonblock,fullblock,skip_bytes,count_bytes status=none
}
file() { # PROBE PATH RANK FIRST MOST
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
    if [ -z "$problem" ]; then
        case $rc in
        0) [ -e "$T/f$FILES.cut" ] && problem=truncated ;;
        2) problem='not found' ;;
        80) # an earlier job's
            rm -f "$T/f$FILES".* 2>/dev/null
            return
            ;;
        78 | 79 | '') problem=truncated ;;
        *) problem=denied ;;
        esac
    fi
    case $rc in 78 | 79) rc=0 ;; esac
    own=$RIGHTS
    RIGHTS=user
    send "f$FILES" "$1" "" "$3" "$began" "$rc" "$problem" "$2"
    RIGHTS=$own
}
FILES=0
logs() {
    printf '%s\n' "$LOGS" >"$T/logs"
    while IFS= read -r path; do
        [ -n "$path" ] && file job_log "$path" "" 262144 4456448
    done <"$T/logs"
}

# -- the job's processes ---------------------------------------------------------------------------

# those that carry its number or lie in its cgroup, and are the owner's: anybody may set a variable
job_pids() {
    [ -n "$SLUGGISH_JOB" ] || return 0
    {
        grep -lszFx "SLURM_JOB_ID=$SLUGGISH_JOB" /proc/[0-9]*/environ
        grep -ls "/job_$SLUGGISH_JOB\(/\|\$\)" /proc/[0-9]*/cgroup
    } 2>/dev/null | cut -d / -f 3 | sort -un | while read -r p; do
        of_owner "$p" && ! is_ours "$p" && echo "$p"
    done
}
of_owner() { # PID: its real user is the job's
    [ -n "$SLUGGISH_UID" ] || return 0
    while read -r key value _; do
        [ "$key" = Uid: ] && break
    done <"/proc/$1/status"
    [ "$value" = "$SLUGGISH_UID" ]
} 2>/dev/null
is_ours() { # PID: this script or something below it; over srun it has the job's own environment
    up=$1
    while [ "${up:-0}" -gt 1 ]; do
        [ "$up" = "$$" ] && return 0
        read -r line <"/proc/$up/stat" || return 1
        line=${line##*) }
        line=${line#* }
        up=${line%% *}
    done
    return 1
} 2>/dev/null
variable() { # PID NAME: the value in its environment
    tr '\n\0' ' \n' <"/proc/$1/environ" | sed -n "/^$2=/{s///p;q;}"
} 2>/dev/null
ranks() { # those of them that say which rank they are
    for p in $(job_pids); do
        [ -n "$(variable "$p" RANK)" ] && echo "$p"
    done
}

# -- dumps of its ranks ----------------------------------------------------------------------------

MOST_DUMPS=128
p_places() { dump_places | sort -u | sed 64q; }
dump_places() { # a line each: ROOT PREFIX; ROOT is /proc/PID/root of a container, or -
    printf -- '- %s\n' /tmp/nccl_trace_rank_ /tmp/comm_lib_trace_rank_
    printf '%s\n' "$DUMPS" | while read -r prefix; do
        [ -n "$prefix" ] && printf -- '- %s\n' "$prefix"
    done
    for p in $(job_pids); do places_of "$p"; done
} 2>/dev/null
places_of() { # PID: the same of one process, by its own environment and its own mounts
    root=$(root_of "$1")
    root=${root:--}
    printf '%s %s\n' "$root" /tmp/nccl_trace_rank_ "$root" /tmp/comm_lib_trace_rank_
    for name in TORCH_NCCL_DEBUG_INFO_TEMP_FILE TORCH_FR_DUMP_TEMP_FILE; do
        prefix=$(variable "$1" "$name")
        case $prefix in /*) printf '%s %s\n' "$root" "$prefix" ;; esac
    done
    cache=$(variable "$1" XDG_CACHE_HOME)
    home=$(variable "$1" HOME)
    [ -n "$cache" ] || cache=${home:+$home/.cache}
    case $cache in /*) printf '%s %s\n' "$root" "$cache/torch/comm_lib_trace_rank_" ;; esac
}
root_of() { # PID: where its files lie, if it has mounts of its own
    [ "$(readlink "/proc/$1/ns/mnt")" = "$(readlink /proc/self/ns/mnt)" ] || echo "/proc/$1/root"
}
p_list() { # PREFIX ROOT: what lies behind a prefix, as the owner sees it
    as_owner find "$2${1%/*}/" -maxdepth 1 ! -type d -name "${1##*/}[0-9]*"
}
dumps() {
    for tool in cut find grep readlink sed sort tr; do
        command -v "$tool" >/dev/null 2>&1 && continue
        said flight_recorder "" "" 'not found' "" "no $tool here: no dump was looked for"
        return
    done
    listed places flight_recorder "the environments of the ranks do not answer" p_places
    seen=0
    while read -r root prefix; do
        [ "$root" = - ] && root=
        start list p_list "$prefix" "$root"
        STATE=ended
        if ! wait_for list $((NOW + PROBE_CS)); then
            end list
            [ "$STATE" = stuck ] || STATE=timeout
            said flight_recorder "" "" "$STATE" "$root$prefix" "this place does not answer"
        fi
        words=$(take 300 "$T/list.err" 2>/dev/null)
        case $STATE,$words in
        ended, | ended,*'No such file'*) ;;
        ended,*) said flight_recorder "" "" denied "$root$prefix" "$words" ;;
        esac
        cp "$T/list.out" "$T/list" 2>/dev/null
        rm -f "$T"/list.* 2>/dev/null
        while IFS= read -r path; do
            rank=${path#"$root$prefix"}
            case $rank in '' | *[!0-9]* | ???????*) continue ;; esac
            seen=$((seen + 1))
            [ "$seen" -gt "$MOST_DUMPS" ] && break
            file flight_recorder "$path" "$rank" whole "$CAP"
        done <"$T/list"
    done <"$T/places"
    [ "$seen" -le "$MOST_DUMPS" ] || said flight_recorder "" "" truncated "" \
        "more than $MOST_DUMPS dumps lie here: the others were not read"
}
