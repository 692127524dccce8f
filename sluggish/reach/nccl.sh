# What the ranks' NCCL writes into files of its own: NCCL_DEBUG_FILE, %h and %p filled in as NCCL does
# ("Environment Variables", NCCL user guide). A rank's workers have the variable and no file.

MOST_NCCL=16
filled() { # TEXT WHAT BY
    text=$1
    while :; do
        case $text in
        *"$2"*) text=${text%%"$2"*}$3${text#*"$2"} ;;
        *) break ;;
        esac
    done
    printf '%s' "$text"
}
nccl_file() { # PID -> PLACE: its own file; 1 if it has none
    PLACE=$(variable "$1" NCCL_DEBUG_FILE)
    case $PLACE in /*) ;; *) return 1 ;; esac
    inner=$(sed -n 's/^NSpid:.*[^0-9]//p' "/proc/$1/status") # as it calls itself in a container
    PLACE=$(filled "$PLACE" %h "${HOST%%.*}")
    PLACE=$(filled "$PLACE" %p "${inner:-$1}")
}
p_nccl() { # a line each: ROOT RANK PATH; ROOT is ? where NCCL was told to log and nothing is there
    HOST=$(uname -n)
    for p in $(job_pids); do
        nccl_file "$p" || continue
        rank=
        case $(variable "$p" NCCL_DEBUG_FILE) in *%p*) rank=$(variable "$p" RANK) ;; esac
        root=$(root_of "$p")
        if as_owner test -e "$root$PLACE"; then
            printf '%s %s %s\n' "${root:--}" "${rank:--}" "$PLACE"
        elif [ -n "$(variable "$p" NCCL_DEBUG)" ]; then
            printf '? - %s\n' "$PLACE"
        fi
    done 2>/dev/null | sort -u
}
nccl_logs() {
    [ -n "$SLUGGISH_JOB" ] || return 0
    listed nccl job_log "the files that NCCL_DEBUG_FILE names do not answer" p_nccl
    count=0
    missing=
    while read -r root rank path; do
        if [ "$root" = '?' ]; then
            missing=$path
            continue
        fi
        count=$((count + 1))
        [ "$count" -gt "$MOST_NCCL" ] && break
        [ "$root" = - ] && root=
        [ "$rank" = - ] && rank=
        file job_log "$root$path" "$rank" 65536 1048576
    done <"$T/nccl"
    [ "$count" -gt 0 ] || [ -z "$missing" ] ||
        said job_log "" "" 'not found' "$missing" "NCCL_DEBUG_FILE: no such file"
    [ "$count" -le "$MOST_NCCL" ] || said job_log "" "" truncated "" \
        "more than $MOST_NCCL files of NCCL_DEBUG_FILE: the others were not read"
} 2>/dev/null
