#!/usr/bin/env bash
# Tests jobs/ without Slurm: the script that submit.sh would submit for each configuration, its error messages, and the
# cores and adapters that bind.sh gives a rank of a described node.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
jobs=$ARGOSY_SOURCE/jobs
configs=$folder/configs
export ARGOSY_BIN ARGOSY_SCRATCH=$folder
fail() { echo "FAILED: $*"; exit 1; }
# The project's configurations, each with a token file.
cp -r "$ARGOSY_SOURCE/configs" "$folder"
sed -i "s|^\[training\]|&\ndataset_path = \"$folder/there.h5\"|" "$configs"/*.toml
touch "$folder/there.h5"
expect_line() { grep -qxF -- "$1" <<<"$script" || fail "no line '$1' in: $script"; }
dry() { script=$("$jobs/submit.sh" "$@" --dry-run); }
refused() {
    local expected=$1 status=0 said
    shift
    said=$("$jobs/submit.sh" "$@" --dry-run 2>&1) || status=$?
    [ "$status" = 2 ] && grep -qF -- "$expected" <<<"$said" || fail "status $status without '$expected': $said"
}

# --help of every script that users call prints its usage; nothing else happens. The scripts are those of a copy of jobs/ beside
# a quick start's folder, and nothing that they could build with exists.
mkdir -p "$folder/tree/outputs/quickstart/hf" "$folder/empty"
cp -r "$jobs" "$folder/tree"
cp -r "$configs" "$folder/tree"
list_of_tree() { (cd "$folder" && find tree empty -not -path '*__pycache__*' | sort); }
tree=$(list_of_tree)
num_scripts=0
for script in "$folder"/tree/jobs/*.sh "$folder"/tree/jobs/*.py; do
    num_scripts=$((num_scripts + 1)) name=${script##*/}
    for words in --help -h; do
        said=$(cd "$folder/empty" && ARGOSY_BIN=/nowhere ARGOSY_SKIP_PACKAGES=1 PYTHON=/nowhere timeout 20 "$script" "$words" 2>"$folder/errors") &&
            [ ! -s "$folder/errors" ] || fail "$name $words: $said$(<"$folder/errors")"
        [[ $said = "$name "* || $said = "usage: $name "* ]] && ! grep -qE '^#|^set |shellcheck' <<<"$said" || fail "$name $words prints: $said"
        [ "$(list_of_tree)" = "$tree" ] || fail "$name $words changes files: $(diff <(echo "$tree") <(list_of_tree))"
    done
done
[ "$num_scripts" -ge 16 ] || fail "only $num_scripts scripts were found"
said=$(cd "$folder/empty" && PYTHON=/nowhere "$folder/tree/jobs/quickstart.sh" --training.steps 5 -h) && [[ $said = "quickstart.sh "* ]] || fail "quickstart.sh OPTION -h: $said"
if said=$("$jobs/status.sh" --htlm page.html run 2>&1); then fail "status.sh takes an unknown option"; fi
[ "$said" = "status: unknown option --htlm; status.sh --help lists the options" ] || fail "an unknown option: $said"

# Each run of configs/ has a template, and overridden options of a template occur once.
while read -r config nodes template; do
    dry "$configs/$config.toml" --nodes "$nodes"
    expect_line "#SBATCH --job-name=$config-$template"
    expect_line "#SBATCH --nodes=$nodes"
    bash -n <<<"$script"
    twice=$(grep '^#SBATCH' <<<"$script" | sed 's/=.*//' | sort | uniq -d)
    [ -z "$twice" ] || fail "$config: $twice stands there twice"
done <<'RUNS'
llama3_8b_1node 1 single_node
llama3_8b_1node 4 fsdp
llama3_8b_multinode 4 hsdp
llama3_8b_multinode 8 hsdp
llama3_70b_hsdp 4 configured
llama3_70b_2d 32 configured
llama3_70b_3d 32 3d
llama3_405b 64 4d
qwen3_30b_a3b_1node 1 single_node
mixtral_8x7b_4nodes 4 fsdp
RUNS

