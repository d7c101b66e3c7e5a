#!/usr/bin/env bash
# Runs the filled script of a training job without Slurm, over stand-ins for its commands and for the training: what the job
# says, writes and asks of Slurm at its start and at its end.
set -euo pipefail
folder=$(mktemp -d)
holder=
trap 'rm -rf "$folder"; [ -z "$holder" ] || kill "$holder" 2>/dev/null || true' EXIT
jobs=$ARGOSY_SOURCE/jobs
run=$folder/outputs/debug_cpu
real=$ARGOSY_BIN
export ARGOSY_BIN=$folder/programs ARGOSY_SCRATCH=$folder ARGOSY_GPUS=no ARGOSY_RANKS_PER_NODE=1 ARGOSY_PREFLIGHT=no
export PATH=$folder/bin:$PATH
fail() { echo "FAILED: $*"; [ ! -e "$folder/said" ] || cat "$folder/said"; exit 1; }
mkdir "$folder/bin" "$folder/programs"
stand_in() { { echo '#!/bin/bash'; cat; } >"$folder/$1" && chmod +x "$folder/$1"; }

stand_in bin/sbatch <<<'[ "$1" != --test-only ] || exit 0; echo 17'
stand_in bin/squeue <<<'true'
stand_in bin/sinfo <<<'true'
stand_in bin/srun <<<'[ "$1" != --mpi=list ] || exec echo pmix; while [[ $1 = --* ]]; do shift; done; exec "$@"'
# The job's fields are in the file `job`; requests to change it are added to the file `asked`.
stand_in bin/scontrol <<SCONTROL
case "\$1 \$2" in
    "show job") cat $folder/job ;;
    "show hostnames") tr , '\n' <<<"\$3" ;;
    *) echo "\$*" >>$folder/asked ;;
