#!/usr/bin/env bash
# jobs/setup.sh reports what to do if it cannot install, rebuilds a damaged environment, and is quick if everything is
# there. dpkg-query, id, python3 and pip are stand-ins: nothing is installed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; echo "--- it said:"; cat "$folder/said"; exit 1; }
mkdir -p "$folder/tree/jobs" "$folder/bin"
cp "$ARGOSY_SOURCE/jobs/setup.sh" "$folder/tree/jobs/"
stand_in() { cat >"$folder/bin/$1" && chmod +x "$folder/bin/$1"; }

# Runs setup.sh under the stand-ins: prints its exit status and leaves its output in $folder/said.
arguments=()
setup() {
    local status=0
    PATH=$folder/bin:$PATH PYTHON='' "$@" "$folder/tree/jobs/setup.sh" "${arguments[@]}" >"$folder/said" 2>&1 || status=$?
    echo "$status"
}
expect() {
    [ "$1" = "$2" ] || fail "exit status $2, not $1"
    grep -q -- "$3" "$folder/said" || fail "does not say '$3'"
}
expect_silence() {
    [ "$(setup env "$@")" = 0 ] && [ ! -s "$folder/said" ] || fail "is not content${*:+ with $*}"
}

stand_in id <<<$'#!/bin/bash\necho 1000'

# Every package counts as installed, except the one that ABSENT names.
stand_in dpkg-query <<'DPKG'
#!/bin/bash
for word in "${@:4}"; do
    [ "$word" = "$ABSENT" ] || echo "$word install ok installed"
done
DPKG

# Makes an "environment" whose pip "installs" the packages of setup.sh; REFUSE names the step that fails.
stand_in python3 <<'PYTHON'
#!/bin/bash
case "$1 $2" in
    "-c import"*) [ "$REFUSE" != version ] ;;
    "--version ") echo "Python 3.6.8" ;;
    "-m venv")
        [ "$REFUSE" != venv ] || exit 1
        mkdir -p "$3/bin"
        cp "$0.pip" "$3/bin/python" ;;
    *) exit 1 ;;
esac
PYTHON
stand_in python3.pip <<'PIP'
#!/bin/bash
[ "$REFUSE" != pip ] || exit 1
venv=$(cd "$(dirname "$0")/.." && pwd)
site=$venv/lib/python3.11/site-packages
mkdir -p "$site/torch/lib" "$site/nvidia/cu13/lib"
touch "$site/torch/lib/libtorch_cpu.so" "$site/nvidia/cu13/lib/libcudart.so.13" "$site/nvidia/cu13/lib/libcupti.so.13"
printf '#!/bin/bash\n' >"$venv/bin/cmake"
chmod +x "$venv/bin/cmake"
PIP

expect 2 "$(setup env ABSENT=libhdf5-dev)" "apt-get install libhdf5-dev"
expect 2 "$(setup env REFUSE=version)" "needs Python 3.10 or newer, and python3 is Python 3.6.8"
expect 2 "$(setup env REFUSE=venv)" "python3-venv"
expect 2 "$(setup env REFUSE=pip)" "PIP_INDEX_URL"
[ ! -e "$folder/tree/.deps/venv/argosy-wheels" ] || fail "a failed pip left a stamp"
expect 0 "$(setup env)" "CMake and pyarrow into .deps/venv"

start=$(date +%s%N)
expect_silence
[ $(($(date +%s%N) - start)) -lt 1000000000 ] || fail "takes longer than a second to do nothing"

for damage in "rm $folder/tree/.deps/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so" \
              "rm $folder/tree/.deps/venv/argosy-wheels" \
              "sed -i 1s,/bin/bash,/gone/python, $folder/tree/.deps/venv/bin/cmake"; do
    $damage
    expect 0 "$(setup env)" "CMake and pyarrow into .deps/venv"
    expect_silence
done
expect_silence ABSENT=libhdf5-dev ARGOSY_SKIP_PACKAGES=1

arguments=(--tests)
expect 0 "$(setup env REFUSE=pip)" "tests that need them will be skipped"
[ ! -e "$folder/tree/.deps/tests/argosy-wheels" ] || fail "a failed pip left a stamp"
expect 0 "$(setup env)" "packages of the tests into .deps/tests"
expect_silence

# As root setup.sh installs a Slurm if there is none; an existing Slurm does not change, and a failure to install it is
# no error.
stand_in id <<<$'#!/bin/bash\necho 0'
stand_in apt-get <<<$'#!/bin/bash\n[ "$REFUSE" != apt ] || exit 1\n[ "$1" != install ] || echo "$@" >>"$0.asked"'
stand_in systemctl <<<$'#!/bin/bash\necho "$@" >>"$0.asked"'
has_slurm() { PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin command -v slurmctld >/dev/null; }
has_slurm || expect 0 "$(setup env REFUSE=apt)" "tests that submit jobs will be skipped"
if has_slurm; then
    expect_silence
else
    expect 0 "$(setup env ABSENT=slurmd)" "slurmctld slurmd slurm-client munge"
    grep -q slurmctld "$folder/bin/apt-get.asked" || fail "no Slurm was asked for"
    [ "$(cat "$folder/bin/systemctl.asked")" = "disable --now slurmd" ] || fail "what it installed is left enabled"
fi
stand_in slurmctld <<<'#!/bin/bash'
expect_silence
arguments=(--test)
expect 2 "$(setup env)" "usage: setup.sh"