# What the run reads is refused if it is missing below the working folder or ARGOSY_SCRATCH. Elsewhere that is a warning, because
# the nodes may have other file systems, and none if the job waits for another one.
given=("$configs/llama3_8b_1node.toml")
for words in "--training.dataset_path $folder/nowhere.h5" "--training.dataset_path nowhere/*.h5" "--validation.enable --validation.dataset_path nowhere.h5" \
             "--data.mixture [{path=$folder/there.h5,weight=1},{path=nowhere.h5,weight=2}] --training.dataset_path=" \
             "--evaluation.tasks hellaswag=nowhere.jsonl" "--checkpoint.initial_load_path $folder/nowhere"; do
    # shellcheck disable=SC2086
    (set -f; refused "nowhere" "${given[@]}" $words; refused "does not exist" "${given[@]}" $words)
done
says_nothing() { ! grep -q "nowhere\|there" <<<"$said" || fail "$1: $said"; }
mkdir -p "$folder/resumed/checkpoint/step-00000010"
for words in "--training.dataset_path $folder/t*e.h5" "--checkpoint.initial_load_path nowhere --job.dump_folder $folder/resumed" "--validation.dataset_path $folder/nowhere.h5" "--after 3 --training.dataset_path nowhere.h5"; do
    said=$(set -f; "$jobs/submit.sh" "${given[@]}" $words --dry-run 2>&1 >/dev/null) || fail "data by $words: $said"
    says_nothing "data by $words"
done
said=$("$jobs/submit.sh" "${given[@]}" --training.dataset_path "/nowhere/*.h5" --dry-run 2>&1 >/dev/null)
grep -qF "warning: training.dataset_path = /nowhere/*.h5 is not on this machine; the job fails" <<<"$said" || fail "data elsewhere: $said"
said=$("$jobs/submit.sh" "${given[@]}" --model.hf_assets_path nowhere --dry-run 2>&1 >/dev/null)
grep -qF "warning: model.hf_assets_path = nowhere is not on this machine; without it on the nodes, the checkpoints have no" <<<"$said" || fail "a preset's folder: $said"
grep -qF "kFileNames = {$(sed -n 's/^    for file in \(.*\); do$/\1/p' "$jobs/shell/fill.sh" | sed 's/ /", "/g; s/.*/"&"};/')" <(tr -s ' \n' ' ' <"$ARGOSY_SOURCE/lib/files/tokenizer/tokenizer.h") || fail "fill.sh knows other tokenizers than lib/files/tokenizer"
none="the run has no data: set training.dataset_path to token files (prepare-data tokenize makes them), or data.mixture"
refused "$none" "${given[@]}" --training.dataset_path=
refused "$none" "${given[@]}" --training.dataset_path= --after 3
printf '%s\n' "--training.dataset_path $folder/there.h5" "--optimizer.lr 1" >"$folder/points"
refused "line 2 of $folder/points: $none" "${given[@]}" --training.dataset_path= --sweep "$folder/points"

# Texts need a tokenizer: those of a task in the run, and those of a pipeline's later stages.
echo '{"text": "of \"tokens\": none"}' >"$folder/texts.jsonl"
echo '{"tokens": [1, 2]}' >"$folder/tokens.jsonl"
mkdir "$folder/bare" "$folder/assets"
echo '{}' | tee "$folder/bare/config.json" >"$folder/assets/tokenizer.json"
refused "the records of $folder/texts.jsonl are texts, which need a tokenizer, and model.hf_assets_path has none: set evaluation.tokenizer" \
    "${given[@]}" --evaluation.tasks "$folder/texts.jsonl"
refused "the records of $folder/tokens.jsonl are texts" "${given[@]}" --evaluation.tasks "piqa=$folder/tokens.jsonl"
for words in "tasks $folder/tokens.jsonl" "tasks $folder/texts.jsonl --evaluation.tokenizer bytes" "tasks $folder/texts.jsonl --model.hf_assets_path $folder/assets"; do
    # shellcheck disable=SC2086
    dry "${given[@]}" --evaluation.$words
