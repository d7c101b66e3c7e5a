# shellcheck shell=bash
# The functions that all templates share. A template sources this file on the job's first node; the file then reads the
# site's settings. `train` runs a training job from start to end, `launch` starts ranks, `work` runs a program that does
# not train. requeue.sh decides how a job ends. See FAILURES.md.
set -euo pipefail
ARGOSY_JOBS=${ARGOSY_JOBS:-$SLURM_SUBMIT_DIR/jobs}
ARGOSY_SITE=${ARGOSY_SITE:-$ARGOSY_JOBS/site.conf}
say() { echo "argosy: $(date +%T) $*" >&2; }
fail() { say "$*"; exit 2; }
# shellcheck source=jobs/shell/site.sh
source "$ARGOSY_JOBS/shell/site.sh"
source_site say warning:  # submit.sh has refused mistakes; a node may lack a command that the submitter's machine has
# shellcheck source=jobs/shell/run_folder.sh
source "$ARGOSY_JOBS/shell/run_folder.sh"
# shellcheck source=jobs/shell/requeue.sh
source "$ARGOSY_JOBS/shell/requeue.sh"
# shellcheck source=jobs/shell/room.sh
source "$ARGOSY_JOBS/shell/room.sh"
# shellcheck source=jobs/shell/spares.sh
source "$ARGOSY_JOBS/shell/spares.sh"  # sets num_nodes and ranks, the numbers of nodes and ranks that train
# shellcheck source=jobs/shell/stage.sh
source "$ARGOSY_JOBS/shell/stage.sh"

