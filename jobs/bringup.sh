#!/usr/bin/env bash
# bringup.sh CONFIG --nodes N | --nodelist NAMES [--proxy CONFIG] [--baseline RUN] [--gate 0.8] [--floor GB/s] [--steps 30]
#            [--without-collectives] [--dry-run] [other options of submit.sh]
# Tests a set of nodes in stages; each stage must pass before the next is submitted: the collectives over all nodes, the
# configuration on 1, 2, 4, ... ranks of one node, then on 2, 4, ... and N nodes: with --nodelist on the first ones of these
# nodes. stage_meshes.py reduces the configuration's mesh to the ranks of a stage. --proxy names a smaller configuration for
# the stages on which the configuration does not fit; without it they are skipped. With ARGOSY_PLAN (site.conf) the plan of
# each stage says whether it fits; without, a stage needs the ranks that hold one copy as the configuration divides it, and the proxy is taken to fit.
# Options --section.key hold for both configurations. --dry-run prints the stages with their meshes, and submits nothing.
# A stage passes if its job succeeds and is fast enough:
# - collectives: the highest bus bandwidth of each is at least the floor (ARGOSY_BANDWIDTH_FLOOR), or, without a floor, the
#   gate's share of this cluster's best run on as many nodes, which the file ARGOSY_GOOD_BANDWIDTH keeps;
# - ranks and nodes: its efficiency is at least the gate. Efficiency is tokens per second and rank as a share of those of an
#   earlier stage: the first one with the same configuration and the same degrees of tensor, context and pipeline
#   parallelism, for several nodes the first one of whole nodes. Where there is none, nothing is compared. --baseline RUN
#   compares the stages that divide the model as the last stage does with that run instead, which is outside RUN/bringup.
# The folders of the stages are bringup/ranks-N and bringup/nodes-N in the run's folder; `status.sh RUN/bringup` shows their
# results (stages.jsonl). The exit code is 3 if a stage does not pass. A signal cancels the job of the stage.
set -euo pipefail
ARGOSY_JOBS=$(cd "$(dirname "$0")" && pwd)
source "$ARGOSY_JOBS/shell/fill.sh"
fail() { echo "bringup: $*" >&2; exit 2; }
say() { echo "bringup: $*" >&2; }

config='' site='' nodes='' names='' here='' gate=0.8 floor='' steps=30 more='' collectives=yes words=() options=()
proxy='' template='' baseline='' dry=''
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) print_help; exit 0 ;;
        --without-collectives) collectives=''; shift; continue ;;
        --dry-run) dry=yes; shift; continue ;;
        --dry-run=* | --without-collectives=*) fail "${1%%=*} takes no value" ;;
        --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
        --*.*) if [ $# = 1 ] || [[ $2 = --* ]]; then options+=("$1"); shift; continue; fi ;;  # pretrain knows which need a value
    esac
    case $1 in --sweep | --spares) fail "only submit.sh has the option $1" ;; esac
    case $1 in --*) [ $# -gt 1 ] || fail "$1 needs a value" ;; esac
    case $1 in
        --nodes) nodes=$2 ;;
        --nodelist) names=$2 ;;
        --ranks-per-node) here=$2 ;;
        --proxy) proxy=$2 ;;
        --baseline) baseline=$2 ;;
        --template) template=$2 ;;
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
[[ $nodes =~ ^[1-9][0-9]{0,5}$ ]] || fail "--nodes $nodes is not a number of nodes"
for number in "$gate" "${floor:-0}"; do
    [[ $number =~ ^[0-9]+(\.[0-9]+)?$ ]] || fail "$number is not a number (--gate, --floor)"
