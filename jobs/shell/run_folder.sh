# shellcheck shell=bash
# Functions on a run's folder: its path, its lock, its newest step, and jobs.jsonl, which records the start and the end of
# each job. The scripts that submit jobs source this file, and job.sh, whose variables it uses.
# shellcheck disable=SC2154

# value SECTION KEY < the output of `pretrain --print-config`: prints the value of a key.
value() {
    awk -v section="[$1]" -v key="$2" '
        /^\[/ { inside = $1 == section }
        inside && $1 == key { sub(/^[^=]*= */, ""); gsub(/^"|"$/, ""); print; exit }'
}

# run_of SETTINGS and checkpoints_of SETTINGS: print the folders of the run and of its checkpoints as absolute paths;
# that of the run has no links.
run_of() {
    local run
    run=$(value job dump_folder <<<"$1")
    case $run in /*) ;; *) run=$ARGOSY_SCRATCH/$run ;; esac
    realpath -m "$run"
}
checkpoints_of() {
    local checkpoints
    checkpoints=$(value checkpoint folder <<<"$1")
    case $checkpoints in /*) ;; *) checkpoints=$(run_of "$1")/$checkpoints ;; esac
    echo "$checkpoints"
}

# folder_of [--section.key value ...]: prints the last job.dump_folder of the options; nothing if they do not set it.
folder_of() {
    local folder=
    while [ $# -gt 1 ]; do
        [ "$1" != --job.dump_folder ] || folder=$2
        shift
    done
    [ -z "$folder" ] || realpath -m "$folder"
}

# open_run FOLDER: sets `run` and `checkpoints`, the folders of the run and of its checkpoints.
open_run() {
    run=$1
    checkpoints=$run/checkpoint
    [ ! -e "$run/effective.toml" ] || checkpoints=$(checkpoints_of "$(<"$run/effective.toml")")
    ARGOSY_RECORD=${ARGOSY_RECORD:-$run/train.json}
}

# keep_settings SETTINGS: writes effective.toml.
keep_settings() {
    keep effective.toml <<<"$1"
    checkpoints=$(checkpoints_of "$1")
}

# keep NAME < CONTENT: replaces the file NAME in the run's folder; the file is never half-written, also if the disk is full.
keep() { cat >"$run/$1.new" && mv "$run/$1.new" "$run/$1"; }

# Prints what a job starts with, a line each: the digests of the binaries or the image, of the scripts and of the site.
program_of() {
    local name
    if [ -n "$ARGOSY_CONTAINER" ]; then
        echo "image $(stat -Lc '%n %s %Y' "$ARGOSY_CONTAINER" 2>/dev/null || echo "$ARGOSY_CONTAINER")"
    else
        for name in pretrain preflight; do echo "$name $(sha256sum <"$ARGOSY_BIN/$name" | cut -c 1-16)"; done
    fi
    echo "scripts $(cat "$ARGOSY_JOBS"/*.sh "$ARGOSY_JOBS"/shell/*.sh "$ARGOSY_JOBS"/fabric/*.conf | sha256sum | cut -c 1-16)"
    echo "site $(sha256sum <"$ARGOSY_SITE" | cut -c 1-16)"
}

# Says what has changed since the previous start of the run, or since its submission.
note_program() {
    local now changed
    now=$(program_of)
    if [ -e "$run/program" ]; then
        changed=$(comm -13 <(sort "$run/program") <(sort <<<"$now") | cut -d' ' -f1 | paste -sd' ')
        [ -z "$changed" ] || say "warning: changed since the previous start or the submission: $changed (was" \
                                 "$(paste -sd, "$run/program"); is $(paste -sd, <<<"$now"))"
    fi
    keep program <<<"$now"
}

# The lock of a run's folder is flock on the file job.lock, whose text names the holder. submit.sh holds it while it
# writes there; a job holds it for the whole life of its shell. (pretrain holds run.lock, also without Slurm.)
# try_lock FOLDER HOLDER: takes the lock for the life of this shell. Returns 1 if another process holds it.
try_lock() {
    local code=0
    mkdir -p "$1"
    [ -n "${lock_fd:-}" ] || exec {lock_fd}>>"$1/job.lock"
    flock --nonblock --conflict-exit-code 9 "$lock_fd" 2>/dev/null || code=$?
    [ "$code" != 9 ] || return 1
    [ "$code" = 0 ] || say "warning: $1 is on a file system without locks: nothing prevents a second job from writing there"
    echo "$2" >"$1/job.lock"
}

# Closes the lock's file in a subshell, so that the programs that it starts do not hold the lock after this shell's end.
close_lock() { [ -z "${lock_fd:-}" ] || exec {lock_fd}>&-; }

# holder_of FOLDER: prints the text of its job.lock, which is empty between the holder's flock and its write.
holder_of() {
    local holder
    holder=$(<"$1/job.lock")
    echo "${holder:-another process}"
}

# user_of FOLDER: prints the holder of its run.lock if a process holds it.
user_of() {
    local code=0
    if [ -e "$1/run.lock" ]; then flock --nonblock --conflict-exit-code 9 "$1/run.lock" true 2>/dev/null || code=$?; fi
    [ "$code" != 9 ] || echo "by run.lock: $(<"$1/run.lock")"
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

json_text() { printf '"%s"' "$(sed 's/[\\"]/\\&/g' <<<"$1")"; }

job_figures() {
    printf '"job":"%s","restart":%d,"nodes":"%s","ranks":%d' "$job_id" "${SLURM_RESTART_COUNT:-0}" "$(used_nodes)" "$ranks"
    [ -z "$spares" ] || printf ',"restart_inside":%d,"spares":%d' "$restarts_inside" "$(spare_nodes | grep -c .)"
    [ ! -e "$run/program" ] || printf ',"program":"%s"' "$(sha256sum <"$run/program" | cut -c 1-16)"
}

# record EVENT CODE OUTCOME: appends a line to jobs.jsonl, if the run's folder is known. EVENT is start or end. OUTCOME of an
# end: done, requeued, continued (the ranks start again inside the job), failed, cancelled (Slurm ended the job), restarted
# (Slurm restarted it), lost (nothing recorded it).
recorded=
record() {
    local outcome=null
    [ -n "$run" ] || return 0
    [ "$3" = null ] || outcome=\"$3\"
    [ "$1" != start ] || record_lost_start
    printf '{"time":"%s","event":"%s","exit_code":%s,"outcome":%s,"newest_step":%d,%s}\n' "$(date -u +%FT%TZ)" "$1" "$2" \
        "$outcome" "$(newest_step)" "$(job_figures)" >>"$run/jobs.jsonl"
    recorded=
    [ "$1" = end ] || return 0
    recorded=yes
    record_step train "$2" "$outcome" "$(newest_output)"
    report_end "$2" "$3"
}

# report_end CODE OUTCOME: runs the command ARGOSY_ON_END of the site, for at most 30 s. The command may submit a job, so it
# gets neither the variables of the fabric's profiles nor the lock.
report_end() {
    [ -n "$ARGOSY_ON_END" ] || return 0
    (close_lock
     exec env "${fabric_names[@]/#/--unset=}" "ARGOSY_END_RUN=$run" "ARGOSY_END_JOB=$job_id" "ARGOSY_END_CODE=$1" \
        "ARGOSY_END_OUTCOME=$2" timeout 30 bash -c "$ARGOSY_ON_END" >&2 </dev/null) ||
        say "ARGOSY_ON_END failed: $ARGOSY_ON_END"
}

# Records the end of a start whose shell was killed: the newest line of jobs.jsonl is a start. Its end has the newest step that
# the start saved.
record_lost_start() {
    local line
    [ -e "$run/jobs.jsonl" ] || return 0
    line=$(tail -n 1 "$run/jobs.jsonl")
    [[ $line = *'"event":"start"'* ]] || return 0
    line=${line/'"event":"start","exit_code":null,"outcome":null'/'"event":"end","exit_code":null,"outcome":"lost"'}
    sed -E "s/(\"time\":\")[^\"]*/\1$(date -u +%FT%TZ)/; s/(\"newest_step\":)[0-9]+/\1$(newest_step)/" <<<"$line" >>"$run/jobs.jsonl"
}

# record_unexpected_end CODE: records an end of this shell that nothing else has recorded.
record_unexpected_end() { [ -n "$recorded" ] || record end "$1" failed; }

newest_output() {
    local newest
    newest=$(newest_step)
    [ "$newest" = 0 ] || printf '%s/step-%08d' "$checkpoints" "$newest"
}

# record_step NAME CODE OUTCOME OUTPUT ...: writes how the job ended to the JSON file ARGOSY_RECORD. OUTCOME is JSON.
record_step() {
    local name=$1 code=$2 outcome=$3 output outputs=''
    shift 3
    [ -n "${ARGOSY_RECORD:-}" ] || return 0
    for output in "$@"; do
        [ ! -e "$output" ] || outputs+=${outputs:+,}$(json_text "$output")
    done
    printf '{"step":"%s","exit_code":%d,"outcome":%s,"outputs":[%s],"seconds":%d,"ended":"%s",%s}\n' "$name" "$code" \
        "$outcome" "$outputs" "$SECONDS" "$(date -u +%FT%TZ)" "$(job_figures)" >"$ARGOSY_RECORD.new" &&
        mv "$ARGOSY_RECORD.new" "$ARGOSY_RECORD"
}
