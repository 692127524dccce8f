#!/bin/bash
# What runs inside the lab: `init.sh ctl DIR ACCOUNTING` is the first process of the whole lab,
# `init.sh node NAME` that of a node; `start NAME...`, `stop NAME`, `reboot LIST` run on ctl.
# Everything is mounted in the lab's own namespaces; all that is written lies in the lab's directory,
# which every part of the lab sees as /run/lab (and a node's own share of it as /run/node).
set -u
umask 022
unset TMPDIR BASH_ENV
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
lab=/run/lab

until_true() { # SECONDS COMMAND...
    local tries=$(($1 * 50))
    shift
    while ! "$@" >/dev/null 2>&1; do
        ((tries-- > 0)) || return 1
        sleep 0.02
    done
}

bind() { mount -n --bind "$1" "$2"; }

# A /run of our own, built aside and moved into place: DIR is the lab's directory as seen from here.
take_run() { # DIR NAME
    local aside=$1/aside
    mount -n -t tmpfs -o mode=755 tmpfs "$aside"
    mkdir "$aside"/{lab,node,munge,sshd,user}
    bind "$1" "$aside/lab"
    bind "$1/nodes/$2" "$aside/node"
    bind "$1/munge" "$aside/munge"
    mount -n --move "$aside" /run
    cd /
}

# /opt holds sluggish and the Python that runs it, so that alice, to whom /root is closed, reaches both.
take_opt() {
    mount -n -t tmpfs -o mode=755 tmpfs $lab/aside
    mkdir $lab/aside/{sluggish,venv}
    bind "$(readlink -m $lab/source)" $lab/aside/sluggish
    mount -n -o remount,ro,bind $lab/aside/sluggish
    [ -d $lab/venv ] && bind "$(readlink -m $lab/venv)" $lab/aside/venv
    mount -n --move $lab/aside /opt
}

address() {
    awk -v name="$1" '$2 == name { print $1 }' $lab/etc/hosts
}

rest() { # the first process of a PID namespace stays and reaps
    trap 'exit 0' TERM
    while :; do
        sleep 3600 &
        wait $!
    done
}

accounting() {
    local data=$lab/mysql h
    chown -R mysql "$data"
    TMPDIR=$data/tmp mariadb-install-db --user=mysql --skip-test-db \
        --auth-root-authentication-method=socket --datadir="$data/data" \
        >$lab/log/mariadb-install.log 2>&1 || return 1
    TMPDIR=$data/tmp mariadbd --no-defaults --user=mysql --datadir="$data/data" \
        --socket="$data/socket" --pid-file="$data/pid" --port=3306 --bind-address=127.0.0.1 \
        --innodb-buffer-pool-size=64M --innodb-lock-wait-timeout=900 \
        --innodb-flush-log-at-trx-commit=0 >$lab/log/mariadb.log 2>&1 &
    until_true 60 mariadb --socket="$data/socket" -e 'select 1' || return 1
    {
        echo 'create database slurm_acct;'
        for h in 127.0.0.1 localhost; do
            echo "create user slurm@'$h' identified by 'lab'; grant all on slurm_acct.* to slurm@'$h';"
        done
    } | mariadb --socket="$data/socket" || return 1
    slurmdbd -D >$lab/log/slurmdbd.out 2>&1 &
    until_true 60 sacctmgr -n list cluster
}

accounts() {
    until_true 30 scontrol ping
    sacctmgr -i add account research Description=lab Organization=lab
    sacctmgr -i add user alice Account=research
    sacctmgr -i add user bob Account=research AdminLevel=Operator
}

ctl() { # DIR ACCOUNTING
    local name
    exec >>"$1/log/ctl.log" 2>&1
    take_run "$1" ctl
    take_opt
    hostname ctl
    ulimit -n "$(ulimit -Hn)"
    bind $lab/etc /etc
    bind $lab/root /root
    # what is mounted below these two later shows up on every node: one file system for all
    mount -n -t tmpfs -o mode=755 tmpfs /mnt
    mkdir /mnt/shared /mnt/data
    bind $lab/home /home
    mount -n --make-shared /mnt
    mount -n --make-shared /home
    bind /run/node/bin /usr/local/bin

    ip link set lo up
    ip link add br0 type bridge
    ip addr add "$(address ctl)/16" dev br0
    ip link set br0 up
    munged --foreground --force --num-threads=4 --key-file=$lab/keys/munge.key \
        --socket=/run/munge/munge.socket.2 --pid-file=/run/munged.pid \
        --log-file=$lab/log/munged.log --seed-file=$lab/munge/seed &
    until_true 20 test -S /run/munge/munge.socket.2
    if [ "$2" = 1 ]; then accounting || exit 1; fi
    slurmctld -D >$lab/log/slurmctld.out 2>&1 &
    # shellcheck disable=SC2046 # one word a node
    start login $(cat $lab/nodelist)
    if [ "$2" = 1 ]; then accounts; fi
    touch $lab/started
    rest
}

