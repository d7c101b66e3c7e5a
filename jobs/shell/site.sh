# shellcheck shell=bash
# What the settings of a site mean: time limits, the fabric's variables, modules and the container. The scripts that submit
# jobs source this file, and job.sh.
# shellcheck disable=SC2154

# The beginnings of the names of the communication libraries' variables, which a job takes from its submitter.
library_variables='NCCL|UCX|SHARP|OMPI_MCA|OMPI_ALLOW|OMP|PYTORCH'

# The variables of the programs that a site may set besides the settings in site.conf.
program_variables='ARGOSY_CPU_KERNELS ARGOSY_DEVICE ARGOSY_LOG ARGOSY_START_SECONDS ARGOSY_SYNCHRONOUS_SENDS ARGOSY_SYSFS'

# source_site COMPLAIN ...: reads the settings of the site. The site's file, and the scripts of the machine that it sources, may
# read unset variables, and their commands may fail, also within a pipe. A command of the file itself that is not found is a mistake, as in
# `ARGOSY_PARTITION = gpu`; COMPLAIN ... gets the message. The default settings hold for what the file leaves out.
source_site() {
    local complain=("$@")
    bash -n "$ARGOSY_SITE" || fail "the settings of the site, $ARGOSY_SITE, are no shell script; see the error above"
    trap 'fail "$ARGOSY_SITE ends the shell that reads it: replace exit by return there, and leave out set -e," \
              "set -u and \${NAME:?}"' EXIT
    trap 'check_found "$?" "${BASH_SOURCE[0]}" "$LINENO" "$BASH_COMMAND"' ERR
    set +eu +o pipefail
    # shellcheck source=jobs/site.conf
    source "$ARGOSY_SITE"
    set -euo pipefail
    trap - ERR EXIT
    # shellcheck source=jobs/site.conf
    source "$ARGOSY_JOBS/site.conf"
}

# check_found CODE FILE LINE COMMAND: complains if a command of the site's file ended with 127, the code of a command that
# is not found. A command before `||` does not come here; one of a file that the site's file sources does not count.
check_found() {
    [ "$1" = 127 ] && [ "$2" = "$ARGOSY_SITE" ] || return 0
    [[ ! $4 =~ ^((command|builtin)\ +)*\\?(source|\.)\  ]] || return 0
    [ "${complain[0]}" != fail ] || trap - EXIT
    "${complain[@]}" "$2, line $3: a command was not found: $4. Write a setting as NAME=VALUE without spaces, and" \
                     "'|| true' after a command that only some machines have"
}

# check_names NAMES: ends, through `fail`, if this shell has a variable ARGOSY_... that is neither one of these nor a setting.
check_names() {
    local known name nearest
    known=$(grep -oE 'ARGOSY_[A-Z_]+' "$ARGOSY_JOBS/site.conf"; tr ' ' '\n' <<<"$program_variables")
    for name in $(comm -13 <(sort <<<"$1") <(compgen -v ARGOSY_ | sort)); do
        if grep -qxF -- "$name" <<<"$known"; then continue; fi
        # shellcheck disable=SC2086
        nearest=$(python3 -c 'import difflib, sys; print(*difflib.get_close_matches(sys.argv[1], sys.argv[2:], 1))' \
                  "$name" $known 2>/dev/null) || nearest=
        fail "$ARGOSY_SITE sets $name, which is no setting${nearest:+ (did you mean $nearest?)}; give variables of your own another" \
             "prefix ($ARGOSY_JOBS/site.conf lists the settings)"
    done
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
    [ "$ARGOSY_LAUNCHER,$ARGOSY_MPI" != srun,none ] ||
        fail "ARGOSY_MPI is none: each rank would start alone, as rank 0 of 1. Set it to pmix, or ARGOSY_LAUNCHER=mpirun if Slurm" \
             "has no PMIx"
    case $ARGOSY_GPUS in yes | gres | no) ;; *) fail "ARGOSY_GPUS is '$ARGOSY_GPUS'; set it to yes, gres or no" ;; esac
    case $ARGOSY_PREFLIGHT in yes | no) ;; *) fail "ARGOSY_PREFLIGHT is '$ARGOSY_PREFLIGHT'; set it to yes or no" ;; esac
    for name in ARGOSY_SIGNAL_SECONDS ARGOSY_RANKS_PER_NODE ARGOSY_CPUS_PER_RANK ARGOSY_RESTARTS_WITHOUT_PROGRESS \
                ARGOSY_MAX_RESTARTS ARGOSY_MAX_RESTARTS_INSIDE ARGOSY_RESTART_DELAY_SECONDS ARGOSY_EXCLUDE_HOURS \
                ARGOSY_MAX_EXCLUDED ARGOSY_STOPPED_SECONDS; do
        [[ ${!name} =~ ^(0|[1-9][0-9]{0,5})$ ]] || fail "$name is '${!name}', not a number"
    done
    seconds_of "$ARGOSY_TIME" >/dev/null || fail "ARGOSY_TIME is '$ARGOSY_TIME', not a time limit of Slurm"
    [[ $ARGOSY_HCA =~ ^(\^?$adapter(,$adapter)*)?$ ]] ||
        fail "ARGOSY_HCA is '$ARGOSY_HCA'; write whole names of adapters, each with its port if it has several, as in" \
             "mlx5_0,mlx5_3:1; a ^ before the list excludes them"
    [[ $ARGOSY_INTERFACE =~ ^[A-Za-z0-9_.,:@-]*$ ]] ||
        fail "ARGOSY_INTERFACE is '$ARGOSY_INTERFACE'; write whole names of interfaces, as in ib0 or eth0,eth1"
    check_container
    check_stage
    if [ -n "$ARGOSY_MODULES" ] && ! command -v module >/dev/null; then
        fail "ARGOSY_MODULES is set, but the shell has no command 'module': source its definition in $ARGOSY_SITE" \
             "(often /etc/profile.d/modules.sh or lmod.sh)"
    fi
}

