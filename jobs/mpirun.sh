#!/usr/bin/env bash
# mpirun.sh [--threads T] N COMMAND ...: starts N ranks on this machine as every test does: more ranks than cores is
# fine, one compute thread each (or T), idle ranks yield, and root may.
set -eu
threads=1
if [ "$1" = --threads ]; then
    threads=$2
    shift 2
fi
ranks=$1
shift
export OMP_NUM_THREADS=$threads OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca btl_vader_single_copy_mechanism none \
     -n "$ranks" "$@"