esac
SCONTROL
# Training saves a step and ends with the code in the file `code`. The real pretrain prints each configuration once, without
# the interface of the job, which this machine lacks.
stand_in programs/pretrain <<PRETRAIN
case "\$*" in *--print-config)
    [ -e $folder/settings-\$# ] || env -u OMPI_MCA_oob_tcp_if_include -u OMPI_MCA_btl_tcp_if_include \\
        $real/pretrain "\$@" >$folder/settings-\$# || exit
    exec cat $folder/settings-\$# ;;
esac
[ -e $folder/saves-nothing ] ||
    mkdir -p $run/checkpoint/step-0000000\$((\$(ls $run/checkpoint 2>/dev/null | wc -l) + 1))
echo "NCCL_DEBUG=\$NCCL_DEBUG, topology to \$NCCL_TOPO_DUMP_FILE." >&2
echo "algorithm '\$NCCL_ALGO', preflight '\$ARGOSY_PREFLIGHT', interface '\$NCCL_SOCKET_IFNAME'" >&2
ls -l /proc/\$\$/fd | grep job.lock >&2
echo "started as \$0, libraries in '\$LD_LIBRARY_PATH'" >&2
cat $folder/message >&2
[ ! -e $folder/stop ] || kill -STOP \$\$
exit \$(cat $folder/code)
PRETRAIN
stand_in programs/preflight <<<'true'
: >"$folder/message"

# job RESTART [VARIABLE=VALUE ...]: runs the submitted script as a start of job 17 on node n1. Sets `status`.
job() {
    local restart=$1
    shift
    : >"$folder/asked"
    echo "JobId=17 JobState=RUNNING Restarts=$restart TimeLimit=${limit:-1-00:00:00} ExcNodeList=${excluded:-(null)}" \
        "StdOut=$folder/said" >"$folder/job"
    status=0
    env -u NCCL_DEBUG -u ARGOSY_BIN -u ARGOSY_SCRATCH SLURM_JOB_ID=17 SLURM_JOB_NODELIST=n1 SLURMD_NODENAME=n1 \
        SLURM_NTASKS=1 SLURM_NTASKS_PER_NODE=1 SLURM_JOB_NUM_NODES=1 SLURM_RESTART_COUNT="$restart" \
        "$@" "$run/job.sbatch" >"$folder/said" 2>&1 || status=$?
}
says() { grep -qF -- "$1" "$folder/said" || fail "does not say '$1'"; }
silent() { if grep -qF -- "$1" "$folder/said"; then fail "says '$1'"; fi; }
ends() { sed -n 's/.*"event":"end","exit_code":\([^,]*\),"outcome":"\([^"]*\)".*/\1 \2/p' "$run/jobs.jsonl" | paste -sd,; }

# The site's file sources the default one, and has commands that fail: one of them only on this node, which lacks it.
printf '%s\n' 'export FROM_SITE=${NOT_SET}yes' false 'if [ -n "${SLURM_JOB_ID:-}" ]; then no-such-command 4; fi' 'source "$(dirname "${BASH_SOURCE[0]}")/site.conf"' \
    'source "$ARGOSY_JOBS/site.conf"' >"$folder/mine.conf"
cp "$jobs/site.conf" "$folder"
export ARGOSY_SITE=$folder/mine.conf
touch "$folder/tokens.h5"
sed "s|^\[training\]|&\ndataset_path = \"$folder/tokens.h5\"|" "$ARGOSY_SOURCE/configs/debug_cpu.toml" >"$folder/debug_cpu.toml"
NCCL_DEBUG=WARN ARGOSY_INTERFACE=eth9 "$jobs/submit.sh" "$folder/debug_cpu.toml" >"$folder/said" 2>&1 || fail "not submitted"

# The script needs nothing of the shell that submits it again, and says what has changed since.
echo 0 >"$folder/code"
job 0 ARGOSY_LAUNCHER=nothing NCCL_ALGO=Ring ARGOSY_OTHER=1
[ "$status" = 0 ] || fail "status $status"
says "NCCL_DEBUG=WARN, topology to ."
says "algorithm '', preflight 'no', interface '=eth9'"
says "warning: $run/scripts/own_site.conf, line 3: a command was not found: no-such-command 4."
silent job.lock  # training does not hold the lock of the job's shell
silent "changed since"
echo "# another build" >>"$folder/programs/pretrain"
job 1
says "warning: changed since the previous start or the submission: pretrain (was pretrain "
job 2
silent "changed since"
[ "$(grep -o '"program":"[^"]*"' "$run/jobs.jsonl" | sort -u | wc -l)" = 2 ] || fail "jobs.jsonl does not say what was started"
[ "$(ends)" = "0 done,0 done,0 done" ] || fail "ends: $(ends)"

# A start whose shell was killed has its line when the next one starts.
sed -i '$d' "$run/jobs.jsonl"
job 3
[ "$(ends)" = "0 done,0 done,null lost,0 done" ] || fail "ends: $(ends)"
# It has the newest step, which is that of the next start, not the one with which the killed start began.
grep -F '"lost"' "$run/jobs.jsonl" | grep -q '"newest_step":3,' || fail "the lost end: $(grep -F lost "$run/jobs.jsonl")"

# A wrong setting of the site, and a limit that was lowered: the job says so, ends with 2, and records it.
sed -i '$a ARGOSY_LAUNCHER=prun' "$run/scripts/own_site.conf"
job 4
[ "$status" = 2 ] || fail "status $status"
says "ARGOSY_LAUNCHER is 'prun'"
says "warning: changed since the previous start or the submission: site ("
sed -i '$d' "$run/scripts/own_site.conf"
limit=00:05:00 job 5
[ "$status" = 2 ] || fail "status $status"
says "the time limit 00:05:00 leaves no time to train"
[ "$(ends)" = "0 done,0 done,null lost,0 done,2 failed,2 failed" ] || fail "ends: $(ends)"

# With GPUs, NCCL writes its topology to the run's folder.
sed -i 's/^export ARGOSY_GPUS=no/export ARGOSY_GPUS=yes/' "$run/job.sbatch"
job 5
says "topology to $run/nccl-topology.xml."
sed -i 's/^export ARGOSY_GPUS=yes/export ARGOSY_GPUS=no/' "$run/job.sbatch"

# The lock of another job: a job that ends soon is waited for, and one that runs refuses this one, which changes nothing.
hold() { flock --no-fork "$run/job.lock" sleep 60 & holder=$!; sleep 0.3; echo "job 5, restart 0 on n9" >"$run/job.lock"; }
lines=$(wc -l <"$run/jobs.jsonl")
stand_in bin/squeue <<<'echo COMPLETING'
hold
{ until grep -q "waiting for the lock" "$folder/said"; do sleep 0.1; done; kill "$holder"; } &
job 5
says "waiting for the lock of $run (job 5, restart 0 on n9)"
[ "$status" = 0 ] || fail "status $status"
stand_in bin/squeue <<<'echo RUNNING'
hold
job 5
[ "$status" = 2 ] || fail "status $status"
says "$run is in use (job 5, restart 0 on n9), so this job has changed nothing there"
[ "$(wc -l <"$run/jobs.jsonl")" = $((lines + 2)) ] || fail "a refused job wrote to jobs.jsonl"
kill "$holder"
wait

# The nodes that a start names are excluded, with those of the user, until they are too old or too many. The command of the
# site learns of each end.
stand_in bin/report <<<"echo \$ARGOSY_END_JOB \$ARGOSY_END_CODE \$ARGOSY_END_OUTCOME >$folder/ends
env | grep -E '^(NCCL_(TOPO|SOCKET)|OMPI)' >$folder/leaked; ls -l /proc/\$\$/fd | grep job.lock >>$folder/leaked"
sed -i 's/^export ARGOSY_MAX_EXCLUDED=.*/export ARGOSY_MAX_EXCLUDED=2/; s/^export ARGOSY_ON_END=.*/export ARGOSY_ON_END=report/' \
    "$run/job.sbatch"
echo 76 >"$folder/code"
asks() { grep -qF -- " ExcNodeList=$1" "$folder/asked" && ! grep -qF -- " ExcNodeList=$1," "$folder/asked" ||
         fail "asks for other exclusions than $1: $(<"$folder/asked")"; }
echo "no answer in 9 s; missing: rank 0. Who" >"$folder/message"
excluded=user1 job 6
asks n1,user1
[ "$(<"$folder/ends")" = "17 76 requeued" ] || fail "the site's command learned '$(cat "$folder/ends")'"
[ ! -s "$folder/leaked" ] || fail "the site's command gets of the job: $(<"$folder/leaked")"
: >"$folder/message"

# A file system that does not answer is no fault of a node. The message is the watchdog's.
echo "pretrain: error on rank 0 of 2: waiting for the file system: rank 0 (writing 'metrics.jsonl' for 901 s)" >"$folder/message"
excluded=user1 job 6
if grep -q n2 "$folder/asked" || ! asks n1,user1; then fail "a stalled file system excludes a node: $(<"$folder/asked")"; fi
: >"$folder/message"

# A lone rank that is stopped for ever is ended, and the job is requeued.
sed -i 's/^export ARGOSY_STOPPED_SECONDS=.*/export ARGOSY_STOPPED_SECONDS=2/' "$run/job.sbatch"
: >"$folder/stop"
excluded=user1 job 6
rm "$folder/stop"
[ "$status" = 76 ] || fail "a stopped rank: status $status"
says "the rank is stopped (SIGSTOP) for 2 s (ARGOSY_STOPPED_SECONDS): it is ended"
says "requeueing job 17"

sed -i "s/^17 n1 .*/17 n1 $(($(date +%s) - 3600 * 23))/" "$run/excluded"
excluded=user1,n1 job 7
asks n1,user1
sed -i "s/^17 n1 .*/17 n1 $(($(date +%s) - 3600 * 25))/" "$run/excluded"
excluded=user1,n1 job 8
asks user1
printf '%s\n' "17 n2 $(date +%s)" "17 n3 $(date +%s)" "17 n4 $(date +%s)" "5 n5 $(date +%s)" >"$run/excluded"
excluded=n2,n3,n4 job 9
asks n3,n4

# Slurm has too few usable nodes without those that the job excluded: of n2, which two starts named, n3 and n4, the least guilty
# come back. If n3 alone is enough, n4, whose exclusion is newer, stays excluded.
stand_in bin/sbatch <<SBATCH
[ "\$1" = --test-only ] || exit 1
grep -q '^train ' && [ \$(grep -oE 'n[0-9]' <<<"\$*" | grep -xf $folder/up | wc -l) -le \$((\$(wc -l <$folder/up) - 1)) ]
SBATCH
printf '%s\n' n2 n3 n4 >"$folder/up"
printf '%s\n' "17 n2 $(($(date +%s) - 60))" "17 n2 $(($(date +%s) - 40))" "17 n3 $(($(date +%s) - 20))" "17 n4 $(date +%s)" >"$run/excluded"
sed -i 's/^export ARGOSY_MAX_EXCLUDED=.*/export ARGOSY_MAX_EXCLUDED=8/' "$run/job.sbatch"
excluded=user1,n2,n3,n4 job 9
asks n2,n4,user1
says "too few nodes are usable for the next start: it may use these excluded nodes again: n3"
[ "$(<"$run/next_start")" = "17 0 0 n3" ] || fail "next_start is '$(<"$run/next_start")'"
echo n5 >>"$folder/up"
excluded=user1,n2,n4 job 9
asks n2,n3,n4,user1
silent "too few nodes"
[ ! -e "$run/next_start" ] || fail "next_start stays"
: >"$folder/up"  # also without these exclusions no node is usable: they stay
excluded=user1 job 9
asks n2,n3,n4,user1
silent "too few nodes"

# A controller that does not answer is not a lack of nodes: the exclusions stay, and the next start asks for all of its nodes.
cp "$folder/bin/sbatch" "$folder/bin/sbatch-answers"
stand_in bin/sleep <<<'exec /bin/sleep 0.1'
stand_in bin/sbatch <<<'echo "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)" >&2; exit 1'
printf '%s\n' n2 n3 n4 >"$folder/up"
excluded=user1 job 9
asks n2,n3,n4,user1
silent "too few nodes"
says "Slurm does not answer whether 1 node(s) are usable, so the next start asks for 1"
[ ! -e "$run/next_start" ] || fail "a controller that does not answer leaves next_start"
# It answers the second time, and enough nodes are usable.
echo n5 >>"$folder/up"
stand_in bin/sbatch <<SBATCH
[ -e $folder/asked-once ] || { : >$folder/asked-once; echo "Socket timed out on send/recv operation" >&2; exit 1; }
exec $folder/bin/sbatch-answers "\$@"
SBATCH
excluded=user1 job 9
asks n2,n3,n4,user1
silent "too few nodes"
: >"$folder/up"
cp "$folder/bin/sbatch-answers" "$folder/bin/sbatch"
rm "$folder/bin/sleep"

# Staging: ranks start from a folder of the node, which goes at the end, and folders of jobs that are not in the queue go as well.
stand_in bin/squeue <<<'echo 17; echo 6'
stand_in bin/sbcast <<<"[ ! -e $folder/no-sbcast ] || { echo 'sbcast: error: No space left' >&2; exit 1; }; exec cp \"\${@:2}\""
stand_in bin/df <<<"echo 'df: a warning' >&2; echo Avail; cat $folder/free"
touch -d tomorrow "$folder/programs/pretrain"  # the clock of the first node is ahead
echo 9999999 >"$folder/free"
staged() { rm -f "$run/restarts"; job 9 ARGOSY_STAGE="$local" "$@"; [ ! -e "$run/stage.tar" ] || fail "an archive stays"; }
local=$folder/local
mkdir -p "$local"/argosy.{17.4,5.0,6.0}
sed -i '/^export ARGOSY_STAGE=/d' "$run/job.sbatch"
sed -i 's/^unset /export STAGE=$ARGOSY_STAGE; &/; s/^set -- /export ARGOSY_STAGE=$STAGE; &/' "$run/job.sbatch"
staged LD_LIBRARY_PATH=/opt/lib
says "started as $local/argosy.17.9/pretrain, libraries in '$local/argosy.17.9:/opt/lib'"
[ "$(ls "$local")" = argosy.6.0 ] || fail "$local has $(ls "$local")"
staged SLURM_TMPDIR="$local" ARGOSY_STAGE='$SLURM_TMPDIR'
says "started as $local/argosy.17.9/pretrain, libraries in '$local/argosy.17.9'"
# What all nodes lack ends the job, what one of them lacks does not: it is requeued without that node. srun starts one task here.
refuses() { [ "$status" = 2 ] && [ ! -s "$folder/asked" ] || fail "status $status, asked: $(<"$folder/asked")"; says "$1"; silent "started as"; }
echo 1024 >"$folder/free"
staged
refuses "the programs cannot be staged in $local/argosy.17.9 (ARGOSY_STAGE): n1: df: a warning, 1 MiB are free of the 2 MiB that archive and files need"
echo 9999999 >"$folder/free"
local=$folder/nowhere staged
refuses "mkdir: cannot create directory"
staged ARGOSY_STAGE='$SLURM_TMPDIR'
refuses "ARGOSY_STAGE is '\$SLURM_TMPDIR', which is '' in this job: it is no absolute path"
staged SLURM_JOB_NODELIST=n1,n2 SLURM_JOB_NUM_NODES=2 SLURM_NTASKS=2
says "(ARGOSY_STAGE): n2: no answer"
says "$local/argosy.17.9 may stay on n2"
says "requeueing job 17 without n2"
stand_in bin/ldd <<<"printf '\t%s\n' 'libx.so => not found' 'liby y.so.1 => not found'"
staged
refuses "pretrain cannot be staged: its libraries are not found: libx.so liby y.so.1"
rm "$folder/bin/ldd"
: >"$folder/no-sbcast"
staged
says "sbcast: error: No space left"
grep -qx "requeue 17" "$folder/asked" || fail "not requeued after sbcast failed"
[ "$(ls "$local")" = argosy.6.0 ] || fail "$local has $(ls "$local")"
sed -i 's/; export ARGOSY_STAGE=$STAGE; set/; set/' "$run/job.sbatch"
# An archive holds what the program loads beside the machine's own libraries, under the names by which it asks for them.
: >"$folder/libcudnn.so.9"
: >"$folder/libcudnn_ops.so.9"
mkdir "$folder/it's one"
: >"$folder/it's one/liba.so"
libraries=$(ARGOSY_BIN=x bash -c 'source "$1"; libraries_in "$2"' - "$jobs/shell/stage.sh" \
            "$(printf '\t%s (0x1)\n' "liba.so => $folder/it's one/liba.so" "libc.so => /usr/lib/a b/libc.so"; ldd "$real/pretrain"
               printf '\t%s (0x1)\n' "libcudnn.so.9 => $folder/./libcudnn.so.9")")
[ "$(head -n 1 <<<"$libraries")" = "$folder/it's one/liba.so" ] || fail "a path with a blank: $libraries"
grep -qx "$folder/libcudnn_ops.so.9" <<<"$libraries" || fail "no library that is loaded by name: $libraries"
[ "$(sed 1d <<<"$libraries" | xargs -n 1 basename | grep -v libcudnn | sort)" = "$(ldd "$real/pretrain" | awk '$3 ~ /^\// && $3 !~ /^\/(usr\/)?lib/ { print $1 }' | sort)" ] ||
    fail "other libraries than pretrain loads: $libraries"
# A job with spares has lost n3 and dropped n2: n1 removes its folder. n3, and n4, which does not answer, are named.
cp "$folder/bin/srun" "$folder/bin/srun-runs"
stand_in bin/srun <<<"printenv SLURM_NO_KILL >$folder/steps; echo \"\$*\" >>$folder/steps; exec srun-runs \"\$@\""
echo "NodeList=n1,n2,n4" >"$folder/job"
mkdir "$local/argosy.17.0"
SLURM_NO_KILL=1 SLURM_JOB_NODELIST=n1,n2,n3,n4 SLURMD_NODENAME=n1 ARGOSY_BIN=x bash -c 'set -euo pipefail
    say() { echo "$*"; }
    job_id=17
    for file in run_folder requeue spares stage; do source "$1/shell/$file.sh"; done
    bad_nodes=n2 ended= stage=$2
    unstage_programs' - "$jobs" "$local/argosy.17.0" >"$folder/said" 2>&1 || fail "the folders are not removed"
says "$local/argosy.17.0 may stay on n3,n4"
[[ $(<"$folder/steps") = "--overlap "*" --nodes=2 --ntasks=2 "*" --nodelist=n1,n4 "* ]] || fail "the step is: $(<"$folder/steps")"
[ ! -e "$local/argosy.17.0" ] || fail "the folder stays"
mv "$folder/bin/srun-runs" "$folder/bin/srun"
rm "$folder"/bin/{df,sbcast} "$run/restarts"
stand_in bin/squeue <<<'true'

# Too little room for the programs: said before they start. srun gives this shell's limits to the ranks.
(ulimit -v 700000; job 9; echo "$status" >"$folder/status")
[ "$(<"$folder/status")" = 2 ] || fail "too few addresses: status $(<"$folder/status")"
says "the limit on the address space, 683 MiB (ulimit -v), is below the 1024 MiB that a program needs; remove it"
silent "preflight 'no'"
sed -i '$a ARGOSY_LAUNCHER=mpirun' "$run/scripts/own_site.conf"
stand_in bin/mktemp <<<'echo "mktemp: failed to create file via template: Read-only file system" >&2; exit 1'
job 9 TMPDIR=/none/here
[ "$status" = 1 ] || fail "no room in TMPDIR: status $status"
says "the temporary folder /none/here has no room for the 9216 KiB that MPI needs: Read-only file system; make room there"
says "requeueing job 17"
rm "$folder/bin/mktemp"
sed -i '$d' "$run/scripts/own_site.conf"

# Exit code 3 of the pre-flight: requeued without the node that it named. The same code of pretrain, whose token file is
# damaged: the job ends, also if the pre-flight has passed with a remark on a node.
stand_in programs/preflight <<PREFLIGHT
printf '{"bad_nodes": ["n6"]}' >"\${@: -1}"
echo "pre-flight: \$*" >&2
exit \$(cat $folder/check)
PREFLIGHT
sed -i -e 's/^export ARGOSY_PREFLIGHT=no/export ARGOSY_PREFLIGHT=yes/' \
    -e 's/^export ARGOSY_PREFLIGHT_WARN=.*/export ARGOSY_PREFLIGHT_WARN="MIG,GPU clocks"/' "$run/job.sbatch"
echo 3 | tee "$folder/check" >"$folder/code"
job 9
says "exit 3; requeueing job 17 without n6"
says "effective.toml --only-warn MIG,GPU clocks --history $ARGOSY_SCRATCH/node-history --json"
echo 0 >"$folder/check"
job 9
[ "$status" = 3 ] && [ ! -s "$folder/asked" ] || fail "status $status, asked: $(<"$folder/asked")"
says "exit 3: a restart would fail the same way, so the job ends"
silent "the pre-flight failed"
sed -i 's/^export ARGOSY_PREFLIGHT=yes/export ARGOSY_PREFLIGHT=no/' "$run/job.sbatch"
echo 76 >"$folder/code"

# Slurm does not answer twice, and then requeues the job; the user's exclusions stay if Slurm does not tell them. Slurm
# refuses once, and is not asked again. A full disk does not prevent the requeue.
stand_in bin/sleep <<<'exec /bin/sleep 0.1'
cp "$folder/bin/scontrol" "$folder/bin/scontrol-answers"
stand_in bin/scontrol <<SCONTROL
case "\$1 \$2" in
    "show job") sed 's/ExcNodeList=[^ ]*//' $folder/job ;;
    "requeue 17") [ ! -s $folder/refusal ] || { tail -n 1 $folder/refusal >&2; sed -i '\$d' $folder/refusal; exit 1; }
                  exec $folder/bin/scontrol-answers "\$@" ;;
    *) exec $folder/bin/scontrol-answers "\$@" ;;
