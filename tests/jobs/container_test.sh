#!/usr/bin/env bash
# Tests how jobs/ starts programs in containers, over stand-ins for Slurm's commands, Apptainer and training: the exact
# words, what a site's settings must not be, and what the scripts say.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
source=$ARGOSY_SOURCE
jobs=$source/jobs
run=$folder/scratch/outputs/debug_cpu
fail() { echo "FAILED: $*"; [ ! -e "$folder/said" ] || cat "$folder/said"; exit 1; }
mkdir "$folder/bin" "$folder/programs" "$folder/scratch" "$folder/work"
"$ARGOSY_BIN/pretrain" --config "$source/configs/debug_cpu.toml" --training.dataset_path tokens.h5 --print-config >"$folder/settings"
cd "$folder/work"
touch tokens.h5
# shellcheck disable=SC2046
unset $(compgen -e | grep -E '^(ARGOSY|SLURM|NVIDIA|NCCL|UCX|SHARP|OMPI|OMP|PYTORCH)_')
export ARGOSY_BIN=$folder/programs ARGOSY_SCRATCH=../scratch ARGOSY_RANKS_PER_NODE=1 ARGOSY_PREFLIGHT=no ARGOSY_INTERFACE=ib0
export ARGOSY_PARTITION=gpu ARGOSY_CPU_PARTITION=small PATH=$folder/bin:$PATH
stand_in() { { echo '#!/bin/bash'; cat; } >"$folder/$1" && chmod +x "$folder/$1"; }

stand_in bin/sbatch <<<'[ "$1" != --test-only ] || exit 0; echo 17'
stand_in bin/squeue <<<'true'
stand_in bin/sinfo <<<'true'
stand_in bin/scontrol <<<"echo JobId=17 JobState=RUNNING Restarts=0 TimeLimit=1-00:00:00 StdOut=$folder/said"
stand_in bin/apptainer <<APPTAINER
echo "apptainer \$*" >>$folder/calls
while [ \$# -gt 0 ] && [ "\$1" != image.sif ]; do shift; done
exec "\${@:2}"
APPTAINER
stand_in bin/srun <<SRUN
case \$1 in
    --mpi=list) exec echo pmix ;;
    --help) exec cat $folder/help ;;
esac
echo "GPUs \$NVIDIA_VISIBLE_DEVICES \$NVIDIA_DRIVER_CAPABILITIES: srun \$*" >>$folder/calls
while [[ \$1 = --* ]]; do shift; done
exec "\$@"
SRUN
echo "      --container-env=NAME[,NAME...]" >"$folder/help"
stand_in programs/pretrain <<PRETRAIN
case "\$*" in *--print-config) exec cat $folder/settings ;; esac
mkdir -p $run/checkpoint/step-00000001
PRETRAIN
stand_in programs/preflight <<<'true'

submit() {
    : >"$folder/calls"
    env "$@" "$jobs/submit.sh" "$source/configs/debug_cpu.toml" >"$folder/said" 2>&1 || fail "not submitted"
}
# job [VARIABLE=VALUE ...]: runs the submitted script.
job() {
    : >"$folder/calls"
    env SLURM_JOB_ID=17 SLURM_JOB_NODELIST=n1 SLURMD_NODENAME=n1 SLURM_NTASKS=1 SLURM_NTASKS_PER_NODE=1 \
        SLURM_JOB_NUM_NODES=1 "$@" "$run/job.sbatch" >"$folder/said" 2>&1 || fail "the job ends with $?"
}
# expect_calls: compares the calls of the stand-ins with the standard input. F stands for the folder of this test.
expect_calls() {
    diff <(sed "s|$folder|F|g; s|$source|SOURCE|g" "$folder/calls") - || fail "other calls than expected (<: are)"
}
# refused EXPECTED VARIABLE=VALUE ...
refused() {
    local status=0
    env "${@:2}" "$jobs/submit.sh" "$source/configs/debug_cpu.toml" --dry-run >"$folder/said" 2>&1 || status=$?
    [ "$status" = 2 ] && grep -qF -- "$1" "$folder/said" || fail "${*:2}: status $status without '$1'"
}
options="--mpi=pmix --ntasks=1 --nodes=1 --ntasks-per-node=1 --distribution=block:block --cpu-bind=none"
options+=" --kill-on-bad-exit=1 --unbuffered"
scripts=F/scratch/outputs/debug_cpu/scripts
config="--config F/scratch/outputs/debug_cpu/config.toml --checkpoint.enable true --parallelism.data_parallel_replicate_degree 1"
config+=" --parallelism.data_parallel_shard_degree -1 --job.dump_folder F/scratch/outputs/debug_cpu"

# Apptainer: bind.sh runs outside of the container.
apptainer="apptainer exec --nv --bind /data,/lustre:/mnt:ro image.sif F/programs/pretrain"
submit ARGOSY_CONTAINER=image.sif ARGOSY_CONTAINER_MOUNTS=/data,/lustre:/mnt:ro
expect_calls <<CALLS
$apptainer --config SOURCE/configs/debug_cpu.toml --print-config
${apptainer%pretrain}preflight --variables 1,1
CALLS
job
expect_calls <<CALLS
GPUs  : srun $options env --block-signal=USR1 $scripts/bind.sh $apptainer $config --print-config
$apptainer $config --print-config
GPUs  : srun $options env --block-signal=USR1 $scripts/bind.sh $apptainer $config
$apptainer $config
CALLS

