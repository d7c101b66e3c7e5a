#!/usr/bin/env bash
# Tests submit.sh, bringup.sh and status.sh with stand-ins for Slurm's commands: what submit.sh refuses before anything is
# submitted, and two submissions into one folder at the same time.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
jobs=$ARGOSY_SOURCE/jobs
config=$folder/debug_cpu.toml
sed "s|^\[training\]|&\ndataset_path = \"$folder/tokens.h5\"|" "$ARGOSY_SOURCE/configs/debug_cpu.toml" >"$config"
touch "$folder/tokens.h5"
run=$folder/outputs/debug_cpu
real=$ARGOSY_BIN
export ARGOSY_BIN=$folder/programs ARGOSY_SCRATCH=$folder ARGOSY_GPUS=no ARGOSY_RANKS_PER_NODE=1 PATH=$folder/bin:$PATH
fail() { echo "FAILED: $*"; exit 1; }
mkdir "$folder/bin" "$folder/programs"
stand_in() { { echo '#!/bin/bash'; cat; } >"$folder/bin/$1" && chmod +x "$folder/bin/$1"; }

# The real pretrain prints the configuration without options only once, to save time.
"$real/pretrain" --config "$config" --print-config >"$folder/settings"
stand_in pretrain <<<"[ \$# != 3 ] || exec cat $folder/settings; exec $real/pretrain \"\$@\""
mv "$folder/bin/pretrain" "$folder/programs"
: >"$folder/programs/preflight"

# sbatch accepts every job, and its answer to --test-only is in the file `test-only`.
stand_in sbatch <<SBATCH
if [ "\$1" = --test-only ]; then
    cat >/dev/null
    [ ! -e $folder/test-only ] || { cat $folder/test-only >&2; exit 1; }
    exit 0
fi
sleep 0.5
echo "\${@: -1}" >>$folder/submitted
echo 17
SBATCH
stand_in srun <<<'echo "MPI plugin types are..."; echo "	none"; echo "	pmix"'
stand_in squeue <<<"[ ! -e $folder/queue ] || cat $folder/queue"
stand_in sinfo <<<"cat $folder/partitions"
echo "main*|up|infinite|idle" >"$folder/partitions"

# refused TEXT OPTION ...: submit.sh ends with 2 and one message with the text, and changes nothing.
refused() {
    local expected=$1 status=0 said
    shift
    said=$("$jobs/submit.sh" "$config" "$@" 2>&1 >/dev/null) || status=$?
    [ "$status" = 2 ] && grep -qF -- "$expected" <<<"$said" || fail "status $status without '$expected': $said"
    [ ! -e "$folder/submitted" ] && [ ! -e "$run" ] || fail "something was submitted or written before '$expected'"
}

# Time limits.
refused "leaves no time to train: ARGOSY_SIGNAL_SECONDS = 300 before it the run is asked to save" --time 5
refused "Set a limit of more than 6 minutes" --time 0:06:00
refused "the time limit 7 leaves no time to train: ARGOSY_SIGNAL_SECONDS = 400" --sbatch "--signal=B:USR1@400 --time=7"
refused "--time soon is not a time limit" --time soon
echo "main*|up|1-00:00:00|idle" >"$folder/partitions"
refused "is longer than the 1440 minutes of the partition main;" --time 2-0
echo "main*|up|30:00|idle" >"$folder/partitions"
refused "is longer than the 30 minutes of the partition main" --time 1:00:00
echo "main*|inact|infinite|idle" >"$folder/partitions"
refused "the partition main is not up" --time 1:00:00
echo "main*|up|infinite|idle" >"$folder/partitions"

