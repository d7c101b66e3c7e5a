#!/usr/bin/env bash
# run.sh [--quick] [--together] [--budget SECONDS] [--results FOLDER] [PART ...]: on a machine with a GPU builds what its tests and
# benchmarks want, and no more, in build/cuda (build.sh), and runs them (run_parts.py --help names the parts), writing
# tests/gpu/results/<gpu>-<date>.md as it goes. The build does not count towards the budget. Exits with 2 where there is no
# GPU or no build is possible, with 1 where something failed.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin  # compute-sanitizer, nvcc

nvidia-smi -L 2>/dev/null | grep -q '^GPU 0' || { echo "run: there is no GPU here (nvidia-smi names none)" >&2; exit 2; }
targets=$(python3 "$root/tests/gpu/run_parts.py" --targets "$@") || exit 2
if [ -z "${ARGOSY_PEER_PYTHON:-}" ] && [ ! -e "$root/.deps/peer-venv/bin/python" ] &&
   python3 -c 'import torch' 2>/dev/null; then
    ARGOSY_PEER_PYTHON=$(command -v python3)
    export ARGOSY_PEER_PYTHON
fi

architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader --id=0 | tr -d '. ')
# shellcheck disable=SC2086  # a word each
"$root/tests/gpu/build.sh" "$architecture" $targets || [ $? != 2 ] || exit 2  # a part fails if its program was not built
ARGOSY_BUILD=$root/build/cuda exec python3 "$root/tests/gpu/run_parts.py" "$@"
