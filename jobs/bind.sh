#!/usr/bin/env bash
# bind.sh COMMAND ...: runs one rank near its GPU. The rank gets its share of the cores on the GPU's NUMA node; without
# GPUs, or if the job has no core near one of them, its share of all cores that the job has on the node.
# OMP_NUM_THREADS becomes the number of these cores, and UCX_NET_DEVICES the adapter nearest to the GPU; variables that
# are already set keep their value. A rank whose cores are not near its GPU reports it. NCCL finds its adapters itself,
# and each rank uses the GPU with its number within the node. Tests set ARGOSY_SYSFS to replace /sys.
set -euo pipefail
case ${1-} in
    --help | -h) source "$(dirname "$0")/shell/help.sh"; print_help; exit 0 ;;
    '' | -*) echo "bind: the command is missing; usage: bind.sh COMMAND ..." >&2; exit 2 ;;
esac
sysfs=${ARGOSY_SYSFS:-/sys}
# A job that requests no GPUs but whole nodes (--exclusive) gets their GPUs all the same, and pretrain would refuse CPUs.
[ "${ARGOSY_GPUS:-yes}" != no ] || unset SLURM_JOB_GPUS SLURM_STEP_GPUS SLURM_GPUS_ON_NODE
# mpirun's variables come first, because mpirun's daemons inherit those of Slurm.
rank=${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-0}}
ranks=${OMPI_COMM_WORLD_LOCAL_SIZE:-${ARGOSY_RANKS_HERE:-1}}

# All ranks of a node run this script at once, and each process that a shell starts costs a millisecond and some ten files of
# libraries. So functions leave their results in variables, named after them, and read files with `read`.