# What Slurm refuses, and what the site's settings name.
echo "allocation failure: Requested node configuration is not available" >"$folder/test-only"
refused "Slurm cannot run this job: allocation failure: Requested node configuration is not available"
rm "$folder/test-only"
ARGOSY_FABRIC=token-ring refused "the fabric profile 'token-ring' does not exist"
ARGOSY_FABRIC_MORE=rescue refused "the fabric profile 'rescue' does not exist"
ARGOSY_LAUNCHER=prun refused "ARGOSY_LAUNCHER is 'prun'; set it to srun or mpirun"
ARGOSY_MPI=pmi9 refused "Slurm has no plugin ARGOSY_MPI = pmi9: set another of these"
ARGOSY_MPI=none refused "ARGOSY_MPI is none: each rank would start alone, as rank 0 of 1. Set it to pmix"
ARGOSY_GPUS=maybe refused "ARGOSY_GPUS is 'maybe'; set it to yes, gres or no"
ARGOSY_SIGNAL_SECONDS=5m refused "ARGOSY_SIGNAL_SECONDS is '5m', not a number"
stand_in apptainer <<<'exec "${@:4}"'
ARGOSY_CONTAINER=/nowhere/argosy.sif refused "the image ARGOSY_CONTAINER = /nowhere/argosy.sif does not exist"
ARGOSY_MODULES=openmpi refused "the shell has no command 'module'"
module() { [ "$*" = "load openmpi" ]; }
export -f module
ARGOSY_MODULES=hdf5 refused "the modules cannot be loaded"
unset -f module
refused "there is no file /nowhere/site.conf" --site /nowhere/site.conf

# A plan of the run for the site's GPUs: memory, and the number of ranks.
big=(--model.flavor 70B --training.seq_len 4096)
ARGOSY_PLAN=h100 refused "DOES NOT FIT: a device has 79.1 GiB" "${big[@]}"
ARGOSY_PLAN=h100 refused "NONE FITS" "${big[@]}"
ARGOSY_GPU_TYPE=h100 refused "the run cannot train on 2 GPUs (h100)" "${big[@]}" --nodes 2
ARGOSY_PLAN=h100 refused "tp 2 takes a multiple of 2 ranks" --parallelism.tensor_parallel_degree 2
ARGOSY_PLAN=h1000 refused "--gpu h1000 is unknown"
# The plan is of the template's mesh: the configuration's degrees are those of other numbers of nodes.
while read -r name nodes template; do
    said=$(ARGOSY_GPUS=yes ARGOSY_GPU_TYPE=h100 "$jobs/submit.sh" "$ARGOSY_SOURCE/configs/$name.toml" --nodes "$nodes" --ranks-per-node 8 \
           --training.dataset_path "$folder/tokens.h5" --dry-run 2>&1) && grep -q -- "--job-name=$name-$template" <<<"$said" || fail "$name on $nodes nodes: $said"
done <<'RUNS'
llama3_8b_1node 2 fsdp
llama3_8b_multinode 8 hsdp
llama3_8b_multinode 16 hsdp
llama3_70b_3d 16 3d
llama3_405b 128 4d
RUNS
ARGOSY_GPU_TYPE=h100 refused "dp_replicate 5" --nodes 2 --parallelism.data_parallel_replicate_degree 5  # the user's degree wins
said=$(ARGOSY_PLAN=no ARGOSY_GPU_TYPE=h100 "$jobs/submit.sh" "$config" "${big[@]}" --dry-run) || fail "ARGOSY_PLAN=no: $said"
said=$(ARGOSY_PLAN=h100 "$jobs/submit.sh" "$config" --dry-run) || fail "a run that fits: $said"

# Names that Slurm would change.
for name in "run%j" "a b" "it's"; do
    refused "Slurm's options cannot contain spaces, quotes, %" --job.dump_folder "$folder/$name"
done

# The points of a sweep.
printf -- '--optimizer.lr 1e-3\n\n--optimizer.lrr 2e-3\n' >"$folder/points"
refused "the options in line 3 of $folder/points are wrong" --sweep "$folder/points"
refused "did you mean --optimizer.lr?" --sweep "$folder/points"
printf -- '--optimizer.lr 1e-3\n--optimizer.lrr 2e-3' >"$folder/points"
refused "the options in line 2 of $folder/points are wrong" --sweep "$folder/points"
echo "--job.dump_folder elsewhere" >"$folder/points"
refused "line 1 of $folder/points sets job.dump_folder" --sweep "$folder/points"

printf -- '--optimizer.lr 1e-3\n--optimizer.lr 2e-3\n' >"$folder/points"
refused "there is no $folder/earlier/points of an earlier sweep" --sweep "$folder/points" --baseline "$folder/earlier"
refused "there is no $folder/earlier" --baseline "$folder/earlier"

