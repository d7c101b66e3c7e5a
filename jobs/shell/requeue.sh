# shellcheck shell=bash
# How a training job starts in its run's folder and how it ends: which starts are refused, how often and how late the job
# is requeued, and without which nodes. job.sh sources this file, which uses its variables.
# shellcheck disable=SC2154

# Prints a field of this job in Slurm; nothing if Slurm does not answer within some seconds.
job_field() {
    local answer
    for _ in {1..4}; do
        if answer=$(scontrol show job -o "$job_id" 2>/dev/null); then
            tr ' ' '\n' <<<"$answer" | sed -n "0,/^$1=/s/^$1=//p"
            return 0
        fi
        sleep 2
    done
}

# Takes the lock of the run's folder, before this job writes there, or ends the job. Waits for submit.sh, which submits this
# job, for an earlier start of this job, whose shell may still run on a node that Slurm gave up, and for a job that Slurm is
# ending.
readonly PATIENCE_SECONDS=120
lock_run() {
    local folder=$1 holder patience began=$SECONDS said=''
    until try_lock "$folder" "job $job_id, restart ${SLURM_RESTART_COUNT:-0} on $SLURMD_NODENAME"; do
        holder=$(holder_of "$folder")
        case $holder in
            "job $job_id,"* | submit*) patience=$PATIENCE_SECONDS ;;
            *) patience=2
               [ "$(job_state "$holder")" != COMPLETING ] || patience=$PATIENCE_SECONDS ;;
        esac
        if [ $((SECONDS - began)) -ge "$patience" ]; then
            [ "$patience" = 2 ] || requeue_later "$folder" "$holder"
            refuse_folder "$folder" "$holder"
        fi
        [ -n "$said" ] || say "waiting for the lock of $folder ($holder)"
        said=yes
        sleep 1
    done
    holder=$(user_of "$folder")
    case $holder in "" | "by run.lock: job $job_id,"*) ;; *) refuse_folder "$folder" "$holder" ;; esac
}

# job_state HOLDER: prints the state of the job that a lock names, "job 12, ..."; nothing if it is not in the queue.
job_state() { [[ $1 != job\ * ]] || sed 's/job //; s/,.*//' <<<"$1" | xargs -I{} squeue -h -j {} -o %T 2>/dev/null || true; }

# requeue_later FOLDER HOLDER: requeues the job, whose nodes must not idle while the holder's node or process hangs. Does
# nothing after ARGOSY_MAX_RESTARTS restarts.
readonly BUSY_FOLDER_DELAY_SECONDS=1800
requeue_later() {
    [ "${SLURM_RESTART_COUNT:-0}" -lt "$ARGOSY_MAX_RESTARTS" ] || return 0
    say "$1 is still in use ($2), and the holder's node or process may hang: job $job_id is requeued and starts in" \
        "$BUSY_FOLDER_DELAY_SECONDS s at the earliest"
    trap '' TERM
    ask_requeue && change "StartTime=now+$BUSY_FOLDER_DELAY_SECONDS"
    exit 1
}

# refuse_folder FOLDER HOLDER: ends the job.
refuse_folder() {
    say "$1 is in use ($2), so this job has changed nothing there: wait for its end, scancel it, or submit with another" \
        "job.dump_folder"
    exit 2
}

# Whether the job's time limit, which may have changed since the submission, is later than the signal that asks the run to
# save. Otherwise each start would be requeued at once.
check_time_limit() {
    local limit signal
    limit=$(job_field TimeLimit)
    signal=$(sed -n 's/^#SBATCH --signal=.*@//p' "$0" | tail -n 1)
    is_long_enough "$limit" "${signal:-0}" && return 0
    say "$(explain_short_limit "$limit" "$signal"), or: scontrol update jobid=$job_id TimeLimit=MINUTES"
    return 1
}

# The file `restarts` counts the starts of this job: "job step starts quick inside": the starts since the newest step last
# changed, the successive starts that ended within QUICK_SECONDS, and the starts inside the job. Another job counts from 0,
# because a person submitted it. read_restarts sets variables of these names; read_end also counts the start that ends now.
readonly QUICK_SECONDS=600
read_restarts() {
    counted_job='' counted_step=0 starts=0 quick=0 inside=0
    if [ -e "$run/restarts" ]; then read -r counted_job counted_step starts quick inside <"$run/restarts" || true; fi
    quick=${quick:-0} inside=${inside:-0}
    if [ "$counted_job" != "$job_id" ]; then counted_step='' starts=0 quick=0 inside=0; fi
}
read_end() {
    read_restarts
    if [ $((SECONDS - start_began)) -lt "$QUICK_SECONDS" ]; then quick=$((quick + 1)); else quick=0; fi
}

