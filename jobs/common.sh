# shellcheck shell=bash
# The functions that all templates share. A template sources this file on the job's first node; the file then reads the
# site's settings. `train` runs a training job from start to end, `launch` starts ranks, `record` writes the result of a
# job. See README.md.
set -euo pipefail
ARGOSY_JOBS=${ARGOSY_JOBS:-$SLURM_SUBMIT_DIR/jobs}
# shellcheck source=jobs/site.conf
source "${ARGOSY_SITE:-$ARGOSY_JOBS/site.conf}"
# shellcheck source=jobs/run_folder.sh
source "$ARGOSY_JOBS/run_folder.sh"

# Of an array's task: by the plain number of its last one Slurm means the whole array.
job_id=$SLURM_JOB_ID
if [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then
    job_id=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
fi
ranks=${SLURM_NTASKS:-1}
run='' steps=''  # its folder and that of its checkpoints, once open_run knows them
step_pid=    # of the launcher under way
step_ranks=  # that it starts
warned=      # the signal before the time limit came
ended=       # SIGTERM came: scancel, preemption, a failed node
interrupted= # a signal cut a wait

say() { echo "argosy: $(date +%T) $*" >&2; }

# A variable that the site or the user has set stays as it is; one whose value is not known is not set.
export_fabric() {
    local file=$ARGOSY_JOBS/fabric/$1.conf name value
    [ -e "$file" ] || { say "the fabric profile $file does not exist; set ARGOSY_FABRIC to a profile of jobs/fabric"; exit 2; }
    while IFS='=' read -r name value; do
        [[ $name =~ ^[A-Z] ]] || continue
        value=${value//@INTERFACE@/$ARGOSY_INTERFACE}
        value=${value//@HCA_PORTS@/$(sed 's/[^,][^,]*/&:1/g' <<<"$ARGOSY_HCA")}
        value=${value//@HCA@/$ARGOSY_HCA}
        if [ -n "$value" ] && [ -z "${!name+set}" ]; then export "$name=$value"; fi
    done <"$file"
}

# launcher RANKS PROGRAM: the words before a command that start it on so many ranks: all of the job's, or one. pretrain
# starts with SIGUSR1 blocked, and unblocks it when its handler stands; older versions of env lack the option.
# The step gets all of the job's cores on each node, which bind.sh divides. With a number of CPUs per task srun would take
# no more than those, and take them on the first socket: the option implies --exact (srun's manual), and overrides
# --whole. Slurm 22.05 reads the number from SRUN_CPUS_PER_TASK, 23.11 and later from the other two, which sbatch sets.
launcher() {
    local count=$1 here=${SLURM_NTASKS_PER_NODE:-1}
    [ "$count" != 1 ] || here=1
    export ARGOSY_RANKS_HERE=$here ARGOSY_HCA
    words=(env -u SRUN_CPUS_PER_TASK -u SLURM_CPUS_PER_TASK -u SLURM_TRES_PER_TASK
           "ARGOSY_RANKS=$count" "ARGOSY_RESTART=${SLURM_RESTART_COUNT:-0}")
    case $ARGOSY_LAUNCHER in
        srun) words+=(srun "--mpi=$ARGOSY_MPI" "--ntasks=$count" "--nodes=$((count / here))" "--ntasks-per-node=$here"
                      --distribution=block:block
                      --gpu-bind=none --cpu-bind=none --kill-on-bad-exit=1 --unbuffered) ;;
        mpirun) words+=(mpirun -n "$count" --map-by "ppr:$here:node" --bind-to none) ;;
        *) say "ARGOSY_LAUNCHER is '$ARGOSY_LAUNCHER'; set it to srun or mpirun"; exit 2 ;;
    esac
    if [ "${2##*/}" = pretrain ] && env --block-signal=USR1 true 2>/dev/null; then
        words+=(env --block-signal=USR1)
    fi
    words+=("$ARGOSY_JOBS/bind.sh" "${inside[@]}")
}

# Where each rank keeps a file while the job starts or ends, so that ranks that wait can name the missing ones.
empty_arrivals() {
    [ -n "$run" ] || return 0
    export ARGOSY_ARRIVALS=$run/arrivals
    rm -rf "$ARGOSY_ARRIVALS"
    mkdir -p "$ARGOSY_ARRIVALS"
}

# launch RANKS COMMAND ...: its exit code. In the background, since a shell serves its traps only between commands or
# in `wait`.
launch() {
    local code
    step_ranks=$1
    launcher "$1" "$2"
    shift
    empty_arrivals
    [ -z "$warned$ended" ] || return 75
    "${words[@]}" "$@" &
    step_pid=$!
    if [ -n "$warned" ]; then tell_ranks & fi  # it came between the check and the number
    while :; do
        interrupted='' code=0
        wait "$step_pid" || code=$?
        [ -n "$interrupted" ] || break
    done
    step_pid=
    return "$code"
}

# The launcher passes SIGUSR1 on to its ranks. It gets it once all ranks have arrived, since while it starts them the
# signal may end the launcher or a rank, or may be lost. Where nobody notes arrivals, it gets it at once.
tell_ranks() {
    local began=$SECONDS
    while [ -n "$run" ] && [ $((SECONDS - began)) -lt 30 ] && [ "$(find "$ARGOSY_ARRIVALS" -type f 2>/dev/null | wc -l)" -lt "$step_ranks" ]; do
        kill -0 "$step_pid" 2>/dev/null || return 0
        sleep 0.5
    done
    kill -USR1 "$step_pid" 2>/dev/null || true
}

# Before the time limit: the ranks are told, and save. They know of SIGTERM already: Slurm sends it to all.
on_warning() {
    warned=yes interrupted=yes
    say "the time limit is near: asking the run to save and stop"
    if [ -n "$step_pid" ]; then tell_ranks & fi  # with `||` the trap would set $! also where nothing starts
}
on_end() { ended=yes interrupted=yes; }
trap on_warning USR1
trap on_end TERM

# The checks of all nodes before a run: 0, or the code with which the job is to end.
preflight() {
    local code=0
    rm -f "$run/preflight.json"  # of an earlier start, on other nodes
    [ "$ARGOSY_PREFLIGHT" != no ] || return 0
    ARGOSY_START_SECONDS=${ARGOSY_START_SECONDS:-90} launch "$ranks" "$ARGOSY_BIN/preflight" \
        --config "$run/effective.toml" --json "$run/preflight.json" || code=$?
    return "$code"
}

# Names of nodes that the pre-flight found bad: "bad_nodes": ["n3"] in its JSON.
nodes_of_preflight() {
    [ -e "$run/preflight.json" ] || return 0
    tr -d '\n' <"$run/preflight.json" 2>/dev/null | sed -n 's/.*"bad_nodes": *\[\([^]]*\)\].*/\1/p' | tr -d '" '
}

# Names of nodes whose ranks others waited for in vain, out of the log since this start: "missing: rank 3, 5". Of most
# of a job's nodes none: they lost each other, and the job would find no others.
nodes_of_watchdog() {
    local rank name names=() bad=()
    mapfile -t names < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
    for rank in $(tail -c "+$((log_size + 1))" "$log" 2>/dev/null |
                  sed -n 's/.*; missing: rank \([0-9, ]*\).*/\1/p' | tr -d ,); do
        name=${names[rank / ${SLURM_NTASKS_PER_NODE:-1}]:-}
        [ -z "$name" ] || bad+=("$name")
    done
    [ ${#bad[@]} -gt 0 ] || return 0
    mapfile -t bad < <(printf '%s\n' "${bad[@]}" | sort -u)
    if [ ${#bad[@]} -gt 1 ] && [ $((2 * ${#bad[@]})) -gt ${#names[@]} ]; then
        say "ranks of ${#bad[@]} of ${#names[@]} nodes are missing: the network between the nodes may be at fault"
    else
        paste -sd, <(printf '%s\n' "${bad[@]}")
    fi
}

# Nothing where Slurm does not answer, even after some seconds.
job_field() {
    local answer
    for _ in {1..4}; do
        if answer=$(scontrol show job -o "$job_id" 2>/dev/null); then
            tr ' ' '\n' <<<"$answer" | sed -n "0,/^$1=/s/^$1=//p"
            return 0
        fi
        sleep 2
    done
}

# requeue [NODES]: the same job once more, without these nodes. Slurm then ends this shell. Excluding comes after, since
# only a job that waits can be changed; it waits two minutes at least (AuthInfo's cred_expire).
requeue() {
    local nodes=${1:-} excluded attempt
    trap '' TERM
    scontrol requeue "$job_id" || { say "Slurm refused to requeue job $job_id"; return 0; }
    [ -n "$nodes" ] || return 0
    excluded=$(job_field ExcNodeList)
    case $excluded in "" | "(null)") ;; *) nodes=$excluded,$nodes ;; esac
    for attempt in {1..20}; do
        scontrol update "jobid=$job_id" "ExcNodeList=$nodes" 2>/dev/null && return 0
        sleep 0.3
    done
    say "Slurm refused to exclude $nodes in $attempt attempts: the next start may get these nodes again"
}

# Whether Slurm has begun this job anew without this shell, as it does when it gives a node up. srun then ends with 0.
is_lost() {
    local restarts
    restarts=$(job_field Restarts)
    [ -n "$restarts" ] && { [ "$restarts" != "${SLURM_RESTART_COUNT:-0}" ] || [ "$(job_field JobState)" = PENDING ]; }
}

# Ranks of this start on this node, whom nobody else ends where slurmd is gone: they would train on, and keep the run's
# folder from the next start.
end_ranks() {
    local signal=$1 file mine marks
    marks=$(printf '%s\n' "SLURM_JOB_ID=$SLURM_JOB_ID" "SLURMD_NODENAME=$SLURMD_NODENAME" \
                   "ARGOSY_RESTART=${SLURM_RESTART_COUNT:-0}")
    for file in /proc/[0-9]*/environ; do
        mine=$(tr '\0' '\n' 2>/dev/null <"$file" | grep -cxF "$marks") || true
        [ "$mine" != 3 ] || kill "-$signal" "$(basename "$(dirname "$file")")" 2>/dev/null || true
    done
}

# Whether somebody ends the job, and not this shell. One of whom Slurm says nothing runs.
is_ended() {
    [ -z "$ended" ] || return 0
    case $(job_field JobState) in RUNNING | "") return 1 ;; esac
}

# What an exit code of a run means for its job. Who was warned goes back to the queue though its limit may have come.
leave() {
    local code=$1 nodes=
    if is_lost; then
        say "exit $code, but Slurm has already restarted job $job_id: asking the ranks of this start to save and stop"
        end_ranks TERM
        sleep 20
        end_ranks KILL
        exit 1
    fi
    record end "$code"
    case $code in
        0) forget_restarts; say "done"; exit 0 ;;
        3) nodes=$(nodes_of_preflight) || true ;;
        2 | 77) say "exit $code: a restart would fail the same way, so the job ends"; exit "$code" ;;
        *) nodes=$(nodes_of_watchdog) || true ;;  # srun's code is the ranks' highest, which may hide the watchdog's
    esac
    if [ "$code" = 3 ] && [ -z "$nodes" ]; then
        say "the pre-flight failed but named no node: the job ends"
    elif ! { [ "$code" = 75 ] && [ -n "$warned" ]; } && is_ended; then
        say "exit $code; Slurm ends the job"
    else
        say "exit $code; requeueing job $job_id${nodes:+ without $nodes}"
        requeue "$nodes"
    fi
    exit "$code"
}

