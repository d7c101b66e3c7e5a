# shellcheck shell=bash
# Makes a job from a template, for submit.sh, pipeline.sh, bringup.sh, why_slow.sh and fabric_ab.sh, which source this file and
# define `fail`.
source "$ARGOSY_JOBS/shell/site.sh"
source "$ARGOSY_JOBS/shell/run_folder.sh"
source "$ARGOSY_JOBS/shell/help.sh"

# read_site [FILE]: reads the settings of the site from the file, or from ARGOSY_SITE, and checks them.
read_site() {
    local before
    ARGOSY_SITE=$(realpath -m "${1:-${ARGOSY_SITE:-$ARGOSY_JOBS/site.conf}}")
    [ -e "$ARGOSY_SITE" ] || fail "there is no file $ARGOSY_SITE; set ARGOSY_SITE or --site to the settings of the site"
    before=$(compgen -v ARGOSY_)
    source_site fail
    check_names "$before"
    [ -n "$ARGOSY_CONTAINER" ] || ARGOSY_BIN=$(realpath -m "$ARGOSY_BIN")
    check_site
}

# check_python: ends if the shell has no Python that the scripts can use.
check_python() {
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null ||
        fail "this script needs Python 3.9 or newer; python3 on $(hostname) is: $(python3 --version 2>&1 || true)"
}

# settings_of CONFIG [--section.key value ...]: prints the effective configuration; pretrain reports mistakes in it.
settings_of() { ask_pretrain "$@" --print-config; }

