#!/usr/bin/env bash
# quickstart.sh [--section.key value ...]: from a clone to a trained model in under ten minutes on two cores. Builds
# the apps, writes a synthetic corpus, trains a tokenizer on it, trains configs/debug_cpu.toml on two ranks, interrupts the
# run as a scheduler does and resumes it from its checkpoint, converts the model to Hugging Face's format and back,
# evaluates it beside an untrained and a bigram model, lets it continue a text, and checks that training explains what it
# knows: the exit code is 3 if quickstart_check.py finds that it does not. Arguments go to pretrain.
# All files are in outputs/quickstart. A repeated call starts from nothing: if the earlier run has a checkpoint, its folder
# becomes outputs/quickstart-before, in place of the run before it, or outputs/quickstart-unfinished if only the run before it
# has been converted. Wrong arguments delete nothing.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
source "$root/jobs/shell/help.sh"
source "$root/jobs/shell/run_folder.sh"
output=$root/outputs/quickstart
before=$output-before
bin=$root/build/bin
seconds_at_start=$SECONDS
say() { echo "quickstart: $*" >&2; }
fail() { say "$*"; exit 2; }
for word in "$@"; do
    case $word in
        --help | -h) print_help; exit 0 ;;
        --job.dump_folder | --job.dump_folder=*)
            fail "the dump folder is fixed to outputs/quickstart; for another folder run pretrain itself" ;;
        --*.*) ;;
        --*) fail "$word is no option of a run; options are --section.key VALUE (pretrain --help)" ;;
    esac
done

"$root/jobs/build.sh"

options=(--config "$root/configs/debug_cpu.toml" --job.dump_folder "$output" --model.hf_assets_path "$output/tokenizer"
         --training.dataset_path "$output/train.h5" --training.steps 600 --checkpoint.enable true --checkpoint.interval 50
         "$@")
train=("$root/jobs/mpirun.sh" 2 "$bin/pretrain" "${options[@]}")

"$bin/pretrain" "${options[@]}" --print-config >/dev/null
user=$(user_of "$output")
[ -z "$user" ] || fail "outputs/quickstart is in use ($user): wait for its end, or end it"

# A run that was converted has its model in hf/.
if [ -e "$output/hf" ] || compgen -G "$output/checkpoint/step-*" >/dev/null; then
    earlier=$before
    [ -e "$output/hf" ] || [ ! -e "$before/hf" ] || earlier=$output-unfinished
    rm -rf "$earlier"
    mv "$output" "$earlier"
    say "the earlier run is now in outputs/${earlier##*/}, until a later call replaces it"
elif [ -e "$output" ]; then
    rm -rf "$output"
    say "deleted the earlier run in outputs/quickstart, which had saved nothing"
fi
say "writing a synthetic corpus to outputs/quickstart/, and training a tokenizer of 512 tokens"
mkdir -p "$output/tokenizer"
"$bin/prepare-data" synthetic --output "$output/corpus" --megabytes 8
"$bin/prepare-data" train-tokenizer --input "$output/corpus/train.jsonl" --vocab-size 512 \
    --output "$output/tokenizer/tokenizer.json"
"$bin/prepare-data" tokenize --input "$output/corpus/train.jsonl" --output "$output/train.h5" \
    --tokenizer "$output/tokenizer" >"$output/corpus.json"

num_steps() { if [ -e "$output/metrics.jsonl" ]; then wc -l <"$output/metrics.jsonl"; else echo 0; fi; }

say "training configs/debug_cpu.toml on two ranks"
# The interrupted run exits with 75. This variable stops mpirun from reporting that as a failure.
OMPI_MCA_orte_execute_quiet=1 "${train[@]}" &
job=$!
trap 'kill $job 2>/dev/null || true' EXIT
while kill -0 $job 2>/dev/null && [ "$(num_steps)" -lt 60 ]; do sleep 0.2; done
# mpirun.sh forwards SIGUSR1 to the ranks, which finish their step, save and exit with 75: a scheduler then requeues.
kill -USR1 $job 2>/dev/null || true
code=0
wait $job || code=$?
trap - EXIT
if [ $code = 75 ]; then
    say "interrupted after $(num_steps) steps; the same command resumes the run"
    "${train[@]}"
elif [ $code != 0 ]; then
    say "the training ended with exit code $code"
    exit $code
fi

say "converting the model to Hugging Face's format and back, and comparing every element and the logits"
"$bin/convert-checkpoint" "$output" "$output/hf" --to hf --verify
"$bin/convert-checkpoint" "$output/hf" "$output/model.h5" --to full --verify

say "making two models to compare with: the initial weights, and the pairs of tokens of the corpus"
# The same arguments, so that both have the same initial weights; the last one of equal options counts.
"${train[@]}" --job.dump_folder "$output/untrained" --training.steps 1 --optimizer.lr 0
python3 "$root/jobs/python/bigram_model.py" "$output/corpus/train.jsonl" "$output/tokenizer" "$output/corpus.json" \
    "$output/bigram" >"$output/entropy.json"

say "evaluating the models on held-out tasks of the corpus; the trained one may then continue a text"
evaluate() {  # MODEL RESULTS [TASK]
    local tasks=$output/corpus/tasks
    "$bin/eval" --model "$1" --tokenizer "$output/tokenizer" --threads 1 --output "$2" \
        --tasks "$tasks/agreement.jsonl,lambada=$tasks/last_word.jsonl${3:+,$tasks/$3}"
}
evaluate "$output/untrained" "$output/untrained.json" >/dev/null
evaluate "$output/bigram" "$output/bigram.json" >/dev/null
evaluate "$output/hf" "$output/results.json" perplexity.jsonl
beginning="In Oslo there lived a"
echo "$beginning$("$bin/eval" --model "$output/hf" --generate "$beginning" --max-new-tokens 60)"

say "metrics of every step in outputs/quickstart/metrics.jsonl, $((SECONDS - seconds_at_start)) s in total"
python3 "$root/jobs/python/quickstart_check.py" "$output/metrics.jsonl" "$output/entropy.json" \
    "$output/untrained.json" "$output/bigram.json" "$output/results.json"
