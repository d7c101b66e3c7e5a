#!/usr/bin/env bash
# status.sh RUN ... [--baseline OTHER] [--html FILE]: prints each run, or each point of a sweep, at a glance: its job and why it
# waits, pre-flight, step, loss, speed, efficiency, time to go, newest checkpoint; of RUN/bringup the stages of bringup.sh.
# Efficiency: tokens/s a GPU in per cent of OTHER's (if that is a sweep, of its point with the same options), or of the run's
# metrics.baseline. FILE becomes a page with the runs' curves (report.py).
# status.sh --compare RUN RUN ... [--expected FILE.csv] [--format text|markdown|csv]: a table of the runs' figures,
# each also in per cent of the first run's, and with --expected their speeds in per cent of those in the file (compare_runs.py).
set -euo pipefail
source "$(dirname "$0")/shell/help.sh"
[ "${1-}" != --compare ] || exec python3 -B "$(dirname "$0")/python/compare_runs.py" "${@:2}"
runs=() page='' baseline=''
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) print_help; exit 0 ;;
        --html) page=${2:?status: --html needs the name of a file}; shift 2 ;;
        --html=*) page=${1#*=}; shift ;;
        --baseline) baseline=${2:?status: --baseline needs the folder of a run}; shift 2 ;;
        --baseline=*) baseline=${1#*=}; shift ;;
        --compare) echo "status: --compare comes first: status.sh --compare RUN RUN ..." >&2; exit 2 ;;
        -*) echo "status: unknown option $1; status.sh --help lists the options" >&2; exit 2 ;;
        *) runs+=("$1"); shift ;;
    esac
done
[ ${#runs[@]} -gt 0 ] || { echo "status: no run given; usage: status.sh RUN ... [--baseline OTHER] [--html FILE], the folders of runs" >&2; exit 2; }
python3 -B "$(dirname "$0")/python/status.py" "$baseline" "${runs[@]}"
# After the status, so that a page that cannot be made hides nothing.
[ -z "$page" ] || python3 "$(dirname "$0")/report.py" "${runs[@]}" --html "$page"