# check_stage: ends if jobs cannot copy their programs to ARGOSY_STAGE.
check_stage() {
    [ -n "$ARGOSY_STAGE" ] || return 0
    [[ $ARGOSY_STAGE =~ ^(/|\$[A-Z_]+(/|$)) ]] ||
        fail "ARGOSY_STAGE is '$ARGOSY_STAGE', no absolute path; it may begin with a variable of the job, as in \$SLURM_TMPDIR"
    [ -z "$ARGOSY_CONTAINER" ] ||
        fail "ARGOSY_STAGE and ARGOSY_CONTAINER are set: the programs of a container are in its image; leave one of them out"
    command -v sbcast >/dev/null ||
        fail "ARGOSY_STAGE is set, but there is no sbcast on $(hostname): leave it out, or install Slurm's commands there"
}

# check_container: ends if the site's runtime cannot start the image.
check_container() {
    case $ARGOSY_CONTAINER_RUNTIME in
        apptainer | pyxis) ;;
        *) fail "ARGOSY_CONTAINER_RUNTIME is '$ARGOSY_CONTAINER_RUNTIME'; set it to apptainer or pyxis" ;;
    esac
    [ -n "$ARGOSY_CONTAINER" ] || return 0
    "check_$ARGOSY_CONTAINER_RUNTIME"
    case $ARGOSY_CONTAINER_RUNTIME,$ARGOSY_CONTAINER in
        *://*) ;;
        apptainer,*/* | pyxis,/*) [ -e "$ARGOSY_CONTAINER" ] ||
            fail "the image ARGOSY_CONTAINER = $ARGOSY_CONTAINER does not exist" ;;
    esac
}

check_apptainer() {
    command -v apptainer >/dev/null ||
        fail "ARGOSY_CONTAINER is set, but there is no apptainer on $(hostname); if Slurm has pyxis, set" \
             "ARGOSY_CONTAINER_RUNTIME=pyxis"
}

# pyxis takes an image for a file only if its name begins with / or a dot, and for the name of an image in a registry
# otherwise. Its option --container-env is of pyxis 0.15.
check_pyxis() {
    local path
    [ "$ARGOSY_LAUNCHER" = srun ] ||
        fail "ARGOSY_LAUNCHER is $ARGOSY_LAUNCHER, but pyxis starts containers for srun only; set ARGOSY_LAUNCHER=srun, or" \
             "ARGOSY_CONTAINER_RUNTIME=apptainer"
    grep -qF -- --container-env <<<"$(srun --help 2>&1)" ||
        fail "ARGOSY_CONTAINER_RUNTIME is pyxis, but 'srun --help' on $(hostname) has no option --container-env: Slurm" \
             "needs pyxis 0.15 or newer; set ARGOSY_CONTAINER_RUNTIME=apptainer if nodes have Apptainer"
    if [[ $ARGOSY_CONTAINER = .* ]] || [[ $ARGOSY_CONTAINER != /* && -e $ARGOSY_CONTAINER ]]; then
        fail "ARGOSY_CONTAINER is '$ARGOSY_CONTAINER'; write the whole path of the file, which begins with /"
    fi
    for path in "$ARGOSY_JOBS" "$ARGOSY_SCRATCH" "$PWD"; do
        [[ $path != *[:,]* ]] || fail "pyxis cannot mount '$path': its option --container-mounts takes no path with : or ,"
    done
}

# ARGOSY_HCA in the syntax of NCCL_IB_HCA. There "=" requires whole names: without it mlx5_1 also means mlx5_10.
nccl_hca() {
    case $ARGOSY_HCA in
        "") ;;
        ^*) echo "^=${ARGOSY_HCA#^}" ;;
        *) echo "=$ARGOSY_HCA" ;;
    esac
}

# Exports the variables of a fabric profile. A variable that the site or the user has set keeps its value; a variable
# whose value would be empty is not set. `fabric_names` lists what was exported.
fabric_names=()
export_fabric() {
    local file=$ARGOSY_JOBS/fabric/$1.conf name value
    while IFS='=' read -r name value; do
        [[ $name =~ ^[A-Z] ]] || continue
        value=${value//@NCCL_INTERFACE@/${ARGOSY_INTERFACE:+=$ARGOSY_INTERFACE}}
        value=${value//@INTERFACE@/$ARGOSY_INTERFACE}
        value=${value//@NCCL_HCA@/$(nccl_hca)}
        if [ -n "$value" ] && [ -z "${!name+set}" ]; then export "$name=$value"; fabric_names+=("$name"); fi
    done <"$file"
}

# profile_names PROFILE: prints the names of its variables. profile_values PROFILE: prints NAME=VALUE of those that have a
# value here, whatever this shell has set.
profile_names() { sed -n 's/^\([A-Z][A-Za-z0-9_]*\)=.*/\1/p' "$ARGOSY_JOBS/fabric/$1.conf"; }
profile_values() (
    for name in $(profile_names "$1"); do unset "$name"; done
    fabric_names=()
    export_fabric "$1"
    for name in "${fabric_names[@]}"; do printf '%s=%s\n' "$name" "${!name}"; done
)

