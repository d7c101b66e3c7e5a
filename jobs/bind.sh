#!/usr/bin/env bash
# bind.sh COMMAND ...: runs one rank near its GPU. Its cores are its share of those on the GPU's NUMA node (without
# GPUs: of all that the job has here), OMP_NUM_THREADS their number, and UCX_NET_DEVICES the adapter with the shortest
# way to the GPU; what is set already stays. NCCL finds its adapters by itself, and each rank its GPU: the one of its
# number within the node. ARGOSY_SYSFS stands in for /sys in tests.
set -euo pipefail
sysfs=${ARGOSY_SYSFS:-/sys}
# mpirun's first, since its daemons inherit Slurm's.
rank=${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-0}}
ranks=${OMPI_COMM_WORLD_LOCAL_SIZE:-${ARGOSY_RANKS_HERE:-1}}

# "0-3,8" as words.
cores_of() {
    local part
    for part in ${1//,/ }; do seq "${part%-*}" "${part#*-}"; done
}

# PCI addresses of the GPUs that the job may use, in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID.
gpu_addresses() {
    local all visible address
    command -v nvidia-smi >/dev/null || return 0
    mapfile -t all < <(nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader 2>/dev/null)
    visible=${CUDA_VISIBLE_DEVICES:-$(seq -s , 0 $((${#all[@]} - 1)))}
    for number in ${visible//,/ }; do
        [[ $number =~ ^[0-9]+$ ]] && address=${all[number]:-} && [ -n "$address" ] || continue
        address=${address,,}
        echo "${address: -12}"
    done
}

near_cores() { cat "$sysfs/bus/pci/devices/$1/local_cpulist" 2>/dev/null || true; }

# How many folders two devices' ways from the root have in common: the more, the fewer bridges between them.
common_way() {
    local -a first second
    local i
    IFS=/ read -r -a first <<<"$(realpath "$1")"
    IFS=/ read -r -a second <<<"$(realpath "$2")"
    for ((i = 0; i < ${#first[@]} && i < ${#second[@]}; i++)); do
        [ "${first[i]}" = "${second[i]}" ] || break
    done
    echo "$i"
}

# Adapters that are up, and of ARGOSY_HCA where that names some.
adapters() {
    local path name
    for path in "$sysfs"/class/infiniband/*; do
        name=${path##*/}
        [ -e "$path/device" ] && grep -q ACTIVE "$path/ports/1/state" 2>/dev/null || continue
        case ,${ARGOSY_HCA:-$name}, in *,"$name",*) echo "$name" ;; esac
    done
}

# Of equally near ones each rank takes the next.
nearest_adapter() {
    local name way most=0
    local -a nearest=()
    for name in $(adapters); do
        way=$(common_way "$sysfs/class/infiniband/$name/device" "$sysfs/bus/pci/devices/$1")
        [ "$way" -lt "$most" ] && continue
        [ "$way" -eq "$most" ] || nearest=()
        most=$way
        nearest+=("$name")
    done
    [ ${#nearest[@]} -eq 0 ] || echo "${nearest[rank % ${#nearest[@]}]}"
}

mapfile -t gpus < <(gpu_addresses)
mapfile -t allowed < <(cores_of "$(taskset -pc $$ | sed 's/.*: //')")
place=$rank neighbours=$ranks gpu=
if [ ${#gpus[@]} -gt 0 ]; then
    gpu=${gpus[rank % ${#gpus[@]}]}
    near=$(near_cores "$gpu")
    # Of the ranks whose GPUs have the same cores, which is this one?
    place=0 neighbours=0
    for ((other = 0; other < ranks; other++)); do
        [ "$(near_cores "${gpus[other % ${#gpus[@]}]}")" = "$near" ] || continue
        [ "$other" -ge "$rank" ] || place=$((place + 1))
        neighbours=$((neighbours + 1))
    done
    mapfile -t shared < <(comm -12 <(cores_of "$near" | sort) <(printf '%s\n' "${allowed[@]}" | sort) | sort -n)
    [ ${#shared[@]} -eq 0 ] || allowed=("${shared[@]}")
    adapter=$(nearest_adapter "$gpu")
    [ -z "$adapter" ] || export UCX_NET_DEVICES=${UCX_NET_DEVICES:-$adapter:1}
    export CUDA_DEVICE_ORDER=${CUDA_DEVICE_ORDER:-PCI_BUS_ID}
fi
start=$((place * ${#allowed[@]} / neighbours))
end=$(((place + 1) * ${#allowed[@]} / neighbours))
own=("${allowed[@]:start:end > start ? end - start : 1}")  # one at least, where ranks share cores
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${#own[@]}}
list=$(IFS=,; echo "${own[*]}")
if [ "$rank" = 0 ]; then
    near=${gpu:+, GPU $gpu}${UCX_NET_DEVICES:+, adapter $UCX_NET_DEVICES}
    echo "bind: $(hostname), first of $ranks ranks: cores $list, $OMP_NUM_THREADS threads$near" >&2
fi
exec taskset -c "$list" "$@"
