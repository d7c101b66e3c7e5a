# shellcheck shell=bash
# A run's folder as its jobs see it: where it is, its newest step, how often it started in vain, and jobs.jsonl, which
# tells how each of its jobs went. Sourced by common.sh, whose variables it uses.
# shellcheck disable=SC2154

# value SECTION KEY < what `pretrain --print-config` says
value() {
    awk -v section="[$1]" -v key="$2" '
        /^\[/ { inside = $1 == section }
        inside && $1 == key { sub(/^[^=]*= */, ""); gsub(/^"|"$/, ""); print; exit }'
}

# Sets `run` and `steps`, its folder and that of its checkpoints.
open_run() {
    run=$(value job dump_folder <<<"$1")
    steps=$(value checkpoint folder <<<"$1")
    case $steps in /*) ;; *) steps=$run/$steps ;; esac
    mkdir -p "$run"
    run=$(cd "$run" && pwd)
}

# The number of the newest whole step; 0: none. Partial ones have other names.
newest_step() {
    local name newest=0
    for name in "$steps"/step-[0-9]*; do
        name=${name##*/step-}
        [[ $name =~ ^[0-9]+$ ]] && newest=$((10#$name > newest ? 10#$name : newest))
    done
    echo "$newest"
}

# Counts the starts of this job since the newest step last changed, in the file `restarts`: "job step starts". False
# where there were too many. Another job counts anew: somebody looked at it and submitted it.
count_restart() {
    local job='' step=0 starts=0 newest
    newest=$(newest_step)
    if [ -e "$run/restarts" ]; then read -r job step starts <"$run/restarts" || true; fi
    if [ "$job" != "$job_id" ] || [ "$step" != "$newest" ]; then starts=0; fi
    if [ "$starts" -gt "$ARGOSY_RESTARTS_WITHOUT_PROGRESS" ]; then
        say "$((starts - 1)) restarts of job $job_id brought no step after $newest: giving up (77). What failed stands above;" \
            "sbatch $run/job.sbatch tries again"
        return 1
    fi
    echo "$job_id $newest $((starts + 1))" >"$run/restarts.new"
    mv "$run/restarts.new" "$run/restarts"
}
forget_restarts() { rm -f "$run/restarts"; }

json_text() { printf '"%s"' "$(sed 's/[\\"]/\\&/g' <<<"$1")"; }

# record start | record end CODE: a line of jobs.jsonl.
record() {
    printf '{"time":"%s","event":"%s","job":"%s","restart":%d,"nodes":"%s","ranks":%d,"newest_step":%d,"exit_code":%s}\n' \
        "$(date -u +%FT%TZ)" "$1" "$job_id" "${SLURM_RESTART_COUNT:-0}" "$SLURM_JOB_NODELIST" "$ranks" \
        "$(newest_step)" "${2:-null}" >>"$run/jobs.jsonl"
    [ "$1" = start ] || record_step "$2" "$(newest_output)"
}

newest_output() {
    local newest
    newest=$(newest_step)
    [ "$newest" = 0 ] || printf '%s/step-%08d' "$steps" "$newest"
}

# record_step CODE OUTPUT...: where a pipeline wants it (ARGOSY_RECORD names the file), how its step went.
record_step() {
    local code=$1 output outputs=''
    shift
    [ -n "${ARGOSY_RECORD:-}" ] || return 0
    for output in "$@"; do
        [ ! -e "$output" ] || outputs+=${outputs:+,}$(json_text "$output")
    done
    printf '{"step":"%s","job":"%s","restarts":%d,"nodes":"%s","exit_code":%d,"seconds":%d,"ended":"%s","outputs":[%s]}\n' \
        "$SLURM_JOB_NAME" "$job_id" "${SLURM_RESTART_COUNT:-0}" "$SLURM_JOB_NODELIST" "$code" "$SECONDS" \
        "$(date -u +%FT%TZ)" "$outputs" >"$ARGOSY_RECORD.new"
    mv "$ARGOSY_RECORD.new" "$ARGOSY_RECORD"
}