# ask_pretrain CONFIG OPTION ...: runs pretrain for an answer that needs no ranks. With pyxis, pretrain runs in a job of
# one task: only compute nodes are certain to have enroot, whose own `start` also takes no image of a registry. Within an
# allocation that task is a step of it.
ask_pretrain() {
    local container_words container_options container_variables common
    [ -n "$ARGOSY_CONTAINER" ] || [ -x "$ARGOSY_BIN/pretrain" ] ||
        fail "ARGOSY_BIN is $ARGOSY_BIN, which has no program pretrain: build Argosy, or set ARGOSY_BIN in $ARGOSY_SITE"
    load_modules
    inside_container "$PWD" "$(dirname "$(realpath "$1")")"
    if [ ${#container_options[@]} -gt 0 ]; then
        read -r -a common <<<"$(small_options "$ARGOSY_CPU_PARTITION")"
        container_words=(env "${container_variables[@]}" srun "--mpi=$ARGOSY_MPI" --nodes=1 --ntasks=1 --time=10 --input=none
                         --job-name=read-settings "${common[@]}" "${container_options[@]}")
    fi
    "${container_words[@]}" "$ARGOSY_BIN/pretrain" --config "$@"
}

# inputs_of SETTINGS: prints what the run reads, as lines "KEY PATH"; a path may be a pattern. A run that has steps does not read
# checkpoint.initial_load_path.
inputs_of() {
    local key section
    for key in training.dataset_path validation.dataset_path model.hf_assets_path evaluation.tokenizer evaluation.fewshot_file \
               parallelism.pipeline_parallel_schedule_csv checkpoint.initial_load_path; do
        section=${key%%.*}
        [ "$section" != validation ] || [ "$(value validation enable <<<"$1")" = true ] || continue
        [ "$section" != checkpoint ] || ! compgen -G "$(checkpoints_of "$1")/step-[0-9]*" >/dev/null || continue
        [ "$section" != evaluation ] || [ "$(value evaluation tasks <<<"$1")" != "[]" ] || continue
        printf '%s %s\n' "$key" "$(value "$section" "${key#*.}" <<<"$1")"
    done | sed '/ $/d; /^evaluation.tokenizer bytes$/d'
    { value data mixture <<<"$1" | grep -o 'path = "[^"]*"' || true; } | sed 's/^path = "/data.mixture /; s/"$//'
    { value evaluation tasks <<<"$1" | grep -o '"[^"]*"' || true; } | sed -E 's/^"([a-z0-9_]+=)?/evaluation.tasks /; s/"$//'
}

# check_inputs SETTINGS AFTER [WHERE]: ends if the run cannot have what it reads: no data are named, a file is missing below the
# working folder or ARGOSY_SCRATCH, which all nodes see, or texts have no tokenizer. A file that is missing elsewhere is only a
# warning, once, because nodes may have file systems that this machine lacks; so is a model's folder beside a preset. Nothing may be missing yet if AFTER is not empty: the
# job AFTER may make the files. WHERE is the beginning of the message.
declare -A warned_of=()
check_inputs() {
    local key path where=${3:-} task
    [ -n "$(value training dataset_path <<<"$1")" ] || [ "$(value data mixture <<<"$1")" != "[]" ] ||
        fail "${where}the run has no data: set training.dataset_path to token files (prepare-data tokenize makes them), or data.mixture"
    [ -z "$2" ] || return 0
    while read -r key path; do
        if compgen -G "$path" >/dev/null || [ -n "${warned_of[$path]:-}" ]; then continue; fi
        if [ "$key" = model.hf_assets_path ] && [ -n "$(value model name <<<"$1")" ] && [ -n "$(value model flavor <<<"$1")" ]; then
            warned_of[$path]=yes
            say "warning: $key = $path is not on this machine; without it on the nodes, the checkpoints have no tokenizer"
            continue
        fi
        case $(realpath -ms "$path") in
            "$PWD"/* | "$(realpath -ms "$ARGOSY_SCRATCH")"/*) fail "$where$key = $path does not exist" ;;
        esac
        warned_of[$path]=yes
        say "warning: $key = $path is not on this machine; the job fails at its start if its nodes lack it too"
    done < <(inputs_of "$1")
    while read -r task; do
        [ ! -f "${task#*=}" ] || check_tokenizer "$task" "$(value evaluation tokenizer <<<"$1")" "$1" "${where}evaluation.tokenizer"
    done < <(value evaluation tasks <<<"$1" | grep -o '"[^"]*"' | tr -d '"' || true)
}

# check_tokenizer TASK TOKENIZER SETTINGS OPTION: ends if the task, [READER=]FILE, holds texts and there is no tokenizer: neither
# TOKENIZER, the value of OPTION, nor one of the model. That of a checkpoint to start from is not known here.
check_tokenizer() {
    local assets file
    assets=$(value model hf_assets_path <<<"$3")
    [[ $1 = *=* ]] || awk 'NF && !/"tokens"[ \t]*:/ { found = 1; exit } END { exit !found }' "$1" || return 0
    [ -z "$2$(value checkpoint initial_load_path <<<"$3")" ] || return 0
    [ -z "$assets" ] || [ -d "$assets" ] || return 0
    for file in tokenizer.json tokenizer.model tekken.json qwen.tiktoken; do
        [ -z "$assets" ] || [ ! -e "$assets/$file" ] || return 0
    done
    fail "the records of ${1#*=} are texts, which need a tokenizer, and model.hf_assets_path has none: set $4 to a tokenizer's file or" \
         "folder, or to bytes"
}

# degree SETTINGS AXIS: prints the degree of an axis of the mesh, as pipeline_parallel.
degree() { value parallelism "$2_degree" <<<"$1"; }

# template_of SETTINGS NODES RANKS_PER_NODE: prints the template with the configuration's mesh; the degree that grows with the
# number of nodes may differ.
template_of() {
    local nodes=$2 here=$3 replicas shards tensor stages context
    replicas=$(degree "$1" data_parallel_replicate) shards=$(degree "$1" data_parallel_shard)
    tensor=$(degree "$1" tensor_parallel) stages=$(degree "$1" pipeline_parallel) context=$(degree "$1" context_parallel)
    if [ "$stages" -gt 1 ] && [ "$tensor" = "$here" ]; then
        if [ "$shards" -gt 0 ] && [ $((nodes * here)) -ge 512 ]; then echo 4d; else echo 3d; fi
    elif [ $((tensor * stages * context)) -gt 1 ]; then echo configured
    elif [ "$nodes" = 1 ]; then echo single_node
    elif [ "$replicas" = 1 ]; then echo fsdp
    elif [ "$shards" = "$here" ]; then echo hsdp
    else echo configured
    fi
}

# check_template TEMPLATE: ends if there is no such template, or if it does not train.
check_template() {
    [ -e "$ARGOSY_JOBS/templates/$1.sbatch" ] || fail "there is no template '$1' in $ARGOSY_JOBS/templates"
    grep -q '^train ' "$ARGOSY_JOBS/templates/$1.sbatch" ||
        fail "the template '$1' does not train: leave out --template, or submit the template itself with sbatch"
}

# mesh_words TEMPLATE NODES RANKS_PER_NODE SETTINGS: prints the options with which the template overrides the mesh of the
# configuration, a line a word. Runs the template with stand-ins for the functions of job.sh; `train` prints its options.
mesh_words() (
    export SLURM_NTASKS_PER_NODE=$3
    # shellcheck disable=SC2034
    num_nodes=$2 ranks=$(($2 * $3)) settings=$4
    source() { :; }
    begin_run() { :; }
    read_settings() { :; }
    train() { [ $# = 1 ] || printf '%s\n' "${@:2}"; }
    set -- "$ARGOSY_JOBS/templates/$1.sbatch"
    # shellcheck disable=SC1090
    . "$1"
)

# fill TEMPLATE "--option=value ..." WORD ...: prints the template as a complete script for sbatch. These #SBATCH options
# replace the template's options of the same name, and the words become its arguments.
fill() {
    local template=$ARGOSY_JOBS/templates/$1.sbatch options=$2 word
    shift 2
    for word in $options; do
        [[ $word = --* ]] || fail "'$word' in '${options##*$'\n'}': write options of sbatch as --name=value"
    done
    OPTIONS=$options PROLOGUE=$(prologue "$@") awk '
        BEGIN { count = split(ENVIRON["OPTIONS"], given, " "); for (i = 1; i <= count; i++) named[name(given[i])] = 1 }
        function name(option) { sub(/=.*/, "", option); return option }
        /^#SBATCH/ { if (!(name($2) in named)) print; inside = 1; next }
        inside { for (i = 1; i <= count; i++) print "#SBATCH " given[i]; print ENVIRON["PROLOGUE"]; inside = 0 }
        { print }' "$template" |
        case $ARGOSY_GPUS in
            no) grep -v '^#SBATCH --gpus' ;;
            yes) sed -E "s/^(#SBATCH --gpus-per-node=)([0-9])/\1${ARGOSY_GPU_TYPE:+$ARGOSY_GPU_TYPE:}\2/" ;;
            gres) sed -E "s/^#SBATCH --gpus-per-node=([0-9])/#SBATCH --gres=gpu:${ARGOSY_GPU_TYPE:+$ARGOSY_GPU_TYPE:}\1/" ;;
        esac
}

