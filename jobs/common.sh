# shellcheck shell=bash
# The functions that all templates share. A template sources this file on the job's first node; the file then reads the
# site's settings. `train` runs a training job from start to end, `launch` starts ranks, `work` runs a program that does
# not train. See README.md.
set -euo pipefail
ARGOSY_JOBS=${ARGOSY_JOBS:-$SLURM_SUBMIT_DIR/jobs}
# shellcheck source=jobs/site.conf
source "${ARGOSY_SITE:-$ARGOSY_JOBS/site.conf}"
# shellcheck source=jobs/run_folder.sh
source "$ARGOSY_JOBS/run_folder.sh"

# The job id of an array task is ARRAY_TASK. The last task also has the array's own number as job id; with that number,
# Slurm would act on the whole array.
job_id=$SLURM_JOB_ID
if [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then
    job_id=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
fi
ranks=${SLURM_NTASKS:-1}
run='' checkpoints=''  # the folders of the run and of its checkpoints; open_run sets them
launcher_pid= # the process of the running launcher
num_launched= # the number of ranks that the launcher starts
warned=       # not empty: SIGUSR1 has arrived, the warning that the time limit is near
ended=        # not empty: SIGTERM has arrived: scancel, preemption, a failed node
interrupted=  # not empty: a signal has interrupted `wait`

say() { echo "argosy: $(date +%T) $*" >&2; }

# Exports the variables of a fabric profile. A variable that the site or the user has set keeps its value; a variable
# whose value would be empty is not set.
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

# set_launch_words RANKS PROGRAM: sets `words`, which start a command on this number of ranks: all ranks of the job, or one.
# pretrain starts with SIGUSR1 blocked and unblocks it when its handler is installed. Older versions of env have no
# --block-signal.
# The job step gets all cores that the job has on each node, and bind.sh divides them. srun's --cpus-per-task would imply
# --exact (srun's manual) and override --whole: the step would get only that many cores, on the first socket. So `env -u`
# unsets the variables that set it: SRUN_CPUS_PER_TASK (Slurm 22.05), SLURM_CPUS_PER_TASK and SLURM_TRES_PER_TASK (23.11
# and later; sbatch sets them).
set_launch_words() {
    local count=$1 ranks_per_node=${SLURM_NTASKS_PER_NODE:-1}
    [ "$count" != 1 ] || ranks_per_node=1
    export ARGOSY_RANKS_HERE=$ranks_per_node ARGOSY_HCA
    words=(env -u SRUN_CPUS_PER_TASK -u SLURM_CPUS_PER_TASK -u SLURM_TRES_PER_TASK
           "ARGOSY_RANKS=$count" "ARGOSY_RESTART=${SLURM_RESTART_COUNT:-0}")
    case $ARGOSY_LAUNCHER in
        srun) words+=(srun "--mpi=$ARGOSY_MPI" "--ntasks=$count" "--nodes=$((count / ranks_per_node))"
                      "--ntasks-per-node=$ranks_per_node" --distribution=block:block
                      --gpu-bind=none --cpu-bind=none --kill-on-bad-exit=1 --unbuffered) ;;
        mpirun) words+=(mpirun -n "$count" --map-by "ppr:$ranks_per_node:node" --bind-to none) ;;
        *) say "ARGOSY_LAUNCHER is '$ARGOSY_LAUNCHER'; set it to srun or mpirun"; exit 2 ;;
    esac
    if [ "${2##*/}" = pretrain ] && env --block-signal=USR1 true 2>/dev/null; then
        words+=(env --block-signal=USR1)
    fi
    words+=("$ARGOSY_JOBS/bind.sh" "${container_words[@]}")
}

# Makes an empty folder ARGOSY_ARRIVALS. Each rank keeps a file there while the job starts or ends, so that a waiting rank
# can name the missing ones.
clear_arrivals() {
    [ -n "$run" ] || return 0
    export ARGOSY_ARRIVALS=$run/arrivals
    rm -rf "$ARGOSY_ARRIVALS"
    mkdir -p "$ARGOSY_ARRIVALS"
}

