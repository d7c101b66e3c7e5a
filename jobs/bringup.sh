#!/usr/bin/env bash
# bringup.sh CONFIG --nodes N | --nodelist NAMES [--gate 0.8] [--floor GB/s] [--steps 30] [--without-collectives]
#            [other options of submit.sh]
# Tests a set of nodes in stages; each stage must pass before the next is submitted: the collectives over all nodes, the
# configuration on one node, then on 2, 4, ... and N nodes: with --nodelist on the first ones of these nodes. A stage
# passes if its job succeeds and is fast enough:
# - collectives: the highest bus bandwidth of each is at least the floor (ARGOSY_BANDWIDTH_FLOOR), or, without a floor, the
#   gate's share of this cluster's best run on as many nodes, which the file ARGOSY_GOOD_BANDWIDTH keeps;
# - several nodes: tokens per second and rank are at least the gate's share of those on one node.
# The folder of each stage is bringup/nodes-N in the run's folder. The exit code is 3 if a stage does not pass. A signal
# cancels the job of the stage.
set -euo pipefail
ARGOSY_JOBS=$(cd "$(dirname "$0")" && pwd)
source "$ARGOSY_JOBS/fill.sh"
fail() { echo "bringup: $*" >&2; exit 2; }
say() { echo "bringup: $*" >&2; }

config='' site='' nodes='' names='' here='' gate=0.8 floor='' steps=30 more='' collectives=yes words=() options=()
while [ $# -gt 0 ]; do
    case $1 in
        --without-collectives) collectives=''; shift; continue ;;
        --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    esac
    case $1 in --dry-run | --sweep | --spares) fail "only submit.sh has the option $1" ;; esac
    case $1 in --*) [ $# -gt 1 ] || fail "$1 needs a value" ;; esac
    case $1 in
        --nodes) nodes=$2 ;;
        --nodelist) names=$2 ;;
        --ranks-per-node) here=$2 words+=("$1" "$2") ;;
        --sbatch) more=$2 ;;
        --gate) gate=$2 ;;
        --floor) floor=$2 ;;
        --steps) steps=$2 ;;
        --site) site=$2 words+=("$1" "$2") ;;
        --*.*) options+=("$1" "$2") ;;
        --*) words+=("$1" "$2") ;;
        *) config=$1; shift; continue ;;
    esac
    shift 2
