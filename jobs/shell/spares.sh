# shellcheck shell=bash
# Starts inside the job, for `submit.sh --spares K`: the job has K nodes more than the run trains on. If the ranks fail in a
# way in which the job would be requeued, the job drops bad nodes, takes spares in their place and starts the ranks again.
# job.sh sources this file, which uses its variables and the functions of requeue.sh.
#
# 1. The number of training nodes never changes, so the mesh stays the same. They have Slurm's order, in which srun numbers
#    the ranks.
# 2. A bad node is not used again until the job is requeued.
# 3. A start inside the job counts as a restart.
#
# The job has --no-kill: a lost node leaves the job, which goes on. Its steps do not have --no-kill, with which srun would
# wait for the ranks of the lost node for ever. All steps have --overlap, because a step with a dead node holds its other
# nodes until Slurm reports the dead node as down.
# shellcheck disable=SC2034,SC2154

spares=  # empty: the job was submitted without --spares, and a failure requeues it
num_nodes=${SLURM_JOB_NUM_NODES:-1} ranks=${SLURM_NTASKS:-1}
ranks_per_node=${SLURM_NTASKS_PER_NODE:-1} cpus_per_rank=${SLURM_CPUS_PER_TASK:-1}
if [ -n "${ARGOSY_SPARES:-}" ]; then
    num_nodes=$ARGOSY_TRAINING_NODES ranks=$((ARGOSY_TRAINING_NODES * ranks_per_node))
    spares=$((SLURM_JOB_NUM_NODES - num_nodes))  # a requeue may have asked for fewer than ARGOSY_SPARES
    [ "$spares" -ge 0 ] || fail "the job has $SLURM_JOB_NUM_NODES nodes, but the run trains on $num_nodes: submit it with submit.sh"
fi
job_nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")  # names of nodes are one a line, here and below
training_nodes=$(head -n "$num_nodes" <<<"$job_nodes")
bad_nodes='' checked_nodes=''
restarts_inside=0  # the starts inside the job since Slurm started it
start_began=0      # SECONDS at the newest start
replaced=          # the training nodes that the newest start replaced

spare_nodes() { without "$training_nodes"$'\n'"$bad_nodes" <<<"$job_nodes"; }

# names_of LIST: prints the nodes as n[1-3]. used_nodes prints those that train.
names_of() { [ -z "$1" ] || scontrol show hostlist "$(paste -sd, <<<"$1")"; }
used_nodes() { if [ -n "$spares" ]; then names_of "$training_nodes"; else echo "$SLURM_JOB_NODELIST"; fi; }

# Sets training_nodes to good nodes, the present ones first. Returns 1 if there are too few.
choose_nodes() {
    local good
    good=$(printf '%s\n' "$training_nodes" "$job_nodes" | without "$bad_nodes" | awk '!seen[$0]++' | head -n "$num_nodes")
    [ "$(grep -c . <<<"$good")" = "$num_nodes" ] || return 1
    training_nodes=$(grep -xF -- "$good" <<<"$job_nodes")
}

# Runs the pre-flight on all nodes of the job, so that the spares are known to be good: first on groups of spares, completed
# with training nodes to the mesh's number, and last on the training nodes. Checks only unchecked nodes after a bad node was
# replaced, which explains the failure.
check_nodes() {
    local unchecked all=$training_nodes
    while unchecked=$(spare_nodes | without "$checked_nodes"); [ -n "$unchecked" ]; do
        training_nodes=$(grep -xF -- "$(printf '%s\n' "$unchecked" "$all" | head -n "$num_nodes")" <<<"$job_nodes")
        check_training_nodes || return
        training_nodes=$all
    done
    if [ -z "$replaced" ] || [ -n "$(without "$checked_nodes" <<<"$training_nodes")" ]; then check_training_nodes; fi
}
check_training_nodes() {
    local code=0
    preflight || code=$?
    case $code in 0 | 3) checked_nodes+=$'\n'$training_nodes ;; esac  # 3: it named the bad ones
    return "$code"
}