# Prints the lines that make the script start the same again from any shell: the settings of the site, the variables of
# the communication libraries that this shell has and no others, and the words. With `scripts`, a run's copy of the scripts,
# the job uses that copy; `spares` is the number of nodes beside the `nodes` that train.
scripts='' spares=''
# shellcheck disable=SC2154
prologue() {
    local name site=$ARGOSY_SITE
    [ -z "$scripts" ] || site=$scripts/own_site.conf
    echo "unset \$(compgen -e | grep -E '^(ARGOSY|$library_variables)_')"
    printf 'export ARGOSY_JOBS=%q ARGOSY_SITE=%q\n' "${scripts:-$ARGOSY_JOBS}" "$site"
    for name in $(compgen -v ARGOSY_) $(compgen -e | grep -E "^($library_variables)_" || true); do
        case $name in
            ARGOSY_JOBS | ARGOSY_SITE) ;;
            # of a job that submits another
            ARGOSY_RANKS | ARGOSY_RANKS_HERE | ARGOSY_RESTART | ARGOSY_RESTART_INSIDE) ;;
            ARGOSY_SPARES | ARGOSY_TRAINING_NODES | ARGOSY_ARRIVALS | ARGOSY_END_*) ;;
            *) printf 'export %s=%q\n' "$name" "${!name}" ;;
        esac
    done
    [ -z "$spares" ] || printf 'export ARGOSY_SPARES=%q ARGOSY_TRAINING_NODES=%q\n' "$spares" "$nodes"
    printf 'set --'; printf ' %q' "$@"
}