# Counts this start. Returns 1 after too many starts.
count_restart() {
    local newest counted_job counted_step starts quick inside
    newest=$(newest_step)
    read_restarts
    [ "$counted_step" = "$newest" ] || starts=0
    if [ "$starts" -gt "$ARGOSY_RESTARTS_WITHOUT_PROGRESS" ]; then
        say "$((starts - 1)) restarts of job $job_id saved no step after $newest: giving up (77). See" \
            "the error above; sbatch $run/job.sbatch tries again"
        return 1
    fi
    if [ $((${SLURM_RESTART_COUNT:-0} + inside)) -gt "$ARGOSY_MAX_RESTARTS" ]; then
        say "job $job_id was restarted more than ARGOSY_MAX_RESTARTS = $ARGOSY_MAX_RESTARTS times: giving up (77)." \
            "sbatch $run/job.sbatch continues the run"
        return 1
    fi
    keep restarts <<<"$job_id $newest $((starts + 1)) $quick $inside" || exit 1
}

# Prints the seconds that the job must wait before it starts again; 0: as long as Slurm wants (AuthInfo's cred_expire, two
# minutes). The wait doubles with each further start that ended quickly, up to an hour.
restart_delay() {
    local counted_job counted_step starts quick inside delay=0
    [ -n "$run" ] || { echo 0; return; }
    read_end
    keep restarts <<<"$job_id ${counted_step:-0} $starts $quick $inside"
    if [ "$quick" -gt 1 ]; then delay=$((ARGOSY_RESTART_DELAY_SECONDS * 2 ** (quick < 12 ? quick - 1 : 11))); fi
    echo $((delay < 3600 ? delay : 3600))
}

# Prints the nodes that the pre-flight found bad: "bad_nodes": ["n3"] in its JSON.
nodes_of_preflight() {
    [ -e "$run/preflight.json" ] || return 0
    tr -d '\n' <"$run/preflight.json" 2>/dev/null | sed -n 's/.*"bad_nodes": *\[\([^]]*\)\].*/\1/p' | tr -d '" '
}

