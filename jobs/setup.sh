#!/usr/bin/env bash
# Installs what Argosy builds with: Debian packages (as root; otherwise says which to ask for) and a private Python
# environment under .deps/ that holds the LibTorch wheel and CMake. Does nothing where all of it is there already.
# On a cluster whose modules provide MPI, HDF5 and compilers, run it with ARGOSY_SKIP_PACKAGES=1.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

packages=(g++ ninja-build ccache git pkg-config python3 python3-venv
          openmpi-bin libopenmpi-dev libhdf5-dev libspdlog-dev libfmt-dev libtomlplusplus-dev libcli11-dev
          nlohmann-json3-dev libxxhash-dev libgtest-dev libbenchmark-dev)
wheels=(torch==2.11.0 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cupti==13.0.*' 'cmake==4.*')

missing=()
if [ -z "${ARGOSY_SKIP_PACKAGES:-}" ]; then
    for package in "${packages[@]}"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
    done
fi
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" -ne 0 ]; then
        echo "setup: these Debian packages are missing; ask for: apt-get install ${missing[*]}" >&2
        exit 2
    fi
    echo "setup: installing ${missing[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# The wheels are asked for without their dependencies: the CPU build links libtorch_cpu and libc10 alone, and these
# need the CUDA runtime and CUPTI to load, nothing else. The stamp names what is installed.
venv=$root/.deps/venv
stamp=$venv/argosy-wheels
if [ "$(cat "$stamp" 2>/dev/null)" != "${wheels[*]}" ]; then
    echo "setup: LibTorch and CMake into .deps/venv" >&2
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps "${wheels[@]}"
    echo "${wheels[*]}" >"$stamp"
fi