# use_scripts_of RUN: jobs that are filled from now on use the run's copy of the scripts. keep_scripts makes that copy of the
# scripts that a job reads and of the site's settings, and writes the file `program`. The site's file is own_site.conf there,
# beside the default site.conf, which it may source.
use_scripts_of() { scripts=$1/scripts; }
keep_scripts() {
    rm -rf "$scripts.new"
    mkdir -p "$scripts.new/shell"
    cp "$ARGOSY_JOBS"/shell/{help,job,requeue,room,run_folder,site,spares,stage}.sh "$scripts.new/shell"
    cp -r "$ARGOSY_JOBS"/{bind.sh,site.conf,fabric} "$scripts.new"
    cp "$ARGOSY_SITE" "$scripts.new/own_site.conf"
    rm -rf "$scripts"
    mv "$scripts.new" "$scripts"
    ARGOSY_JOBS=$scripts ARGOSY_SITE=$scripts/own_site.conf program_of | keep program
}

# site_options: prints the options that the site's jobs of whole nodes have. small_options [PARTITION]: those of its jobs that use
# a part of a node; in this partition, if it is not empty.
site_options() { options_in "$ARGOSY_PARTITION" "$ARGOSY_SBATCH_OPTIONS"; }
small_options() { options_in "${1:-$ARGOSY_PARTITION}" "$ARGOSY_SMALL_SBATCH_OPTIONS"; }
options_in() { echo "${1:+--partition=$1} ${ARGOSY_ACCOUNT:+--account=$ARGOSY_ACCOUNT} ${ARGOSY_QOS:+--qos=$ARGOSY_QOS} $2"; }

# option NAME SCRIPT: prints the value of the script's last #SBATCH --NAME.
option() { sed -n "s/^#SBATCH --$1=//p" <<<"$2" | tail -n 1; }