done
[ -n "$config" ] || fail "the configuration is missing; usage: bringup.sh CONFIG --nodes N"
named=()
if [ -n "$names" ]; then
    expanded=$(scontrol show hostnames "$names") || fail "--nodelist $names is no list of nodes"
    mapfile -t named <<<"$expanded"
    nodes=${nodes:-${#named[@]}}
    [ "$nodes" = "${#named[@]}" ] || fail "--nodes $nodes, but --nodelist has ${#named[@]} nodes"
fi
[[ $nodes =~ ^[1-9][0-9]*$ ]] || fail "--nodes $nodes is not a number of nodes"
for number in "$gate" "${floor:-0}"; do
    [[ $number =~ ^[0-9]+(\.[0-9]+)?$ ]] || fail "$number is not a number (--gate, --floor)"
done
read_site "$site"
floor=${floor:-$ARGOSY_BANDWIDTH_FLOOR}
here=${here:-$ARGOSY_RANKS_PER_NODE}
settings=$(settings_of "$config" "${options[@]}") || exit 2
folder=$(run_of "$settings")/bringup
own=  # the folder of the current stage

stop() { say "FAILED: $*"; exit 3; }

# Cancels the job of the current stage, also one whose number submit.sh has not printed yet.
cancel() {
    local job
    trap '' INT TERM HUP
    for job in $([ -z "$own" ] || jobs_of "$own/job.sbatch" | cut -d' ' -f1); do
        scancel "$job" && say "interrupted: cancelled job $job"
    done
    exit "$1"
}
trap 'cancel 130' INT
trap 'cancel 143' TERM
trap 'cancel 129' HUP

# first N: prints the option of sbatch that selects the first N of the named nodes; nothing if none are named.
first() { [ ${#named[@]} -eq 0 ] || echo "--nodelist=$(IFS=,; echo "${named[*]:0:$1}")"; }

try_collectives() {
    local job script
    own=$folder/collectives
    say "measuring collectives on $nodes nodes"
    rm -rf "$own"
    script=$(fill benchmark "--job-name=benchmark --nodes=$nodes --ntasks-per-node=$here
        --gpus-per-node=$here --cpus-per-task=$ARGOSY_CPUS_PER_RANK $(site_options)
        --output=$own/logs/%j.log $(first "$nodes") --no-requeue $more" "$own")
    check_accepted "$script"
    mkdir -p "$own/logs"
    job=$(submit "$own/job.sbatch" <<<"$script") && succeeded "$job" "$own/job.sbatch" || stop "the collectives; see $own/logs"
    judge_bandwidth
}

# Prints "COLLECTIVE GB/S" for each collective of the stage: the highest bus bandwidth of its sizes.
bandwidths() {
    python3 - "$own"/*.json <<'PYTHON'
import json
import pathlib
import sys

for name in sys.argv[1:]:
    rows = json.loads(pathlib.Path(name).read_text())["results"]
    print(pathlib.Path(name).stem, max(row["out_of_place"]["bus_bw"] for row in rows))
PYTHON
}

# Compares the bandwidth of each collective with the floor or with the best run. The file of best runs has lines
# "PARTITION NODES RANKS_PER_NODE COLLECTIVE GB/S".
judge_bandwidth() {
    local key="${ARGOSY_PARTITION:-default} $nodes $here" name measured min why
    good=$(bandwidths)
    while read -r name measured; do
        why="the floor" min=$floor
        if [ -z "$floor" ]; then
            why="$gate of the best run in $ARGOSY_GOOD_BANDWIDTH"
            min=0
            [ ! -e "$ARGOSY_GOOD_BANDWIDTH" ] ||
                min=$(awk -v key="$key $name " -v gate="$gate" \
                        'index($0, key) == 1 { last = $5 * gate } END { print last + 0 }' "$ARGOSY_GOOD_BANDWIDTH")
        fi
        awk -v measured="$measured" -v min="$min" 'BEGIN { exit !(measured >= min) }' ||
            stop "$name reaches $measured GB/s on $nodes nodes, below $min GB/s ($why): find the slow node with" \
                 "preflight, compare the fabric's profiles, or remove the lines of $nodes nodes from that file"
        say "$name: $measured GB/s"
    done <<<"$good"
    good=$(sed "s/^/$key /" <<<"$good")
}

# Keeps the measured bandwidth where it is this cluster's best. The last one would let the gate fall from run to run.
keep_bandwidth() {
    local file=$ARGOSY_GOOD_BANDWIDTH
    mkdir -p "$(dirname "$file")"
    { [ ! -e "$file" ] || cat "$file"; echo "$good"; } | sort -k1,4 -k5,5gr |
        awk '!seen[$1, $2, $3, $4]++' >"$file.new.$$" && mv "$file.new.$$" "$file"
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
    local job
    own=$folder/nodes-$1
    say "running $config on $1 nodes"
    rm -rf "$own"
    job=$("$ARGOSY_JOBS/submit.sh" "$config" --nodes "$1" "${words[@]}" --sbatch "$(first "$1") --no-requeue $more" \
        "${options[@]}" --training.global_batch_size -1 --training.steps "$steps" --checkpoint.enable false \
        --job.dump_folder "$own") && succeeded "$job" "$own/job.sbatch" || stop "$1 nodes; see $own/logs"
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
[ -z "$collectives" ] || keep_bandwidth
say "passed: $nodes nodes"
