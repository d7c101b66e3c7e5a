# shellcheck shell=bash
# Runs variants alternately, for why_slow.sh and fabric_ab.sh, and for the template `alternate`, which defines
# `start RANKS COMMAND ...` for the ranks of a job.
#
# FOLDER/plan has a line of shell words for each command: NAME RANKS [VARIABLE=VALUE | -VARIABLE] ... -- COMMAND ...
# -VARIABLE unsets the variable. Several lines with one name are one variant, which ends at its first command that fails. The
# first name is the baseline's. Lines of the name `once` run before the first round. @HERE@ in a command is the folder of the
# run, FOLDER/round-R/NAME, which keeps `log` and `code`, the exit code.

# run_variant FOLDER NAME HERE: runs the lines of that name. Returns the code of the first one that fails.
run_variant() {
    local folder=$1 name=$2 here=$3 line words code=0
    mkdir -p "$here"
    while IFS= read -r line <&3; do
        [ "${line%% *}" = "$name" ] || continue
        eval "words=($line)"
        code=0
        run_words "${words[@]:1}" >>"$here/log" 2>&1 </dev/null || code=$?
        [ "$code" = 0 ] || break
    done 3<"$folder/plan"
    echo "$code" >"$here/code"
    [ "$code" = 0 ] || say "$name failed with exit code $code; see $here/log"
    return "$code"
}

# run_words RANKS [VARIABLE=VALUE | -VARIABLE] ... -- COMMAND ...
run_words() (
    ranks_of_run=$1
    shift
    while [ "$1" != -- ]; do
        case $1 in
            -*) unset "${1#-}" ;;
            *) export "${1?}" ;;
        esac
        shift
    done
    shift
    start "$ranks_of_run" "${@//@HERE@/$here}"
)

# alternate FOLDER ROUNDS: runs all variants in each round, between two runs of the baseline. Every second round has the
# opposite order, so that a steady drift within the rounds cancels out if their number is even. A variant that has failed does
# not run again. Returns 1 if the baseline fails.
alternate() {
    local folder=$1 rounds=$2 round name names baseline failed=' '
    mapfile -t names < <(cut -d' ' -f1 "$folder/plan" | awk '$1 != "once" && !seen[$1]++')
    baseline=${names[0]}
    if grep -q '^once ' "$folder/plan"; then run_variant "$folder" once "$folder/once" || true; fi
    for ((round = 1; round <= rounds; round++)); do
        say "round $round of $rounds: ${names[*]}"
        run_variant "$folder" "$baseline" "$folder/round-$round/$baseline" || return 1
        for name in $(order "$round" "${names[@]:1}"); do
            [[ $failed = *" $name "* ]] || run_variant "$folder" "$name" "$folder/round-$round/$name" || failed+="$name "
        done
        run_variant "$folder" "$baseline" "$folder/round-$round/$baseline-again" || return 1
    done
}
order() { if [ $(($1 % 2)) = 1 ]; then printf '%s\n' "${@:2}"; else printf '%s\n' "${@:2}" | tac; fi; }

# alternate_twice FOLDER ROUNDS [COMMAND ...]: as alternate; then the command may write FOLDER/confirm/plan, which runs too.
alternate_twice() {
    alternate "$1" "$2" || return 1
    [ $# -gt 2 ] || return 0
    "${@:3}" || return 1
    [ ! -e "$1/confirm/plan" ] || alternate "$1/confirm" "$2"
}

# read_options WORD ...: reads the options of why_slow.sh and fabric_ab.sh. own_option NAME [VALUE] reads one of the script's own,
# own_word a word that is no option; both return 1 if there is none.
nodes='' here='' local_ranks='' rounds=4 time=01:00:00 site='' more='' dry='' report=''
read_options() {
    while [ $# -gt 0 ]; do
        case $1 in
            --help | -h) print_help; exit 0 ;;
            --dry-run) dry=yes; shift; continue ;;
            --report) report=yes; shift; continue ;;
            --dry-run=* | --report=*) fail "${1%%=*} takes no value" ;;
            --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
            --*.*) if [ $# = 1 ] || [[ $2 = --* ]]; then own_option "$1" || unknown "$1"; shift; continue; fi ;;
            --*) [ $# -gt 1 ] || fail "$1 needs a value" ;;
            *) own_word "$1" || unknown "$1"; shift; continue ;;
        esac
        case $1 in
            --nodes) nodes=$2 ;;
            --ranks-per-node) here=$2 ;;
            --local) local_ranks=$2 ;;
            --rounds) rounds=$2 ;;
            --time) time=$2 ;;
            --site) site=$2 ;;
            --sbatch) more=$2 ;;
            *) own_option "$1" "$2" || unknown "$1" ;;
        esac
        shift 2
    done
}
unknown() { fail "unknown option $1; $(basename "$0") --help lists the options"; }

