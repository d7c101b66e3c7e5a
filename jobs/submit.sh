#!/usr/bin/env bash
# submit.sh CONFIG [--nodes N] [--spares K] [--ranks-per-node G] [--template NAME] [--time T] [--sweep POINTS] [--after JOB]
#           [--baseline RUN] [--stage FOLDER] [--site FILE] [--sbatch "OPTIONS"] [--dry-run] [--section.key value ...]
# Fills the template that fits the configuration, submits it and prints the job's number. --spares allocates K further nodes,
# and the job starts failed ranks again on good nodes of its own (see FAILURES.md). --baseline RUN sets metrics.baseline: the
# earlier run, or for each point of a sweep the point with the same options of the earlier sweep RUN. --stage sets ARGOSY_STAGE: a
# folder on a disk of each node, as /tmp or '$SLURM_TMPDIR', to which the job copies the programs and their libraries (see CLUSTER.md).
# --dry-run prints the filled script instead.
# The run's folder keeps the script, the configuration and the points of a sweep; its log is logs/JOB.log. A mistake in
# configuration or options, or a folder in use, ends with exit code 2 before anything is submitted. If a signal comes while
# sbatch runs, the last message names the job that was submitted.
set -euo pipefail
ARGOSY_JOBS=$(cd "$(dirname "$0")" && pwd)
source "$ARGOSY_JOBS/shell/fill.sh"
say() { echo "submit: $*" >&2; }
fail() { say "$*"; exit 2; }

caller_cancels=${ARGOSY_CALLER_CANCELS:-}  # not empty: bringup.sh, which cancels the job of an interrupted call
unset ARGOSY_CALLER_CANCELS ARGOSY_RECORD  # the record is of a job that submits another
config='' site='' nodes=1 here='' template='' time='' points='' after='' more='' dry='' baseline='' options=()
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) print_help; exit 0 ;;
        --dry-run) dry=yes; shift; continue ;;
        --dry-run=*) fail "${1%%=*} takes no value" ;;
        --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
        --*.*) if [ $# = 1 ] || [[ $2 = --* ]]; then options+=("$1"); shift; continue; fi ;;  # pretrain knows which need a value
    esac
    case $1 in --*) [ $# -gt 1 ] || fail "$1 needs a value" ;; esac
    case $1 in
        --nodes) nodes=$2 ;;
        --spares) [[ $2 =~ ^[0-9]{1,4}$ ]] || fail "--spares $2 is not a number of nodes"
                  spares=$((10#$2)) ;;
        --ranks-per-node) here=$2 ;;
        --template) template=$2 ;;
        --time) time=$2 ;;
        --sweep) points=$(realpath -m "$2")
                 [ -f "$points" ] || fail "--sweep: there is no file $points; it holds a line of options per run" ;;
        --after) [[ $2 =~ ^[0-9]+(_[0-9]+)?(:[0-9]+(_[0-9]+)?)*$ ]] ||
                     fail "--after $2 is not the number of a job; give what submit.sh printed, several with : between them"
                 after=$2 ;;
        --baseline) baseline=$(realpath "$2") ;;
        --stage) export ARGOSY_STAGE=$2 ;;
        --site) site=$2 ;;
        --sbatch) more=$2 ;;
        --*.*) options+=("$1" "$2") ;;
        --*) fail "unknown option $1; submit.sh --help lists the options, and pretrain --help those with a dot" ;;
        *) [ -z "$config" ] || fail "give one configuration, not '$config' and '$1'"
           config=$(realpath "$1"); shift; continue ;;
    esac
    shift 2
done
[ -n "$config" ] || fail "the configuration is missing; usage: submit.sh CONFIG --nodes N"
[[ $nodes =~ ^[1-9][0-9]{0,5}$ ]] || fail "--nodes $nodes is not a number of nodes"
read_site "$site"
[ -z "$spares" ] || [ "$ARGOSY_LAUNCHER" != mpirun ] ||
    fail "--spares works with srun only: leave it out, or set ARGOSY_LAUNCHER=srun"
here=${here:-$ARGOSY_RANKS_PER_NODE}
[[ $here =~ ^[1-9][0-9]{0,3}$ ]] || fail "--ranks-per-node $here is not a number of ranks"

if [ -n "$baseline" ]; then
    [ -e "$baseline${points:+/points}" ] || fail "--baseline: there is no $baseline${points:+/points of an earlier sweep}"
    if [ -n "$points" ]; then check_python; else options+=(--metrics.baseline "$baseline"); fi
fi
settings=$(settings_of "$config" "${options[@]}") || exit 2
run=$(run_of "$settings")
check_path job.dump_folder "$run"
check_path "the working folder" "$PWD"

if [ -n "$points" ]; then template=${template:-sweep}; fi
template=${template:-$(template_of "$settings" "$nodes" "$here")}
check_template "$template"
[ "$template" != sweep ] || [ -n "$points" ] || fail "the template 'sweep' needs the points of a sweep: give --sweep POINTS"
[ "$template" = sweep ] || [ -z "$points" ] || fail "--sweep has a template of its own: leave out --template $template"
[ "$template" != sweep ] || [ -z "$spares" ] || fail "--spares is for one training run, not for the template 'sweep': leave it out"

sbatch_options="--job-name=$(basename "$run")-$template --nodes=$((nodes + ${spares:-0})) ${spares:+--no-kill}
    --ntasks-per-node=$here --gpus-per-node=$here --cpus-per-task=$ARGOSY_CPUS_PER_RANK
    --time=${time:-$ARGOSY_TIME} --signal=B:USR1@$ARGOSY_SIGNAL_SECONDS
    --chdir=$PWD $(site_options) ${after:+--dependency=afterok:$after --kill-on-invalid-dep=yes}"