# Prints the nodes of the ranks that the log calls missing since this start: "missing: rank 3, 5". If more than one node and
# more than half of the training nodes are missing, logs that instead: the network may be at fault, and too few other nodes
# may be free.
nodes_of_missing_ranks() {
    local rank name names=() bad=()
    mapfile -t names <<<"$training_nodes"
    for rank in $(tail -c "+$((log_size + 1))" "$log" 2>/dev/null |
                  sed -n 's/.*; missing: rank \([0-9, ]*\).*/\1/p' | tr -d ,); do
        name=${names[rank / ${SLURM_NTASKS_PER_NODE:-1}]:-}
        [ -z "$name" ] || bad+=("$name")
    done
    [ ${#bad[@]} -gt 0 ] || return 0
    mapfile -t bad < <(printf '%s\n' "${bad[@]}" | sort -u)
    if [ ${#bad[@]} -gt 1 ] && [ $((2 * ${#bad[@]})) -gt ${#names[@]} ]; then
        say "ranks of ${#bad[@]} of ${#names[@]} nodes are missing: the network between the nodes may be at fault"
    else
        paste -sd, <(printf '%s\n' "${bad[@]}")
    fi
}

# Prints the nodes that the staging, the pre-flight, if it has failed, or the watchdog named, as n3,n5. The watchdog may have named nodes at
# any code: srun returns the highest code of all ranks, which may hide the watchdog's 76.
named_nodes() {
    if [ -n "$unfit_nodes" ]; then echo "$unfit_nodes"
    elif [ -n "$preflight_failed" ]; then nodes_of_preflight
    else nodes_of_missing_ranks
    fi
}

# exclude NODES: adds the nodes to the file `excluded`, which holds the job's own exclusions, the oldest first:
# "JOB NODE SECONDS_SINCE_1970".
exclude() {
    local node
    { [ ! -e "$run/excluded" ] || cat "$run/excluded"
      for node in ${1//,/ }; do echo "$job_id $node $(date +%s)"; done; } | keep excluded
}

# request_of_next_start: prints the words with which scontrol asks for the nodes of the next start: without those that the user
# excluded, and those that this job excluded within ARGOSY_EXCLUDE_HOURS, but only the newest ARGOSY_MAX_EXCLUDED. If too few
# usable nodes are left, the start has fewer spares; if that is not enough, the least guilty of the job's own exclusions come
# back. If Slurm does not answer, the start asks for as many as it asked about last. The file `next_start` says so to status.sh:
# "JOB SPARES SPARES_OF_THE_SUBMISSION NODES_THAT_COME_BACK". Prints nothing if Slurm does not say which nodes are excluded now.
request_of_next_start() {
    local excluded theirs='' own back='' node count=$((num_nodes + ${ARGOSY_SPARES:-0}))
    excluded=$(job_field ExcNodeList)
    [ -n "$excluded" ] || return 0
    [ "$excluded" = "(null)" ] || theirs=$(scontrol show hostnames "$excluded") || return 0
    theirs=$(without "$(own_exclusions 0)" <<<"$theirs")
    own=$(own_exclusions $(($(date +%s) - 3600 * ARGOSY_EXCLUDE_HOURS)) | tail -n "$ARGOSY_MAX_EXCLUDED")
    rm -f "$run/next_start"
    if lacks_nodes "$count" "$theirs" "$own" && can_ever_start "$num_nodes" "$theirs"; then
        while lacks_nodes "$count" "$theirs" "$own"; do
            if [ "$count" -gt "$num_nodes" ]; then count=$((count - 1)); continue; fi
            node=$(least_guilty | grep -xF -- "$own" | head -n 1)
            [ -n "$node" ] || break
            own=$(without "$node" <<<"$own") back+=${back:+,}$node
        done
        say "too few nodes are usable for the next start:" \
            "${ARGOSY_SPARES:+it has $((count - num_nodes)) spares of $ARGOSY_SPARES${back:+, and }}${back:+it may use these excluded nodes again: $back}"
        keep next_start <<<"$job_id $((count - num_nodes)) ${ARGOSY_SPARES:-0} $back"
    fi
    echo "ExcNodeList=$(printf '%s\n' "$theirs" "$own" | grep . | sort -u | paste -sd,)"
    [ "$count" = "$((num_nodes + ${spares:-0}))" ] ||
        echo "NumNodes=$count NumTasks=$((count * ranks_per_node)) NumCPUs=$((count * ranks_per_node * cpus_per_rank))"
}

# can_ever_start COUNT NODE ...: whether Slurm could start the job on so many of the nodes that are up, without these, once
# other jobs leave them. Returns 1 if not, and 2 if Slurm does not answer. Slurm would refuse the script's dependency if that job
# is forgotten.
can_ever_start() {
    local excluded said code
    excluded=$(printf '%s\n' "${@:2}" | grep . | paste -sd,)
    for _ in {1..4}; do
        code=0
        said=$(grep -vE '^#SBATCH --(array|dependency|kill-on-invalid-dep)=' "$0" |
               timeout 30 sbatch --test-only "--nodes=$1" "--ntasks=$(($1 * ranks_per_node))" \
                   ${excluded:+"--exclude=$excluded"} 2>&1) || code=$?
        if [ "$code" = 0 ]; then return 0; fi
        if [ "$code" != 124 ] && ! says_no_answer "$said"; then return 1; fi
        sleep 2
    done
    return 2
}

# lacks_nodes COUNT NODE ...: whether Slurm answers that the job can never start on so many nodes. Says so if Slurm does not answer.
lacks_nodes() {
    local code=0
    can_ever_start "$@" || code=$?
    [ "$code" != 2 ] || say "Slurm does not answer whether $1 node(s) are usable, so the next start asks for $1"
    [ "$code" = 1 ]
}

# says_no_answer MESSAGE: whether a command of Slurm says that the controller did not answer.
says_no_answer() {
    local words='unable to contact|connect(ion)? failure|connection (refused|reset|timed out)|not connected|(send|receive) failure|timed out on send/recv'
    grep -qiE "$words|cannot be transmitted|zero bytes were transmitted|temporarily un" <<<"$1"
}

# Prints the nodes that this job has excluded: first those that the fewest starts named, of these first the oldest exclusion.
least_guilty() {
    awk -v job="$job_id" '$1 == job { times[$2]++; newest[$2] = $3 } END { for (node in times) print times[node], newest[node], node }' \
        "$run/excluded" | sort -n -k 1,1 -k 2,2 | cut -d' ' -f3
}

# without LIST < LIST: prints the lines that the other list does not have.
without() { grep -vxF -- "$1" | grep . || true; }

# own_exclusions SINCE: prints the nodes that this job has excluded since this time, each once, by the time of the last one.
own_exclusions() {
    [ ! -e "$run/excluded" ] || tac "$run/excluded" |
        awk -v job="$job_id" -v since="$1" '$1 == job && $3 >= since && !seen[$2]++ { print $2 }' | tac
}

# requeue CODE [NODES]: requeues this job, whose run ended with CODE, without these nodes. Slurm
# changes only a pending job, so the nodes are excluded after the requeue. That is in time: the job stays pending for at
# least two minutes (AuthInfo's cred_expire). Slurm sends SIGTERM to this shell meanwhile, so the shell ignores it.
requeue() {
    local code=$1 nodes delay request=''
    trap '' TERM
    delay=$(restart_delay)
    nodes=$(tr , '\n' <<<"${2:-}" | without "$bad_nodes" | paste -sd,)  # the job has excluded bad nodes when it replaced them
    [ -z "$nodes" ] || exclude "$nodes"
    if [ -e "$run/excluded" ] || [ "${ARGOSY_SPARES:-0}" -gt 0 ]; then request=$(request_of_next_start); fi
    ask_requeue || { record end "$code" failed; return 0; }
    # shellcheck disable=SC2086
    [ -z "$request" ] || change $request
    [ "$delay" -gt 0 ] || return 0
    say "the job starts in $delay s at the earliest, because its last starts ended quickly"
    change "StartTime=now+$delay"
}

# Asks Slurm to requeue this job, for five minutes if its controller does not answer. Returns 1 if Slurm does not requeue it.
ask_requeue() {
    local said attempt
    for attempt in {1..30}; do
        [ "$attempt" = 1 ] || sleep 10
        said=$(scontrol requeue "$job_id" 2>&1) && return 0
        says_no_answer "$said" || break
    done
    is_restarted_by_slurm && return 0  # the controller had heard a request that it did not answer
    say "Slurm refused to requeue job $job_id: $said"
    return 1
}

# change FIELD=VALUE ...: changes this job, which Slurm has just requeued.
change() {
    for _ in {1..20}; do
        scontrol update "jobid=$job_id" "$@" 2>/dev/null && return 0
        sleep 0.3
    done
    say "Slurm refused to set $* in 20 attempts: the next start may come at once, or get the same nodes"
}

# Whether Slurm has already restarted this job, as it does when a node fails. srun then exits with 0.
is_restarted_by_slurm() {
    local restarts
    restarts=$(job_field Restarts)
    [ -n "$restarts" ] && { [ "$restarts" != "${SLURM_RESTART_COUNT:-0}" ] || [ "$(job_field JobState)" = PENDING ]; }
}

# Prints the three variables in the environment of this start's processes on this node.
start_marks() {
    printf '%s\n' "SLURM_JOB_ID=$SLURM_JOB_ID" "SLURMD_NODENAME=$SLURMD_NODENAME" "ARGOSY_RESTART=${SLURM_RESTART_COUNT:-0}"
}

# end_ranks SIGNAL: signals the ranks of this start, and of starts inside it, on this node. If slurmd is gone, nothing else
# ends them: they would train on and hold the lock of the run's folder.
end_ranks() {
    local signal=$1 file mine marks
    marks=$(start_marks)
    for file in /proc/[0-9]*/environ; do
        mine=$(tr '\0' '\n' 2>/dev/null <"$file" | grep -cxF "$marks") || true
        [ "$mine" != 3 ] || kill "-$signal" "$(basename "$(dirname "$file")")" 2>/dev/null || true
    done
}

# Prints how Slurm is ending the job: "cancelled", and Slurm's reason for it if the log has one ("due to time limit").
# Prints nothing if the job runs on. A job of which Slurm reports no state counts as running.
ending() {
    local reason
    if [ -z "$ended" ]; then
        case $(job_field JobState) in RUNNING | "") return 0 ;; esac
    fi
    reason=$(tail -c "+$((log_size + 1))" "$log" 2>/dev/null |
             sed -n 's/.*\*\*\* JOB .* CANCELLED AT .* \(DUE TO .*\) \*\*\*.*/ \1/p')
    echo "cancelled${reason,,}"
}

# Ends or requeues the job, as the exit code of the run says. A job that was warned and saved (75) is requeued even if its
# time limit has passed.
end_or_requeue() {
    local code=$1 nodes='' cause=''
    set +e  # a full disk, for example, must not prevent the requeue
    if is_restarted_by_slurm; then
        say "exit $code, but Slurm has already restarted job $job_id: asking the ranks of this start to save and stop"
        end_ranks TERM
        sleep 20
        end_ranks KILL
        record end 1 restarted
        exit 1
    fi
    unstage_programs
    case $code,$preflight_failed in
        0,) record end 0 "done"; rm -f "$run/restarts"; say "done"; exit 0 ;;
        2, | 3, | 77,) say "exit $code: a restart would fail the same way, so the job ends"
                       record end "$code" failed; exit "$code" ;;
    esac
    nodes=$(named_nodes) || true
    [ "$code" = 75 ] && [ -n "$warned" ] || cause=$(ending)
    if [ -n "$preflight_failed" ] && [ -z "$nodes" ]; then
        say "the pre-flight failed but named no node: the job ends"
        record end 3 failed
    elif [ -n "$cause" ]; then
        say "exit $code; the job is $cause"
        record end "$code" cancelled
    else
        record end "$code" requeued
        say "exit $code; requeueing job $job_id${nodes:+ without $nodes}"
        requeue "$code" "$nodes"
    fi
    exit "$code"
}