# A sweep whose points have those of an earlier sweep as baselines: those of the same options, in another order.
mkdir -p "$folder"/earlier/point-000{0,1,2,3,4,5}
printf '%s\n' "--optimizer.lr 1e-3 --model.flavor x" "--optimizer.lr 0.02e-1" "--metrics.baseline x --optimizer.lr=4e-3" \
    "--compile.enable --job.description a=bc" "--job.description b" "--job.description b" >"$folder/earlier/points"
for number in 0 1 3 5; do echo '{}' >"$folder/earlier/point-000$number/metrics.jsonl"; done
printf -- '--optimizer.lr 1e-3\r\n\r\n--optimizer.lr 2e-3\n--optimizer.lr 4e-3\n' >"$folder/points"
printf -- '--compile.enable true --job.description a=bc\n--job.description b\n' >>"$folder/points"
said=$("$jobs/submit.sh" "$config" --sweep "$folder/points" --baseline "$folder/earlier" 2>&1) || fail "a sweep with baselines: $said"
[ "$(cat "$run/points")" = "--optimizer.lr 1e-3
--optimizer.lr 2e-3 --metrics.baseline $folder/earlier/point-0001
--optimizer.lr 4e-3
--compile.enable true --job.description a=bc --metrics.baseline $folder/earlier/point-0003
--job.description b --metrics.baseline $folder/earlier/point-0005" ] &&
    grep -qx "submit: warning: no point of $folder/earlier has the options --optimizer.lr 1e-3, so this point is not compared" <<<"$said" &&
    grep -q "^submit: warning: $folder/earlier/point-0002 has no metrics.jsonl" <<<"$said" || fail "baselines: $said: $(<"$run/points")"
rm -r "$run" "$folder/submitted"

# Nodes that are down may return, so the job is submitted with a warning.
echo "main*|up|infinite|drain" >"$folder/partitions"
echo "Requested node configuration is not available" >"$folder/test-only"
said=$("$jobs/submit.sh" "$config" 2>&1)
grep -q "^warning: Slurm cannot start this job with the nodes that are up now" <<<"$said" && grep -qx 17 <<<"$said" ||
    fail "drained nodes: $said"
rm -r "$folder/submitted" "$run"
echo "Invalid account or account/partition combination specified" >"$folder/test-only"
refused "Slurm cannot run this job: Invalid account"  # no node that returns would change this
rm "$folder/test-only"
echo "main*|up|infinite|idle" >"$folder/partitions"

# A folder whose job is in the queue; two submissions at the same time.
echo "5 PENDING $run/job.sbatch" >"$folder/queue"
if said=$("$jobs/submit.sh" "$config" 2>&1); then fail "submitted beside a job in the queue"; fi
[[ $said = "submit: $run is in use (job 5, pending): "* ]] || fail "beside a job in the queue: $said"
ln -s "$folder" "$folder/link"
echo "5 PENDING $folder/link/outputs/debug_cpu/job.sbatch" >"$folder/queue"
mkdir -p "$run"
: >"$run/job.sbatch"
if said=$("$jobs/submit.sh" "$config" --job.dump_folder "$folder/link/outputs/debug_cpu" 2>&1); then fail "submitted by a link"; fi
[[ $said = *"$run is in use (job 5, pending): "* ]] || fail "beside a job in the queue, by a link: $said"
cp "$folder/bin/squeue" "$folder/squeue"
stand_in squeue <<<'exit 1'
if said=$("$jobs/submit.sh" "$config" 2>&1); then fail "submitted although Slurm does not say what is in the queue"; fi
[[ $said = "submit: squeue does not answer, so a job of $run may be in the queue: "* ]] || fail "without squeue: $said"
cp "$folder/squeue" "$folder/bin/squeue"
rm "$folder/queue"
flock "$run/job.lock" sleep 4 &
sleep 0.2
: >"$run/job.lock"
if said=$("$jobs/submit.sh" "$config" 2>&1); then fail "submitted beside a holder that has not written its name"; fi
[[ $said = *"$run is in use (another process): "* ]] || fail "beside a lock without a name: $said"
wait
two=("$folder/first" "$folder/second")
for said in "${two[@]}"; do "$jobs/submit.sh" "$config" >"$said" 2>&1 & done
wait
[ "$(cat "${two[@]}" | wc -l)" = 2 ] && grep -qx 17 "${two[@]}" &&
    grep -q "^submit: $run is in use (submit.sh, process " "${two[@]}" || fail "two submissions: $(cat "${two[@]}")"
[ "$(wc -l <"$folder/submitted")" = 1 ] || fail "both submissions reached Slurm"

# A signal while sbatch runs: submit.sh names the job that Slurm has accepted.
interrupt() { # TEXT COMMAND_OF_SBATCH
    local status=0
    rm -f "$folder/began"
    stand_in sbatch <<<"[ \"\$1\" != --test-only ] || exit 0; $2; touch $folder/began; sleep 0.5; echo 17"
    "$jobs/submit.sh" "$config" >"$folder/said" 2>&1 &
    until [ -e "$folder/began" ]; do sleep 0.1; done
    kill -TERM $!
    wait $! || status=$?
    [ "$status" = 143 ] && grep -qF "submit: interrupted$1" "$folder/said" || fail "interrupted: status $status: $(<"$folder/said")"
}
interrupt ": no job of $run is in the queue" true
interrupt ", but the job is in the queue: scancel 17 cancels it" "echo \"17 PENDING \$2\" >$folder/queue"
rm "$folder/queue"
# bringup.sh compares the bandwidth with the floor or the best run, and cancels its job when it is interrupted.
stand_in scontrol <<<"echo JobState=\$(cat $folder/state)"
stand_in scancel <<<"echo \$1 >$folder/cancelled"
stand_in sbatch <<SBATCH
[ "\$1" != --test-only ] || exit 0
echo '{"results": [{"out_of_place": {"bus_bw": 60}}, {"out_of_place": {"bus_bw": 100}}]}' >"\$(dirname "\$2")/all_reduce.json"
echo "17 RUNNING \$2" >$folder/queue
echo 17
SBATCH
export ARGOSY_GOOD_BANDWIDTH=$folder/good
bring_up() { rm -f "$folder/queue"; "$jobs/bringup.sh" "$config" --nodes 1 "$@" 2>&1; }
if said=$(bring_up --training.dataset_path=); then fail "brought up without data"; fi
[[ $said = *"bringup: the run has no data: "* ]] && [ ! -e "$run/bringup/collectives" ] || fail "a bring-up without data: $said"
echo COMPLETED >"$folder/state"
if said=$(bring_up --floor 200); then fail "passed below the floor"; fi
[[ $said = *"all_reduce reaches 100 GB/s on 1 nodes, below 200 GB/s (the floor): "* ]] || fail "below the floor: $said"
echo "default 1 1 all_reduce 300" >"$folder/good"
if said=$(bring_up); then fail "passed below the best run"; fi
[[ $said = *"all_reduce reaches 100 GB/s on 1 nodes, below 240 GB/s (0.8 of the best run in "* ]] ||
    fail "below the best run: $said"
bring_up --without-collectives >"$folder/said" || true  # the stand-in trains nothing
grep -q "^#SBATCH --no-requeue" "$folder/outputs/debug_cpu/bringup/nodes-1/job.sbatch" || fail "a stage may be requeued"
# --baseline names a run to compare with.
cp "$folder/bin/sbatch" "$folder/sbatch"
printf '{"step":%d,"tokens_per_second_per_device":90.0}\n' {1..30} >"$folder/speeds"
sed "s|^echo 17\$|cp $folder/speeds \"\$(dirname \"\$2\")/metrics.jsonl\"; echo 17|" "$folder/sbatch" >"$folder/bin/sbatch"
mkdir "$folder/good-run"
sed 's/90/120/' "$folder/speeds" >"$folder/good-run/metrics.jsonl"
status=0
said=$(bring_up --without-collectives --baseline "$folder/good-run") || status=$?
[ "$status" = 3 ] && [[ $said = *"FAILED: nodes-1: a rank has 0.7500 of the speed of $folder/good-run, below 0.8: "* ]] ||
    fail "slower than the baseline: status $status: $said"
said=$(bring_up --without-collectives --baseline "$folder/good-run" --gate 0.7) || fail "faster than the gate: $said"
grep -qF "\"baseline\":\"$folder/good-run\",\"efficiency\":0.7500}" "$folder/outputs/debug_cpu/bringup/stages.jsonl" || fail "no result"
cp "$folder/sbatch" "$folder/bin/sbatch"
# A baseline that this call would delete, and one that is no run.
for words in "$folder/outputs/debug_cpu/bringup/nodes-1:this call deletes --baseline $folder/outputs" \
             "$folder/nowhere:--baseline $folder/nowhere has no metrics.jsonl"; do
    status=0
    said=$(bring_up --without-collectives --baseline "${words%%:*}") || status=$?
    [ "$status" = 2 ] && [[ $said = "bringup: ${words#*:}"* ]] || fail "a wrong baseline: status $status: $said"
done
[ -s "$folder/outputs/debug_cpu/bringup/nodes-1/metrics.jsonl" ] || fail "a refused call deleted a stage"
# An old Python.
stand_in python3 <<<'[ "$1" != -c ] && echo "Python 3.6.8"; exit 1'
if said=$(bring_up); then fail "passed with an old Python"; fi
[[ $said = "bringup: this script needs Python 3.9 or newer; python3 on "*" is: Python 3.6.8" ]] || fail "an old Python: $said"
rm "$folder/bin/python3"
# The bandwidth that is kept is the best one.
(eval "$(sed -n '/^keep_bandwidth()/,/^}/p' "$jobs/bringup.sh")"
 good=$(printf '%s\n' "default 1 1 all_reduce 100" "default 1 1 sendrecv 9e1") ARGOSY_GOOD_BANDWIDTH=$folder/good keep_bandwidth)
printf '%s\n' "default 1 1 all_reduce 300" "default 1 1 sendrecv 9e1" | cmp - "$folder/good" || fail "keeps $(<"$folder/good")"
echo RUNNING >"$folder/state"
rm -f "$folder/queue"
"$jobs/bringup.sh" "$config" --nodes 1 >"$folder/said" 2>&1 &
until [ -e "$folder/queue" ]; do sleep 0.1; done
said=$("$jobs/status.sh" "$folder/outputs/debug_cpu/bringup")
[[ $said = *"  stages     none has ended yet"* ]] || fail "status.sh on a bring-up without a stage: $said"
kill -TERM $!
status=0
wait $! || status=$?
[ "$status" = 143 ] && [ "$(<"$folder/cancelled")" = 17 ] && grep -qx "bringup: cancelled job 17" "$folder/said" ||
    fail "interrupted: status $status: $(<"$folder/said")"
rm "$folder/queue" "$folder/cancelled"
# So does fabric_ab.sh, also if the signal ends sbatch before it prints the job's number.
stand_in sbatch <<<"[ \"\$1\" != --test-only ] || exit 0; echo \"17 RUNNING \$2\" >$folder/queue; sleep 0.5; exit 1"
"$jobs/fabric_ab.sh" --nodes 1 --folder "$folder/fabric" >"$folder/said" 2>&1 &
until [ -e "$folder/queue" ]; do sleep 0.1; done
kill -TERM $!
status=0
wait $! || status=$?
[ "$status" = 143 ] && [ "$(<"$folder/cancelled")" = 17 ] || fail "fabric_ab.sh interrupted: status $status: $(<"$folder/said")"
rm "$folder/queue" "$folder/cancelled"
# It cancels the job that it knows although squeue does not answer, and names what it cannot cancel.
unanswered() { # BEGAN SAID: a signal after sbatch has begun and fabric_ab.sh has said BEGAN
    local status=0
    "$jobs/fabric_ab.sh" --nodes 1 --folder "$folder/fabric" >"$folder/said" 2>&1 &
    until [ -e "$folder/began" ] && grep -q "$1" "$folder/said"; do sleep 0.1; done
    kill -TERM $!
    wait $! || status=$?
    [ "$status" = 143 ] && grep -qF "$2" "$folder/said" || fail "fabric_ab.sh without squeue: status $status: $(<"$folder/said")"
    rm -f "$folder/began"
}
cp "$folder/bin/squeue" "$folder/squeue"
stand_in squeue <<<'exit 1'
rm -f "$folder/began"
stand_in sbatch <<<"[ \"\$1\" != --test-only ] || exit 0; touch $folder/began; echo 17"
unanswered "job 17 on" "fabric_ab: cancelled job 17"
[ "$(<"$folder/cancelled")" = 17 ] || fail "fabric_ab.sh without squeue cancelled nothing"
cp "$folder/bin/scancel" "$folder/scancel"
stand_in scancel <<<'exit 1'
unanswered "job 17 on" "fabric_ab: job 17 could not be cancelled: scancel 17"
stand_in sbatch <<<"[ \"\$1\" != --test-only ] || exit 0; touch $folder/began; sleep 0.5; exit 1"
unanswered "" "fabric_ab: squeue does not answer, so a job may be in the queue: look for $folder/fabric/job.sbatch"
cp "$folder/squeue" "$folder/bin/squeue"
cp "$folder/scancel" "$folder/bin/scancel"

# A signal to bringup.sh and its submit.sh while sbatch runs: only bringup.sh, which cancels the job, speaks of it.
stand_in sbatch <<<"[ \"\$1\" != --test-only ] || exit 0; echo \"17 RUNNING \$2\" >$folder/queue; sleep 0.5; exit 1"
setsid "$jobs/bringup.sh" "$config" --nodes 1 --without-collectives >"$folder/said" 2>&1 &
until [ -e "$folder/queue" ]; do sleep 0.1; done
kill -TERM -- -$!
status=0
wait $! || status=$?
[ "$status" = 143 ] && grep -qx "bringup: cancelled job 17" "$folder/said" && ! grep -q "^submit: " "$folder/said" ||
    fail "bringup.sh interrupted: status $status: $(<"$folder/said")"
rm "$folder/queue"
# pipeline.sh cancels the jobs that it knows.
stand_in sbatch <<SBATCH
[ "\$1" != --test-only ] || exit 0
case \$2 in
    */job.sbatch) echo 17 ;;
    *) touch $folder/began; sleep 0.5; echo 18 ;;