node() { # NAME BOOTED
    local name=$1 user
    take_run $lab "$name"
    hostname "$name"
    bind /run/node/hostname /etc/hostname
    bind /run/node/log /var/log
    bind /run/node/bin /usr/local/bin
    bind /run/node/tmp /tmp
    bind /run/node/vartmp /var/tmp
    mount -n -t tmpfs -o mode=1777 tmpfs /dev/shm
    mount -n -t sysfs sysfs /sys
    mount -n -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup # the machine's own groups are out of reach
    if [ -d /run/node/sys ]; then
        bind /run/node/sys/class /sys/class
        bind /run/node/sys/bus /sys/bus
    fi
    cat /proc/sys/kernel/random/uuid >/run/node/boot_id
    bind /run/node/boot_id /proc/sys/kernel/random/boot_id
    until_true 20 ip link show eth0 || exit 1
    ip link set lo up
    ip addr add "$(address "$name")/16" dev eth0
    ip link set eth0 up
    for user in alice bob; do mkdir -p /run/user/"$(id -u $user)"; chown $user /run/user/"$(id -u $user)"; done
    "$(command -v sshd)" -D -E /var/log/sshd.log &
    if [ "$name" != login ]; then
        slurmd -D $2 -N "$name" >/var/log/slurmd.out 2>&1 &
    fi
    rest
}

is_up() { # NAME: sets pid to the node's first process, as numbered on ctl
    local began
    read -r pid began <$lab/nodes/"$1"/pid && [ "$(start_time "$pid")" = "$began" ]
} 2>/dev/null

start_time() { sed 's/.*) //' "/proc/$1/stat" | cut -d' ' -f20; }

first_child() {
    local tries=500 child=
    while [ -z "$child" ] && ((tries-- > 0)); do
        child=$(pgrep -o -P "$1") || sleep 0.01
    done
    echo "$child"
}

start_one() { # NAME
    local name=$1 child pid mac booted=
    is_up "$name" && return
    [ -e $lab/nodes/"$name"/pid ] && booted=-b # slurmd tells the controller of a reboot
    setsid unshare --mount --propagation slave --net --uts --pid --ipc --fork --kill-child=KILL \
        --mount-proc bash $lab/init.sh node "$name" "$booted" \
        </dev/null >>$lab/nodes/"$name"/init.log 2>&1 &
    child=$(first_child $!)
    [ -n "$child" ] || return 1
    echo "$child $(start_time "$child")" >$lab/nodes/"$name"/pid
    # the address follows the name: the neighbours of a node that boots again need not forget
    mac=$(address "$name" | awk -F. '{ printf "02:00:%02x:%02x:%02x:%02x", $1, $2, $3, $4 }')
    ip link add "v-$name" type veth peer name eth0 address "$mac" netns "$child"
    ip link set "v-$name" master br0 up
}

start() {
    local name
    for name; do start_one "$name"; done
}

stop() { # as a power cut: no farewell, and the link goes with it
    local pid
    is_up "$1" || return 0
    nsenter --target="$pid" --mount --pid -- bash /run/lab/init.sh fail_storage
    kill -9 "$pid"
    until_true 30 gone "$pid"
}

gone() { ! kill -0 "$1"; }

# Every FUSE seen from here answers with errors from now on. The last process of a mount namespace
# unmounts on its way out: were that the daemon, it would wait for ever for a disk that only it can
# serve, and no loop device of the whole machine could be mounted or looked at again.
fail_storage() {
    local connections=/sys/fs/fuse/connections minor
    cat /proc/[0-9]*/mountinfo 2>/dev/null | awk '$5 ~ "^/mnt/fuse-" { print $3 }' | sort -u |
        while IFS=: read -r _ minor; do
            mountpoint -q $connections || mount -n -t fusectl none $connections
            echo 1 >"$connections/$minor/abort"
        done
}

reboot() {
    local name
    for name in $(scontrol show hostnames "$1"); do
        stop "$name"
        start_one "$name"
    done
}

"$@"