# check_path NAME PATH: ends if Slurm would not take the path as it is: it expands % in the names of logs.
check_path() {
    case $2 in
        *[[:space:]%\"\'\\#]*) fail "$1 is '$2': Slurm's options cannot contain spaces, quotes, %, # and backslashes" ;;
    esac
}

# Ends if ranks cannot start as ARGOSY_LAUNCHER and ARGOSY_MPI say.
check_launcher() {
    local plugins
    if [ "$ARGOSY_LAUNCHER" = mpirun ]; then
        (load_modules; command -v mpirun >/dev/null) ||
            fail "ARGOSY_LAUNCHER is mpirun, but there is no mpirun on $(hostname)"
        return
    fi
    plugins=$(srun --mpi=list 2>&1) || true
    grep -qw -- "$ARGOSY_MPI" <<<"$plugins" ||
        fail "Slurm has no plugin ARGOSY_MPI = $ARGOSY_MPI: set another of these, or ARGOSY_LAUNCHER=mpirun: $plugins"
}

# check_accepted SCRIPT: ends if Slurm cannot run the script in its partition. Nodes that are down or drained may return:
# then this function only warns, if Slurm's message is about nodes that are not available.
check_accepted() {
    local script=$1 said partition longest seconds rows
    command -v sbatch >/dev/null || fail "there is no sbatch on $(hostname); --dry-run of submit.sh prints the script"
    check_launcher
    partition=$(option partition "$script")
    rows=$(sinfo --noheader ${partition:+--partition="$partition"} -o '%P|%a|%l|%t' |
           grep "${partition:+^}${partition:-[*]|}" || true)
    partition=${partition:-${rows%%[*]|*}}
    if said=$(sbatch --test-only <<<"$script" 2>&1); then
        said=
    elif grep -qiE 'node.*(not available|busy|down)|not available now' <<<"$said" && grep -qE '\|(drain|drng|down|maint|fail|unk|boot|resv)[^|]*$' <<<"$rows"; then
        echo "warning: Slurm cannot start this job with the nodes that are up now, and it waits for others: $said" >&2
    else
        fail "Slurm cannot run this job: $said. Change --nodes, --ranks-per-node, --sbatch or $ARGOSY_SITE"
    fi
    [ -z "$rows" ] || grep -q '|up|' <<<"$rows" ||
        fail "the partition $partition is not up, so no job starts in it; see sinfo"
    longest=$(cut -d'|' -f3 <<<"$rows" | head -n 1)
    longest=$(seconds_of "$longest")
    seconds=$(seconds_of "$(option time "$script")")
    if [ -n "$seconds" ] && [ -n "$longest" ] && [ "$seconds" -gt "$longest" ] && [ -z "$(option qos "$script")" ]; then
        fail "the time limit $(option time "$script") is longer than the $((longest / 60)) minutes of the partition" \
             "$partition; set --time or ARGOSY_TIME, or a QOS that allows more"
    fi
}

# jobs_of SCRIPT: prints the jobs in the queue whose script this is, also by another path, as lines "JOB STATE". Returns 1 if
# Slurm does not answer.
jobs_of() {
    local queued job state script
    queued=$(squeue -h -o '%F %T %o' 2>/dev/null) || return 1
    while read -r job state script; do
        [ "${script##*/}" = "${1##*/}" ] || continue
        if [ "$script" = "$1" ] || [ "$script" -ef "$1" ]; then echo "$job ${state,,}"; fi
    done <<<"$queued"
}

# submit SCRIPT < FILLED_TEMPLATE: submits it and prints the job's number. The script stays, and can be submitted again.
submit() {
    mkdir -p "$(dirname "$1")"
    cat >"$1.new" && chmod +x "$1.new" && mv "$1.new" "$1" && sbatch --parsable "$1" | sed 's/;.*//'
}

# cancel_jobs JOB ...: cancels the jobs, and says of each whether it did. Returns 0, so that a trap goes on.
cancel_jobs() {
    local job
    for job; do
        if scancel "$job"; then say "cancelled job $job"; else say "job $job could not be cancelled: scancel $job"; fi
    done
}

# cancel_jobs_of SCRIPT [JOB]: for the trap of a signal: cancels the script's jobs, also one whose number sbatch has not
# printed, and JOB, also if squeue does not answer. Returns 0.
cancel_jobs_of() {
    local queued
    queued=$(jobs_of "$1") || [ -n "${2:-}" ] || say_unknown "$1"
    # shellcheck disable=SC2046
    cancel_jobs $({ cut -d' ' -f1 <<<"$queued"; echo "${2:-}"; } | sort -u)
}

# say_unknown SCRIPT: says that a job of the script may be in the queue, because squeue does not answer.
say_unknown() { say "squeue does not answer, so a job may be in the queue: look for $1 (squeue --me -o '%i %o')"; }

# succeeded JOB SCRIPT: waits for the end of the job. Returns 0 if it succeeded. It is for jobs that are not requeued: a requeue
# could exclude a node without which the job waits for ever, and a node that fails is a result. A job has not ended while
# Slurm does not answer.
succeeded() {
    local state jobs
    while :; do
        state=$(scontrol show job -o "$1" 2>/dev/null | tr ' ' '\n' | sed -n 's/^JobState=//p') || state=
        case $state in
            PENDING | RUNNING | COMPLETING | CONFIGURING | SUSPENDED | REQUEUED | "") ;;
            *) [ "$state" = COMPLETED ]; return ;;
        esac
        if [ -z "$state" ] && jobs=$(jobs_of "$2") && [ -z "$jobs" ]; then return 1; fi  # Slurm forgot the job
        sleep 2
    done
}
