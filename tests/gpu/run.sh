#!/usr/bin/env bash
# run.sh [--quick] [--results FOLDER] [--only PART ...]: on a machine with a GPU builds what its tests and benchmarks
# want, and no more, in build/cuda, and runs them (run_parts.py --help names the parts), writing
# tests/gpu/results/<gpu>-<date>.md as it goes. LibTorch for CUDA is ARGOSY_TORCH_DIR, else the wheel in .deps/ where it
# has its dependencies, else python3's. JOBS is the number of compilers at a time. Exits with 2 where there is no GPU,
# with 1 where something failed.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
export PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin  # compute-sanitizer, nvcc

nvidia-smi -L 2>/dev/null | grep -q '^GPU 0' || { echo "run: there is no GPU here (nvidia-smi names none)" >&2; exit 2; }
targets=$(python3 tests/gpu/run_parts.py --targets "$@") || exit 2

torch=${ARGOSY_TORCH_DIR:-}
for packages in .deps/venv/lib/python3*/site-packages .deps/peer-venv/lib/python3*/site-packages; do
    # The wheel alone, as jobs/setup.sh installs it, does not link: cuDNN and the rest are wheels of their own.
    if [ -z "$torch" ] && [ -e "$packages/torch/lib/libtorch_cuda.so" ] && [ -d "$packages/nvidia/cudnn" ]; then
        torch=$root/$packages/torch
    fi
done
if [ -z "$torch" ]; then
    torch=$(python3 -c 'import torch; print(torch.__path__[0])' 2>/dev/null) || {
        echo "run: no LibTorch for CUDA: set ARGOSY_TORCH_DIR to its folder" >&2
        exit 2
    }
fi
cmake=.deps/venv/bin/cmake
[ -x "$cmake" ] || cmake=cmake
if [ -z "${ARGOSY_PEER_PYTHON:-}" ] && [ ! -e .deps/peer-venv/bin/python ] &&
   python3 -c 'import torch' 2>/dev/null; then
    ARGOSY_PEER_PYTHON=$(command -v python3)
    export ARGOSY_PEER_PYTHON
fi

# Kernels for this GPU alone: its compute capability, 9.0 as 90.
mkdir -p build
architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader --id=0 | tr -d '. ')
"$cmake" --preset cuda "-DARGOSY_TORCH_DIR=$torch" "-DARGOSY_CUDA_ARCHITECTURES=$architecture" >build/cuda.log 2>&1 || {
    cat build/cuda.log >&2
    exit 1
}
built=0
# shellcheck disable=SC2086  # a word each
"$cmake" --build build/cuda --parallel "${JOBS:-$(nproc)}" --target $targets -- -k 0 >>build/cuda.log 2>&1 || built=1
[ "$built" = 0 ] || grep -A 20 -m 5 'FAILED' build/cuda.log >&2 || tail build/cuda.log >&2
ARGOSY_BUILD=$root/build/cuda exec python3 tests/gpu/run_parts.py "$@"
