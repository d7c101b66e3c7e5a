#!/usr/bin/env bash
# transformers_test.sh: runs transformers_test.py with a Python that has transformers: the one that ARGOSY_TRANSFORMERS_PYTHON
# names, or that of .deps/reference (tests/reference/README.md).
set -euo pipefail
python=${ARGOSY_TRANSFORMERS_PYTHON:-$ARGOSY_SOURCE/.deps/reference/bin/python}
if ! "$python" -c "import h5py, torch, transformers" 2>/dev/null; then
    echo "skipped: $python has no transformers; tests/reference/README.md tells how to install it"
    exit 77
fi
exec "$python" "$(dirname "$0")/transformers_test.py"