# launch RANKS COMMAND ...: runs the command on the ranks and returns its exit code. The command runs in the background,
# because a shell runs its traps only between commands or in `wait`.
launch() {
    local code
    num_launched=$1
    set_launch_words "$1" "$2"
    shift
    clear_arrivals
    [ -z "$warned$ended" ] || return 75
    "${words[@]}" "$@" &
    launcher_pid=$!
    if [ -n "$warned" ]; then tell_ranks & fi  # the signal arrived after the check above
    while :; do
        interrupted='' code=0
        wait "$launcher_pid" || code=$?
        [ -n "$interrupted" ] || break
    done
    launcher_pid=
    return "$code"
}

# Sends SIGUSR1 to the launcher, which forwards it to its ranks. Waits until all ranks have arrived, because while the
# launcher starts them, the signal may end the launcher or a rank, or may be lost. Waits at most 30 s; without a
# run folder, the launcher gets the signal at once.
tell_ranks() {
    local began=$SECONDS
    while [ -n "$run" ] && [ $((SECONDS - began)) -lt 30 ] && [ "$(find "$ARGOSY_ARRIVALS" -type f 2>/dev/null | wc -l)" -lt "$num_launched" ]; do
        kill -0 "$launcher_pid" 2>/dev/null || return 0
        sleep 0.5
    done
    kill -USR1 "$launcher_pid" 2>/dev/null || true
}

# Slurm sends SIGUSR1 to this shell before the time limit. The shell passes it on to the ranks, which save and stop.
# SIGTERM needs no forwarding: Slurm sends it to all ranks.
on_warning() {
    warned=yes interrupted=yes
    say "the time limit is near: asking the run to save and stop"
    # not `[ -z "$launcher_pid" ] || tell_ranks &`, which starts a background process in any case
    if [ -n "$launcher_pid" ]; then tell_ranks & fi
}
on_end() { ended=yes interrupted=yes; }
trap on_warning USR1
trap on_end TERM

# Checks all nodes before a run. Returns 0, or the code with which the job ends.
preflight() {
    local code=0
    rm -f "$run/preflight.json"  # an earlier start on other nodes left it
    [ "$ARGOSY_PREFLIGHT" != no ] || return 0
    ARGOSY_START_SECONDS=${ARGOSY_START_SECONDS:-90} launch "$ranks" "$ARGOSY_BIN/preflight" \
        --config "$run/effective.toml" --json "$run/preflight.json" || code=$?
    return "$code"
}

# Prints the nodes that the pre-flight found bad: "bad_nodes": ["n3"] in its JSON.
nodes_of_preflight() {
    [ -e "$run/preflight.json" ] || return 0
    tr -d '\n' <"$run/preflight.json" 2>/dev/null | sed -n 's/.*"bad_nodes": *\[\([^]]*\)\].*/\1/p' | tr -d '" '
}

# Prints the nodes of the ranks that the log calls missing since this start: "missing: rank 3, 5". If more than one node and
# more than half of the job's nodes are missing, logs that instead: the network may be at fault, and too few other nodes
# may be free.
nodes_of_missing_ranks() {
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

# Prints a field of this job in Slurm; nothing if Slurm does not answer within some seconds.
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

# requeue [NODES]: requeues this job without these nodes. Slurm changes only a pending job, so the nodes are excluded after
# the requeue. That is in time: the job stays pending for at least two minutes (AuthInfo's cred_expire). Slurm sends
# SIGTERM to this shell meanwhile, so the shell ignores it.
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

# Whether Slurm has already restarted this job, as it does when a node fails. srun then exits with 0.
is_restarted_by_slurm() {
    local restarts
    restarts=$(job_field Restarts)
    [ -n "$restarts" ] && { [ "$restarts" != "${SLURM_RESTART_COUNT:-0}" ] || [ "$(job_field JobState)" = PENDING ]; }
}

# end_ranks SIGNAL: signals the ranks of this start on this node. If slurmd is gone, nothing else ends them: they would
# train on and hold the lock of the run's folder.
end_ranks() {
    local signal=$1 file mine marks
    marks=$(printf '%s\n' "SLURM_JOB_ID=$SLURM_JOB_ID" "SLURMD_NODENAME=$SLURMD_NODENAME" \
                   "ARGOSY_RESTART=${SLURM_RESTART_COUNT:-0}")
    for file in /proc/[0-9]*/environ; do
        mine=$(tr '\0' '\n' 2>/dev/null <"$file" | grep -cxF "$marks") || true
        [ "$mine" != 3 ] || kill "-$signal" "$(basename "$(dirname "$file")")" 2>/dev/null || true
    done
}

# Whether the job is being ended from outside. A job of which Slurm reports no state counts as running.
is_ended() {
    [ -z "$ended" ] || return 0
    case $(job_field JobState) in RUNNING | "") return 1 ;; esac
}

