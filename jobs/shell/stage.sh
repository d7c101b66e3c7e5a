# shellcheck shell=bash
# Staging: a training job with ARGOSY_STAGE copies its programs and the libraries that they load to a disk of each node, so that ranks
# do not look for them in trees that all nodes share. job.sh sources this file, which uses its variables and the functions of
# requeue.sh.
#
# 1. The first node packs them into one archive, sbcast sends it to all nodes of the job, spares included, and each node unpacks it into
#    ARGOSY_STAGE/argosy.JOB.RESTART, a folder of this user alone.
# 2. They lie in that one folder, which is the first one in which ranks look for libraries (LD_LIBRARY_PATH). The machine's own
#    libraries stay where they are.
# 3. The folders go when the job ends or is requeued. They may stay on bad nodes of a job with spares, and on all nodes of a job that
#    Slurm ends itself (scancel, a lost node), on which it starts nothing more: the user's next job that stages on the node removes them.
# shellcheck disable=SC2034,SC2154

programs=$ARGOSY_BIN  # the folder from which ranks start
stage=                # the folder on each node, once the programs are there
unfit_nodes=          # nodes that could not take the programs, as n3,n5: the next start is without them
readonly STAGE_SECONDS=1800  # gigabytes over a slow network

# stage_programs [PROGRAM ...]: stages the programs, or ends the job.
stage_programs() {
    local archive=$run/stage.tar folder mib failed began=$SECONDS
    [ -n "$ARGOSY_STAGE" ] || return 0
    folder=$(stage_parent)/argosy.$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0} || end_or_requeue 2
    pack_programs "$archive" "$@" || { rm -f "$archive"; end_or_requeue 2; }
    mib=$(($(stat -c %s "$archive") / 1048576 + 1))
    say "staging $* and libraries, $mib MiB, in $folder on each node"
    on_each_node 300 make_stage "$folder" "$((2 * mib))" "$(squeue -h -u "$(id -un)" -o %A | paste -sd' ')" ||
        give_up_staging "$folder" "$archive"
    (close_lock; exec timeout "$STAGE_SECONDS" sbcast --preserve "$archive" "$folder/stage.tar" >&2) ||
        failed='' give_up_staging "$folder" "$archive"
    on_each_node "$STAGE_SECONDS" unpack_stage "$folder" || give_up_staging "$folder" "$archive"
    rm -f "$archive"
    say "staged in $((SECONDS - began)) s"
    stage=$folder programs=$folder
}

