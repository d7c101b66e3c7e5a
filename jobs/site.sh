# shellcheck shell=bash
# What the settings of a site mean: time limits, the fabric's variables, modules and the container. The scripts that submit
# jobs source this file, and common.sh.
# shellcheck disable=SC2154

# Reads the settings of the site. The site's file, and the scripts of the machine that it sources, may read unset variables,
# and their commands may fail. The default settings hold for what the file leaves out.
source_site() {
    bash -n "$ARGOSY_SITE" || fail "the settings of the site, $ARGOSY_SITE, are no shell script; see the error above"
    set +eu
    # shellcheck source=jobs/site.conf
    source "$ARGOSY_SITE"
    set -eu
    # shellcheck source=jobs/site.conf
    source "$ARGOSY_JOBS/site.conf"
}

# seconds_of TIME: prints the seconds of a time limit in Slurm's forms: minutes, minutes:seconds, hours:minutes:seconds,
# days-hours, days-hours:minutes, days-hours:minutes:seconds. Prints nothing if there is no limit. Returns 1 if it is no time.
seconds_of() {
    local days=0 parts hours=0 minutes seconds
    case ${1,,} in "" | unlimited | infinite | partition_limit) return 0 ;; esac
    [[ $1 =~ ^([0-9]+-)?[0-9]+(:[0-9]+){0,2}$ ]] || return 1
    IFS=: read -r -a parts <<<"${1#*-}"
    if [[ $1 = *-* ]]; then
        days=${1%%-*} hours=${parts[0]} minutes=${parts[1]:-0} seconds=${parts[2]:-0}
    elif [ ${#parts[@]} = 3 ]; then
        hours=${parts[0]} minutes=${parts[1]} seconds=${parts[2]}
    else
        minutes=${parts[0]} seconds=${parts[1]:-0}
    fi
    echo $((((10#$days * 24 + 10#$hours) * 60 + 10#$minutes) * 60 + 10#$seconds))
}

# is_long_enough LIMIT SIGNAL: whether a job of this time limit trains before the signal that comes SIGNAL seconds before the
# limit. Slurm may send it 60 s early. explain_short_limit LIMIT SIGNAL: prints the message, without a full stop.
is_long_enough() {
    local seconds
    seconds=$(seconds_of "$1") || return 1
    [ -z "$seconds" ] || [ "$seconds" -gt $(($2 + 60)) ]
}
explain_short_limit() {
    echo "the time limit $1 leaves no time to train: ARGOSY_SIGNAL_SECONDS = $2 before it the run is asked to save," \
         "and Slurm may be 60 s early. Set a limit of more than $((($2 + 60) / 60)) minutes"
}

# check_site: ends, through `fail` of the script that sources this file, if a setting cannot work.
check_site() {
    local name adapter='[A-Za-z0-9_.-]+(:[0-9]+)?'
    for name in "$ARGOSY_FABRIC" $ARGOSY_FABRIC_MORE; do
        [ -e "$ARGOSY_JOBS/fabric/$name.conf" ] ||
            fail "the fabric profile '$name' does not exist; set ARGOSY_FABRIC and ARGOSY_FABRIC_MORE to names in" \
                 "$ARGOSY_JOBS/fabric: $(basename -as .conf "$ARGOSY_JOBS"/fabric/*.conf | paste -sd' ')"
    done
    case $ARGOSY_LAUNCHER in
        srun | mpirun) ;;
        *) fail "ARGOSY_LAUNCHER is '$ARGOSY_LAUNCHER'; set it to srun or mpirun" ;;
    esac
    for name in ARGOSY_GPUS ARGOSY_PREFLIGHT; do
        case ${!name} in yes | no) ;; *) fail "$name is '${!name}'; set it to yes or no" ;; esac
    done
    for name in ARGOSY_SIGNAL_SECONDS ARGOSY_RANKS_PER_NODE ARGOSY_CPUS_PER_RANK ARGOSY_RESTARTS_WITHOUT_PROGRESS \
                ARGOSY_MAX_RESTARTS ARGOSY_RESTART_DELAY_SECONDS ARGOSY_EXCLUDE_HOURS ARGOSY_MAX_EXCLUDED; do
        [[ ${!name} =~ ^[0-9]{1,6}$ ]] || fail "$name is '${!name}', not a number"
    done
    seconds_of "$ARGOSY_TIME" >/dev/null || fail "ARGOSY_TIME is '$ARGOSY_TIME', not a time limit of Slurm"
    [[ $ARGOSY_HCA =~ ^(\^?$adapter(,$adapter)*)?$ ]] ||
        fail "ARGOSY_HCA is '$ARGOSY_HCA'; write whole names of adapters, each with its port if it has several, as in" \
             "mlx5_0,mlx5_3:1; a ^ before the list excludes them"
    [[ $ARGOSY_INTERFACE =~ ^[A-Za-z0-9_.,:@-]*$ ]] ||
        fail "ARGOSY_INTERFACE is '$ARGOSY_INTERFACE'; write whole names of interfaces, as in ib0 or eth0,eth1"
    if [ -n "$ARGOSY_CONTAINER" ]; then
        command -v apptainer >/dev/null || fail "ARGOSY_CONTAINER is set, but there is no apptainer on $(hostname)"
        case $ARGOSY_CONTAINER in
            */*) [[ $ARGOSY_CONTAINER = *://* || -e $ARGOSY_CONTAINER ]] ||
                fail "the image ARGOSY_CONTAINER = $ARGOSY_CONTAINER does not exist" ;;
        esac
    fi
    if [ -n "$ARGOSY_MODULES" ] && ! command -v module >/dev/null; then
        fail "ARGOSY_MODULES is set, but the shell has no command 'module': source its definition in $ARGOSY_SITE" \
             "(often /etc/profile.d/modules.sh or lmod.sh)"
    fi
}

# ARGOSY_HCA in the syntax of NCCL_IB_HCA. There "=" requires whole names: without it mlx5_1 also means mlx5_10.
nccl_hca() {
    case $ARGOSY_HCA in
        "") ;;
        ^*) echo "^=${ARGOSY_HCA#^}" ;;
        *) echo "=$ARGOSY_HCA" ;;
    esac
}

# ARGOSY_HCA in the syntax of UCX_NET_DEVICES, which needs a port. Prints nothing for a list of excluded adapters: bind.sh
# then chooses one for each rank.
ucx_devices() { case $ARGOSY_HCA in "" | ^*) ;; *) sed 's/[^,]*/&:1/g; s/\(:[0-9]*\):1/\1/g' <<<"$ARGOSY_HCA" ;; esac; }

# Exports the variables of a fabric profile. A variable that the site or the user has set keeps its value; a variable
# whose value would be empty is not set. `fabric_names` lists what was exported.
fabric_names=()
export_fabric() {
    local file=$ARGOSY_JOBS/fabric/$1.conf name value
    while IFS='=' read -r name value; do
        [[ $name =~ ^[A-Z] ]] || continue
        value=${value//@NCCL_INTERFACE@/${ARGOSY_INTERFACE:+=$ARGOSY_INTERFACE}}
        value=${value//@INTERFACE@/$ARGOSY_INTERFACE}
        value=${value//@UCX_DEVICES@/$(ucx_devices)}
        value=${value//@NCCL_HCA@/$(nccl_hca)}
        if [ -n "$value" ] && [ -z "${!name+set}" ]; then export "$name=$value"; fabric_names+=("$name"); fi
    done <"$file"
}

load_modules() {
    [ -n "$ARGOSY_MODULES" ] || return 0
    set +u  # the scripts of the modules read unset variables
    # shellcheck disable=SC2086
    module load $ARGOSY_MODULES || fail "the modules cannot be loaded; see 'module avail' and ARGOSY_MODULES in $ARGOSY_SITE"
    set -u
}

# Sets `container_words`: the words that run a command in the container; empty without a container.
inside_container() {
    local mounts=()
    [ -n "$ARGOSY_CONTAINER" ] || return 0
    [ -z "$ARGOSY_CONTAINER_MOUNTS" ] || mounts=(--bind "$ARGOSY_CONTAINER_MOUNTS")
    # shellcheck disable=SC2034
    container_words=(apptainer exec --nv "${mounts[@]}" "$ARGOSY_CONTAINER")
}
