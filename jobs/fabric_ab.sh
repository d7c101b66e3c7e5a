#!/usr/bin/env bash
# fabric_ab.sh --nodes N [--ranks-per-node G] [--local N] [--profile h200-rescue] [--folder FOLDER] [--rounds 4]
#              [--collectives all_reduce,all_gather,reduce_scatter] [--sizes "-b 1M -e 1G -f 2"] [--output FILE]
#              [--time 01:00:00] [--site FILE] [--sbatch "OPTIONS"] [--dry-run | --report]
# Measures with nccl-bench what a fabric profile (fabric/NAME.conf) and each of its variables are worth: without the profile,
# with it, and with it but without each variable, alternating on the same nodes in one job (--local: N ranks of this machine).
# What wins by more than noise becomes a profile, which is then measured against the other two; it is written to FILE
# (FOLDER/measured.conf), and the last lines say how to use it.
#
# A variable stays if the profile without it is slower by more than noise. If only several of them together win, so that the
# chosen profile is slower than the whole one, the whole profile is written. If nothing wins, no file is written. A variable of
# the profile is set, or unset, whatever the site and the shell say. One whose value changes nothing (NCCL_DEBUG=WARN, a switch
# that is 0 by default; HARMLESS in slow_variants.py) is set for all of them and has no measurement of its own. FOLDER is fabric_ab in ARGOSY_SCRATCH, the sizes are
# ARGOSY_BENCHMARK_SIZES unless --sizes gives others.
# Exit codes: 0 measured, whatever was found; 1 nothing was measured; 2 wrong use.
# shellcheck disable=SC2154
set -euo pipefail
ARGOSY_JOBS=$(cd "$(dirname "$0")" && pwd)
source "$ARGOSY_JOBS/shell/fill.sh"
source "$ARGOSY_JOBS/shell/alternate.sh"
say() { echo "fabric_ab: $*" >&2; }
fail() { say "$*"; exit 2; }
explain() { python3 -B "$ARGOSY_JOBS/python/fabric_ab.py" "$@"; }

profile=h200-rescue folder='' collectives=all_reduce,all_gather,reduce_scatter sizes='' output=''
own_option() {
    case $1 in
        --profile) profile=$2 ;;
        --folder) folder=$2 ;;
        --collectives) collectives=$2 ;;
        --sizes) sizes=$2 ;;
        --output) output=$2 ;;
        *) return 1 ;;
    esac
}
own_word() { return 1; }
read_options "$@"
if [ -n "$report" ]; then read_site "$site"; else check_options; fi
folder=$(realpath -m "${folder:-$ARGOSY_SCRATCH/fabric_ab}")
output=$(realpath -m "${output:-$folder/measured.conf}")
report_again
[ "$nodes$local_ranks" != 1 ] || say "warning: on one node nothing crosses the fabric"
[ -e "$ARGOSY_JOBS/fabric/$profile.conf" ] ||
    fail "there is no profile '$profile' in $ARGOSY_JOBS/fabric: $(basename -as .conf "$ARGOSY_JOBS"/fabric/*.conf | paste -sd' ')"
values=$(profile_values "$profile")
[ -n "$values" ] || fail "no variable of the profile '$profile' has a value here: set ARGOSY_INTERFACE and ARGOSY_HCA in $ARGOSY_SITE"
if [ -e "$output" ] && ! head -n 1 "$output" | grep -q '^# Measured by fabric_ab.sh'; then
    fail "--output $output exists, and this script has not written it: give another file"
fi
choose=(python3 -B "$ARGOSY_JOBS/python/fabric_ab.py" choose "$folder")
open_folder "${choose[@]}"
explain plan "$folder" profile="$ARGOSY_JOBS/fabric/$profile.conf" values="$values" collectives="$collectives" \
    sizes="${sizes:-$ARGOSY_BENCHMARK_SIZES}" bin="$ARGOSY_BIN" ranks=$((nodes * here)) output="$output" || exit 2
[ -n "$dry" ] || rm -f "$output"
measure "${choose[@]}"