# Prints the folder that ARGOSY_STAGE names; it may begin with a variable of the job, as in $SLURM_TMPDIR.
stage_parent() {
    local parent=$ARGOSY_STAGE
    if [[ $parent =~ ^\$([A-Z_]+)(/.*)?$ ]]; then parent=${!BASH_REMATCH[1]:-}${BASH_REMATCH[2]}; fi
    [[ $parent = /* ]] || { say "ARGOSY_STAGE is '$ARGOSY_STAGE', which is '$parent' in this job: it is no absolute path"; return 1; }
    echo "${parent%/}"
}

# pack_programs ARCHIVE PROGRAM ...: packs the programs, bind.sh and the libraries. cuDNN loads its engines by name, and these load
# NVRTC, so those libraries come along too.
pack_programs() {
    local archive=$1 program said missing files=("$ARGOSY_JOBS/bind.sh")
    for program in "${@:2}"; do
        said=$(LC_ALL=C ldd "$ARGOSY_BIN/$program" 2>&1) || [[ $said = *"not a dynamic executable"* ]] ||
            { say "$ARGOSY_BIN/$program cannot be staged: $said"; return 1; }
        missing=$(sed -n 's/^\t\(.*\) => not found$/\1/p' <<<"$said" | paste -sd' ')
        [ -z "$missing" ] || { say "$ARGOSY_BIN/$program cannot be staged: its libraries are not found: $missing"; return 1; }
        files+=("$ARGOSY_BIN/$program")
        mapfile -t -O "${#files[@]}" files < <(libraries_in "$said")
    done
    mapfile -t files < <(printf '%s\n' "${files[@]}" | sort -u)
    said=$(tar --create --dereference "--file=$archive" --transform='s|.*/||' --absolute-names "${files[@]}" 2>&1) ||
        { say "$archive cannot be written: $said"; return 1; }
}

# libraries_in LIST: prints the paths of the libraries that ldd lists, and those that they load by name, without the machine's own.
libraries_in() {
    local path
    while IFS='' read -r path; do
        echo "$path"
        case ${path##*/} in
            libcudnn.so*) compgen -G "${path%/*}/libcudnn_*.so.*" || true ;;
            libcudart.so*) compgen -G "${path%/*}/libnvrtc*.so.*" || true ;;
        esac
    done < <(sed -nE '\,=> /(usr/)?lib(32|64)?/,d; s,^\t.* => (/.*) \(0x[0-9a-f]+\)$,\1,p' <<<"$1" | xargs -r -d '\n' realpath -ms --)
}

# on_each_node SECONDS FUNCTION WORD ...: runs the function once on each node of the job that is not bad. Sets `failed`: a line
# "NODE: REASON" for each of them on which the function fails, where the reason is what it prints, or that does not answer. Returns 1 if
# there is one. srun would refuse a node that has left the job, and with SLURM_NO_KILL wait for one that dies.
on_each_node() {
    local seconds=$1 nodes present count answers
    shift
    nodes=$(without "$bad_nodes" <<<"$job_nodes")
    present=$(without "$(left_nodes)" <<<"$nodes")
    count=$(grep -c . <<<"$present")
    answers=$(close_lock
              exec timeout --signal=KILL "$seconds" env -u SLURM_NO_KILL srun --overlap --mpi=none --input=none \
                  "--nodes=$count" "--ntasks=$count" --ntasks-per-node=1 "--nodelist=$(paste -sd, <<<"$present")" \
                  bash -c "$(declare -f "$1")"'
                  if said=$("$@" 2>&1); then said=; else said=${said:-exit $?}; fi
                  echo "$SLURMD_NODENAME: ${said//$'"'\n'"'/, }"' - "$@") || true
    failed=$(awk 'NR == FNR { node = $1; sub(/^[^ ]* ?/, ""); said[node] = $0; next }
                  !($0 ":" in said) { print $0 ": no answer" }
                  said[$0 ":"] != "" { print $0 ": " said[$0 ":"] }' <(echo "$answers") <(echo "$nodes"))
    [ -z "$failed" ]
}

# make_stage FOLDER MIB JOBS: makes the folder, on one node, and removes those of earlier starts of this job and of this user's jobs that
# are not in the queue. JOBS are those in the queue, empty if Slurm does not answer. If the folder cannot be made, prints why
# and returns 1.
make_stage() {
    local old job free
    for old in "${1%/*}"/argosy.*; do
        job=${old##*/argosy.}
        [ -O "$old" ] && [ ! -L "$old" ] || continue
        if [[ " $3 " = *" $SLURM_JOB_ID "* && " $3 " != *" ${job%.*} "* ]]; then rm -rf "$old"; fi
    done
    rm -rf "${1%.*}".*
    mkdir -m 700 "$1" || return
    free=$(df --output=avail -k "$1" | tail -n 1)
    [ $((free / 1024)) -lt "$2" ] || return 0
    rm -rf "$1"
    echo "$((free / 1024)) MiB are free of the $2 MiB that archive and files need"
    return 1
}
# --touch: tar would warn of each file whose time is ahead of the node's clock.
unpack_stage() { tar --extract --touch "--file=$1/stage.tar" --directory="$1" && rm "$1/stage.tar"; }
remove_stage() { rm -rf "$1"; }

# give_up_staging FOLDER ARCHIVE: if at most half of the nodes have failed, requeues the job without them. Otherwise the job ends if a
# node gave a reason, and is requeued if none did.
give_up_staging() {
    local count code=1
    rm -f "$2"
    count=$(grep -c . <<<"$failed" || true)
    say "the programs cannot be staged in $1 (ARGOSY_STAGE)${failed:+: $(head -n 8 <<<"$failed" | paste -sd'|' | sed 's/|/; /g')}"
    if [ $((2 * count)) -le "$(grep -c . <<<"$job_nodes")" ]; then
        unfit_nodes=$(cut -d: -f1 <<<"$failed" | paste -sd,)
    elif grep -qv ': no answer$' <<<"$failed"; then
        code=2
    fi
    stage=$1
    end_or_requeue "$code"
}

# Removes the folders of this start from all good nodes, and names those that do not answer. After a SIGTERM none would, and the end must
# be recorded soon.
unstage_programs() {
    local failed=''
    [ -n "$stage" ] || return 0
    [ -n "$ended" ] || on_each_node 60 remove_stage "$stage" 2>/dev/null ||
        say "$stage may stay on $(cut -d: -f1 <<<"$failed" | paste -sd,)"
    rm -rf "$stage"
    stage='' programs=$ARGOSY_BIN
}
