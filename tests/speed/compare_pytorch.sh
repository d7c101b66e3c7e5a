#!/usr/bin/env bash
# compare_pytorch.sh [--quick] [--check] [--json FILE] ...: Argosy's training step against PyTorch's. PYTORCH.md beside
# this file defines the measurements, --help lists the options. Builds the programs that it runs, unless ARGOSY_BIN
# names binaries.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
if [ -z "${ARGOSY_BIN:-}" ]; then
    "$root/jobs/build.sh" >&2
    "$root/.deps/venv/bin/cmake" --build "$root/build" -j "${JOBS:-2}" --target bench_products >&2
fi
exec python3 "$root/tests/speed/compare_pytorch.py" "$@"
