#!/usr/bin/env bash
# arrive.sh F.toml|F.yaml|F.json|F.txt --jsonl TEXTS [--tokenizer DIR|bytes] [--validation TEXTS] [--checkpoint DIR] [--folder RUN]
#           [--ranks N | --nodes N] [--anyway] [--section.key VALUE ...]
# From a TorchTitan TOML or what TorchTitan prints of its Python (JSON, text), or a Lit-GPT YAML, and texts (JSONL, text,
# Parquet) to a running job: translates the configuration,
# tokenizes the texts, and trains on this machine (N ranks; default: the GPUs, or what the degrees need), or with --nodes
# submits the job to Slurm. DIR of --checkpoint has the weights to start from, as for checkpoint.initial_load_path. Keys are those of either program.
# RUN (default: outputs/F) gets run.toml, the token files and all files of the run; a repeated command resumes a run that
# saves (checkpoint.enable). It tokenizes again if the texts or the tokenizer have changed. Exit codes: 3 if a key is missing
# here, unless --anyway; 2 for mistakes; else pretrain's.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
source "$root/jobs/shell/help.sh"
bin=${ARGOSY_BIN:-$root/build/bin}
[ -x "$bin/pretrain" ] || bin=$root/../../bin # an installed prefix has this script in share/argosy/jobs
say() { echo "arrive: $*" >&2; }
fail() { say "$*"; exit 2; }

file='' texts='' tokenizer='' held_out='' weights='' folder='' ranks='' nodes='' anyway='' keys=()
while [ $# -gt 0 ]; do
    case $1 in
        --anyway) anyway=yes; shift; continue ;;
        --help | -h) print_help; exit 0 ;;
        --job.dump_folder | --job.dump_folder=*) fail "$1: use --folder" ;;
        --training.dataset_path | --training.dataset_path=*) fail "$1: use --jsonl" ;;
        --validation.dataset_path | --validation.dataset_path=*) fail "$1: use --validation" ;;
        --*.*=*) keys+=("$1"); shift; continue ;;
        --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
        --*.*) keys+=("$1"); shift
               if [ $# -gt 0 ] && [ "${1#--}" = "$1" ]; then keys+=("$1"); shift; fi
               continue ;;
    esac
    case $1 in --*) [ $# -gt 1 ] || fail "$1 needs a value" ;; esac
    case $1 in
        --jsonl) texts=$2 ;;
        --tokenizer) tokenizer=$2 ;;
        --validation) held_out=$2 ;;
        --checkpoint) weights=$2 ;;
        --folder) folder=$2 ;;
        --ranks) ranks=$2 ;;
        --nodes) nodes=$2 ;;
        --*) fail "unknown option $1; arrive.sh --help lists the options" ;;
        *) [ -z "$file" ] || fail "give one configuration, not '$file' and '$1'"
           file=$1; shift; continue ;;
    esac
    shift 2
done
[ -x "$bin/pretrain" ] || fail "there is no build/bin/pretrain yet; run jobs/build.sh, or set ARGOSY_BIN to its folder"
[ -n "$file" ] || fail "the configuration is missing; usage: arrive.sh F.toml --jsonl TEXTS --tokenizer DIR"
[ -n "$texts" ] || fail "--jsonl is missing: name the texts, records of {\"text\": ...}"
[ -z "$ranks" ] || [ -z "$nodes" ] || fail "--ranks is for this machine and --nodes for Slurm; give one of them"
[[ ${ranks:-1} =~ ^[1-9][0-9]*$ ]] || fail "--ranks $ranks is not a number of ranks"
[[ ${nodes:-1} =~ ^[1-9][0-9]*$ ]] || fail "--nodes $nodes is not a number of nodes"
case $file in
    *.toml | *.json | *.txt | *.py) origin=torchtitan ;; # pretrain says what to give for Python
    *.yaml | *.yml) origin=litgpt ;;
    *) fail "$file is neither a TorchTitan .toml, .json or .txt nor a Lit-GPT .yaml; give the file that name" ;;
