#!/usr/bin/env bash
# Every shell script parses, and shellcheck, if installed, gives no warning.
set -euo pipefail
cd "$ARGOSY_SOURCE"
mapfile -t scripts < <(find jobs tests -name '*.sh' -o -name '*.sbatch'; echo .ci/run)
for script in "${scripts[@]}"; do
    bash -n "$script"
done
if ! command -v shellcheck >/dev/null; then
    echo "skipped: shellcheck is not installed"
    exit 77
fi
shellcheck --severity=warning "${scripts[@]}"
