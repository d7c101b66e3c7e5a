#!/usr/bin/env bash
# mpirun.sh [--threads T] N COMMAND ...: starts N ranks on this machine as every test does: with one compute thread each
# (or T); more ranks than cores, and root, are allowed; idle ranks yield.
#
# If COMMAND contains the word pretrain, it is a training run. SIGTERM, SIGINT, SIGHUP or SIGUSR1 to this script then makes
# the run save and stop, at any time: every rank gets SIGUSR1, and this script returns the code of the ranks, 75 if the
# run is saved. Another SIGTERM, SIGINT or SIGHUP, two seconds later or more, ends the run at once. Any other COMMAND has
# nothing to save: mpirun replaces this script.
#
# If all ranks of the run are stopped (SIGSTOP) for ARGOSY_STOPPED_SECONDS (600; 0: never), this script kills them and
# returns 76, the code of the watchdog. The watchdogs of other ranks end a run with one stopped rank, but a lone rank has none.
#
# mpirun does not see these signals, because it kills the ranks one second after the first three, returns 1, and loses a
# SIGUSR1 that comes before its ranks run. This script signals the ranks itself: each one once, as soon as /proc says
# that the rank blocks or catches SIGUSR1. Ranks start with SIGUSR1 blocked; pretrain unblocks it once it has a handler.
#
# After the program's own message mpirun reports each exit code that is not 0 in two messages, and calls the job aborted.
# Of a training run that ended with 75, which is saved, this script drops these two. Everything else stays.
set -eu
usage='usage: mpirun.sh [--threads T] N COMMAND ..., such as mpirun.sh 2 build/bin/pretrain --config F.toml'

# fail MESSAGE [CODE]
fail() {
    echo "mpirun.sh: error: $1" >&2
    exit "${2:-2}"
}

# require_count NAME WORD: WORD must be a whole number from 1 on.
require_count() {
    [[ $2 =~ ^0*[1-9][0-9]*$ ]] || fail "$1 must be a whole number, at least 1, but is '$2'; $usage"
}

case ${1-} in
    --help | -h)
        echo "$usage"
        exit 0
        ;;
esac
threads=1
if [ "${1-}" = --threads ]; then
    require_count --threads "${2-}"
    threads=$2
    shift 2
fi
[ $# -ge 2 ] || fail "the number of ranks or the command is missing; $usage"
require_count 'the number of ranks, N,' "$1"
[[ ${ARGOSY_STOPPED_SECONDS:-0} =~ ^(0|[1-9][0-9]*)$ ]] ||
    fail "ARGOSY_STOPPED_SECONDS must be a whole number of seconds, but is '$ARGOSY_STOPPED_SECONDS'"
ranks=$1
shift

# A word with a dash is an option of mpirun.
if [[ $1 != -* ]] && ! type -P -- "$1" >/dev/null; then
    [ -f "$1" ] || fail "there is no program '$1'; $usage"
    [[ $1 == */* ]] || fail "'$1' is not in PATH; the file in this folder is ./$1"
    fail "'$1' cannot be executed"
fi
# shellcheck source=jobs/shell/room.sh
source "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/shell/room.sh"
why=$(lack_of_address_space && lack_of_temporary_space) || fail "$why" $?
export OMP_NUM_THREADS=$threads OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
start=(mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca btl_vader_single_copy_mechanism none
       -n "$ranks")

# starts_pretrain WORD: whether the word is the program pretrain. A folder or a file of that name does not count.
starts_pretrain() {
    case ${1##*/} in
        pretrain | pretrain_*) type -P -- "$1" >/dev/null ;;
        *) return 1 ;;
    esac
}

# Older versions of env lack the option.
block=()
if env --block-signal=USR1 true 2>/dev/null; then block=(env --block-signal=USR1); fi

# add_part WORD ...: adds a part of COMMAND to `command`. SIGUSR1 is blocked at the start of pretrain, or of the program
# that starts it, such as a profiler; with options of mpirun before that program, only at the start of pretrain.
command=() trains=
add_part() {
    local word before=
    for word in "$@"; do
        starts_pretrain "$word" || continue
        trains=yes before=$word
        case $1 in -*) ;; *) before=$1 ;; esac
        break
    done
    for word in "$@"; do
        if [ -n "$before" ] && [ "$word" = "$before" ]; then
            command+=(${block[@]+"${block[@]}"})
            before=
        fi
        command+=("$word")
    done
}

