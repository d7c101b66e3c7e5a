#!/usr/bin/env bash
# pipeline.sh CONFIG --tasks TASKS.jsonl [--tokenizer PATH|bytes] [other options of submit.sh]: submits three jobs that train,
# convert the model to Hugging Face's format, and evaluate it, with this tokenizer or that of model.hf_assets_path. Each job
# starts after the previous one has succeeded; if one fails, Slurm removes the later jobs from the queue. Conversion and evaluation
# do not take whole nodes (ARGOSY_SMALL_SBATCH_OPTIONS in site.conf). Prints the path of pipeline.json in the run's folder, which
# lists the jobs and the files with their exit codes and outputs. The outcome "requeued" means that the job is in the queue again.
# A signal before the last job is submitted cancels the jobs.
set -euo pipefail
ARGOSY_JOBS=$(cd "$(dirname "$0")" && pwd)
source "$ARGOSY_JOBS/shell/fill.sh"
say() { echo "pipeline: $*" >&2; }
fail() { say "$*"; exit 2; }

config='' site='' tasks='' tokenizer='' words=() options=()
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) print_help; exit 0 ;;
        --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
        --*.*) if [ $# = 1 ] || [[ $2 = --* ]]; then options+=("$1"); shift; continue; fi ;;  # pretrain knows which need a value
    esac
    case $1 in
        --sweep | --dry-run) fail "only submit.sh has the option $1" ;;
        --*) [ $# -gt 1 ] || fail "$1 needs a value" ;;
    esac
    case $1 in
        --tasks) tasks=$(realpath -e "$2" 2>/dev/null) || fail "--tasks: there is no file $2" ;;
        --tokenizer) tokenizer=$2
                     [ "$2" = bytes ] || tokenizer=$(realpath -e "$2" 2>/dev/null) || fail "--tokenizer: there is no $2" ;;
        --site) site=$2 words+=("$1" "$2") ;;
        --*.*) options+=("$1" "$2") ;;
        --*) words+=("$1" "$2") ;;
        *) [ -z "$config" ] || fail "give one configuration, not '$config' and '$1'"
           config=$1; shift; continue ;;
    esac
    shift 2
done
[ -n "$config" ] || fail "the configuration is missing; usage: pipeline.sh CONFIG --tasks TASKS.jsonl"
[ -n "$tasks" ] || fail "the tasks are missing; usage: pipeline.sh CONFIG --tasks TASKS.jsonl ..."
read_site "$site"

settings=$(settings_of "$config" "${options[@]}") || exit 2
run=$(run_of "$settings")
check_tokenizer "$tasks" "$tokenizer" "$settings" --tokenizer
use_scripts_of "$run"

# take_back CODE WHY: cancels the jobs that are in the queue, because the pipeline is incomplete. Slurm removes a job whose
# number is not known yet, because it depends on one of them; submit.sh names its own job.
train='' convert='' evaluate=''
take_back() {
    trap '' INT TERM HUP
    say "$2"
    # shellcheck disable=SC2086
    cancel_jobs $train $convert $evaluate
    exit "$1"
}
trap 'take_back 130 interrupted' INT
trap 'take_back 143 interrupted' TERM
trap 'take_back 129 interrupted' HUP
refused="Slurm refused a job of the pipeline (see its message above)"

train=$("$ARGOSY_JOBS/submit.sh" "$config" "${words[@]}" "${options[@]}")

# after JOB TEMPLATE WORD ...: submits a job that starts after JOB has succeeded, and prints its number.
after() {
    local job=$1 template=$2 partition=
    shift 2
    [ "$template" != convert ] || partition=$ARGOSY_CPU_PARTITION
    ARGOSY_RECORD=$run/$template.json
    rm -f "$ARGOSY_RECORD"
    fill "$template" "--job-name=$(basename "$run")-$template --cpus-per-task=$ARGOSY_CPUS_PER_RANK
        $(small_options "$partition")
        --output=$run/logs/%j.log --dependency=afterok:$job --kill-on-invalid-dep=yes" "$@" |
        submit "$run/$template.sbatch"
}
# convert-checkpoint takes the newest step in the folder of checkpoints.
convert=$(after "$train" convert "$(checkpoints_of "$settings")" "$run/hf" --to hf --force) || take_back 1 "$refused"
evaluate=$(after "$convert" eval "$run/hf" "$tasks" "$run/results.json" \
    ${tokenizer:+--tokenizer "$tokenizer"}) || take_back 1 "$refused"
trap - INT TERM HUP

step() { printf '  {"step":"%s","job":"%s","after":%s,"record":%s}' "$1" "$2" "$3" "$(json_text "$run/$1.json")"; }
{ printf '{"run":%s,"steps":[\n' "$(json_text "$run")"
  step train "$train" null; echo ,
  step convert "$convert" "\"$train\""; echo ,
  step eval "$evaluate" "\"$convert\""; printf '\n]}\n'; } >"$run/pipeline.json.new"
mv "$run/pipeline.json.new" "$run/pipeline.json"
echo "$run/pipeline.json"
