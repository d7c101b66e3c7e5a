#!/usr/bin/env bash
# build.sh ARCHITECTURE TARGET ...: builds targets of the preset `cuda` in build/cuda, with kernels for GPUs of one compute
# capability (90 is 9.0). LibTorch for CUDA is ARGOSY_TORCH_DIR, else the wheel in .deps/ if it has its dependencies, else
# python3's. JOBS is the number of compilers at a time. The log is build/cuda.log. Exits with 2 if the build cannot be
# configured, and with 1 if a target fails; the other targets are built then.
set -euo pipefail
cd "$(dirname "$0")/../.."
architecture=$1
shift

torch=${ARGOSY_TORCH_DIR:-}
for packages in .deps/venv/lib/python3*/site-packages .deps/peer-venv/lib/python3*/site-packages; do
    # The wheel alone, as jobs/setup.sh installs it, does not link: cuDNN and the rest are wheels of their own.
    if [ -z "$torch" ] && [ -e "$packages/torch/lib/libtorch_cuda.so" ] && [ -d "$packages/nvidia/cudnn" ]; then
        torch=$PWD/$packages/torch
    fi
done
if [ -z "$torch" ]; then
    torch=$(python3 -c 'import torch; print(torch.__path__[0])' 2>/dev/null) || {
        echo "build: no LibTorch for CUDA: set ARGOSY_TORCH_DIR to its folder" >&2
        exit 2
    }
fi
cmake=.deps/venv/bin/cmake
[ -x "$cmake" ] || cmake=cmake

mkdir -p build
"$cmake" --preset cuda "-DARGOSY_TORCH_DIR=$torch" "-DARGOSY_CUDA_ARCHITECTURES=$architecture" >build/cuda.log 2>&1 || {
    cat build/cuda.log >&2
    exit 2
}
"$cmake" --build build/cuda --parallel "${JOBS:-$(nproc)}" --target "$@" -- -k 0 >>build/cuda.log 2>&1 || {
    grep -A 20 -m 5 'FAILED' build/cuda.log >&2 || tail build/cuda.log >&2
    exit 1
}