load_modules() {
    [ -n "$ARGOSY_MODULES" ] || return 0
    set +u  # the scripts of the modules read unset variables
    # shellcheck disable=SC2086
    module load $ARGOSY_MODULES || fail "the modules cannot be loaded; see 'module avail' and ARGOSY_MODULES in $ARGOSY_SITE"
    set -u
}

# inside_container FOLDER ...: sets three arrays, which are empty without a container.
#   container_words      for Apptainer: the words that run a command in the container
#   container_options    for pyxis: options of srun, which run the whole task in the container. They mount the folders;
#                        Apptainer mounts the working folder itself. An image's variables replace those of the job, except
#                        the variables in --container-env
#   container_variables  for pyxis: the variables of enroot's hook 98-nvidia.sh. It mounts no GPU without the first variable,
#                        and neither CUDA's driver nor IMEX channels without the second. On a node without a driver it fails
#                        unless the first variable is `void`
# shellcheck disable=SC2034
inside_container() {
    local mounts=$ARGOSY_CONTAINER_MOUNTS path names gpus=${SLURM_JOB_GPUS:-${SLURM_GPUS_ON_NODE:-}}
    container_words=() container_options=() container_variables=()
    case ${ARGOSY_CONTAINER:+$ARGOSY_CONTAINER_RUNTIME} in
        apptainer)
            container_words=(apptainer exec --nv ${mounts:+--bind "$mounts"} "$ARGOSY_CONTAINER") ;;
        pyxis)
            for path in "$@"; do mounts+=${mounts:+,}$(realpath -ms "$path"); done
            names=$(compgen -e | grep -E "^($library_variables)_" | paste -sd, || true)
            container_options=("--container-image=$ARGOSY_CONTAINER" "--container-mounts=$mounts"
                               "--container-workdir=$PWD" --no-container-mount-home --no-container-remap-root
                               ${names:+"--container-env=$names"})
            [ "$ARGOSY_GPUS" != no ] || gpus=
            gpus=${gpus:+all}
            container_variables=("NVIDIA_VISIBLE_DEVICES=${NVIDIA_VISIBLE_DEVICES:-${gpus:-void}}"
                                 "NVIDIA_DRIVER_CAPABILITIES=${NVIDIA_DRIVER_CAPABILITIES:-compute,utility}") ;;
    esac
}