words=("$run/config.toml" "${options[@]}" --job.dump_folder "$run")
# Ends if the options of a point are wrong, or if the point lacks what it reads.
check_points() {
    local number=0 line words of_point
    while read -r line || [ -n "$line" ]; do
        number=$((number + 1)) line=${line%$'\r'}
        [ -n "$line" ] || continue
        read -r -a words <<<"$line"
        [ -z "$(folder_of "${words[@]}")" ] ||
            fail "line $number of $points sets job.dump_folder, but each point has its own folder, $run/point-NNNN"
        of_point=$(settings_of "$config" "${options[@]}" "${words[@]}" </dev/null) ||
            fail "the options in line $number of $points are wrong"
        check_inputs "$of_point" "$after" "line $number of $points: "
    done <"$points"
}
if [ -n "$points" ]; then
    num_points=$(grep -c '[^[:space:]]' "$points") || fail "$points holds no point; write one line of options per run"
    check_points
    sbatch_options+=" --array=0-$((num_points - 1)) --output=$run/logs/%A-%a.log"
    words=("$run/points" "${words[@]}")
else
    check_inputs "$settings" "$after"
    sbatch_options+=" --output=$run/logs/%j.log"
fi

# Refuses a run that cannot train on the site's GPUs in the template's mesh: pretrain refuses the number of ranks, or the
# tensors do not fit into memory. In that case it shows the fastest configuration that fits.
check_plan() {
    local how code=0 answer mesh
    mesh=$(mesh_words "$template" "$nodes" "$here" "$settings") || exit 2
    # shellcheck disable=SC2206
    how=("$config" $mesh "${options[@]}" --gpus $((nodes * here)) --gpus-per-node "$here" --gpu "$ARGOSY_PLAN")
    answer=$(ARGOSY_LOG=warn ask_pretrain "${how[@]}" --plan 2>&1) || code=$?
    case $code in
        0) return ;;
        2) say "$answer" ;;
        3) say "$answer"
           say "searching for a configuration that fits"
           say "$(ARGOSY_LOG=warn ask_pretrain "${how[@]}" --search 2>&1 || true)" ;;
        *) say "warning: pretrain --plan ended with $code, so it is not known whether the run fits: $answer"
           return ;;
    esac
    fail "the run cannot train on $((nodes * here)) GPUs ($ARGOSY_PLAN): change the configuration or the number of nodes;" \
         "ARGOSY_PLAN=no submits it without this check"
}
[ "$ARGOSY_PLAN" = no ] || [ -n "$points" ] || check_plan

# Warns of variables of this shell, which the job gets, that slow ranks on GPUs down (preflight --variables). With pyxis the answer
# would take a job of its own: there only the run warns, when it starts.
warn_of_variables() {
    # shellcheck disable=SC2034
    local container_words container_options container_variables apart=$nodes line
    [ "$ARGOSY_GPUS" != no ] && compgen -e | grep -qE '^(CUDA|NVIDIA|NCCL|PYTORCH|MALLOC)_' || return 0
    [ "$ARGOSY_FABRIC" != ethernet ] || apart=1  # TCP is what such nodes have
    load_modules
    inside_container "$PWD"
    [ ${#container_options[@]} = 0 ] || return 0
    while read -r line; do say "warning: $line"; done < <("${container_words[@]}" "$ARGOSY_BIN/preflight" --variables "$apart,$here")
}

warn_of_variables
use_scripts_of "$run"
script=$(fill "$template" "$sbatch_options $more" "${words[@]}")
time=$(option time "$script") signal=$(option signal "$script")
seconds_of "$time" >/dev/null ||
    fail "--time $time is not a time limit of Slurm: minutes, hours:minutes:seconds or days-hours"
is_long_enough "$time" "${signal##*@}" || fail "$(explain_short_limit "$time" "${signal##*@}")"
if [ -n "$dry" ]; then
    echo "$script"
    exit 0
fi

check_accepted "$script"

if try_lock "$run" "submit.sh, process $$ on $(hostname)"; then
    user=$(jobs_of "$run/job.sbatch" | sed -n '$s/\(.*\) \(.*\)/job \1, \2/p') ||  # its next start would read the new files
        fail "squeue does not answer, so a job of $run may be in the queue: submit again when it answers"
    user=${user:-$(user_of "$run")}
else
    user=$(holder_of "$run")
fi
[ -z "$user" ] || fail "$run is in use ($user): wait for its end, scancel it, or set another job.dump_folder"

mkdir -p "$run/logs"
keep config.toml <"$config"
if [ -n "$points" ]; then
    if [ -n "$baseline" ]; then
        python3 -B "$ARGOSY_JOBS/python/sweep_points.py" "$points" "$baseline"
    else
        grep '[^[:space:]]' "$points"
    fi | tr -d '\r' | keep points
else
    keep_settings "$settings"
fi
keep_scripts
rm -f "$run/train.json"

# interrupted CODE: says what a signal during sbatch has left. The lock is held, so a job in the queue is this one.
interrupted() {
    local queued
    trap '' INT TERM HUP
    [ -z "$caller_cancels" ] || exit "$1"
    if ! queued=$(jobs_of "$run/job.sbatch"); then
        say "interrupted"
        say_unknown "$run/job.sbatch"
    elif [ -n "$queued" ]; then
        say "interrupted, but the job is in the queue: scancel ${queued%% *} cancels it"
    else
        say "interrupted: no job of $run is in the queue"
    fi
    exit "$1"
}
trap 'interrupted 130' INT
trap 'interrupted 143' TERM
trap 'interrupted 129' HUP
submit "$run/job.sbatch" <<<"$script"
