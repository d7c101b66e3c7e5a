# shellcheck shell=bash
# Makes a job from a template, for submit.sh, pipeline.sh and bringup.sh, which source this file after they have read the
# site's settings.

# settings_of CONFIG [--section.key value ...]: what they say in the end; pretrain tells what is wrong with them.
settings_of() {
    local inside=()
    inside_container
    "${inside[@]}" "$ARGOSY_BIN/pretrain" --config "$@" --print-config
}

# fill TEMPLATE "--option=value ..." WORD ...: the template with these #SBATCH options in place of its own of the same
# name, and the words as its arguments; it then needs nothing more than sbatch.
fill() {
    local template=$ARGOSY_JOBS/templates/$1.sbatch options=$2
    shift 2
    OPTIONS=$options PROLOGUE=$(prologue "$@") awk '
        BEGIN { count = split(ENVIRON["OPTIONS"], given, " "); for (i = 1; i <= count; i++) named[name(given[i])] = 1 }
        function name(option) { sub(/=.*/, "", option); return option }
        /^#SBATCH/ { if (!(name($2) in named)) print; inside = 1; next }
        inside { for (i = 1; i <= count; i++) print "#SBATCH " given[i]; print ENVIRON["PROLOGUE"]; inside = 0 }
        { print }' "$template" | { if [ "${ARGOSY_GPUS:-yes}" = no ]; then grep -v '^#SBATCH --gpus'; else cat; fi; }
}

prologue() {
    printf 'export ARGOSY_JOBS=%q ARGOSY_SITE=%q' "$ARGOSY_JOBS" "$ARGOSY_SITE"
    [ -z "${ARGOSY_RECORD:-}" ] || printf ' ARGOSY_RECORD=%q' "$ARGOSY_RECORD"
    echo
    printf 'set --'; printf ' %q' "$@"
}

# Options that all jobs of the site have.
site_options() {
    echo "${ARGOSY_PARTITION:+--partition=$ARGOSY_PARTITION} ${ARGOSY_ACCOUNT:+--account=$ARGOSY_ACCOUNT}" \
         "${ARGOSY_QOS:+--qos=$ARGOSY_QOS} $ARGOSY_SBATCH_OPTIONS"
}

# submit SCRIPT < a filled template: the job's number. The script stays, to be submitted again as it is.
submit() {
    mkdir -p "$(dirname "$1")"
    cat >"$1.new"
    chmod +x "$1.new"
    mv "$1.new" "$1"
    sbatch --parsable "$1" | sed 's/;.*//'
}