# cores_of "0-3,8": the numbers of these cores.
cores_of() {
    local part core
    cores_of=()
    for part in ${1//,/ }; do
        for ((core = ${part%-*}; core <= ${part#*-}; core++)); do cores_of+=("$core"); done
    done
}

# line_of FILE: its first line; empty if the file cannot be read.
line_of() {
    line_of=
    [ ! -r "$1" ] || read -r line_of <"$1" || true
}

# Prints the number of the GPU whose UUID, or one of whose MIG devices' UUIDs, begins with $1. nvidia-smi -L prints
#   GPU 0: NVIDIA H200 (UUID: GPU-8932f937-...)
#     MIG 1g.18gb Device 0: (UUID: MIG-0e1f...)
number_of_uuid() {
    nvidia-smi -L 2>/dev/null |
        awk -v start="(UUID: $1" '/^GPU/ { number = $2 + 0 } index($0, start) && !found++ { print number }'
}

# Sets `gpus`: the PCI addresses of the GPUs that the job may use, in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID.
find_gpus() {
    local all visible name number address
    gpus=()
    command -v nvidia-smi >/dev/null || return 0
    mapfile -t all < <(nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader 2>/dev/null)
    visible=${CUDA_VISIBLE_DEVICES:-${!all[*]}}
    for name in ${visible//,/ }; do
        number=$name
        [[ $name =~ ^[0-9]+$ ]] || number=$(number_of_uuid "$name")
        [ -n "$number" ] && address=${all[number]:-} && [ -n "$address" ] || continue
        address=${address,,}
        gpus+=("${address: -12}")
    done
}

# near_cores GPU: the list of the cores near it, as "0-3,8".
near_cores() {
    line_of "$sysfs/bus/pci/devices/$1/local_cpulist"
    near_cores=$line_of
}

# common_path PATH PATH: the number of folders that they share.
common_path() {
    local -a first second
    IFS=/ read -r -a first <<<"$1"
    IFS=/ read -r -a second <<<"$2"
    for ((common_path = 0; common_path < ${#first[@]} && common_path < ${#second[@]}; common_path++)); do
        [ "${first[common_path]}" = "${second[common_path]}" ] || break
    done
}

# The ports of adapters that are up and that ARGOSY_HCA allows, as mlx5_0:1. ARGOSY_HCA lists whole names of adapters or
# ports; a list that begins with ^ excludes them.
adapters() {
    local path adapter port named list=${ARGOSY_HCA:-^}
    adapters=()
    for path in "$sysfs"/class/infiniband/*/ports/*; do
        line_of "$path/state"
        [[ $line_of == *ACTIVE* ]] || continue
        port=${path##*/} adapter=${path%/ports/*}
        adapter=${adapter##*/} named=
        case ,${list#^}, in *,"$adapter",* | *,"$adapter:$port",*) named=yes ;; esac
        case $list in
            ^*) [ -n "$named" ] || adapters+=("$adapter:$port") ;;
            *) [ -z "$named" ] || adapters+=("$adapter:$port") ;;
        esac
    done
}

# nearest_adapter GPU: the adapter that shares the most folders of its path in /sys with the GPU, so that the fewest bridges lie
# between them, with its port. If several are equally near, each rank takes the next one.
nearest_adapter() {
    local i max=0
    local -a paths nearest=()
    nearest_adapter=
    adapters
    [ ${#adapters[@]} -gt 0 ] || return 0
    paths=("${adapters[@]%:*}")
    paths=("${paths[@]/#/$sysfs/class/infiniband/}")
    mapfile -t paths < <(realpath -m "$sysfs/bus/pci/devices/$1" "${paths[@]/%//device}")
    for i in "${!adapters[@]}"; do
        common_path "${paths[i + 1]}" "${paths[0]}"
        [ "$common_path" -lt "$max" ] && continue
        [ "$common_path" -eq "$max" ] || nearest=()
        max=$common_path
        nearest+=("${adapters[i]}")
    done
    [ ${#nearest[@]} -eq 0 ] || nearest_adapter=${nearest[rank % ${#nearest[@]}]}
}

# near_allowed GPU: the job's cores that are near it.
near_allowed() {
    local core
    local -A near_it=()
    near_allowed=()
    near_cores "$1"
    cores_of "$near_cores"
    for core in "${cores_of[@]}"; do near_it[$core]=yes; done
    for core in "${allowed[@]}"; do [ -z "${near_it[$core]:-}" ] || near_allowed+=("$core"); done
}

# Whether cores can be divided by GPU: the job has a core near the GPU of every rank. Otherwise ranks would share cores.
all_near() {
    local other
    for ((other = 0; other < ranks; other++)); do
        near_allowed "${gpus[other % ${#gpus[@]}]}"
        [ ${#near_allowed[@]} -gt 0 ] || return 1
    done
}

while read -r key job_cores && [ "$key" != Cpus_allowed_list: ]; do :; done </proc/self/status
find_gpus
cores_of "$job_cores"
allowed=("${cores_of[@]}")
place=$rank neighbours=$ranks gpu='' near=''
if [ ${#gpus[@]} -gt 0 ]; then
    gpu=${gpus[rank % ${#gpus[@]}]}
    near_cores "$gpu"
    near=$near_cores
    if all_near; then
        # This rank's place among the ranks whose GPUs are near the same cores.
        place=0 neighbours=0
        for ((other = 0; other < ranks; other++)); do
            near_cores "${gpus[other % ${#gpus[@]}]}"
            [ "$near_cores" = "$near" ] || continue
            [ "$other" -ge "$rank" ] || place=$((place + 1))
            neighbours=$((neighbours + 1))
        done
        near_allowed "$gpu"
        allowed=("${near_allowed[@]}")
    fi
    nearest_adapter "$gpu"
    [ -z "$nearest_adapter" ] || export UCX_NET_DEVICES=${UCX_NET_DEVICES:-$nearest_adapter}
    export CUDA_DEVICE_ORDER=${CUDA_DEVICE_ORDER:-PCI_BUS_ID}
fi
start=$((place * ${#allowed[@]} / neighbours))
end=$(((place + 1) * ${#allowed[@]} / neighbours))
own=("${allowed[@]:start:end > start ? end - start : 1}")  # at least one core, if ranks share cores
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${#own[@]}}
printf -v list ',%s' "${own[@]}"
list=${list#,}
line_of /proc/sys/kernel/hostname
host=$line_of
if [ "$rank" = 0 ]; then
    devices=${gpu:+, GPU $gpu}${UCX_NET_DEVICES:+, adapter $UCX_NET_DEVICES}
    echo "bind: $host, first of $ranks ranks: cores $list, $OMP_NUM_THREADS threads$devices" >&2
fi
if [ -n "$near" ]; then
    allowed=("${own[@]}")
    near_allowed "$gpu"
    if [ ${#near_allowed[@]} -lt ${#own[@]} ]; then
        number=${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:-$rank}}
        echo "bind: rank $number on $host: cores $list are not near GPU $gpu, whose cores are $near: the job has" \
             "cores $job_cores of this node. Ask Slurm for whole nodes (--exclusive), and start srun without" \
             "--cpus-per-task and --exact" >&2
    fi
fi
exec taskset -c "$list" "$@"
