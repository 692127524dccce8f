# What follows a node while its job runs, fed to `sh -s`. Above it stand the values of this watch and
# owner.sh. Producers write lines into one pipe; `merge` makes one line a sample of them. It reads;
# it writes nothing and ends only what it started.

PORTS=
for d in /sys/class/infiniband/*/ports/*; do [ -e "$d/state" ] && PORTS="$PORTS $d"; done

# one process for the whole watch, asked to go with SIGTERM alone; a wedged one is left and not
# asked again, one that ended by itself is started once more a minute later
p_gpus() {
    while :; do
        nvidia-smi --query-gpu=index,utilization.gpu,utilization.memory,power.draw,enforced.power.limit,clocks.sm,clocks.max.sm,memory.used \
            --format=csv,noheader,nounits -l "$EVERY" 2>&1
        echo "x$?"
        sleep 60
    done
}
# new lines of the kernel as they come; an older dmesg prints its whole buffer first
p_kernel() {
    {
        dmesg -W 2>/dev/null || dmesg -w 2>/dev/null ||
            { [ -n "$(journalctl -q -k -n 1 -o cat --no-pager 2>/dev/null)" ] &&
                journalctl -q -k -f -n 0 -o short-unix --no-pager 2>/dev/null; } || echo '-'
    } | while IFS= read -r l; do printf 'k%s\n' "$l"; done
}
p_logs() { # sizes and the newest time; storage that hangs holds this loop and no other
    [ -n "$LOGS" ] || return 0
    IFS='
'
    set -f
    set -- $LOGS
    unset IFS
    set +f
    while :; do
        total=0 newest=0
        while read -r size at; do
            total=$((total + ${size:-0}))
            [ "${at:-0}" -gt "$newest" ] && newest=$at
        done <<END
$(as_owner stat -c '%s %Y' -- "$@" 2>/dev/null)
END
        [ "$newest" -gt 0 ] && echo "l$total $newest"
        sleep "$EVERY"
    done
}
# as job_pids of owner.sh, in three processes instead of a loop: it runs each minute
mine() {
    {
        grep -lszFx "SLURM_JOB_ID=$SLUGGISH_JOB" /proc/[0-9]*/environ
        grep -ls "/job_$SLUGGISH_JOB\(/\|\$\)" /proc/[0-9]*/cgroup
    } 2>/dev/null | cut -d / -f 3 | sort -un | awk -v uid="$SLUGGISH_UID" -v self="$$" '
        function parent(p,   f, line, s) {
            if (!(p in up)) {
                f = "/proc/" p "/stat"
                if ((getline line < f) > 0) { sub(/^.*\) /, "", line); split(line, s, " "); up[p] = s[2] }
                else up[p] = 0
                close(f)
            }
            return up[p]
        }
        {
            f = "/proc/" $1 "/status"
            owner = ""
            while ((getline line < f) > 0) if (line ~ /^Uid:/) { split(line, s, /[ \t]+/); owner = s[2]; break }
            close(f)
            if (owner == "" || (uid != "" && owner != uid)) next
            for (p = $1; p > 1 && p != self; p = parent(p)) ;
            if (p != self) print $1
        }'
} 2>/dev/null
with() { # NAME PID...: those that have this variable
    name=$1
    shift
    for p; do shift; set -- "$@" "/proc/$p/environ"; done
    [ $# -eq 0 ] || grep -lsz "^$name=" "$@" | cut -d / -f 3
} 2>/dev/null
tops() { # PID...: those of them whose parent is not among them
    for p; do
        read -r line <"/proc/$p/stat" || continue
        line=${line##*) }
        line=${line#* }
        case " $* " in *" ${line%% *} "*) ;; *) echo "$p" ;; esac
    done
} 2>/dev/null
watchdog_of() { # PID
    tr '\0' '\n' <"/proc/$1/cmdline" 2>/dev/null | sed -n '
        s/^--\(distributed[-_]timeout[-_]minutes\)=\([0-9.]*\)$/e\1=\2/p
        s/^--\(ddp[-_]timeout\)=\([0-9.]*\)$/e\1=\2/p
        /^--distributed[-_]timeout[-_]minutes$/{n;s/^\([0-9.]*\)$/edistributed_timeout_minutes=\1/p;}
        /^--ddp[-_]timeout$/{n;s/^\([0-9.]*\)$/eddp_timeout=\1/p;}'
}
# the job's processes, and among them its ranks; found anew each minute
p_pids() {
    while :; do
        pids=$(mine | head -n 512)
        found=$(tops $(with RANK $pids))
        [ -n "$found" ] || found=$(tops $(with SLURM_PROCID $pids))
        echo "p"$pids
        echo "r"$found
        # of what they were started with, numbers of known names alone leave the node
        set --
        for p in $found; do set -- "$@" "/proc/$p/environ"; done
        [ $# -eq 0 ] || grep -haszE '^(SLURM_STEP_GPUS|NCCL_TIMEOUT|DEEPSPEED_TIMEOUT)=[0-9.,]+$' "$@" |
            tr '\0' '\n' | sort -u | sed 's/^/e/'
        [ -z "$found" ] || watchdog_of "${found%%[!0-9]*}"
        sleep 60
    done
}
p_beat() {
    n=0
    while [ "$n" -lt "$BEATS" ]; do
        echo t
        sleep "$EVERY"
        n=$((n + 1))
    done
    echo end
}
# sums over the job's processes and over the ports; nothing but files of /proc and /sys
host() {
    awk -v pids="$P" -v ranks="$R" -v ports="$PORTS" 'BEGIN {
        n = split(pids, p, " ")
        for (i = 1; i <= n; i++) {
            f = "/proc/" p[i] "/stat"
            if ((getline line < f) > 0) {
                sub(/^.*\) /, "", line)
                split(line, s, " ")
                if (s[1] != "Z" && s[1] != "X") { there[p[i]] = 1; cpu += s[12] + s[13] }
                if (s[1] == "D") stuck++
            }
            close(f)
            f = "/proc/" p[i] "/io"
            while ((getline line < f) > 0) {
                split(line, s, " ")
                if (s[1] == "rchar:" || s[1] == "wchar:") { io += s[2]; seen = 1 }
            }
            close(f)
        }
        m = split(ranks, r, " ")
        for (i = 1; i <= m; i++) if (r[i] in there) alive++
        k = split(ports, d, " ")
        for (i = 1; i <= k; i++) {
            f = d[i] "/state"
            if ((getline line < f) > 0 && line !~ /ACTIVE/) {
                split(d[i], w, "/")
                down = down (down == "" ? "" : " ") w[5] "/" w[7]
            }
            close(f)
            for (j = 1; j <= 2; j++) {
                f = d[i] "/counters/port_" (j == 1 ? "xmit" : "rcv") "_data"
                if ((getline line < f) > 0 && line ~ /^[0-9]+$/) { words += line; counted = 1 }
                close(f)
            }
        }
        printf "%d|%d|%d|%.0f|%s|%s|%s", m, alive, stuck, cpu, seen ? sprintf("%.0f", io) : "",
            counted ? sprintf("%.0f", words * 4) : "", down
    }' </dev/null 2>/dev/null
}
merge() {
    trap leave EXIT
    trap 'exit 130' HUP INT TERM PIPE
    G= L= P= Q= R= K=0 N=0
    echo "h|1|$EVERY|$(getconf CLK_TCK 2>/dev/null || echo 100)"
    while IFS= read -r line; do
        case $line in
        end) exit 0 ;;
        t)
            read -r up _ </proc/uptime
            printf 's|%s|%s|%s|%s|%s\n' "$up" "$G" "$(host)" "$L" "$K"
            G= L= K=0 N=0
            ;;
        [0-9]*,*) [ "${#G}" -lt 8192 ] && G="$G;$line" ;;
        k*)
            K=$((K + 1))
            [ "$K" -le 50 ] && printf 'k|%s\n' "${line#k}"
            ;;
        q*) Q=${line#q} ;;
        l*) L=${line#l} ;;
        p*) P=${line#p} ;;
        r*) R=${line#r} ;;
        e*) printf 'e|%s\n' "${line#e}" ;;
        x*) printf 'x|%s\n' "${line#x}" ;;
        *)
            N=$((N + 1))
            [ "$N" -le 5 ] && printf 'n|%.300s\n' "$line"
            ;;
        esac
    done
}
below() { # PID: it and its descendants, told in one pass
    awk -v top="$1" 'BEGIN {
        while (("ls /proc" | getline p) > 0) if (p ~ /^[0-9]+$/) {
            f = "/proc/" p "/stat"
            if ((getline line < f) > 0) {
                sub(/^.*\) /, "", line)
                split(line, s, " ")
                up[p] = s[2]
            }
            close(f)
        }
        for (p in up) {
            q = p
            for (i = 0; i < 30 && (q in up); i++) {
                if (q == top) { print p; break }
                q = up[q]
            }
        }
    }' </dev/null
}
leave() { # the connection broke, or the time is over: nothing of ours stays behind
    trap '' HUP INT TERM PIPE
    [ -n "$Q" ] && kill -TERM $(below "$Q")
} 2>/dev/null
producers() {
    read -r me _ </proc/self/stat
    echo "q$me"
    p_beat & p_gpus & p_kernel & p_logs & p_pids &
    wait
} </dev/null 2>/dev/null
watch() { producers | merge; }