esac
[ -r "$file" ] || fail "cannot read the configuration $file"
for path in "$texts" ${held_out:+"$held_out"}; do [ -r "$path" ] || fail "cannot read the texts $path"; done
name=$(basename "$file")
folder=${folder:-outputs/${name%.*}}
mkdir -p "$folder"

# Each value of a key that this script sets is on the command line of the translation, so that run.toml has it.
keys+=(--job.dump_folder "$folder" --training.dataset_path "$folder/train.h5")
[ -z "$held_out" ] || keys+=(--validation.enable true --validation.dataset_path "$folder/validation.h5")
[ -z "$weights" ] || keys+=(--checkpoint.initial_load_path "$weights")
case $tokenizer in
    '') ;;
    bytes) keys+=(--model.hf_assets_path '') ;;
    *) keys+=(--model.hf_assets_path "$tokenizer") ;;
esac

say "1. translating $file to $folder/run.toml"
code=0
"$bin/pretrain" "--from-$origin" "$file" --output "$folder/run.toml" "${keys[@]}" || code=$?
if [ $code = 3 ] && [ -z "$anyway" ]; then
    say "keys are missing here (the last rows); --anyway goes on without them, $folder/run.toml has the rest"
    exit 3
fi
[ $code = 0 ] || [ $code = 3 ] || exit $code
settings=$("$bin/pretrain" --config "$folder/run.toml" --print-config)
value() { sed -n "/^\[$1\]/,/^\[/ s/^$2 = //p" <<<"$settings" | tr -d '"'; }  # value SECTION KEY
tokenizer=${tokenizer:-$(value model hf_assets_path)}
[ -n "$tokenizer" ] ||
    fail "the configuration names no tokenizer: --tokenizer DIR (with a tokenizer.json), or bytes for a trial"
[ "$tokenizer" = bytes ] || [ -e "$tokenizer" ] || fail "the tokenizer $tokenizer is not here: --tokenizer DIR names it"

# tokenize TEXTS FILE: makes the token file, unless it is there from these texts and this tokenizer (FILE.source).
tokenize() {
    local source
    source="$tokenizer"$'\n'"$(stat -c '%n %s bytes, changed %y' "$(realpath "$1")")"
    if [ -e "$2" ] && [ "$(cat "$2.source" 2>/dev/null)" = "$source" ]; then say "2. $2 is made of $1: kept"; return; fi
    rm -f "$2" "$2.source"
    say "2. tokenizing $1 to $2 with $tokenizer"
    "$bin/prepare-data" tokenize --input "$1" --output "$2" --tokenizer "$tokenizer" >"${2%.h5}.json"
    echo "$source" >"$2.source"
}
tokenize "$texts" "$folder/train.h5"
[ -z "$held_out" ] || tokenize "$held_out" "$folder/validation.h5"

if [ -n "$nodes" ]; then
    say "3. submitting $folder/run.toml on $nodes nodes"
    exec "$root/jobs/submit.sh" "$folder/run.toml" --nodes "$nodes"
fi
product=1
for axis in data_parallel_replicate data_parallel_shard tensor_parallel context_parallel pipeline_parallel; do
    degree=$(value parallelism "${axis}_degree")
    [ "$degree" = -1 ] || product=$((product * degree))
done
if [ -z "$ranks" ]; then
    gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU') || gpus=0
    ranks=$product
    if [ "$(value parallelism data_parallel_shard_degree)" = -1 ] && [ "$gpus" -gt "$product" ]; then
        ranks=$((gpus / product * product))
    fi
fi
say "3. training on $ranks ranks: jobs/mpirun.sh $ranks $bin/pretrain --config $folder/run.toml"
exec "$root/jobs/mpirun.sh" "$ranks" "$bin/pretrain" --config "$folder/run.toml"