esac
SCONTROL
printf "%s\n" "Unable to contact slurm controller (connect failure)"{,} >"$folder/refusal"
echo "17 0 1 3" >"$run/restarts"
: >"$folder/saves-nothing"
excluded=user1 job 10
rm "$folder/saves-nothing"
grep -qx "requeue 17" "$folder/asked" || fail "not requeued after two attempts"
if grep -q ExcNodeList "$folder/asked"; then fail "deletes exclusions that it does not know: $(<"$folder/asked")"; fi
grep -q "StartTime=" "$folder/asked" || fail "no delay: $(<"$folder/asked")"
# A start that ended quickly delays the requeue also if it saved a step.
echo "17 0 1 3" >"$run/restarts"
job 10
grep -q "StartTime=" "$folder/asked" || fail "a start that saved a step and ended quickly does not wait"
[ "$(cut -d' ' -f4 "$run/restarts")" = 4 ] || fail "a start that saved a step does not count as quick: $(<"$run/restarts")"
printf "%s\n" "Requested operation is presently disabled"{,} >"$folder/refusal"
echo "17 0 1 3" >"$run/restarts"
job 11
[ "$(wc -l <"$folder/refusal")" = 1 ] || fail "asks again after a refusal"
says "Slurm refused to requeue job 17: Requested operation is presently disabled"
: >"$folder/refusal"
stand_in programs/pretrain <<PRETRAIN
case "\$*" in *--print-config) exec cat $folder/settings-\$# ;; esac
rm -f $run/restarts.new $run/train.json.new $run/jobs.jsonl
ln -s /dev/full $run/restarts.new
ln -s /dev/full $run/train.json.new
ln -s /dev/full $run/jobs.jsonl
exit 1
PRETRAIN
echo "17 0 1 3" >"$run/restarts"
job 12
grep -qx "requeue 17" "$folder/asked" || fail "not requeued while the disk is full"
[ -s "$run/restarts" ] && [ ! -L "$run/restarts" ] || fail "a full disk empties the file restarts"

# The warning of a command that is not found leaves the message for an exit after it.
printf '%s\n' no-such-command 'exit 0' >"$folder/mine.conf"
if ARGOSY_JOBS=$jobs bash -c 'source "$ARGOSY_JOBS/shell/job.sh"' >"$folder/said" 2>&1; then fail "a site's file with exit"; fi
says "line 1: a command was not found: no-such-command."
says "mine.conf ends the shell that reads it"
echo "passed"
