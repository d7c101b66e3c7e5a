#!/usr/bin/env bash
# run.sh [--quick] [--preset NAME] [-L LABEL ...]: sets up and builds everything, runs the tests, and says at the end
# what passed, failed and was skipped, and why. --quick leaves out the label `slow`; -L runs only tests that have one
# of the labels; the preset is cpu unless named (asan, cuda). JOBS bounds compilers and processors of tests (2).
# If three tests or fewer fail, they run once more, alone: a machine that is busy for a minute can break a test of time
# limits. Exits with 0 only when every test passed, in the first run or in the second.
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
again=$root/build/tests-$preset-again.xml
rm -f "$results" "$again"
status=0
# Suites wait a third of their time, so half as many more run as there are processors. The output of a passed suite is kept
# too: it names the cases that were skipped.
.deps/venv/bin/ctest --preset "$preset" --parallel $((${JOBS:-2} * 3 / 2)) --output-junit "$results" \
    --test-output-size-passed 1000000 "${include[@]}" "${exclude[@]}" || status=$?
if [ -e "$results" ]; then
    reports=("$results")
    mapfile -t failed < <(python3 tests/summary.py --failed "$results")
    if [ "$status" != 0 ] && [ ${#failed[@]} -gt 0 ] && [ ${#failed[@]} -le 3 ]; then
        names=$(IFS='|'; echo "${failed[*]//./\\.}")
        status=0
        echo "run: once more, alone: ${failed[*]}"
        .deps/venv/bin/ctest --preset "$preset" --parallel 1 --output-junit "$again" --test-output-size-passed 1000000 \
            -R "^($names)\$" || status=$?
        [ ! -e "$again" ] || reports+=("$again")
    fi
    python3 tests/summary.py "${reports[@]}" || status=1
fi
if [ ${#exclude[@]} -gt 0 ]; then
    echo "left out by --quick: the tests with the label slow"
fi
exit "$status"
