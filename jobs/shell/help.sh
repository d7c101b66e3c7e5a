# shellcheck shell=bash
# print_help: prints the comment at the top of the script that sources this file, for its option --help.
print_help() { sed -n '2,/^set /{/shellcheck/d;/^#/s/^# \{0,1\}//p}' "$0"; }
