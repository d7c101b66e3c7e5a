#!/usr/bin/env bash
# build.sh [--tests] [--preset NAME] [-DVARIABLE=VALUE ...]: installs missing packages (setup.sh), configures, and builds
# the apps; with --tests it builds everything. The default preset (CMakePresets.json) is cpu, with binaries in build/bin/.
# JOBS is the number of compilers that run at the same time: 2, since a file that includes tensors needs up to 2 GB.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

preset=cpu
targets=(--target apps)
setup=()
definitions=()
while [ $# -gt 0 ]; do
    case $1 in
        --tests) targets=() setup=(--tests) ;;
        --preset)
            [ $# -gt 1 ] || { echo "build: --preset needs a name from CMakePresets.json" >&2; exit 2; }
            preset=$2
            shift ;;
        -D?*) definitions+=("$1") ;;
        *) echo "build: unknown argument '$1'; usage: build.sh [--tests] [--preset NAME] [-DVARIABLE=VALUE ...]" >&2
           exit 2 ;;
    esac
    shift
done

# finish_stage NAME: reports the duration of a stage that took three seconds or more.
finish_stage() {
    local seconds=$((SECONDS - stage_began))
    [ "$seconds" -lt 3 ] || echo "build: $1 took $seconds s" >&2
    stage_began=$SECONDS
}
stage_began=$SECONDS

"$root/jobs/setup.sh" "${setup[@]}"
finish_stage "set-up"
cd "$root"
cmake=.deps/venv/bin/cmake
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! "$cmake" --preset "$preset" "${definitions[@]}" >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
finish_stage "configuring"
"$cmake" --build --preset "$preset" --parallel "${JOBS:-2}" "${targets[@]}"
finish_stage "compiling"