# The parts of "-x NAME=1 A : -n 1 B".
part=()
for word in "$@" :; do
    if [ "$word" != : ]; then
        part+=("$word")
    elif [ ${#part[@]} -gt 0 ]; then
        [ ${#command[@]} = 0 ] || command+=(:)
        add_part "${part[@]}"
        part=()
    fi
done
[ -n "$trains" ] || exec "${start[@]}" "$@"

rank_pids() { grep -l "^PPid:[[:space:]]*$mpirun\$" /proc/[0-9]*/status 2>/dev/null | tr -dc '0-9\n' || true; }

# Whether this rank can receive SIGUSR1 (10, so bit 9 of the masks). The program is compared first, because a child that
# is still a copy of mpirun has the handler of mpirun.
is_ready() {
    ! [ "/proc/$1/exe" -ef "/proc/$mpirun/exe" ] &&
        grep -qE '^Sig(Blk|Cgt):.*[2367abef]..$' "/proc/$1/status" 2>/dev/null
}

tell_ranks() {
    local pid told=()
    while [ -e "/proc/$mpirun" ]; do
        for pid in $(rank_pids); do
            case " ${told[*]-} " in *" $pid "*) continue ;; esac
            is_ready "$pid" || continue
            kill -USR1 -- "-$pid" 2>/dev/null || true  # mpirun makes each rank the leader of a process group
            told+=("$pid")
        done
        sleep 0.1
    done
}

# Starts a command in the background, in a process group of its own: the interrupt of a terminal, and signals from
# timeout, go to the whole group of this script. Unlike setsid, set -m keeps the terminal, which pretrain asks for its
# width.
start_apart() {
    set -m
    "$@" &
    set +m
}

# end_stopped SECONDS: kills the ranks once all of them are stopped for so long, and then returns 76.
end_stopped() {
    local pids pid stopped=0 pause=$(($1 < 100 ? ($1 + 9) / 10 : 10))
    while sleep "$pause"; [ -e "/proc/$mpirun" ]; do
        pids=$(rank_pids)
        stopped=$((stopped + pause))
        for pid in ${pids:-none}; do
            grep -q '^State:[[:space:]]*T' "/proc/$pid/status" 2>/dev/null || stopped=0
        done
        [ "$stopped" -ge "$1" ] || continue
        trap '' TERM  # from the end of this script
        say "all ranks are stopped (SIGSTOP) for $1 s (ARGOSY_STOPPED_SECONDS): the run ends"
        for pid in $pids; do kill -KILL "$pid" 2>/dev/null || true; done
        return 76
    done
}

mpirun=  # the process of mpirun
teller=  # the process that signals the ranks
asked=   # when the first signal arrived

tell_ranks_apart() {
    [ -n "$mpirun" ] && [ -z "$teller" ] || return 0
    start_apart tell_ranks
    teller=$!
}

# Copies what mpirun writes to stderr, without its two messages on exit code 75. A message of mpirun stands between two
# lines of dashes and is held back until it is whole, or for a second. Other text passes within 0.1 s, also a line without an
# end. Reads to the end even if stderr is closed or its disk is full: mpirun ends a run whose output nobody reads.
drop_report_of_75() {
    local piece='' line='' message='' held='' inside='' code=0 pauses=0
    trap '' TERM INT HUP USR1 PIPE
    set +e
    while [ "$code" = 0 ] || [ "$code" -gt 128 ]; do  # 1 at the end; over 128 after 0.1 s without a whole line
        code=0
        IFS= read -r -t 0.1 piece || code=$?
        line+=$piece
        if [ "$code" -gt 128 ] && [ -n "$inside" ] && [ $((pauses += 1)) -lt 10 ]; then continue; fi
        if [ "$code" -gt 128 ] && [[ $line$message =~ ^-*$ ]]; then continue; fi
        if [ "$code" != 0 ]; then
            printf '%s' "$held$message$line"
            held='' message='' line='' inside=''
        elif [ -z "$inside" ] && [[ $line == ----------------------------------------* ]]; then
            inside=yes message=$line$'\n' line='' pauses=0
        elif [ -n "$inside" ]; then
            message+=$line$'\n'
            if [[ $line == ----------------------------------------* ]]; then
                case $message in
                    *'Exit code:    75'*) held='' ;;
                    *'Primary job'*'terminated normally'*) held+=$message ;;
                    *) printf '%s' "$held$message"; held='' ;;
                esac
                inside='' message=''
            fi
            line=''
        else
            printf '%s\n' "$held$line"
            held='' line=''
        fi
    done 2>/dev/null
}

# Prints in a shell of its own, because a closed pipe or terminal must not end this script.
say() { (echo "mpirun.sh: $*" >&2) || true; }

# In the first two seconds only the first signal counts, because one event may send several: timeout signals its command
# and then the group, and both the kernel and the shell report a closed terminal.
on_signal() {
    interrupted=yes
    if [ -z "$asked" ]; then
        asked=$SECONDS
        say "SIG$1: asking the run to save and stop; another SIGINT, SIGTERM or SIGHUP ends it at once"
        tell_ranks_apart
    elif [ "$1" != USR1 ] && [ $((SECONDS - asked)) -ge 2 ] && [ -n "$mpirun" ]; then
        say "SIG$1: the run ends at once"
        kill -TERM "$mpirun" 2>/dev/null || true
    fi
}
for name in TERM INT HUP USR1; do
    # shellcheck disable=SC2064
    trap "on_signal $name" "$name"
done

# Older versions of setpriv lack the option.
if setpriv --pdeathsig TERM true 2>/dev/null; then start=(setpriv --pdeathsig TERM "${start[@]}"); fi

exec {errors}> >(drop_report_of_75 >&2)
copier=$!
start_apart "${start[@]}" "${command[@]}" 2>&"$errors"
mpirun=$!
exec {errors}>&-
watch=  # the process that ends stopped ranks
if [ "${ARGOSY_STOPPED_SECONDS:-600}" != 0 ]; then
    start_apart end_stopped "${ARGOSY_STOPPED_SECONDS:-600}"
    watch=$!
fi
[ -z "$asked" ] || tell_ranks_apart
while :; do
    interrupted='' code=0
    wait "$mpirun" || code=$?
    [ -n "$interrupted" ] || break
done
[ -z "$teller" ] || wait "$teller" || true
for ((i = 0; i < 100; ++i)); do  # a process that mpirun left behind may hold the pipe
    kill -0 "$copier" 2>/dev/null || break
    sleep 0.02
done
if [ -n "$watch" ]; then
    watched=0
    kill -TERM -- "-$watch" 2>/dev/null || true
    wait "$watch" 2>/dev/null || watched=$?
    [ "$watched" != 76 ] || code=76
fi
exit "$code"
