#!/usr/bin/env bash
# install_test.sh CMAKE BUILD TORCH: an installed prefix runs after it was moved, without the build tree and the wheel.
set -euo pipefail
cmake=$1
build=$2
torch=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

"$cmake" --install "$build" --prefix "$folder/first" >/dev/null
mv "$folder/first" "$folder/moved"
prefix=$folder/moved
for part in configs data jobs; do
    [ -d "$prefix/share/argosy/$part" ] || fail "share/argosy/$part is not in the prefix"
done
apps=("$prefix"/bin/*)
[ -x "${apps[0]}" ] || fail "no binary in bin/"

# The libraries that the dynamic linker would load: none is missing, none lies in a tree that other machines lack, and
# the installed ones are loaded from lib/.
for app in "${apps[@]}"; do
    case $(readelf -d "$app" | sed -n 's/.*Library r.*path: //p') in '[$ORIGIN/../lib]' | '') ;; *) fail "$app has another run path" ;; esac
    while read -r name arrow path _; do
        [ "$arrow" = "=>" ] || continue
        case $path in
            not) fail "$app: $name is not found" ;;
            "$build"/* | "$torch"/* | "$ARGOSY_SOURCE"/*) fail "$app loads $name from $path" ;;
        esac
        if [ -e "$prefix/lib/$name" ] && [ "$(realpath "$path")" != "$prefix/lib/$name" ]; then
            fail "$app loads $path, not the $name of the prefix"
        fi
    done < <(ldd "$app")
done

# completions PROGRAM WORD ...: what bash completes the last word with.
completions() (
    # shellcheck disable=SC1090
    source "$prefix/share/bash-completion/completions/$1"
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    "$(complete -p "$1" | sed -E 's/.*-F ([^ ]+) .*/\1/')"
    echo "${COMPREPLY[*]}"
)
completes() {
    local wanted=$1 found
    shift
    found=$(completions "$@")
    [ "$found" = "$wanted" ] || fail "bash completes '$*' with '$found', not '$wanted'"
}
for app in "${apps[@]}"; do
    completes --bash-completion "$(basename "$app")" --bash-
done
completes "--parallelism.tensor_parallel_degree" pretrain --config F.toml --parallelism.te
completes "linear cosine sqrt" pretrain --lr_scheduler.decay_type ""
completes cosine pretrain --lr_scheduler.decay_type = co
completes "true" pretrain --compile.enable t
completes "--training.seq_len" preflight --config F.toml --training.seq_
completes "hf" convert-checkpoint a b --to h
completes "synthetic" prepare-data sy
completes "--megabytes" prepare-data synthetic --meg
(
    # shellcheck disable=SC1091
    source "$prefix/share/bash-completion/completions/pretrain"
    COMP_WORDS=(mpirun.sh 2 bin/pretrain --checkpoint.int) COMP_CWORD=3 COMPREPLY=()
    _argosy_launched
    [ "${COMPREPLY[*]}" = --checkpoint.interval ] || fail "bash completes nothing behind mpirun.sh"
)

env -u ARGOSY_BIN "$prefix/share/argosy/jobs/submit.sh" "$prefix/share/argosy/configs/debug_cpu.toml" --training.dataset_path /nowhere/tokens.h5 \
    --dry-run >/dev/null ||
    fail "submit.sh does not find the binaries of its prefix"

# The programs also run with those trees hidden by empty file systems, if this user may mount them.
run_all='for app in "$1"/bin/*; do "$app" --version || exit 1; done'
hide_and_run='for tree in "$2" "$3" "$4"; do [ ! -d "$tree" ] || mount -t tmpfs none "$tree" || exit 1; done; '$run_all
if unshare --map-root-user --mount true 2>/dev/null; then
    unshare --map-root-user --mount bash -c "$hide_and_run" - \
        "$prefix" "$build" "$torch" "$ARGOSY_SOURCE/.deps"
else
    echo "no mount namespaces here: run without hiding the build tree"
    bash -c "$run_all" - "$prefix"
fi