# Ends or requeues the job, as the exit code of the run says. A job that was warned and saved (75) is requeued even if its
# time limit has passed.
end_or_requeue() {
    local code=$1 nodes=
    if is_restarted_by_slurm; then
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
        # any code: srun returns the highest code of all ranks, which may hide the watchdog's 76
        *) nodes=$(nodes_of_missing_ranks) || true ;;
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

# train CONFIG [--section.key value ...]: runs a training job from start to end. Saving is on unless the options turn it
# off, because a requeued run that cannot resume would start again at step 1.
train() {
    local config=$1 code=0
    shift
    set -- "$config" --checkpoint.enable true "$@"
    read_settings "$@"
    open_run "$settings"
    record start
    count_restart || end_or_requeue 77
    preflight || code=$?
    if [ "$code" = 0 ]; then
        launch "$ranks" "$ARGOSY_BIN/pretrain" --config "$@" || code=$?
    fi
    end_or_requeue "$code"
}

# read_settings CONFIG [--section.key value ...]: sets `settings`, the effective configuration. A mistake in it ends the
# job. If the program does not start on a node, or a signal ends it, the job is requeued; the number of such starts is
# counted in the log, because the run's folder is not known yet.
read_settings() {
    local code=0 unread="the configuration could not be read"
    settings=$(launch 1 "$ARGOSY_BIN/pretrain" --config "$@" --print-config) || code=$?
    [ "$code" != 0 ] || return 0
    say "$unread: exit $code"
    if [[ $code != 2 && $(grep -c "$unread" "$log") -gt $ARGOSY_RESTARTS_WITHOUT_PROGRESS ]]; then
        say "giving up (77) after $ARGOSY_RESTARTS_WITHOUT_PROGRESS restarts"
        code=77
    fi
    end_or_requeue "$code"
}

# run_tool RANKS OUTPUT PROGRAM ...: runs a program that does not train. If its exit code is not 0, the job ends with it.
run_tool() {
    local count=$1 output=$2 program=$3 code=0
    launch "$count" "$ARGOSY_BIN/$program" "${@:4}" || code=$?
    if is_restarted_by_slurm; then exit 1; fi
    record_step "$program" "$code" "$output"
    [ "$code" = 0 ] || exit "$code"
}
work() { run_tool 1 "$@"; }

container_words=()
inside_container
export_fabric "$ARGOSY_FABRIC"
[ -z "$ARGOSY_FABRIC_MORE" ] || export_fabric "$ARGOSY_FABRIC_MORE"
if [ -n "$ARGOSY_MODULES" ]; then
    set +u  # the scripts of the modules read unset variables
    # shellcheck disable=SC2086
    module load $ARGOSY_MODULES
    set -u
fi
log=$(job_field StdOut)
log_size=$(stat -c %s "$log" 2>/dev/null || echo 0)
say "job $job_id, restart ${SLURM_RESTART_COUNT:-0}: $ranks ranks on $SLURM_JOB_NODELIST"
say "fabric: $(env | grep -E '^(NCCL|UCX|SHARP|OMPI_MCA)_' | sort | paste -sd' ' || true)"