# The job id of an array task is ARRAY_TASK. The last task also has the array's own number as job id; with that number,
# Slurm would act on the whole array.
job_id=$SLURM_JOB_ID
if [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then
    job_id=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
fi
run='' checkpoints=''  # the folders of the run and of its checkpoints; open_run sets them
launcher_pid= # the process of the running launcher
num_launched= # the number of ranks that the launcher starts
warned=       # not empty: SIGUSR1 has arrived, the warning that the time limit is near
ended=        # not empty: SIGTERM has arrived: scancel, preemption, a failed node
interrupted=  # not empty: a signal has interrupted `wait`
preflight_failed=  # not empty: this start's pre-flight has failed (3). pretrain ends with 3 if its data is damaged

# set_launch_words RANKS PROGRAM: sets `words`, which start a command on this number of ranks: all ranks of the job, or one.
# pretrain starts with SIGUSR1 blocked and unblocks it when its handler is installed. Older versions of env have no
# --block-signal; with pyxis, env is that of the image.
# The job step gets all cores that the job has on each node, and bind.sh divides them. srun's --cpus-per-task would imply
# --exact (srun's manual) and override --whole: the step would get only that many cores, on the first socket. So `env -u`
# unsets the variables that set it: SRUN_CPUS_PER_TASK (Slurm 22.05), SLURM_CPUS_PER_TASK and SLURM_TRES_PER_TASK (23.11
# and later; sbatch sets them).
set_launch_words() {
    local count=$1 ranks_per_node=${SLURM_NTASKS_PER_NODE:-1} gpu_bind=--gpu-bind=none
    # Slurm without --gpus-per-node has no other --gpu option. A lone rank needs all GPUs of its job, which --gpu-bind=none would
    # hide from it (CUDA_VISIBLE_DEVICES is then unset, tried with 22.05): on a shared node it would use those of other jobs.
    if [ "$ARGOSY_GPUS" = gres ] || [ "$count" = 1 ]; then gpu_bind=; fi
    [ "$count" != 1 ] || ranks_per_node=1
    export ARGOSY_RANKS_HERE=$ranks_per_node ARGOSY_HCA ARGOSY_GPUS
    inside_container "$ARGOSY_JOBS" "$ARGOSY_SCRATCH" "$PWD" ${run:+"$run"}
    words=(env -u SRUN_CPUS_PER_TASK -u SLURM_CPUS_PER_TASK -u SLURM_TRES_PER_TASK -u SLURM_NO_KILL
           "ARGOSY_RANKS=$count" "ARGOSY_RESTART=${SLURM_RESTART_COUNT:-0}" "ARGOSY_RESTART_INSIDE=$restarts_inside"
           "${container_variables[@]}")
    if [ -n "$run" ] && [ "$ARGOSY_GPUS" != no ]; then
        words+=("NCCL_TOPO_DUMP_FILE=${NCCL_TOPO_DUMP_FILE:-$run/nccl-topology.xml}")
    fi
    case $ARGOSY_LAUNCHER in
        srun) words+=(srun "--mpi=$ARGOSY_MPI" "--ntasks=$count" "--nodes=$((count / ranks_per_node))"
                      "--ntasks-per-node=$ranks_per_node" --distribution=block:block
                      ${gpu_bind:+"$gpu_bind"} --cpu-bind=none --kill-on-bad-exit=1 --unbuffered "${container_options[@]}") ;;
        mpirun) words+=(mpirun -n "$count" --map-by "ppr:$ranks_per_node:node" --bind-to none) ;;
    esac
    if [ -n "$spares" ]; then
        words+=(--overlap "--nodelist=$(head -n $((count / ranks_per_node)) <<<"$training_nodes" | paste -sd,)")
    fi
    if [ "$ARGOSY_LAUNCHER" = srun ] && [ "${2##*/}" = pretrain ] && [ "$count" -gt 1 ]; then words+=(--label); fi
    if [ "${2##*/}" = pretrain ] &&
       { [ ${#container_options[@]} -gt 0 ] || env --block-signal=USR1 true 2>/dev/null; }; then
        words+=(env --block-signal=USR1)
    fi
    words+=("${stage:-$ARGOSY_JOBS}/bind.sh" ${stage:+env "LD_LIBRARY_PATH=$stage${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"}
            "${container_words[@]}")
}

# Makes an empty folder ARGOSY_ARRIVALS. Each node has a file there, with a line for each of its ranks that has started, so
# that a waiting rank can name the missing ones.
clear_arrivals() {
    [ -n "$run" ] || return 0
    export ARGOSY_ARRIVALS=$run/arrivals
    rm -rf "$ARGOSY_ARRIVALS"
    mkdir -p "$ARGOSY_ARRIVALS"
}

size_of_log() { stat -c %s "$log" 2>/dev/null || echo 0; }

# launch RANKS COMMAND ...: runs the command on the ranks and returns its exit code. The command runs in the background,
# because a shell runs its traps only between commands or in `wait`.
launch() {
    local code size why watch='' watched=0
    # srun gives the limits of this shell to the ranks. Its ranks check the temporary folders of their nodes themselves.
    why=$(lack_of_address_space && { [ "$ARGOSY_LAUNCHER" = srun ] || lack_of_temporary_space; }) ||
        { code=$?; say "$why"; return "$code"; }
    num_launched=$1
    set_launch_words "$1" "$2"
    shift
    clear_arrivals
    [ -z "$warned$ended" ] || return 75
    size=$(size_of_log)
    (close_lock; exec "${words[@]}" "$@") &
    launcher_pid=$!
    if [ -n "$warned" ]; then tell_ranks & fi  # the signal arrived after the check above
    if [ -n "$spares" ]; then bound_launcher "$launcher_pid" "$size" >&2 & fi
    if [ "$num_launched" = 1 ]; then end_stopped_rank "$launcher_pid" >&2 & watch=$!; fi
    while :; do
        interrupted='' code=0
        wait "$launcher_pid" || code=$?
        [ -n "$interrupted" ] || break
    done
    launcher_pid=
    if [ -n "$watch" ]; then
        kill -TERM "$watch" 2>/dev/null || true
        wait "$watch" 2>/dev/null || watched=$?
        [ "$watched" != 76 ] || code=76
    fi
    return "$code"
}

# end_stopped_rank LAUNCHER: kills a lone rank that is stopped (SIGSTOP) for ARGOSY_STOPPED_SECONDS (0: never), because it
# has no peer whose watchdog would name it, and then returns 76, the code of the watchdog. A job that Slurm suspends stops this
# shell as well, so that time does not count.
end_stopped_rank() {
    local limit=$ARGOSY_STOPPED_SECONDS seconds=0 pause
    pause=$((limit < 100 ? (limit + 9) / 10 : 10))
    [ "$limit" -gt 0 ] || return 0
    close_lock
    while sleep "$pause"; kill -0 "$1" 2>/dev/null; do
        seconds=$((seconds + pause))
        [ -n "$(stopped_processes)" ] || seconds=0
        [ "$seconds" -ge "$limit" ] || continue
        trap '' TERM  # from launch(), once the rank has ended
        say "the rank is stopped (SIGSTOP) for $limit s (ARGOSY_STOPPED_SECONDS): it is ended"
        stopped_processes | xargs -r kill -KILL 2>/dev/null || true
        return 76
    done
}

# Prints the processes of this start on this node that are stopped.
stopped_processes() {
    local pid
    for pid in $(grep -l '^State:[[:space:]]*T' /proc/[0-9]*/status 2>/dev/null | tr -dc '0-9\n'); do
        [ "$(tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -cxF "$(start_marks)")" != 3 ] || echo "$pid"
    done
}

# Sends SIGUSR1 to the launcher, which forwards it to its ranks. Waits until all ranks have arrived, because while the
# launcher starts them, the signal may end the launcher or a rank, or may be lost. Waits at most 30 s; without a
# run folder, the launcher gets the signal at once.
tell_ranks() {
    local began=$SECONDS
    while [ -n "$run" ] && [ $((SECONDS - began)) -lt 30 ] &&
          [ "$(find "$ARGOSY_ARRIVALS" -type f -exec cat {} + 2>/dev/null | wc -l)" -lt "$num_launched" ]; do
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

# Checks the training nodes. Returns 0, or the code with which the job ends.
preflight() {
    local code=0
    rm -f "$run/preflight.json"  # an earlier start on other nodes left it
    [ "$ARGOSY_PREFLIGHT" != no ] || return 0
    local history=(--history "$ARGOSY_NODE_HISTORY")
    [ "$ARGOSY_NODE_HISTORY" != no ] || history=()
    ARGOSY_START_SECONDS=${ARGOSY_START_SECONDS:-90} launch "$ranks" "$programs/preflight" \
        --config "$run/effective.toml" ${ARGOSY_PREFLIGHT_WARN:+--only-warn "$ARGOSY_PREFLIGHT_WARN"} \
        "${history[@]}" --json "$run/preflight.json" || code=$?
    [ "$code" != 3 ] || preflight_failed=yes
    return "$code"
}

# train CONFIG [--section.key value ...]: runs a training job from start to end. Saving is on unless the options turn it
# off, because a requeued run that cannot resume would start again at step 1.
train() {
    local config=$1 code=0
    shift
    set -- "$config" --checkpoint.enable true "$@"
    [ -n "$run" ] || begin_run "$@"
    read_settings "$@"
    keep_settings "$settings"
    if [ "$ARGOSY_PREFLIGHT" = no ]; then stage_programs pretrain; else stage_programs pretrain preflight; fi
    [ -z "$spares" ] || watch_first_node
    while :; do
        code=0
        check_and_train "$@" || code=$?
        start_again "$code" || break
    done
    end_or_requeue "$code"
}
check_and_train() { preflight_failed=; check_nodes && launch "$ranks" "$programs/pretrain" --config "$@"; }

# begin_run CONFIG [--section.key value ...]: sets `run`, takes the lock of the run's folder, and only then writes there.
# Ends the job if it may not start.
begin_run() {
    local folder
    folder=$(folder_of "${@:2}")
    if [ -z "$folder" ]; then
        read_settings "$@"
        folder=$(run_of "$settings")
    fi
    lock_run "$folder"
    open_run "$folder"
    trap 'record_unexpected_end "$?"' EXIT
    note_program
    record start null null
    check_time_limit || end_or_requeue 2
    count_restart || end_or_requeue 77
}

# read_settings CONFIG [--section.key value ...]: sets `settings`, the effective configuration. A mistake in it ends the
# job. If the program does not start on a node, or a signal ends it, the job is requeued.
read_settings() {
    local code=0
    prepare
    settings=$(launch 1 "$ARGOSY_BIN/pretrain" --config "$@" --print-config) || code=$?
    [ "$code" != 0 ] || return 0
    say "the configuration could not be read: exit $code"
    if [ -z "$run" ] && [ "${SLURM_RESTART_COUNT:-0}" -ge "$ARGOSY_RESTARTS_WITHOUT_PROGRESS" ]; then
        say "giving up (77) after ${SLURM_RESTART_COUNT:-0} restarts"
        code=77
    fi
    end_or_requeue "$code"
}

# run_tool RANKS OUTPUT PROGRAM ...: runs a program that does not train. If its exit code is not 0, the job ends with it.
run_tool() {
    local count=$1 output=$2 program=$3 code=0
    prepare
    launch "$count" "$ARGOSY_BIN/$program" "${@:4}" || code=$?
    if is_restarted_by_slurm; then exit 1; fi
    record_step "$program" "$code" null "$output"
    [ "$code" = 0 ] || exit "$code"
}
work() { run_tool 1 "$@"; }

# Makes this shell ready to start programs: settings, fabric and modules. The second call does nothing.
prepared=
prepare() {
    local name
    [ -z "$prepared" ] || return 0
    prepared=yes
    check_site
    export_fabric "$ARGOSY_FABRIC"
    for name in $ARGOSY_FABRIC_MORE; do export_fabric "$name"; done
    load_modules
    say "fabric: $(env | grep -E '^(NCCL|UCX|SHARP|OMPI_MCA)_' | sort | paste -sd' ' || true)"
}

log=$(job_field StdOut)
log_size=$(size_of_log)  # at the newest start
say "job $job_id, restart ${SLURM_RESTART_COUNT:-0}: $ranks ranks on $(used_nodes)${spares:+, spares: $spares}"
