# shellcheck shell=bash
# Functions on a run's folder for its jobs: its path, its newest step, the number of starts without progress, and
# jobs.jsonl, which records the result of each job. common.sh sources this file, which uses its variables.
# shellcheck disable=SC2154

# value SECTION KEY < the output of `pretrain --print-config`: prints the value of a key.
value() {
    awk -v section="[$1]" -v key="$2" '
        /^\[/ { inside = $1 == section }
        inside && $1 == key { sub(/^[^=]*= */, ""); gsub(/^"|"$/, ""); print; exit }'
}

# Sets `container_words`: the words that run a command in the container; empty without a container.
inside_container() {
    local mounts=()
    [ -n "$ARGOSY_CONTAINER" ] || return 0
    [ -z "$ARGOSY_CONTAINER_MOUNTS" ] || mounts=(--bind "$ARGOSY_CONTAINER_MOUNTS")
    # shellcheck disable=SC2034
    container_words=(apptainer exec --nv "${mounts[@]}" "$ARGOSY_CONTAINER")
}

# run_of SETTINGS and checkpoints_of SETTINGS: print the folders of the run and of its checkpoints as absolute paths.
run_of() {
    local run
    run=$(value job dump_folder <<<"$1")
    case $run in /*) ;; *) run=$(realpath -m "$ARGOSY_SCRATCH/$run") ;; esac
    echo "$run"
}
checkpoints_of() {
    local checkpoints
    checkpoints=$(value checkpoint folder <<<"$1")
    case $checkpoints in /*) ;; *) checkpoints=$(run_of "$1")/$checkpoints ;; esac
    echo "$checkpoints"
}

# open_run SETTINGS: sets `run` and `checkpoints`, the folders of the run and of its checkpoints, and writes effective.toml.
open_run() {
    run=$(value job dump_folder <<<"$1")
    checkpoints=$(value checkpoint folder <<<"$1")
    case $checkpoints in /*) ;; *) checkpoints=$run/$checkpoints ;; esac
    mkdir -p "$run"
    run=$(cd "$run" && pwd)
    echo "$1" >"$run/effective.toml.new"
    mv "$run/effective.toml.new" "$run/effective.toml"
    ARGOSY_RECORD=${ARGOSY_RECORD:-$run/train.json}
}

# Prints the number of the newest whole step; 0: none. Partial steps have other names.
newest_step() {
    local name newest=0
    for name in "$checkpoints"/step-[0-9]*; do
        name=${name##*/step-}
        [[ $name =~ ^[0-9]+$ ]] && newest=$((10#$name > newest ? 10#$name : newest))
    done
    echo "$newest"
}

# Counts the starts of this job since the newest step last changed, in the file `restarts`: "job step starts". Returns 1
# after too many starts. Another job counts from 0, because a person submitted it.
count_restart() {
    local job='' step=0 starts=0 newest
    newest=$(newest_step)
    if [ -e "$run/restarts" ]; then read -r job step starts <"$run/restarts" || true; fi
    if [ "$job" != "$job_id" ] || [ "$step" != "$newest" ]; then starts=0; fi
    if [ "$starts" -gt "$ARGOSY_RESTARTS_WITHOUT_PROGRESS" ]; then
        say "$((starts - 1)) restarts of job $job_id saved no step after $newest: giving up (77). See" \
            "the error above; sbatch $run/job.sbatch tries again"
        return 1
    fi
    echo "$job_id $newest $((starts + 1))" >"$run/restarts.new"
    mv "$run/restarts.new" "$run/restarts"
}
forget_restarts() { rm -f "$run/restarts"; }

json_text() { printf '"%s"' "$(sed 's/[\\"]/\\&/g' <<<"$1")"; }

job_figures() {
    printf '"job":"%s","restart":%d,"nodes":"%s","ranks":%d' "$job_id" "${SLURM_RESTART_COUNT:-0}" \
        "$SLURM_JOB_NODELIST" "$ranks"
}

# record start | record end CODE: appends a line to jobs.jsonl, if the run's folder is known.
record() {
    [ -z "$run" ] ||
        printf '{"time":"%s","event":"%s","exit_code":%s,"newest_step":%d,%s}\n' "$(date -u +%FT%TZ)" "$1" \
            "${2:-null}" "$(newest_step)" "$(job_figures)" >>"$run/jobs.jsonl"
    [ "$1" = start ] || record_step train "$2" "$(newest_output)"
}

newest_output() {
    local newest
    newest=$(newest_step)
    [ "$newest" = 0 ] || printf '%s/step-%08d' "$checkpoints" "$newest"
}

# record_step NAME CODE OUTPUT ...: writes how the job ended to the JSON file ARGOSY_RECORD.
record_step() {
    local name=$1 code=$2 output outputs=''
    shift 2
    [ -n "${ARGOSY_RECORD:-}" ] || return 0
    for output in "$@"; do
        [ ! -e "$output" ] || outputs+=${outputs:+,}$(json_text "$output")
    done
    printf '{"step":"%s","exit_code":%d,"outputs":[%s],"seconds":%d,"ended":"%s",%s}\n' "$name" "$code" "$outputs" \
        "$SECONDS" "$(date -u +%FT%TZ)" "$(job_figures)" >"$ARGOSY_RECORD.new"
    mv "$ARGOSY_RECORD.new" "$ARGOSY_RECORD"
}
