# What touches the job: only when told.

# -- the pipe of the flight recorder ---------------------------------------------------------------

# PyTorch reads one byte from it, writes the rank's dump and goes on (ProcessGroupNCCL.cpp). A dump
# that lies there already stays: a second one would overwrite it
p_pipes() { # a line for each pipe that did not take the byte: RANK ERROR PATH|WORDS
    asked=' '
    for p in $(ranks); do
        stem=$(variable "$p" TORCH_NCCL_DEBUG_INFO_PIPE_FILE)
        rank=$(variable "$p" RANK)
        case $rank in '' | *[!0-9]* | ???????*) continue ;; esac
        case $stem in /*) ;; *) continue ;; esac
        path=$(root_of "$p")$stem$rank.pipe
        case $asked in *" $path "*) continue ;; esac # its loader workers have its environment
        asked="$asked$path "
        [ -z "$(has_dump "$p" "$rank")" ] || continue
        kind=$(as_owner stat -c '%F|%u' -- "$path" 2>&1) || {
            case $kind in
            *'No such file'*) echo "$rank not_found $path|the rank has no pipe here" ;;
            *) echo "$rank denied $path|$(one_line "$kind")" ;;
            esac
            continue
        }
        case $kind in
        "fifo|${SLUGGISH_UID:-$ID}") ;;
        *)
            echo "$rank denied $path|not a pipe of the job's owner: not written to"
            continue
            ;;
        esac
        words=$(printf 1 | as_owner dd of="$path" bs=1 conv=nocreat,notrunc \
            oflag=nofollow,nonblock status=none 2>&1) ||
            echo "$rank not_run $path|nobody reads it, so no dump was asked for: $(one_line "$words")"
    done
}
one_line() { printf %s "$1" | tr '\n' ' '; }
has_dump() { # PID RANK: says so if one of this job lies at any place where it would be written
    places_of "$1" | while read -r root prefix; do
        [ "$root" = - ] && root=
        dumped=$(as_owner stat -c %Y -- "$root$prefix$2") &&
            [ "$dumped" -ge "${DUMPS_AFTER:-0}" ] && echo yes && break
    done
} 2>/dev/null
POKED=
pipes() {
    listed pipes flight_recorder "the pipes of the recorders do not answer" p_pipes
    while IFS= read -r line; do
        rank=${line%% *}
        rest=${line#* }
        words=${rest#*|}
        rest=${rest%%|*}
        said flight_recorder "" "$rank" "$(echo "${rest%% *}" | tr _ ' ')" "${rest#* }" "$words"
    done <"$T/pipes"
    now
    POKED=$NOW
}
dumps_written() { # the recorder answers within a second, from a thread of its own
    until [ -z "$POKED" ] || [ "$NOW" -ge $((POKED + 150)) ]; do
        nap
        now
    done
}

# -- NCCL RAS, stacks ------------------------------------------------------------------------------

p_ras() { # the port of a rank's own environment; the host is always this one
    SLUGGISH_RAS_PORT=
    for p in $(job_pids); do
        port=$(variable "$p" NCCL_RAS_ADDR)
        port=${port##*:}
        case $port in '' | *[!0-9]* | ??????*) continue ;; esac
        SLUGGISH_RAS_PORT=$port
        break
    done
    p_nccl_ras
}
ras() { # SAMPLE
    wanted nccl_ras || return 0
    start "ras$1" p_ras
    finish "ras$1" nccl_ras "$1"
}
stacks() {
    command -v py-spy >/dev/null 2>&1 || {
        said stacks "" "" 'not found' "" "no py-spy here"
        return
    }
    start ranks ranks
    wait_for ranks $((NOW + PROBE_CS)) || end ranks
    cp "$T/ranks.out" "$T/pids" 2>/dev/null
    rm -f "$T"/ranks.* 2>/dev/null
    while read -r pid; do
        FILES=$((FILES + 1))
        start "f$FILES" as_owner py-spy dump --nonblocking --pid "$pid"
        finish "f$FILES" stacks "" "$pid"
    done <"$T/pids"
}
