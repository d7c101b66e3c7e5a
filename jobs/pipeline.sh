#!/usr/bin/env bash
# pipeline.sh CONFIG --tasks TASKS.jsonl [what else submit.sh takes]: trains, turns the model into Hugging Face's form
# and evaluates that, each once the one before has ended well; else Slurm takes what would follow off the queue. Prints
# the path of pipeline.json in the run's folder, which names the jobs and the files in which each leaves its exit code
# and its outputs. An exit code of 75 is that of a job that is in the queue again.
set -euo pipefail
ARGOSY_JOBS=$(cd "$(dirname "$0")" && pwd)
source "$ARGOSY_JOBS/fill.sh"
source "$ARGOSY_JOBS/run_folder.sh"
fail() { echo "pipeline: $*" >&2; exit 2; }

tasks='' words=()
while [ $# -gt 0 ]; do
    case $1 in
        --tasks)
            [ $# -gt 1 ] || fail "--tasks wants a file"
            tasks=$(realpath -e "$2") || exit 2
            shift ;;
        --site) ARGOSY_SITE=$2 words+=("$1" "$2"); shift ;;
        --sweep | --dry-run) fail "$1 is submit.sh's alone" ;;
        *) words+=("$1") ;;
    esac
    shift
done
[ -n "$tasks" ] || fail "what is it to be evaluated with? pipeline.sh CONFIG --tasks TASKS.jsonl ..."
ARGOSY_SITE=$(realpath "${ARGOSY_SITE:-$ARGOSY_JOBS/site.conf}")
# shellcheck source=jobs/site.conf
source "$ARGOSY_SITE"

train=$("$ARGOSY_JOBS/submit.sh" "${words[@]}")
run=$(dirname "$(scontrol show job -o "$train" | tr ' ' '\n' | sed -n 's/^Command=//p')")

# after JOB TEMPLATE WORD ...: the number of the job that comes then.
after() {
    local job=$1 template=$2
    shift 2
    export ARGOSY_RECORD=$run/$template.json
    rm -f "$ARGOSY_RECORD"
    fill "$template" "--job-name=$template-$(basename "$run") --cpus-per-task=$ARGOSY_CPUS_PER_RANK $(site_options)
        --output=$run/logs/%j.log --dependency=afterok:$job --kill-on-invalid-dep=yes" "$@" |
        submit "$run/$template.sbatch"
}
convert=$(after "$train" convert "$run" "$run/hf" --to hf --force)
evaluate=$(after "$convert" eval "$run/hf" "$tasks" "$run/results.json")

step() { printf '  {"step":"%s","job":"%s","after":%s,"record":%s}' "$1" "$2" "$3" "$(json_text "$run/$1.json")"; }
{ printf '{"run":%s,"steps":[\n' "$(json_text "$run")"
  step train "$train" null; echo ,
  step convert "$convert" "\"$train\""; echo ,
  step eval "$evaluate" "\"$convert\""; printf '\n]}\n'; } >"$run/pipeline.json.new"
mv "$run/pipeline.json.new" "$run/pipeline.json"
echo "$run/pipeline.json"
