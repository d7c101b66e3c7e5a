"""rank_memory.py FILE COMMAND ...: runs a command, and then adds its peak resident memory in KiB as a line to FILE.
Started once per rank, so that the file has a line for each. Exits with the command's status.
"""
import os
import resource
import signal
import sys

file, *command = sys.argv[1:]
child = os.posix_spawnp(command[0], command, os.environ)
signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
_, status = os.waitpid(child, 0)
with open(file, "a") as lines:
    lines.write(f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}\n")
code = os.waitstatus_to_exitcode(status)
sys.exit(code if code >= 0 else 128 - code)
