#!/usr/bin/env bash
# why_slow.sh RUN [--nodes N] [--ranks-per-node G] [--local N] [--rounds 4] [--steps 20] [--only NAME,...] [--time 01:00:00]
#             [--site FILE] [--sbatch "OPTIONS"] [--dry-run | --report] [--section.key value ...]
# Finds out by experiment why the run in the folder RUN is slow. Short runs of RUN's configuration, each with one thing changed
# (compile, recomputation, the mesh, one node or one rank, the fabric's profiles, variables that slow runs down, a small token
# file), alternate with the baseline inside one job, or with --local on N ranks of this machine. The last lines name the factor
# that takes most of a step, its size, the noise, and the settings that change it.
#
# Saves, validation, evaluation and traces are off; the files are in RUN/why_slow. An experiment that does not apply is listed
# with the reason; one that fails (for example without enough memory) is a row with its message. --dry-run prints the experiments,
# --report the result of the last call again. A job has the variables of the communication libraries with which RUN was
# submitted (RUN/job.sbatch), else those of this shell. With an even number of rounds, a steady drift of the nodes cancels out.
# Exit codes: 0 measured, whatever was found; 1 nothing was measured; 2 wrong use.
# Begin here if a run is slow: the tools that answer questions about speed, the cheapest first (WHY_SLOW.md has the causes):
# shellcheck disable=SC2154
set -euo pipefail
ARGOSY_JOBS=$(cd "$(dirname "$0")" && pwd)
source "$ARGOSY_JOBS/shell/fill.sh"
source "$ARGOSY_JOBS/shell/alternate.sh"
say() { echo "why_slow: $*" >&2; }
fail() { say "$*"; exit 2; }
print_help() {
    sed -n '2,/^set /{/shellcheck/d;/^#/s/^# \{0,1\}//p}' "$0"
    sed -n '/^| question/,/^$/{/^| \(q\|---\)/d;s/^| \(.*\) | \(.*\) |$/  \1\n      \2/p}' "$ARGOSY_JOBS/WHY_SLOW.md" | tr -d '`'
}
explain() { python3 -B "$ARGOSY_JOBS/python/why_slow.py" "$@"; }

run='' steps=20 only='' options=()
own_option() {
    case $1 in
        --*.*) options+=("$@") ;;  # without a value, too: pretrain knows which need one
        --steps) steps=$2 ;;
        --only) only=$2 ;;
        *) return 1 ;;
    esac
}
own_word() {
    [ -z "$run" ] || fail "give one run, not '$run' and '$1'"
    run=$1
}
read_options "$@"
[ -n "$run" ] || fail "the run is missing; usage: why_slow.sh RUN, the folder of a run"
[ -f "$run/effective.toml" ] || fail "$run has no effective.toml: give the folder of a run (job.dump_folder) that has started"
run=$(realpath "$run")
folder=$run/why_slow
report_again
[[ $steps =~ ^[0-9]{1,6}$ ]] && [ "$steps" -ge 12 ] || fail "--steps $steps: give 12 or more, so that enough follow the start-up"

# What the run was submitted with: its working folder and its variables of the communication libraries, with this program's own
# that slow runs down (slow_variants.py).
if [ -e "$run/job.sbatch" ] && [ -z "$local_ranks" ]; then
    [ -z "$site" ] || site=$(realpath -m "$site")
    [ -z "${ARGOSY_SITE:-}" ] || ARGOSY_SITE=$(realpath -m "$ARGOSY_SITE")
    [ -n "${ARGOSY_CONTAINER:-}" ] || [ -z "${ARGOSY_BIN:-}" ] || ARGOSY_BIN=$(realpath -m "$ARGOSY_BIN")
    kept="(${library_variables})_[A-Za-z0-9_]*|ARGOSY_CPU_KERNELS|ARGOSY_SYNCHRONOUS_SENDS"
    cd "$(option chdir "$(<"$run/job.sbatch")")" || fail "the working folder of $run/job.sbatch is gone"
    for name in $(compgen -e | grep -xE "$kept"); do unset "$name"; done
    # shellcheck disable=SC1090
    source <(grep -E "^export ($kept)=" "$run/job.sbatch")
    here=${here:-$(option ntasks-per-node "$(<"$run/job.sbatch")")}
fi
if [ -z "$nodes$local_ranks" ]; then
    [ -s "$run/starts.jsonl" ] || fail "$run has not started yet: give --nodes N or --local N"
    ranks=$(sed -n '$s/.*"ranks":\([0-9]*\).*/\1/p' "$run/starts.jsonl")
    if [ -n "$ranks" ] && [ -n "$here" ]; then nodes=$((ranks / here)); fi
fi
check_options
settings=$(settings_of "$run/effective.toml" "${options[@]}") || exit 2

# Lines `PROFILE with|without NAME=VALUE ...`: the profiles in use, and those that may be added.
profiles() {
    local name how
    for name in "$ARGOSY_JOBS"/fabric/*.conf; do
        name=$(basename "$name" .conf)
        case " $ARGOSY_FABRIC $ARGOSY_FABRIC_MORE " in
            *" $name "*) how=without ;;
            *) case $name in infiniband | roce | ethernet) continue ;; *) how=with ;; esac ;;
        esac
        echo "$name $how $(profile_values "$name" | paste -sd' ')"
    done
}

open_folder
echo "$settings" >"$folder/config.toml"
explain plan "$folder" run="$run" bin="$ARGOSY_BIN" nodes="$nodes" ranks_per_node="$here" steps="$steps" only="$only" \
    fabric="$(profiles)" || exit 2
measure
