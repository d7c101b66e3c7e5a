# shellcheck shell=bash
# Makes a job from a template, for submit.sh, pipeline.sh and bringup.sh, which source this file after they have read the
# site's settings.

# settings_of CONFIG [--section.key value ...]: prints the effective configuration; pretrain reports mistakes in it.
settings_of() {
    local container_words=()
    inside_container
    "${container_words[@]}" "$ARGOSY_BIN/pretrain" --config "$@" --print-config
}

# fill TEMPLATE "--option=value ..." WORD ...: prints the template as a complete script for sbatch. These #SBATCH options
# replace the template's options of the same name, and the words become its arguments.
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

# Prints the options that all jobs of the site have.
site_options() {
    echo "${ARGOSY_PARTITION:+--partition=$ARGOSY_PARTITION} ${ARGOSY_ACCOUNT:+--account=$ARGOSY_ACCOUNT}" \
         "${ARGOSY_QOS:+--qos=$ARGOSY_QOS} $ARGOSY_SBATCH_OPTIONS"
}

# submit SCRIPT < FILLED_TEMPLATE: submits it and prints the job's number. The script stays, and can be submitted again.
submit() {
    mkdir -p "$(dirname "$1")"
    cat >"$1.new"
    chmod +x "$1.new"
    mv "$1.new" "$1"
    sbatch --parsable "$1" | sed 's/;.*//'
}
