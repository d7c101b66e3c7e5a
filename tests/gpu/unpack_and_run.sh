#!/usr/bin/env bash
# unpack_and_run.sh [--bundle FILE] [--budget SECONDS] [--quick] [--together] [--results FOLDER] [PART ...]: on a machine with a GPU
# unpacks what bundle.sh packed (build/gpu-bundle.tar.xz) beside the archive, and runs parts of it (run_parts.py --help
# names them) in order of worth. The budget includes the unpacking. The report and the log are in FOLDER
# (tests/gpu/results); a report of the same day that is there already is continued. LibTorch is ARGOSY_TORCH_DIR, else
# that of python3. Exits with 2 if something is missing, with 1 if a part failed.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin  # compute-sanitizer, nvcc
archive=$root/build/gpu-bundle.tar.xz
budget=
words=()
fail() { echo "unpack_and_run: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
        --bundle | --budget)
            [ $# -gt 1 ] || fail "$1 wants a value"
            if [ "$1" = --bundle ]; then archive=$2; else budget=$2; fi
            shift ;;
        *) words+=("$1") ;;
    esac
    shift
done
case $budget in *[!0-9]*) fail "--budget wants seconds, not '$budget'" ;; esac
python3 "$root/tests/gpu/run_parts.py" --targets ${words[@]+"${words[@]}"} >/dev/null || exit 2
nvidia-smi -L 2>/dev/null | grep -q '^GPU 0' || fail "there is no GPU here (nvidia-smi names none)"
[ -e "$archive" ] || fail "there is no $archive: make it with tests/gpu/bundle.sh"
torch=${ARGOSY_TORCH_DIR:-$(python3 -c 'from importlib.util import find_spec
print(find_spec("torch").submodule_search_locations[0])' 2>/dev/null)} ||
    fail "python3 has no PyTorch: set ARGOSY_TORCH_DIR to the folder torch of a wheel"
[ -e "$torch/lib/libc10.so" ] || fail "$torch is no folder of LibTorch (it has no lib/libc10.so)"

bundle=$(cd "$(dirname "$archive")" && pwd)/gpu-bundle
rm -rf "$bundle"
python3 -W ignore -m tarfile -e "$archive" "${bundle%/*}"
ln -s "$(cd "$torch/.." && pwd)" "$bundle/site-packages"
missing=$(for program in "$bundle"/{bin,tests}/*; do
    [ ! -e "$program" ] || ldd "$program" 2>&1 || true  # fails if a version is missing
done | sed -nE "s/^[[:space:]]*(.*) => not found.*/\1/p; s/.*(version \`[^']*') not found.*/\1/p" | sort -u)
[ -z "$missing" ] || fail "the programs do not find" $missing "here; LibTorch is $torch"

# shellcheck source=/dev/null
. "$bundle/environment.sh"
if [ -z "${ARGOSY_PEER_PYTHON:-}" ]; then
    ARGOSY_PEER_PYTHON=$(command -v python3)
    export ARGOSY_PEER_PYTHON
fi
if [ -n "$budget" ]; then
    budget=$((10#$budget - SECONDS))
    [ "$budget" -gt 0 ] || fail "unpacking took the whole budget"
fi
exec python3 "$root/tests/gpu/run_parts.py" ${budget:+--budget "$budget"} ${words[@]+"${words[@]}"}
