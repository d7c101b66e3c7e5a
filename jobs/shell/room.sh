# shellcheck shell=bash
# What mpirun and the programs need of this machine before they can start. Without it they crash, hang, or print messages
# that do not name the cause. The programs check the same themselves, unless their libraries do not even load.

# lack_of_address_space: if the limit of this shell (ulimit -v) is too low, prints why and returns 2.
readonly NEEDED_ADDRESSES_KIB=1048576  # the libraries without CUDA, and 512 MiB for threads and buffers
lack_of_address_space() {
    local limit
    limit=$(ulimit -v)
    if [ "$limit" = unlimited ] || [ "$limit" -ge "$NEEDED_ADDRESSES_KIB" ]; then return 0; fi
    echo "the limit on the address space, $((limit / 1024)) MiB (ulimit -v), is below the $((NEEDED_ADDRESSES_KIB / 1024)) MiB" \
         "that a program needs; remove it in the shell that starts or submits the run: ulimit -v unlimited"
    return 2
}

# lack_of_temporary_space: if the folder in which mpirun keeps its files has no room for them, prints why and returns 1. Open
# MPI 4.1 makes two shared segments of 4 MiB and some small files there; it makes a folder that is absent.
readonly NEEDED_TEMPORARY_KIB=9216
lack_of_temporary_space() {
    local folder=${OMPI_MCA_orte_tmpdir_base:-${TMPDIR:-${TEMP:-${TMP:-/tmp}}}} here file said
    here=$folder
    while [[ $here = */* ]] && [ ! -e "$here" ]; do here=${here%/*}; done
    said=$(export LC_ALL=C
           file=$(mktemp "${here:-/}/argosy-XXXXXX" 2>&1) || { echo "$file"; exit; }
           head -c "${NEEDED_TEMPORARY_KIB}K" /dev/zero 2>&1 >"$file"
           rm -f "$file")
    said=$(grep -m 1 -oE 'No space left on device|Disk quota exceeded|Read-only file system' <<<"$said") || return 0
    echo "the temporary folder $folder has no room for the $NEEDED_TEMPORARY_KIB KiB that MPI needs: $said; make room there, or" \
         "set TMPDIR to a folder on another file system of this machine"
    return 1
}