esac
SBATCH
stand_in scancel <<<"echo \$1 >>$folder/cancelled"
rm -f "$folder/cancelled"
"$jobs/pipeline.sh" "$config" --tasks "$config" --tokenizer bytes >"$folder/said" 2>&1 &
until [ -e "$folder/began" ]; do sleep 0.1; done
kill -TERM $!
status=0
wait $! || status=$?
[ "$status" = 143 ] && [ "$(tr '\n' ' ' <"$folder/cancelled")" = "17 18 " ] && grep -qx "pipeline: cancelled job 18" "$folder/said" ||
    fail "pipeline.sh interrupted: status $status: $(<"$folder/said")"
# Conversion and evaluation do not take whole nodes, and the evaluation gets the tokenizer.
stand_in sbatch <<<"[ \"\$1\" = --test-only ] || { cp \$2 $folder; echo 17; }"
pipe() { "$jobs/pipeline.sh" "$config" --tasks "$config" --tokenizer bytes >"$folder/said" 2>&1 || fail "pipeline.sh: $(<"$folder/said")"; }
has() { grep -qxF -- "#SBATCH $2" "$folder/$1.sbatch" || fail "$1.sbatch has no $2: $(<"$folder/$1.sbatch")"; }
pipe
has job --exclusive
has job --mem=0
for name in convert eval; do
    has "$name" --mem=64G
    if grep -q "^#SBATCH --exclusive" "$folder/$name.sbatch"; then fail "$name takes a whole node"; fi
