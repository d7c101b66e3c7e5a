#!/usr/bin/env bash
# build.sh [--tests] [--preset NAME] [-DVARIABLE=VALUE ...]: installs missing packages (setup.sh), configures, and builds
# the apps; with --tests it builds everything, and the packages of the tests are installed while the apps compile. The
# default preset (CMakePresets.json) is cpu, with binaries in build/bin/.
# JOBS is the number of compilers that run at the same time: 2, since a file that includes tensors needs up to 2 GB.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
source "$root/jobs/shell/help.sh"

preset=cpu
tests=
definitions=()
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) print_help; exit 0 ;;
        --tests) tests=yes ;;
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

"$root/jobs/setup.sh"
finish_stage "set-up"
cd "$root"
cmake=.deps/venv/bin/cmake
log=$(mktemp)
packages=
trap 'rm -f "$log"; [ -z "$packages" ] || kill "$packages" 2>/dev/null || true' EXIT

configure() {
    "$cmake" --preset "$preset" "${definitions[@]}" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
    finish_stage "configuring"
}
build() { "$cmake" --build --preset "$preset" --parallel "${JOBS:-2}" "$@"; }

if [ -n "$tests" ]; then
    "$root/jobs/setup.sh" --tests &
    packages=$!
fi
configure
build --target apps
finish_stage "compiling the apps"
if [ -n "$tests" ]; then
    wait "$packages"
    packages=
    finish_stage "the rest of the set-up"
    configure  # finds the packages of the tests
    build
    finish_stage "compiling the tests"
fi
