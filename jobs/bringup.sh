#!/usr/bin/env bash
# bringup.sh CONFIG --nodes N [--gate 0.8] [--steps 30] [--without-collectives] [other options of submit.sh]
# Tests a set of nodes in stages; each stage must pass before the next is submitted: the collectives over all
# nodes, the configuration on one node, then on 2, 4, ... and N nodes. A stage passes if its job succeeds and, on several
# nodes, tokens per second and rank are at least the gate's share of those on one node. The folder of each stage is
# bringup/nodes-N in the run's folder; the exit code is 3 if a stage does not pass.
set -euo pipefail
ARGOSY_JOBS=$(cd "$(dirname "$0")" && pwd)
source "$ARGOSY_JOBS/fill.sh"
fail() { echo "bringup: $*" >&2; exit 2; }
say() { echo "bringup: $*" >&2; }

config='' site='' nodes='' here='' gate=0.8 steps=30 more='' collectives=yes words=() options=()
while [ $# -gt 0 ]; do
    case $1 in
        --without-collectives) collectives=''; shift; continue ;;
        --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    esac
    case $1 in --dry-run | --sweep) fail "only submit.sh has the option $1" ;; esac
    case $1 in --*) [ $# -gt 1 ] || fail "$1 needs a value" ;; esac
    case $1 in
        --nodes) nodes=$2 ;;
        --ranks-per-node) here=$2 words+=("$1" "$2") ;;
        --sbatch) more=$2 ;;
        --gate) gate=$2 ;;
        --steps) steps=$2 ;;
        --site) site=$2 words+=("$1" "$2") ;;
        --*.*) options+=("$1" "$2") ;;
        --*) words+=("$1" "$2") ;;
        *) config=$1; shift; continue ;;
    esac
    shift 2
done
[ -n "$config" ] || fail "the configuration is missing; usage: bringup.sh CONFIG --nodes N"
[[ $nodes =~ ^[1-9][0-9]*$ ]] || fail "--nodes $nodes is not a number of nodes"
read_site "$site"
here=${here:-$ARGOSY_RANKS_PER_NODE}
settings=$(settings_of "$config" "${options[@]}") || exit 2
folder=$(run_of "$settings")/bringup

stop() { say "FAILED: $*"; exit 3; }

try_collectives() {
    local own=$folder/collectives
    say "measuring collectives on $nodes nodes"
    rm -rf "$own"
    fill benchmark "--job-name=benchmark --nodes=$nodes --ntasks-per-node=$here
        --gpus-per-node=$here --cpus-per-task=$ARGOSY_CPUS_PER_RANK $(site_options) --wait
        --output=$own/logs/%j.log $more" "$own" | { mkdir -p "$own/logs"; submit "$own/job.sbatch"; } >/dev/null ||
        stop "the collectives; see $own/logs"
}

# speed FOLDER: prints the tokens per second and rank: the median over the stage's steps without the first fifth, which
# includes warm-up. Prints nothing if there is no such step.
speed() {
    { grep -o '"tokens_per_second_per_device":[0-9.e+-]*' "$1/metrics.jsonl" || true; } | cut -d: -f2 |
        tail -n "+$((1 + steps / 5))" | sort -g | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}

# try_nodes N: sets `tokens`, the speed on N nodes. The samples per step grow with N, so that the work of a rank stays the
# same. Nothing is saved.
try_nodes() {
    local own=$folder/nodes-$1
    say "running $config on $1 nodes"
    rm -rf "$own"
    "$ARGOSY_JOBS/submit.sh" "$config" --nodes "$1" "${words[@]}" --sbatch "--wait $more" "${options[@]}" \
        --training.global_batch_size -1 --training.steps "$steps" --checkpoint.enable false \
        --job.dump_folder "$own" >/dev/null || stop "$1 nodes; see $own/logs"
    tokens=$(speed "$own")
    [ -n "$tokens" ] || stop "$1 nodes left no speed in $own/metrics.jsonl: --steps $steps may be too few"
    say "$1 nodes: $tokens tokens/s per rank"
}

[ -z "$collectives" ] || try_collectives
try_nodes 1
alone=$tokens
for ((some = 2; some / 2 < nodes; some *= 2)); do
    count=$((some < nodes ? some : nodes))
    try_nodes "$count"
    part=$(awk -v a="$tokens" -v b="$alone" 'BEGIN { printf "%.3f", a / b }')
    awk -v part="$part" -v gate="$gate" 'BEGIN { exit !(part >= gate) }' ||
        stop "on $count nodes a rank has $part of its speed on one, below $gate: compare the fabric's profiles"
    say "$count nodes: speed per rank is $part of that on one node"
done
say "passed: $nodes nodes"