done
grep -q "^set -- .*/results.json --tokenizer bytes$" "$folder/eval.sbatch" || fail "eval gets no tokenizer: $(<"$folder/eval.sbatch")"
ARGOSY_GPUS=gres ARGOSY_SBATCH_OPTIONS="--exclusive=user --qos=night" pipe
has eval --gres=gpu:1
has eval --qos=night
if grep -qE "^#SBATCH --(exclusive|mem)" "$folder/eval.sbatch"; then fail "another default of the small jobs: $(<"$folder/eval.sbatch")"; fi
ARGOSY_SMALL_SBATCH_OPTIONS="--mem=9G --partition=small" pipe
has convert --mem=9G
has convert --partition=small

# status.sh says in words why a job waits, and what can be done.
says() { grep -qF -- "$1" <<<"$said" || fail "status.sh does not say '$1': $said"; }
echo "17|PENDING|ReqNodeNotAvail, UnavailableNodes:n2|N/A|n3,n4|main|$run/job.sbatch" >"$folder/queue"
said=$("$jobs/status.sh" "$run")
says "waits: nodes that it needs are down, drained or reserved; see sinfo -R (17)"
says "n3,n4. If too few nodes are left: scontrol update jobid=17 ExcNodeList="
echo "17 0 2 n5,n6" >"$run/next_start"
said=$("$jobs/status.sh" "$run")
says "  nodes      too few were usable at the last requeue; spares: 0 of 2; excluded nodes that may be used again: n5,n6"
echo "16 0 2 n5,n6" >"$run/next_start"  # of another job
said=$("$jobs/status.sh" "$run")
if grep -qF "may be used again" <<<"$said"; then fail "status.sh tells of another job: $said"; fi
rm "$run/next_start"
echo '{"job":"17","event":"start","exit_code":null,"outcome":null,"newest_step":0,"restart":1,"ranks":4,"nodes":"n[1-2]","spares":1}' >"$run/jobs.jsonl"
said=$("$jobs/status.sh" "$run")
says "  spares     1. If too few nodes are left, start without them: scontrol update jobid=17 NumNodes=2 NumTasks=4 NumCPUs=4"
rm "$run/jobs.jsonl"
echo "17|PENDING|Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions|N/A||main|$run/job.sbatch" >"$folder/queue"
said=$("$jobs/status.sh" "$run")
says "waits: nodes that it needs are down, drained or reserved; see sinfo -R (17)"
echo "17|PENDING|QOSMaxNodePerUserLimit|N/A||main|$run/job.sbatch" >"$folder/queue"
echo "18|PENDING|Dependency|N/A||main|$run/convert.sbatch" >>"$folder/queue"
said=$("$jobs/status.sh" "$run")
says "waits: a limit of the QOS is reached (QOSMaxNodePerUserLimit)"
says "convert    waits: another job must succeed first (18)"
rm "$folder/queue"
end='"event":"end","exit_code":75,"outcome":"cancelled","newest_step":0,"restart":1,"ranks":2,"nodes":"n1"'
echo "{\"job\":\"17\",$end}" >"$run/jobs.jsonl"
said=$("$jobs/status.sh" "$run")
says "cancelled with exit code 75 (17, restart 1, 2 ranks on n1)"
echo "17|RUNNING|None|N/A||main|$folder/link/outputs/debug_cpu/job.sbatch" >"$folder/queue"
said=$("$jobs/status.sh" "$folder/link/outputs/debug_cpu")
says "running (17, restart 1, 2 ranks on n1)"
rm "$folder/queue"
stand_in squeue <<<'exit 1'
said=$("$jobs/status.sh" "$run")
says "Slurm does not answer"
says "cancelled with exit code 75 (17, restart 1, 2 ranks on n1)"
cp "$folder/squeue" "$folder/bin/squeue"
echo '{"config":"[checkpoint]\nfolder = \"elsewhere\"\n"}' >"$run/starts.jsonl"
mkdir -p "$run/elsewhere/step-00000009" "$run/elsewhere/step-00000010" "$run/elsewhere/step-00000011.partial"
said=$("$jobs/status.sh" "$run")
says "checkpoint step 10, 0 steps and 0 min ago"
rm -r "$run/starts.jsonl" "$run/elsewhere"
status=0
said=$("$jobs/status.sh" "$run" "$folder/no" 2>&1) || status=$?
[ "$status" = 2 ] && [ "$said" = "status: there is no folder $folder/no" ] || fail "status.sh on a missing folder: status $status: $said"
printf '%s\n' "--a 1" "--a 2" "--a 3" >"$run/points"
mkdir "$run/point-0000"
echo "{\"job\":\"19_0\",$end}" >"$run/point-0000/jobs.jsonl"
echo "19_[1-2]|PENDING|JobHeldUser|N/A||main|$run/job.sbatch" >"$folder/queue"
echo "19_0|RUNNING|None|N/A||main|$run/job.sbatch" >>"$folder/queue"
said=$("$jobs/status.sh" "$run")
says "3 points, 1 have started, 1 are running"
says "waits: it is held: scontrol release 19_[1-2] (19_[1-2])"
says "running (19_0, restart 1, 2 ranks on n1)"
echo "passed"