# start_again CODE: makes the job ready for another start of the ranks, which ended with this code. Returns 1 if the job must
# end or be requeued.
start_again() {
    local code=$1 named lost counted_job counted_step starts quick inside
    [ -n "$spares" ] || return 1
    case $code,$preflight_failed in 0, | 2, | 3, | 75, | 77,) return 1 ;; esac
    if [ -n "$warned" ] || is_restarted_by_slurm || [ -n "$(ending)" ]; then return 1; fi
    named=$(named_nodes | tr , '\n')
    [ -z "$preflight_failed" ] || [ -n "$named" ] || return 1
    end_ranks KILL
    lost=$(lost_nodes)
    bad_nodes=$(printf '%s\n' "$bad_nodes" "$named" "$lost" | grep .)
    [ -z "$named" ] || ask_nodes "$named" >/dev/null &  # ends their ranks, if they answer
    named=$(printf '%s\n' "$named" "$(silent_nodes)" | grep .)
    bad_nodes=$(printf '%s\n' "$bad_nodes" "$named" | grep .)
    [ -z "$named" ] || exclude "$(paste -sd, <<<"$named")"
    replaced=$([ -z "$bad_nodes" ] || grep -xF -- "$bad_nodes" <<<"$training_nodes")
    read_end
    [ "$(newest_step)" = "$counted_step" ] || quick=0  # a start that saved is no reason to give up the job's nodes
    may_start_again || return 1
    choose_nodes
    record end "$code" continued
    restarts_inside=$((restarts_inside + 1)) start_began=$SECONDS
    keep restarts <<<"$job_id ${counted_step:-0} $starts $quick $((inside + 1))"
    log_size=$(size_of_log)
    say "exit $code; start $restarts_inside inside job $job_id${replaced:+ without $(names_of "$replaced")}:" \
        "$ranks ranks on $(names_of "$training_nodes"), spares left: $(spare_nodes | grep -c .)"
    record start null null
    count_restart || end_or_requeue 77
    watch_first_node
}

# Whether good nodes and the limits allow another start inside the job. Says why not.
may_start_again() {
    local why=''
    if ! is_first_node_in_job; then
        why="the job has lost its first node $SLURMD_NODENAME, which runs this script"
    elif [ "$restarts_inside" -ge "$ARGOSY_MAX_RESTARTS_INSIDE" ]; then
        why="the job has started ARGOSY_MAX_RESTARTS_INSIDE = $ARGOSY_MAX_RESTARTS_INSIDE times inside"
    elif [ "$quick" -gt 1 ]; then
        why="two successive starts ended within $QUICK_SECONDS s each and saved no step"
    elif ! (choose_nodes); then
        why="fewer than $num_nodes nodes of the job are good; bad: $(names_of "$bad_nodes")"
    fi
    [ -z "$why" ] || say "no start inside the job: $why"
    [ -z "$why" ]
}

is_first_node_in_job() {
    local listed
    listed=$(job_field NodeList)
    [ -z "$listed" ] || grep -qxF -- "$SLURMD_NODENAME" < <(scontrol show hostnames "$listed")
}

# Prints the nodes that have left the job; lost_nodes prints also those that Slurm does not report as up.
left_nodes() {
    local listed
    listed=$(job_field NodeList)
    [ -z "$listed" ] || without "$(scontrol show hostnames "$listed")" <<<"$job_nodes"
}
lost_nodes() {
    left_nodes
    sinfo -h -N -n "$SLURM_JOB_NODELIST" -o '%N %T' | awk '$2 ~ /^(down|drain|fail|unknown)|[*]$/ { print $1 }' | sort -u
}

# Kills the ranks of earlier starts on all nodes that answer, and prints the others: srun starts no process there. If more
# than one node and more than half of the nodes are silent, or if Slurm's controller does not answer, says so and prints nothing:
# the nodes may be good.
silent_nodes() {
    local asked silent
    asked=$(without "$bad_nodes" <<<"$job_nodes")
    silent=$(ask_nodes "$asked")
    # A dead node also silences slow nodes, and those to which it would pass srun's request on.
    if [ "$(grep -c . <<<"$silent")" -gt 1 ]; then silent=$(ask_nodes "$silent"); fi
    if [ "$(grep -c . <<<"$silent")" -gt 1 ] && [ $((2 * $(wc -l <<<"$silent"))) -gt "$(wc -l <<<"$asked")" ]; then
        say "$(wc -l <<<"$silent") of $(wc -l <<<"$asked") nodes start no process: the network or Slurm may be at fault"
    elif [ -n "$silent" ] && [ -z "$(job_field JobState)" ]; then
        say "Slurm's controller does not answer, so nodes that start no process count as good: $(names_of "$silent")"
    elif [ -n "$silent" ]; then
        say "nodes that start no process: $(names_of "$silent")"
        echo "$silent"
    fi
}