# check_options: reads the site and ends, through `fail`, if an option has no sense. For --local N it sets nodes=1 and here=N, and
# loads the site's modules, which a job loads itself.
check_options() {
    local number='^[1-9][0-9]{0,5}$'
    [ -z "$local_ranks" ] || nodes=1 here=$local_ranks
    read_site "$site"
    here=${here:-$ARGOSY_RANKS_PER_NODE}
    if [ -n "$local_ranks" ]; then
        [ -z "$ARGOSY_CONTAINER" ] ||
            fail "--local starts programs of this machine, but $ARGOSY_SITE has ARGOSY_CONTAINER = $ARGOSY_CONTAINER:" \
                 "leave out --local for a job, or give settings without a container (--site FILE)" \
                 "whose ARGOSY_BIN is a folder of this machine"
        load_modules
    fi
    [ -n "$nodes" ] || fail "give --nodes N for a job, or --local N to start N ranks on this machine"
    [[ $nodes =~ $number ]] || fail "--nodes $nodes is not a number of nodes"
    [[ $here =~ $number ]] || fail "--local or --ranks-per-node $here is not a number of ranks"
    [[ $rounds =~ $number ]] && [ "$rounds" -ge 2 ] || fail "--rounds $rounds: one round shows no noise; give 2 or more"
    check_python
}

# report_again: with --report, prints the result of an earlier call, which is in `folder`, and ends. explain ACTION FOLDER ... is
# the script's Python, and facts.json what its action `plan` leaves.
report_again() {
    [ -n "$report" ] || return 0
    [ -e "$folder/facts.json" ] || fail "$folder has no result: call $(basename "$0") without --report first"
    explain report "$folder"
    exit
}

# open_folder [COMMAND ...]: ends, through `fail`, if Slurm does not accept the job of `measure` with these words, or if another
# process uses `folder`, whose lock it takes for the life of this shell. What is in the folder stays. With --dry-run the folder
# becomes a temporary one.
open_folder() {
    if [ -n "$dry" ]; then
        folder=$(mktemp -d)
        trap 'rm -rf "$folder"' EXIT
        return
    fi
    if [ -z "$local_ranks" ]; then
        check_path "the folder" "$folder"
        script=$(job_script "$folder" "$rounds" "$@") || exit 2
        check_accepted "$script"
    fi
    try_lock "$folder" "$0, process $$ on $(hostname)" || fail "$folder is in use ($(holder_of "$folder")): wait for its end"
}

# measure [COMMAND ...]: shows the plan in `folder`; without --dry-run runs it as alternate_twice does, on this machine or in a job
# for whose end it waits, and prints the result. What an earlier call left is removed. The words are those of open_folder.
measure() {
    explain show "$folder"
    [ -z "$dry" ] || exit 0
    rm -rf "$folder"/round-* "$folder"/once "$folder"/confirm "$folder"/logs
    if [ -n "$local_ranks" ]; then run_here "$folder" "$rounds" "$@"; else run_in_job; fi ||
        say "the experiments did not end well; what was measured:"
    explain report "$folder"
}

run_in_job() {
    local job
    mkdir -p "$folder/logs"
    trap 'end_job 130' INT
    trap 'end_job 143' TERM HUP
    job=$(submit "$folder/job.sbatch" <<<"$script") || return 1
    say "job $job on $nodes nodes, whose log is $folder/logs/$job.log"
    succeeded "$job" "$folder/job.sbatch"
}

# In a process group of its own, which a signal to this script ends; mpirun.sh then stops the ranks.
run_here() {
    set -m
    (close_lock; start() { "$ARGOSY_JOBS/mpirun.sh" "$@"; }; alternate_twice "$@") </dev/null &
    set +m
    group=$!
    trap 'end_here 130' INT
    trap 'end_here 143' TERM HUP
    wait "$group"
}
end_here() {
    kill -TERM -- "-$group" 2>/dev/null || true
    say "interrupted"
    exit "$1"
}
job_script() {
    fill alternate "--job-name=$(basename "$0" .sh) --nodes=$nodes --ntasks-per-node=$here --gpus-per-node=$here
        --cpus-per-task=$ARGOSY_CPUS_PER_RANK --time=$time --chdir=$PWD $(site_options) --output=$1/logs/%j.log --no-requeue
        $more" "$@"
}
end_job() {
    trap '' INT TERM HUP
    say "interrupted"
    cancel_jobs_of "$folder/job.sbatch" "${job:-}"
    exit "$1"
}