done
pipeline() { # EXPECTED WORD ...: pipeline.sh ends with 2 and this message
    local status=0 said
    said=$("$jobs/pipeline.sh" "${given[@]}" "${@:2}" 2>&1) || status=$?
    [ "$status" = 2 ] && grep -qF -- "$1" <<<"$said" || fail "pipeline.sh: status $status without '$1': $said"
}
untold="pipeline: the records of $folder/texts.jsonl are texts, which need a tokenizer, and model.hf_assets_path has none: set --tokenizer"
pipeline "$untold" --tasks "$folder/texts.jsonl"
pipeline "$untold" --tasks "$folder/texts.jsonl" --model.hf_assets_path "$folder/bare"
pipeline "$folder/nowhere" --tasks "$folder/texts.jsonl" --tokenizer "$folder/nowhere"
pipeline "pipeline: --tasks: there is no file $folder/nofile" --tasks "$folder/nofile"
pipeline "submit: the run has no data" --tasks "$folder/tokens.jsonl" --training.dataset_path=
[ ! -e "$folder/outputs" ] || fail "a refused pipeline left something"

# Variables of the submitter that slow the ranks of this job down; those that a harmless value has, or that nothing else suggests,
# are not asked for.
said=$(CUDA_LAUNCH_BLOCKING=1 NCCL_DEBUG=WARN NCCL_IB_DISABLE=1 MALLOC_CHECK_=3 "$jobs/submit.sh" "${given[@]}" --dry-run 2>&1 >/dev/null)
[ "$(sed 's/:.*//; s/=.*//' <<<"${said//submit: warning: /}" | paste -sd' ')" = "CUDA_LAUNCH_BLOCKING MALLOC_CHECK_" ] &&
    grep -qF "submit: warning: CUDA_LAUNCH_BLOCKING=1: the host waits for each kernel" <<<"$said" || fail "of slow variables: $said"
said=$(NCCL_IB_DISABLE=1 "$jobs/submit.sh" "${given[@]}" --nodes 2 --dry-run 2>&1 >/dev/null)
grep -qF "submit: warning: NCCL_IB_DISABLE=1: " <<<"$said" || fail "NCCL_IB_DISABLE on two nodes: $said"
said=$(NCCL_IB_DISABLE=1 ARGOSY_FABRIC=ethernet "$jobs/submit.sh" "${given[@]}" --nodes 2 --dry-run 2>&1 >/dev/null)
[ -z "$said" ] || fail "NCCL_IB_DISABLE on Ethernet: $said"
said=$(ARGOSY_GPUS=no CUDA_LAUNCH_BLOCKING=1 "$jobs/submit.sh" "${given[@]}" --dry-run 2>&1 >/dev/null)
[ -z "$said" ] || fail "without GPUs: $said"
names=$(sed -n '/^constexpr SlowSetting kSettings/,/^};/s/^ *{"\([A-Z_0-9]*\)".*/\1/p' "$ARGOSY_SOURCE/lib/ground/base/environment.cpp")
prefixes=$(sed -n "s/.*compgen -e | grep -qE '\([^']*\)'.*/\1/p" "$jobs/submit.sh")
[ "$(wc -l <<<"$names")" -ge 19 ] && ! grep -vE "$prefixes" <<<"$names" || fail "submit.sh does not ask for all slow variables: $prefixes"

# An option of pretrain without a value is on; pretrain refuses it if it needs a value.
dry --compile.enable --training.steps 5 "$configs/llama3_8b_1node.toml" --metrics.layer_grad_norms
grep -qE "^set -- .*/config.toml --compile.enable --training.steps 5 --metrics.layer_grad_norms --job" <<<"$script" ||
    fail "options without a value: $script"
refused "--job.dump_folder needs a value" "$configs/llama3_8b_1node.toml" --job.dump_folder
refused "--job.description needs a value" --job.description --nodes 2 "$configs/llama3_8b_1node.toml"

# The user's options reach pretrain unchanged and after the template's; the site's options reach Slurm.
NCCL_DEBUG="INFO now" ARGOSY_RESTART=3 ARGOSY_RECORD=/another/job.json dry "$configs/llama3_8b_1node.toml" --time=50 --job.description "it's 2 \\ \$words" --optimizer.lr=1e-4
arguments=$(bash -c "$(grep -E '^(set --|export)' <<<"$script"); printf '%s\n' \"\$@\"")
[ "$arguments" = "$folder/outputs/llama3_8b_1node/config.toml
--job.description
it's 2 \\ \$words
--optimizer.lr
1e-4
--job.dump_folder
$folder/outputs/llama3_8b_1node" ] || fail "arguments: $arguments"
expect_line "#SBATCH --time=50"
expect_line "export ARGOSY_LAUNCHER=srun"
expect_line "export NCCL_DEBUG=INFO\ now"
if grep -qE "ARGOSY_RE(START|CORD)=" <<<"$script"; then fail "takes variables of another job along"; fi
expect_line "export ARGOSY_JOBS=$folder/outputs/llama3_8b_1node/scripts\
 ARGOSY_SITE=$folder/outputs/llama3_8b_1node/scripts/own_site.conf"
expect_line "#SBATCH --signal=B:USR1@300"
expect_line "#SBATCH --open-mode=append"
expect_line "#SBATCH --output=$folder/outputs/llama3_8b_1node/logs/%j.log"
expect_line "#SBATCH --chdir=$PWD"
ARGOSY_PARTITION=night ARGOSY_ACCOUNT=us ARGOSY_GPUS=no dry "$configs/llama3_8b_1node.toml" --after 12
expect_line "#SBATCH --partition=night"
expect_line "#SBATCH --account=us"
expect_line "#SBATCH --dependency=afterok:12"
if grep -q -- --gpus <<<"$script"; then fail "asks for GPUs where there are none"; fi
ARGOSY_GPUS=gres ARGOSY_GPU_TYPE=h200 ARGOSY_PLAN=no dry "$configs/llama3_8b_1node.toml" --ranks-per-node 4
expect_line "#SBATCH --gres=gpu:h200:4"
if grep -q -- --gpus <<<"$script"; then fail "asks for GPUs in two ways"; fi
dry "$configs/llama3_8b_1node.toml" --after 12_3:14
expect_line "#SBATCH --dependency=afterok:12_3:14"
ARGOSY_SPARES=7 ARGOSY_TRAINING_NODES=9 dry "$configs/llama3_8b_multinode.toml" --nodes 4
if grep -qE "ARGOSY_SPARES|ARGOSY_TRAINING|no-kill" <<<"$script"; then fail "takes the spares of another job along"; fi
dry "$configs/llama3_8b_multinode.toml" --nodes 4 --spares 02
expect_line "#SBATCH --job-name=llama3_8b_multinode-hsdp"
expect_line "#SBATCH --nodes=6"
expect_line "#SBATCH --no-kill"
expect_line "export ARGOSY_SPARES=2 ARGOSY_TRAINING_NODES=4"
ARGOSY_GPU_TYPE=h200 dry "$configs/llama3_8b_1node.toml" --sbatch "--reservation=ours --switches=1@60"
expect_line "#SBATCH --gpus-per-node=h200:8"
expect_line "#SBATCH --switches=1@60"
refused "'-C' in " "$configs/llama3_8b_1node.toml" --sbatch "-C h200"
printf -- '--optimizer.lr 1e-3\n\n \n--optimizer.lr 2e-3' >"$folder/points"
dry "$configs/llama3_8b_1node.toml" --sweep "$folder/points"
expect_line "#SBATCH --array=0-1"
[ ! -e "$folder/outputs" ] || fail "a dry run left something"

echo 'ARGOSY_PARTITION=night' >"$folder/site.conf"
dry "$configs/llama3_8b_1node.toml" --site "$folder/site.conf"
expect_line "#SBATCH --partition=night"

# Mistakes in the site's file are refused. Its commands may fail, and may be missing before `||` or in files that it sources.
wrong_site() { # EXPECTED LINE ...
    printf '%s\n' "${@:2}" >"$folder/wrong.conf"
    refused "$1" "$configs/llama3_8b_1node.toml" --site "$folder/wrong.conf"
}
wrong_site "$folder/wrong.conf, line 2: a command was not found: ARGOSY_PARTITION = gpu. Write a setting as NAME=VALUE" \
    "ARGOSY_ACCOUNT=us" "ARGOSY_PARTITION = gpu"
wrong_site "line 1: a command was not found: module load cuda" "module load cuda"
wrong_site "sets ARGOSY_RANK_PER_NODE, which is no setting (did you mean ARGOSY_RANKS_PER_NODE?)" "export ARGOSY_RANK_PER_NODE=4"
wrong_site "$folder/wrong.conf ends the shell that reads it" "exit 0"
wrong_site "and leave out set -e, set -u and \${NAME:?}" "set -e" false
wrong_site "and leave out set -e, set -u and \${NAME:?}" ': "${NOT_SET:?}"'
refused "debug_cpu.toml, line " "$configs/llama3_8b_1node.toml" --site "$configs/debug_cpu.toml"
echo "no-such-command" >"$folder/sourced.sh"
{ printf '%s\n' 'module() { return 1; }' 'module load cuda' 'no-such-command || true' "source $folder/sourced.sh; false" \
      "\\. $folder/sourced.sh" "command . $folder/sourced.sh" "builtin source $folder/sourced.sh" \
      'X=$(no-such-command 2>/dev/null | wc -l)'
  sed -n '/_RANKS\|_ARRIVALS/d; s/.*_of("\(ARGOSY_[A-Z_]*\)".*/: "${\1:=}"/p' "$ARGOSY_SOURCE/lib/ground/base/environment.cpp"
  printf '%s\n' 'ARGOSY_QOS=$NOT_SET' return; } >"$folder/right.conf"
dry "$configs/llama3_8b_1node.toml" --site "$folder/right.conf"

refused "did you mean --optimizer.lr?" "$configs/llama3_8b_1node.toml" --optimizer.lrr 1
refused "not a number of nodes" "$configs/llama3_8b_1node.toml" --nodes many
refused "--nodes 10000000 is not a number of nodes" "$configs/llama3_8b_1node.toml" --nodes 10000000
refused "--ranks-per-node 10000 is not a number of ranks" "$configs/llama3_8b_1node.toml" --ranks-per-node 10000
for job in '' abc 12: 12,afterany:13 -1; do
    refused "--after $job is not the number of a job" "$configs/llama3_8b_1node.toml" --after "$job"
done
refused "--spares two is not a number of nodes" "$configs/llama3_8b_1node.toml" --spares two
refused "--spares  is not a number of nodes" "$configs/llama3_8b_1node.toml" --spares=
refused "not for the template 'sweep'" "$configs/llama3_8b_1node.toml" --spares 1 --sweep "$folder/points"
for template in convert alternate eval benchmark; do
    refused "the template '$template' does not train: leave out --template" "$configs/llama3_8b_1node.toml" --template "$template"
done
refused "the template 'sweep' needs the points of a sweep" "$configs/llama3_8b_1node.toml" --template sweep
refused "leave out --template fsdp" "$configs/llama3_8b_1node.toml" --template fsdp --sweep "$folder/points"
ARGOSY_LAUNCHER=mpirun refused "--spares works with srun only" "$configs/llama3_8b_1node.toml" --spares 1
mkdir "$folder/all" "$folder/sbcast"
ln -s "$(command -v true)" "$folder/sbcast/sbcast"
ln -s /usr/bin/* "$folder/all"
rm -f "$folder/all/sbcast"
refused "no absolute path" "$configs/llama3_8b_1node.toml" --stage tmp
PATH=$folder/all refused "there is no sbcast on $(hostname)" "$configs/llama3_8b_1node.toml" --stage /tmp
PATH=$folder/sbcast:$PATH dry "$configs/llama3_8b_1node.toml" --stage '$SLURM_TMPDIR/argosy'
expect_line 'export ARGOSY_STAGE=\$SLURM_TMPDIR/argosy'
refused "no template 'best'" "$configs/llama3_8b_1node.toml" --template best
refused "unknown option --node" "$configs/llama3_8b_1node.toml" --node 2
refused "the configuration is missing" --nodes 2
echo >"$folder/no-points"
refused "holds no point" "$configs/llama3_8b_1node.toml" --sweep "$folder/no-points"
refused "--sweep: there is no file $folder/nowhere" "$configs/llama3_8b_1node.toml" --sweep "$folder/nowhere"
refused "submit: --dry-run takes no value" "$configs/llama3_8b_1node.toml" --dry-run=yes
ARGOSY_BIN=/nowhere refused "ARGOSY_BIN is /nowhere, which has no program pretrain" "$configs/llama3_8b_1node.toml"
refused "cannot contain spaces" "$configs/llama3_8b_1node.toml" --job.dump_folder "$folder/a b"

# The binaries: those of a prefix, else of the preset cuda if it was built and the site has GPUs, else of the preset cpu.
expect_binaries() { # EXPECTED [VARIABLE=VALUE]
    local got
    got=$(env -u ARGOSY_BIN "${@:2}" bash -c 'ARGOSY_JOBS=$1; source "$2"; echo "$ARGOSY_BIN"' - "$folder/p/share/argosy/jobs" \
        "$jobs/site.conf")
    [ "$(realpath -m "$got")" = "$folder/p/$1" ] || fail "the binaries are in $got, not in $1"
}
mkdir -p "$folder/p/share/argosy/jobs"
built() { mkdir -p "$folder/p/$1" && cp "$(type -P true)" "$folder/p/$1/pretrain"; }
expect_binaries share/argosy/build/bin
built share/argosy/build/bin
expect_binaries share/argosy/build/bin
built share/argosy/build/cuda/bin
expect_binaries share/argosy/build/cuda/bin
expect_binaries share/argosy/build/bin ARGOSY_GPUS=no
built bin
expect_binaries bin
expect_binaries bin ARGOSY_GPUS=no

# A fabric profile sets each variable once and explains each in a comment before it.
for profile in "$jobs"/fabric/*.conf; do
    awk -F= '/^[A-Z]/ && (previous !~ /^#/ || seen[$1]++) { exit 1 } { previous = $0 }' "$profile" ||
        fail "$profile: a variable twice, or without a reason"
done

# The site's adapters and interface in the syntax of each library: whole names everywhere.
fabric() { # VARIABLE=VALUE ...
    env "$@" bash -c 'fail() { echo "$*"; exit 2; }; ARGOSY_JOBS='"$jobs"'; source $ARGOSY_JOBS/site.conf; source $ARGOSY_JOBS/shell/site.sh
        check_site; export_fabric infiniband; export_fabric h200-rescue
        echo "${NCCL_IB_HCA-} ${UCX_NET_DEVICES-} ${NCCL_SOCKET_IFNAME-} ${OMPI_MCA_btl_tcp_if_include-}"'
}
expect_fabric() { # EXPECTED VARIABLE=VALUE ...
    local got
    got=$(fabric "${@:2}") || true
    [ "${got%%;*}" = "$1" ] || fail "the fabric of ${*:2} is '$got', not '$1'"
}
rescue=ibp0:1,ibp1:1,ibp2:1,ibp3:1,ibp4:1,ibp5:1,ibp6:1,ibp7:1
expect_fabric "=mlx5_0,mlx5_3:2 $rescue =ib0 ib0" ARGOSY_HCA=mlx5_0,mlx5_3:2 ARGOSY_INTERFACE=ib0
expect_fabric "^=mlx5_1 mlx5_1:1 =eth0,eth1 eth0,eth1" UCX_NET_DEVICES=mlx5_1:1 ARGOSY_HCA=^mlx5_1 ARGOSY_INTERFACE=eth0,eth1
expect_fabric " $rescue  " ARGOSY_HCA= ARGOSY_INTERFACE=
expect_fabric "ARGOSY_HCA is '=mlx5_0'" ARGOSY_HCA==mlx5_0
expect_fabric "ARGOSY_HCA is 'mlx5_0:x'" ARGOSY_HCA=mlx5_0:x
expect_fabric "ARGOSY_INTERFACE is '^docker0'" ARGOSY_INTERFACE=^docker0

# A node of two sockets, a core each (whatever cores this machine lets us have): GPUs 0 and 1 on the first, 2 and 3 on
# the second; mlx5_0 behind GPU 0's switch, mlx5_1 elsewhere on the first socket, mlx5_2 on the second, mlx5_3 of the
# storage beside GPU 2, mlx5_4 down. GPU 4 is on a third socket, of which the job has no core.
mapfile -t cores < <(taskset -pc $$ | sed 's/.*: //' | tr ',' '\n' |
    while IFS=- read -r from to; do seq "$from" "${to:-$from}"; done)
cores=("${cores[@]:0:2}")
taskset -pc "$(IFS=,; echo "${cores[*]}")" $$ >"$folder/said"
one=${cores[0]} two=${cores[1]:-${cores[0]}}
sys=$folder/sys
device() { # PATH CORES
    mkdir -p "$sys/devices/$1" "$sys/bus/pci/devices"
    echo "$2" >"$sys/devices/$1/local_cpulist"
    ln -s "$sys/devices/$1" "$sys/bus/pci/devices/${1##*/}"
}
adapter() { # NAME PATH STATE
    mkdir -p "$sys/devices/$2" "$sys/class/infiniband/$1/ports/1"
    ln -s "$sys/devices/$2" "$sys/class/infiniband/$1/device"
    echo "$3" >"$sys/class/infiniband/$1/ports/1/state"
}
device pci0000:00/0000:00:01.0/0000:01:00.0 "$one"
device pci0000:00/0000:00:02.0/0000:02:00.0 "$one"
device pci0000:80/0000:80:01.0/0000:81:00.0 "$two"
device pci0000:80/0000:80:02.0/0000:82:00.0 "$two"
device pci0000:c0/0000:c0:01.0/0000:c1:00.0 4000-4001
adapter mlx5_0 pci0000:00/0000:00:01.0/0000:03:00.0 "4: ACTIVE"
adapter mlx5_1 pci0000:00/0000:00:03.0/0000:04:00.0 "4: ACTIVE"
adapter mlx5_2 pci0000:80/0000:80:03.0/0000:83:00.0 "4: ACTIVE"
adapter mlx5_3 pci0000:80/0000:80:01.0/0000:84:00.0 "4: ACTIVE"
adapter mlx5_4 pci0000:80/0000:80:02.0/0000:85:00.0 "1: DOWN"
mkdir -p "$folder/bin" "$sys/class/infiniband/mlx5_3/ports/2"
echo "4: ACTIVE" >"$sys/class/infiniband/mlx5_3/ports/2/state"
cat >"$folder/bin/nvidia-smi" <<'SMI'
#!/bin/sh
case $1 in
-L)
    echo 'GPU 0: NVIDIA H200 (UUID: GPU-01d0ac5f-1111-2222-3333-444444444444)'
    echo 'GPU 1: NVIDIA H200 (UUID: GPU-02d0ac5f-1111-2222-3333-444444444444)'
    echo 'GPU 2: NVIDIA H200 (UUID: GPU-81d0ac5f-1111-2222-3333-444444444444)'
    echo 'GPU 3: NVIDIA H200 (UUID: GPU-82d0ac5f-1111-2222-3333-444444444444)'
    echo '  MIG 1g.18gb Device 0: (UUID: MIG-0e1f2a3b-1111-2222-3333-444444444444)' ;;
