#!/usr/bin/env bash
# run.sh [--quick] [--preset NAME] [-L LABEL ...]: sets up and builds everything, runs the tests, and says at the end
# what passed, failed and was skipped, and why. --quick leaves out the label `slow`; -L runs only tests that have one
# of the labels; the preset is cpu unless named (asan, cuda). JOBS bounds compilers and processors of tests (2).
# Exits with 0 only when no test failed.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

preset=cpu
labels=()
exclude=()
while [ $# -gt 0 ]; do
    case $1 in
        --quick) exclude=(--label-exclude '^slow$') ;;
        -L | --preset)
            [ $# -gt 1 ] || { echo "run: $1 wants a value" >&2; exit 2; }
            if [ "$1" = -L ]; then labels+=("$2"); else preset=$2; fi
            shift ;;
        *) echo "run: unknown argument '$1'; usage: run.sh [--quick] [--preset NAME] [-L LABEL ...]" >&2
           exit 2 ;;
    esac
    shift
done
include=()
if [ ${#labels[@]} -gt 0 ]; then
    include=(--label-regex "^($(IFS='|'; echo "${labels[*]}"))\$")
fi

"$root/jobs/build.sh" --tests --preset "$preset"
cd "$root"
results=$root/build/tests-$preset.xml
rm -f "$results"
status=0
# Suites wait a third of their time, so half as many more run as there are processors. The output of a passed suite is kept
# too: it names the cases that were skipped.
.deps/venv/bin/ctest --preset "$preset" --parallel $((${JOBS:-2} * 3 / 2)) --output-junit "$results" \
    --test-output-size-passed 1000000 "${include[@]}" "${exclude[@]}" || status=$?
if [ -e "$results" ]; then
    python3 tests/summary.py "$results" || status=1
fi
if [ ${#exclude[@]} -gt 0 ]; then
    echo "left out by --quick: the tests with the label slow"
fi
exit "$status"
