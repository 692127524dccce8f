# No directory can be written: one probe after the other, its answer in a variable. Each in a process
# that prints its own frame or is given up: nothing waits for what hangs in the kernel.

MOST_IN_PIPE=4194304
answer() { # PROBE
    # stdout goes through the cap into `all`, stderr and the exit code into `words` on their way
    all=$(
        {
            words=$(
                {
                    {
                        { ( "p_$1" ) 2>&1 1>&3 3>&- 4>&-; echo " $?"; } | tail -c 2048 3>&- 4>&-
                    } 3>&1 1>&6 6>&- 4>&- | { head -c "$CAP" || cat; cat >/dev/null; } >&4 4>&- 6>&-
                } 6>&1
            )
            rc=${words##* }
            words=${words% *}
            printf '%s\n%s %s' "$words" "${#words}" "$rc"
        } 4>&1
    ) 2>/dev/null
    told=${all##*"$NEWLINE"}
    case $told in
    [0-9]*' '[0-9]*) ;;
    *) exit 1 ;; # it was ended
    esac
    errs=${told% *}
    rc=${told#* }
    all=${all%"$NEWLINE"*}
    size=$((${#all} - errs))
    judge "$1" "$rc" "$size" "$CAP" "$all" # words are asked for only where there is no content
    [ "$rc" != 143 ] || PROBLEM=timeout
    trap '' TERM # from here on it comes whole
    now
    head_of "$1" "" "" "$began" "$rc" "$PROBLEM" 0 "$size" "$errs" 0
    printf '%s\n' "$all"
}
NEWLINE='
'
ends_by() { # UNTIL: CHILD has ended before
    until gone "$CHILD"; do
        now
        [ "$NOW" -lt "$1" ] || return 1
        nap
    done
}
without_files() {
    [ "$CAP" -le "$MOST_IN_PIPE" ] || CAP=$MOST_IN_PIPE
    late=
    for probe in $PROBES; do
        case $probe$POKE in
        stacks) ;; # nobody asked for them
        gpu_samples* | flight_recorder* | mounts* | nccl_ras* | stacks*)
            said "$probe" "" "" 'not run' "" "no directory could be written: one probe at a time"
            ;;
        nvidia_smi*) late=nvidia_smi ;; # the one that hangs, if one does
        *) alone "$probe" ;;
        esac
    done
    [ -z "$late" ] || alone "$late"
    wanted identity && alone clock
    [ -z "$LOGS" ] || said job_log "" "" 'not run' "" "no directory could be written: no log was read"
}
alone() { # PROBE
    now
    began=$NOW
    answer "$1" </dev/null &
    CHILD=$!
    words=
    STATE=timeout
    if ! ends_by $((began + PROBE_CS)); then
        ours=$(family "$CHILD")
        kill -TERM $ours
        now
        ends_by $((NOW + 100)) || kill -TERM "$CHILD"
        words=$(in_kernel $ours) && STATE=stuck
    fi 2>/dev/null
    wait "$CHILD" 2>/dev/null || said "$1" "" "" "$STATE" "" "$words"
    CHILD=
}