*) printf '%s\n' 00000000:01:00.0 00000000:02:00.0 00000000:81:00.0 00000000:82:00.0 00000000:C1:00.0 ;;
esac
SMI
chmod +x "$folder/bin/nvidia-smi"

# Runs bind.sh as one rank: prints cores, threads and adapter.
bound() { # RANK VARIABLE=VALUE ...
    env -u OMP_NUM_THREADS -u UCX_NET_DEVICES -u CUDA_VISIBLE_DEVICES PATH="$folder/bin:$PATH" ARGOSY_SYSFS="$sys" \
        ARGOSY_HCA=mlx5_0,mlx5_1,mlx5_2,mlx5_4 SLURM_LOCALID="$1" ARGOSY_RANKS_HERE=4 "${@:2}" "$jobs/bind.sh" \
        bash -c 'echo "$(taskset -pc $$ | sed "s/.*: //") $OMP_NUM_THREADS ${UCX_NET_DEVICES:-none}"' 2>"$folder/said"
}
expect_bound() { # EXPECTED RANK ...
    local got
    got=$(bound "${@:2}")
    [ "$got" = "$1" ] || fail "rank ${*:2} is bound to '$got', not '$1'"
}
expect_bound "$one 1 mlx5_0:1" 0
expect_bound "$one 1 mlx5_1:1" 1
expect_bound "$two 1 mlx5_2:1" 2
expect_bound "$two 1 mlx5_2:1" 3
expect_bound "$two 1 mlx5_3:1" 2 ARGOSY_HCA=
expect_bound "$two 1 mlx5_2:1" 2 ARGOSY_HCA=^mlx5_3
expect_bound "$two 1 mlx5_3:2" 2 ARGOSY_HCA=^mlx5_3:1,mlx5_4
expect_bound "$two 1 mlx5_3:2" 2 ARGOSY_HCA=mlx5_3:2,mlx5_2
expect_bound "$two 1 mlx5_3:1" 2 ARGOSY_HCA=^mlx5
expect_bound "$two 1 mlx5_2:1" 0 CUDA_VISIBLE_DEVICES=3
expect_bound "$one 7 mine" 0 OMP_NUM_THREADS=7 UCX_NET_DEVICES=mine
expect_bound "$two 1 mlx5_2:1" 0 OMPI_COMM_WORLD_LOCAL_RANK=2 OMPI_COMM_WORLD_LOCAL_SIZE=4
expect_bound "$two 1 mlx5_2:1" 0 CUDA_VISIBLE_DEVICES=GPU-82d0ac5f-1111-2222-3333-444444444444
expect_bound "$one 1 mlx5_1:1" 1 CUDA_VISIBLE_DEVICES=GPU-82,GPU-02
expect_bound "$two 1 mlx5_2:1" 0 CUDA_VISIBLE_DEVICES=MIG-0e1f2a3b-1111-2222-3333-444444444444
if grep -q "not near" "$folder/said"; then fail "complains of cores near the GPU: $(<"$folder/said")"; fi

