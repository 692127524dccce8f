#!/bin/sh
# Slurm Prolog: no job starts on a node whose own hardware has failed.
#
#   slurm.conf:  Prolog=/etc/slurm/prolog.sh
#                PrologFlags=Alloc
#
# A Prolog that fails DRAINS the node and requeues the job. So it fails for one reason alone, exit
# code 40 under --hardware-only; whatever else happens (storage that hangs, a node without sluggish,
# a look that takes too long) lets the job start. It asks no Slurm command and no other node.
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
LOG=/var/log/sluggish-preflight.log

timeout -k 5 60 sluggish preflight --local --hardware-only >"$LOG" 2>&1
[ $? -ne 40 ]
