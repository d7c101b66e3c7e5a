#!/usr/bin/env bash
# jobs/setup.sh reports what to do if it cannot install, rebuilds a damaged environment, and is quick if everything is
# there. dpkg-query, id, python3 and pip are stand-ins: nothing is installed. jobs/quickstart.sh keeps the model of an earlier
# call: its programs are stand-ins too.
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
mkdir -p "$site/torch/lib" "$site/nvidia/cu13/lib" "$site/include"
touch "$site/include/cudnn_frontend.h" "$site/torch/lib/libtorch_cpu.so" "$site/nvidia/cu13/lib/libcudart.so.13" "$site/nvidia/cu13/lib/libcupti.so.13"
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

# A quick start whose training leaves a checkpoint, unless CODE says that it fails, and whose conversion leaves the model hf.
tree=$folder/quick output=$folder/quick/outputs/quickstart
mkdir -p "$tree/jobs" "$tree/build/bin" "$folder/quick-bin"
cp -r "$ARGOSY_SOURCE"/jobs/{quickstart.sh,shell} "$tree/jobs"
program() { { echo '#!/bin/bash'; cat; } >"$1" && chmod +x "$1"; }
for name in "$tree/jobs/build.sh" "$tree/build/bin/prepare-data" "$tree/build/bin/eval" "$folder/quick-bin/python3"; do program "$name" <<<true; done
program "$tree/jobs/mpirun.sh" <<<'exec "${@:2}"'
program "$tree/build/bin/convert-checkpoint" <<<'[ -z "$CODE" ] || exit $CODE; mkdir -p "$2"'
program "$tree/build/bin/pretrain" <<PRETRAIN
case "\$*" in
    *--wrong*) exit 2 ;;
    *--print-config) exit 0 ;;
esac
mkdir -p $output/checkpoint/step-1
echo "\$*" >$output/options
PRETRAIN
quick() { CODE=${CODE-} PATH=$folder/quick-bin:$PATH "$tree/jobs/quickstart.sh" "$@" >"$folder/said" 2>&1; }
trained_with() { grep -qF -- "--metrics.log_freq $2" "$output$1/options" || fail "$output$1 is of: $(cat "$output$1/options")"; }
quick --metrics.log_freq 1 || fail "a first quick start"
quick --metrics.log_freq 2 || fail "a second quick start"
grep -qF "quickstart: the earlier run is now in outputs/quickstart-before, until a later call replaces it" "$folder/said" || fail "not told"
trained_with -before 1
quick --metrics.log_freq 3 || fail "a third quick start"
trained_with -before 2
trained_with "" 3
if quick --wrong 4; then fail "wrong options"; fi
trained_with -before 2
trained_with "" 3
if CODE=1 quick --metrics.log_freq 4; then fail "a quick start whose conversion fails"; fi
trained_with -before 3
quick --metrics.log_freq 5 || fail "after a quick start without a model"
trained_with -before 3
trained_with "" 5
grep -qF "the earlier run is now in outputs/quickstart-unfinished, until" "$folder/said" || fail "not told"
trained_with -unfinished 4
for word in --version --print-config --bash-completion; do
    if quick "$word"; then fail "$word is no option of a run"; fi
done
trained_with -before 3
trained_with "" 5
flock "$output/run.lock" sleep 2 &
sleep 0.3
if quick; then fail "beside a run"; fi
grep -qF "outputs/quickstart is in use (by run.lock: " "$folder/said" || fail "not told of the run beside"
trained_with "" 5
wait