# pyxis: the whole task runs in the container. submit.sh reads the configuration in a job of one task, without GPUs.
image=$folder/argosy.sqsh
echo squashfs >"$image"
pyxis=("ARGOSY_CONTAINER=$image" ARGOSY_CONTAINER_RUNTIME=pyxis)
inside="--container-workdir=F/work --no-container-mount-home --no-container-remap-root"
submit "${pyxis[@]}" ARGOSY_CONTAINER_MOUNTS=/data,/lustre:/mnt:ro NCCL_DEBUG=WARN
expect_calls <<CALLS
GPUs void compute,utility: srun --mpi=pmix --nodes=1 --ntasks=1 --time=10 --input=none --job-name=read-settings\
 --partition=small --mem=64G --container-image=F/argosy.sqsh\
 --container-mounts=/data,/lustre:/mnt:ro,F/work,SOURCE/configs $inside --container-env=NCCL_DEBUG\
 F/programs/pretrain --config SOURCE/configs/debug_cpu.toml --print-config
CALLS
grep -qx "image $image 9 [0-9]*" "$run/program" || fail "the file program is $(<"$run/program")"
options+=" --container-image=F/argosy.sqsh"
options+=" --container-mounts=/data,/lustre:/mnt:ro,$scripts,F/scratch,F/work,F/scratch/outputs/debug_cpu $inside"
options+=" --container-env=NCCL_DEBUG,NCCL_SOCKET_IFNAME,OMPI_MCA_btl_tcp_if_include,OMPI_MCA_oob_tcp_if_include"
expect_ranks() { # GPUS
    expect_calls <<CALLS
GPUs $1: srun $options env --block-signal=USR1 $scripts/bind.sh F/programs/pretrain $config --print-config
GPUs $1: srun $options env --block-signal=USR1 $scripts/bind.sh F/programs/pretrain $config
CALLS
}
job SLURM_JOB_GPUS=0,1
expect_ranks "all compute,utility"
job SLURM_GPUS_ON_NODE=2 NVIDIA_DRIVER_CAPABILITIES=all
expect_ranks "all all"
job
expect_ranks "void compute,utility"
sed -i 's/^export ARGOSY_GPUS=yes/export ARGOSY_GPUS=no/' "$run/job.sbatch"
job SLURM_JOB_GPUS=0,1
expect_ranks "void compute,utility"

# With pyxis, env is that of the image, so the one of the node is not asked for its options.
stand_in bin/env <<<'case $1 in --block-signal*) shift; [ "$1" != true ] || exit 125; exec "$@" ;; esac; exec /usr/bin/env "$@"'
job
expect_ranks "void compute,utility"

# Several ranks of a node see all of its GPUs. Slurm without --gpus-per-node has no --gpu-bind either.
bound() { job SLURM_NTASKS=2 SLURM_NTASKS_PER_NODE=2; grep -- "--ntasks=2 .* --distribution=block:block $1--cpu-bind=none" "$folder/calls" >/dev/null || fail "no '$1': $(<"$folder/calls")"; }
bound "--gpu-bind=none "
sed -i 's/^export ARGOSY_GPUS=no/export ARGOSY_GPUS=gres/' "$run/job.sbatch"
bound ""

# A name of an image in a registry is no file.
submit ARGOSY_CONTAINER=registry.example.org#us/argosy:1 ARGOSY_CONTAINER_RUNTIME=pyxis
grep -qF -- "--container-image=registry.example.org#us/argosy:1 --container-mounts=$PWD,$source/configs " \
    "$folder/calls" || fail "another image: $(<"$folder/calls")"

refused "ARGOSY_CONTAINER_RUNTIME is 'docker'; set it to apptainer or pyxis" ARGOSY_CONTAINER_RUNTIME=docker
refused "pyxis starts containers for srun only; set ARGOSY_LAUNCHER=srun" "${pyxis[@]}" ARGOSY_LAUNCHER=mpirun
refused "ARGOSY_CONTAINER is './argosy.sqsh'; write the whole path" "${pyxis[@]}" ARGOSY_CONTAINER=./argosy.sqsh
touch argosy.sqsh
refused "ARGOSY_CONTAINER is 'argosy.sqsh'; write the whole path" "${pyxis[@]}" ARGOSY_CONTAINER=argosy.sqsh
refused "the image ARGOSY_CONTAINER = /none.sqsh does not exist" "${pyxis[@]}" ARGOSY_CONTAINER=/none.sqsh
refused "the image ARGOSY_CONTAINER = none/image.sif does not exist" ARGOSY_CONTAINER=none/image.sif
refused "pyxis cannot mount '/a,b'" "${pyxis[@]}" ARGOSY_SCRATCH=/a,b
echo "      --container-image=IMAGE" >"$folder/help"
refused "Slurm needs pyxis 0.15 or newer" "${pyxis[@]}"
rm "$folder/bin/srun"
refused "has no option --container-env" "${pyxis[@]}" PATH="$folder/bin:/usr/bin:/bin"
rm "$folder/bin/apptainer"
refused "there is no apptainer on $(hostname); if Slurm has pyxis, set ARGOSY_CONTAINER_RUNTIME=pyxis" ARGOSY_CONTAINER=image.sif
echo "passed"