# ask_nodes LIST: ends the ranks of earlier starts on these nodes, and prints the nodes that do not answer within
# ANSWER_SECONDS. srun gives up a node to which it cannot connect, and with it the nodes that are slow, after some ten seconds.
readonly ANSWER_SECONDS=30
ask_nodes() {
    local count answers
    count=$(wc -l <<<"$1")
    answers=$(mktemp)
    (close_lock
     exec timeout --signal=KILL "$ANSWER_SECONDS" srun --overlap --mpi=none --input=none "--nodes=$count" "--ntasks=$count" \
        --ntasks-per-node=1 "--nodelist=$(paste -sd, <<<"$1")" \
        bash -c "$(declare -f end_ranks); end_ranks KILL; printenv SLURMD_NODENAME" >"$answers" 2>/dev/null)
    without "$(<"$answers")" <<<"$1"
    rm -f "$answers"
}

# bound_launcher PID SIZE: kills srun some seconds after it has begun to end its ranks. For a dead node, and for a rank that
# tries to save without its peers, it would wait two seconds longer than Slurm's KillWait (30 s by default). SIZE is that of
# the log when srun started: lines before it are from another srun.
readonly ABORT_SECONDS=3
bound_launcher() {
    local began=$2 size=$2 aborted='' now
    close_lock
    while sleep 1 && kill -0 "$1" 2>/dev/null; do
        now=$(size_of_log)
        if [ -z "$aborted" ]; then
            # The 200 bytes before hold the beginning of an incomplete line. Not grep -q, which would end the pipe before tail
            # and so fail it.
            aborted=$(tail -c "+$((1 + (size - 200 > began ? size - 200 : began)))" "$log" 2>/dev/null |
                      grep -E '^srun: (.*Terminating StepId=|Job step aborted: Waiting)') && aborted=$SECONDS
        elif [ $((SECONDS - aborted)) -ge "$ABORT_SECONDS" ]; then
            say "srun still waits for ranks that it has ended $ABORT_SECONDS s ago: killing it"
            kill -KILL "$1" 2>/dev/null
        fi
        size=$now
    done
}

# watch_first_node: starts a process on another node that requeues the job if the job loses its first node. Slurm would let
# the job run on without the batch script, until the time limit.
watch_pid='' watch_node=''
watch_first_node() {
    local node
    if [ -n "$watch_pid" ]; then
        if kill -0 "$watch_pid" 2>/dev/null && ! grep -qxF -- "$watch_node" <<<"$bad_nodes"; then return 0; fi
        kill -KILL "$watch_pid" 2>/dev/null || true
    fi
    node=$({ spare_nodes; echo "$training_nodes"; } | without "$SLURMD_NODENAME"$'\n'"$bad_nodes" | head -n 1)
    [ -n "$node" ] || return 0
    (close_lock
     exec srun --overlap --mpi=none --input=none --job-name=argosy-watch --nodes=1 --ntasks=1 --ntasks-per-node=1 \
        "--nodelist=$node" bash -c "$(declare -f requeue_without); requeue_without $SLURM_JOB_ID $SLURMD_NODENAME" \
        >/dev/null 2>&1) &
    watch_pid=$! watch_node=$node
}
# requeue_without JOB NODE: requeues the job as soon as it no longer has the node.
requeue_without() {
    local listed
    trap '' USR1  # from scancel, for the ranks
    while sleep 10; do
        listed=$(scontrol show job -o "$1" | tr ' ' '\n' | sed -n 's/^NodeList=//p')
        case $listed in "" | "(null)") continue ;; esac
        scontrol show hostnames "$listed" | grep -qxF -- "$2" || scontrol requeue "$1"
    done
}
