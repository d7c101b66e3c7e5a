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

# cores_of "0-3,8": prints each number on a line.
cores_of() {
    local part
    for part in ${1//,/ }; do seq "${part%-*}" "${part#*-}"; done
}

# Prints the number of the GPU whose UUID, or one of whose MIG devices' UUIDs, begins with $1. nvidia-smi -L prints
#   GPU 0: NVIDIA H200 (UUID: GPU-8932f937-...)
#     MIG 1g.18gb Device 0: (UUID: MIG-0e1f...)
number_of_uuid() {
    nvidia-smi -L 2>/dev/null |
        awk -v start="(UUID: $1" '/^GPU/ { number = $2 + 0 } index($0, start) && !found++ { print number }'
}

# Prints the PCI addresses of the GPUs that the job may use, in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID.
gpu_addresses() {
    local all visible name number address
    command -v nvidia-smi >/dev/null || return 0
    mapfile -t all < <(nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader 2>/dev/null)
    visible=${CUDA_VISIBLE_DEVICES:-$(seq -s , 0 $((${#all[@]} - 1)))}
    for name in ${visible//,/ }; do
        number=$name
        [[ $name =~ ^[0-9]+$ ]] || number=$(number_of_uuid "$name")
        [ -n "$number" ] && address=${all[number]:-} && [ -n "$address" ] || continue
        address=${address,,}
        echo "${address: -12}"
    done
}

near_cores() { cat "$sysfs/bus/pci/devices/$1/local_cpulist" 2>/dev/null || true; }

# Prints the number of folders that the paths of two devices share: the more, the fewer bridges between the devices.
common_path() {
    local -a first second
    local i
    IFS=/ read -r -a first <<<"$(realpath "$1")"
    IFS=/ read -r -a second <<<"$(realpath "$2")"
    for ((i = 0; i < ${#first[@]} && i < ${#second[@]}; i++)); do
        [ "${first[i]}" = "${second[i]}" ] || break
    done
    echo "$i"
}

# Prints the ports of adapters that are up and that ARGOSY_HCA allows, as mlx5_0:1. ARGOSY_HCA lists whole names of
# adapters or ports; a list that begins with ^ excludes them.
adapters() {
    local path adapter port named list=${ARGOSY_HCA:-^}
    for path in "$sysfs"/class/infiniband/*/ports/*; do
        grep -q ACTIVE "$path/state" 2>/dev/null || continue
        port=${path##*/} adapter=${path%/ports/*}
        adapter=${adapter##*/} named=
        case ,${list#^}, in *,"$adapter",* | *,"$adapter:$port",*) named=yes ;; esac
        case $list in
            ^*) [ -n "$named" ] || echo "$adapter:$port" ;;
            *) [ -z "$named" ] || echo "$adapter:$port" ;;
        esac
    done
}

# Prints the adapter nearest to a GPU, with its port. If several are equally near, each rank takes the next one.
nearest_adapter() {
    local name shared max=0
    local -a nearest=()
    for name in $(adapters); do
        shared=$(common_path "$sysfs/class/infiniband/${name%:*}/device" "$sysfs/bus/pci/devices/$1")
        [ "$shared" -lt "$max" ] && continue
        [ "$shared" -eq "$max" ] || nearest=()
        max=$shared
        nearest+=("$name")
    done
    [ ${#nearest[@]} -eq 0 ] || echo "${nearest[rank % ${#nearest[@]}]}"
}

# Prints the job's cores that are near a GPU, one per line.
near_allowed() { comm -12 <(cores_of "$(near_cores "$1")" | sort) <(printf '%s\n' "${allowed[@]}" | sort) | sort -n; }

# Whether cores can be divided by GPU: the job has a core near the GPU of every rank. Otherwise ranks would share cores.
all_near() {
    local other
    for ((other = 0; other < ranks; other++)); do
        [ -n "$(near_allowed "${gpus[other % ${#gpus[@]}]}")" ] || return 1
    done
}

mapfile -t gpus < <(gpu_addresses)
job_cores=$(taskset -pc $$ | sed 's/.*: //')
mapfile -t allowed < <(cores_of "$job_cores")
place=$rank neighbours=$ranks gpu='' near=''
if [ ${#gpus[@]} -gt 0 ]; then
    gpu=${gpus[rank % ${#gpus[@]}]}
    near=$(near_cores "$gpu")
    if all_near; then
        # This rank's place among the ranks whose GPUs are near the same cores.
        place=0 neighbours=0
        for ((other = 0; other < ranks; other++)); do
            [ "$(near_cores "${gpus[other % ${#gpus[@]}]}")" = "$near" ] || continue
            [ "$other" -ge "$rank" ] || place=$((place + 1))
            neighbours=$((neighbours + 1))
        done
        mapfile -t allowed < <(near_allowed "$gpu")
    fi
    adapter=$(nearest_adapter "$gpu")
    [ -z "$adapter" ] || export UCX_NET_DEVICES=${UCX_NET_DEVICES:-$adapter}
    export CUDA_DEVICE_ORDER=${CUDA_DEVICE_ORDER:-PCI_BUS_ID}
fi
start=$((place * ${#allowed[@]} / neighbours))
end=$(((place + 1) * ${#allowed[@]} / neighbours))
own=("${allowed[@]:start:end > start ? end - start : 1}")  # at least one core, if ranks share cores
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${#own[@]}}
list=$(IFS=,; echo "${own[*]}")
if [ "$rank" = 0 ]; then
    devices=${gpu:+, GPU $gpu}${UCX_NET_DEVICES:+, adapter $UCX_NET_DEVICES}
    echo "bind: $(hostname), first of $ranks ranks: cores $list, $OMP_NUM_THREADS threads$devices" >&2
fi
if [ -n "$near" ] && [ -n "$(comm -23 <(printf '%s\n' "${own[@]}" | sort) <(cores_of "$near" | sort))" ]; then
    number=${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:-$rank}}
    echo "bind: rank $number on $(hostname): cores $list are not near GPU $gpu, whose cores are $near: the job has" \
         "cores $job_cores of this node. Ask Slurm for whole nodes (--exclusive), and start srun without" \
         "--cpus-per-task and --exact" >&2
fi
exec taskset -c "$list" "$@"