# A rank whose cores are not near its GPU reports it, with its number in the job. It shares no core with the other rank.
beside_far=("CUDA_VISIBLE_DEVICES=0,4" ARGOSY_RANKS_HERE=2 UCX_NET_DEVICES=mine)
expect_bound "$one 1 mine" 0 "${beside_far[@]}"
expect_bound "$two 1 mine" 1 "${beside_far[@]}" SLURM_PROCID=5
grep -qF "bind: rank 5 on $(hostname): cores $two are not near GPU 0000:c1:00.0, whose cores are 4000-4001: " \
    "$folder/said" || fail "a rank far from its GPU says: $(<"$folder/said")"
# All ranks of a node start at once, so bind.sh starts no other programs than these.
mkdir "$folder/few"
for program in bash env taskset realpath; do ln -s "$(command -v "$program")" "$folder/few"; done
ln -s "$folder/bin/nvidia-smi" "$folder/few"
got=$(env -i PATH="$folder/few" ARGOSY_SYSFS="$sys" SLURM_LOCALID=2 ARGOSY_RANKS_HERE=4 "$jobs/bind.sh" env 2>&1) ||
    fail "bind.sh starts more programs: $got"
grep -qx UCX_NET_DEVICES=mlx5_3:1 <<<"$got" || fail "bind.sh alone finds no adapter: $got"
# A site without GPUs: the variables of Slurm's GPUs, which a job of whole nodes gets without a request, do not reach a rank.
got=$(SLURM_JOB_GPUS=0 SLURM_STEP_GPUS=0 SLURM_GPUS_ON_NODE=1 ARGOSY_GPUS=no "$jobs/bind.sh" env 2>/dev/null)
if grep -q '^SLURM.*GPUS' <<<"$got"; then fail "a rank without GPUs has variables of Slurm's GPUs"; fi
rm "$folder/bin/nvidia-smi"
if ! command -v nvidia-smi >/dev/null && [ ${#cores[@]} -gt 1 ]; then
    expect_bound "$one 1 none" 0 ARGOSY_RANKS_HERE="${#cores[@]}"
    expect_bound "$two 1 none" 1 ARGOSY_RANKS_HERE="${#cores[@]}"
fi
echo "passed"
