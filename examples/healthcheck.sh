#!/bin/sh
# Slurm HealthCheckProgram: a node whose own hardware has failed takes no further job.
#
#   slurm.conf:  HealthCheckProgram=/etc/slurm/healthcheck.sh
#                HealthCheckInterval=300
#                HealthCheckNodeState=IDLE
#
# Slurm ignores its exit code: the script itself drains. A drain that somebody set is left as it is,
# and nothing here ever resumes a node.
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
NODE=${SLURMD_NODENAME:-$(hostname -s)}
LOG=/var/log/sluggish-preflight.log

timeout -k 5 45 sluggish preflight --local --hardware-only >"$LOG" 2>&1
[ $? -eq 40 ] || exit 0

state=$(scontrol -o show node "$NODE") || exit 0
case $state in
*DRAIN*) ;;
*) scontrol update NodeName="$NODE" State=DRAIN Reason="sluggish preflight: failed hardware, see $LOG" ;;
esac