# train CONFIG [--section.key value ...]: a training job's life. Saving is on unless the options say otherwise: what
# cannot resume should not be requeued.
train() {
    local config=$1 code=0
    shift
    set -- "$config" --checkpoint.enable true "$@"
    read_settings "$@"
    open_run "$settings"
    record start
    count_restart || leave 77
    preflight || code=$?
    if [ "$code" = 0 ]; then
        launch "$ranks" "$ARGOSY_BIN/pretrain" --config "$@" || code=$?
    fi
    leave "$code"
}

# Sets `settings`, what a configuration with options says in the end. A mistake in them ends the job. A node on which
# the program does not start, or a signal, does not: the log says how often it was so, since no run's folder is known.
read_settings() {
    local code=0 unread="the configuration could not be read"
    settings=$(launch 1 "$ARGOSY_BIN/pretrain" --config "$@" --print-config) || code=$?
    [ "$code" != 0 ] || return 0
    say "$unread: exit $code"
    if [[ $code != 2 && $(grep -c "$unread" "$log") -gt $ARGOSY_RESTARTS_WITHOUT_PROGRESS ]]; then
        say "giving up (77) after $ARGOSY_RESTARTS_WITHOUT_PROGRESS restarts"
        code=77
    fi
    leave "$code"
}

# work_on RANKS OUTPUT PROGRAM ...: a job that is no training: it ends with the program's code, once it is not 0.
work_on() {
    local count=$1 output=$2 program=$3 code=0
    launch "$count" "$ARGOSY_BIN/$program" "${@:4}" || code=$?
    if is_lost; then exit 1; fi
    record_step "$program" "$code" "$output"
    [ "$code" = 0 ] || exit "$code"
}
work() { work_on 1 "$@"; }

inside=()
inside_container
export_fabric "$ARGOSY_FABRIC"
[ -z "$ARGOSY_FABRIC_MORE" ] || export_fabric "$ARGOSY_FABRIC_MORE"
if [ -n "$ARGOSY_MODULES" ]; then
    set +u  # which the modules' own scripts do not bear
    # shellcheck disable=SC2086
    module load $ARGOSY_MODULES
    set -u
fi
log=$(job_field StdOut)
log_size=$(stat -c %s "$log" 2>/dev/null || echo 0)
say "job $job_id, restart ${SLURM_RESTART_COUNT:-0}: $ranks ranks on $SLURM_JOB_NODELIST"
say "fabric: $(env | grep -E '^(NCCL|UCX|SHARP|OMPI_MCA)_' | sort | paste -sd' ' || true)"