done
check_python
read_site "$site"
[[ $steps =~ ^[0-9]{1,6}$ ]] && [ "$steps" -ge 8 ] || fail "--steps $steps: give 8 or more, since the first 5 do not count"
floor=${floor:-$ARGOSY_BANDWIDTH_FLOOR}
here=${here:-$ARGOSY_RANKS_PER_NODE}
[[ $here =~ ^[1-9][0-9]{0,3}$ ]] || fail "--ranks-per-node $here is not a number of ranks"
settings=$(settings_of "$config" "${options[@]}") || exit 2
folder=$(run_of "$settings")/bringup
if [ -n "$baseline" ]; then
    baseline=$(realpath -m "$baseline")
    case $baseline/ in "$folder"/*) fail "this call deletes --baseline $baseline: copy it, or set another --job.dump_folder" ;; esac
    [ -s "$baseline/metrics.jsonl" ] || fail "--baseline $baseline has no metrics.jsonl: give the folder of a run"
fi
own=  # the folder of the current stage

stop() { say "FAILED: $*"; exit 3; }

# Cancels the job of the current stage.
cancel() {
    trap '' INT TERM HUP
    say "interrupted"
    [ -z "$own" ] || cancel_jobs_of "$own/job.sbatch" "${job:-}"
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

# speed FOLDER: prints the tokens per second and rank. Prints nothing if no step counts.
speed() { python3 -B "$ARGOSY_JOBS/python/run_metrics.py" "$1/metrics.jsonl"; }

# fits CONFIG RANKS ENOUGH OPTION ...: whether the configuration can train on the ranks of a stage. ENOUGH is the answer where
# the type of the GPUs is not known.
fits() {
    local ranks=$2 enough=$3 config=$1 answer code=0
    shift 3
    [ "$ARGOSY_PLAN" != no ] || { [ "$enough" = yes ]; return; }
    answer=$(ARGOSY_LOG=warn ask_pretrain "$config" "${options[@]}" --training.global_batch_size -1 "$@" --plan --gpus "$ranks" \
             --gpus-per-node $((ranks < here ? ranks : here)) --gpu "$ARGOSY_PLAN" 2>&1) || code=$?
    [ "$code" != 2 ] || say "$config cannot run on $ranks ranks: $answer"  # for another reason than memory
    case $code in 0 | 2 | 3) return "$code" ;; esac
    fail "pretrain --plan ended with $code: $answer"
}

# List of the stages, one element of each array a stage: number of ranks, configuration, the degrees that divide the model, mesh,
# options of the mesh. A stage on which nothing fits has no configuration.
ranks_of=() config_of=() model_of=() mesh_of=() options_of=()
list_stages() {
    local of_target of_proxy='' ranks enough model mesh degrees row=0 target_rows proxy_rows of_template
    template=${template:-$(template_of "$settings" "$nodes" "$here")}
    check_template "$template"
    of_template=$(mesh_words "$template" "$nodes" "$here" "$settings") || exit 2
    # shellcheck disable=SC2086
    of_target=$(python3 -B "$ARGOSY_JOBS/python/stage_meshes.py" "$nodes" "$here" "$template" $of_template "${options[@]}" <<<"$settings") || exit 2
    if [ -n "$proxy" ]; then
        more_settings=$(settings_of "$proxy" "${options[@]}") || exit 2
        of_proxy=$(python3 -B "$ARGOSY_JOBS/python/stage_meshes.py" "$nodes" "$here" any <<<"$more_settings") || exit 2
    fi
    mapfile -t target_rows <<<"$of_target"
    mapfile -t proxy_rows <<<"$of_proxy"
    for ((row = 0; row < ${#target_rows[@]}; row++)); do
        IFS=$'\t' read -r ranks enough model mesh degrees <<<"${target_rows[row]}"
        config_of[row]=$config
        # shellcheck disable=SC2086
        if ! fits "$config" "$ranks" "$enough" $degrees; then
            config_of[row]=
            if [ -n "$proxy" ]; then
                IFS=$'\t' read -r ranks enough model mesh degrees <<<"${proxy_rows[row]}"
                # shellcheck disable=SC2086
                if fits "$proxy" "$ranks" yes $degrees; then config_of[row]=$proxy; fi
            fi
        fi
        ranks_of[row]=$ranks model_of[row]=$model mesh_of[row]=$mesh options_of[row]=$degrees
    done
    [ "${config_of[-1]}" = "$config" ] ||
        fail "$config does not fit on $nodes nodes of $here GPUs ($ARGOSY_PLAN); submit.sh --nodes $nodes says why"
}

# name_of RANKS: prints the name of a stage: ranks-2, nodes-4.
name_of() { if [ "$1" -lt "$here" ]; then echo "ranks-$1"; else echo "nodes-$(($1 / here))"; fi; }

# show_stages: prints a line for each stage.
show_stages() {
    local row
    for row in "${!ranks_of[@]}"; do
        printf '%-9s %s\n' "$(name_of "${ranks_of[row]}")" \
            "$([ -n "${config_of[row]}" ] && echo "${config_of[row]}: ${mesh_of[row]}" || echo "skipped: $config does not fit${proxy:+, nor does the proxy}")"
    done
}

# try_stage ROW: runs a stage. The samples per step grow with the ranks of data parallelism, so that the work of a rank stays
# the same where these are all that grows. Nothing is saved. checkpoint.folder is set, because a configured folder outside the
# stage may hold steps, which pretrain refuses.
try_stage() {
    local ranks=${ranks_of[$1]} some=1 name job degrees
    name=$(name_of "$ranks")
    if [ -z "${config_of[$1]}" ]; then return; fi
    own=$folder/$name
    [ "$ranks" -lt "$here" ] || some=$((ranks / here))
    say "$name: running ${config_of[$1]} on $ranks ranks (${mesh_of[$1]})"
    rm -rf "$own"
    read -r -a degrees <<<"${options_of[$1]}"
    job=$(ARGOSY_CALLER_CANCELS=yes "$ARGOSY_JOBS/submit.sh" "${config_of[$1]}" --nodes "$some" --ranks-per-node $((ranks / some)) \
        "${words[@]}" --template configured --sbatch "$(first "$some") --no-requeue $more" \
        "${options[@]}" "${degrees[@]}" --training.global_batch_size -1 --training.steps "$steps" --checkpoint.enable false \
        --validation.enable false --checkpoint.folder checkpoint --job.dump_folder "$own") && succeeded "$job" "$own/job.sbatch" || stop "$name; see $own/logs"
    tokens=$(speed "$own")
    [ -n "$tokens" ] || stop "$name left no speed in $own/metrics.jsonl: --steps $steps may be too few"
    judge_speed "$1" "$name"
}

# judge_speed ROW NAME: compares `tokens`, the speed of a stage, with its baseline, and adds the result to stages.jsonl.
declare -A first_inside=() first_of_nodes=()  # the first stage for each configuration and division of the model
judge_speed() {
    local key="${config_of[$1]} ${model_of[$1]}" ranks=${ranks_of[$1]} against part=null before
    [ "$ranks" -lt "$here" ] || first_of_nodes[$key]=${first_of_nodes[$key]:-$folder/$2}
    first_inside[$key]=${first_inside[$key]:-$folder/$2}
    against=${first_inside[$key]}
    [ "$ranks" -le "$here" ] || against=${first_of_nodes[$key]}
    [ -z "$baseline" ] || [ "$key" != "$config ${model_of[-1]}" ] || against=$baseline
    if [ "$against" != "$own" ]; then
        before=$(speed "$against")
        [ -n "$before" ] || stop "the baseline $against has no speed in metrics.jsonl"
        part=$(awk -v a="$tokens" -v b="$before" 'BEGIN { printf "%.4f", a / b }')
    fi
    printf '{"stage":"%s","config":%s,"ranks":%d,"mesh":"%s","tokens_per_second_per_device":%s,"baseline":%s,"efficiency":%s}\n' \
        "$2" "$(json_text "${config_of[$1]}")" "$ranks" "${mesh_of[$1]}" "$tokens" \
        "$([ "$part" = null ] && echo null || json_text "$against")" "$part" >>"$folder/stages.jsonl"
    if [ "$part" = null ]; then say "$2: $tokens tokens/s per rank; no stage to compare with"; return; fi
    say "$2: $tokens tokens/s per rank, $(awk -v part="$part" 'BEGIN { printf "%.1f", 100 * part }') % of $against"
    awk -v part="$part" -v gate="$gate" 'BEGIN { exit !(part >= gate) }' ||
        stop "$2: a rank has $part of the speed of $against, below $gate: compare the fabric's profiles"
}

list_stages
if [ -n "$dry" ]; then show_stages; exit 0; fi
check_inputs "$settings" ""
[ -z "$proxy" ] || check_inputs "$more_settings" "" "$proxy: "
show_stages >&2
mkdir -p "$folder"
: >"$folder/stages.jsonl"  # it tells status.sh what this folder is
[ -z "$collectives" ] || try_collectives
for row in "${!ranks_of[@]}"; do try_stage "$row"; done
[ -z "$collectives" ] || keep_bandwidth
say "passed: $nodes nodes"
