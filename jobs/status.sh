#!/usr/bin/env bash
# status.sh RUN ...: prints each run at a glance: its job, pre-flight, step, loss, speed, time to go, newest checkpoint.
set -euo pipefail
[ $# -gt 0 ] || { echo "status: no run given; usage: status.sh RUN ..., the folders of runs" >&2; exit 2; }
exec python3 - "$@" <<'PYTHON'
import datetime
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

NEWEST = 50  # steps whose median is the speed
TAIL_BYTES = 1 << 18


def last_lines(path):
    """The last objects of a file of JSON lines, without an incomplete last line."""
    if not path.exists():
        return []
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        texts = file.read().decode(errors="replace").split("\n")
    return [json.loads(text) for text in texts[:-1] if text.startswith("{") and text.endswith("}")]


def job_state(jobs):
    if not jobs:
        return "none has started"
    newest = jobs[-1]
    name = f"{newest['job']}, restart {newest['restart']}, {newest['ranks']} ranks on {newest['nodes']}"
    try:
        asked = subprocess.run(["squeue", "-h", "-j", newest["job"], "-o", "%T %r"], capture_output=True, text=True)
        state = asked.stdout.strip()
    except FileNotFoundError:
        state = ""
    if not state and newest["event"] == "end":
        state = f"ended with exit code {newest['exit_code']}"
    return f"{state or 'not in the queue, and left no exit code'} ({name})"


def total_steps(folder):
    """training.steps of the configuration in effect."""
    path = folder / "effective.toml"
    section = re.search(r"^\[training\]$(.*?)(?=^\[|\Z)", path.read_text() if path.exists() else "", re.M | re.S)
    steps = section and re.search(r"^steps *= *(\d+)", section[1], re.M)
    return int(steps[1]) if steps else None


def show(name, text):
    print(f"  {name:<11}{text}")


def show_preflight(folder):
    """The result of the newest start's pre-flight, and its worst finding."""
    path = folder / "preflight.json"
    if not path.exists():
        return
    report = json.loads(path.read_text())
    found = [f"{one['check']}: {one['where']}" for one in report.get("findings", [])]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    show("pre-flight", report["verdict"] + (f" ({found[0]}{more})" if found else ""))


def show_steps(steps, total):
    newest = steps[-1]
    of_total = f" of {total} ({100 * newest['step'] / total:.1f} %)" if total else ""
    show("step", f"{newest['step']}{of_total}")
    show("loss", newest["loss"] if newest["loss"] is None else f"{newest['loss']:.4f}")
    seconds = statistics.median(step["time_ms"]["total"] for step in steps[-NEWEST:]) / 1000
    show("tokens/s", f"{newest['tokens'] / seconds:.0f}, {seconds:.3g} s a step")
    if total:
        left = max(0, total - newest["step"])
        show("ETA", datetime.timedelta(seconds=round(left * seconds)))


def show_checkpoint(folder, newest_step):
    saved = [path for path in (folder / "checkpoint").glob("step-*") if path.name[5:].isdigit()]
    if not saved:
        show("checkpoint", "none")
        return
    newest = max(saved, key=lambda path: int(path.name[5:]))
    step, minutes = int(newest.name[5:]), (time.time() - newest.stat().st_mtime) / 60
    show("checkpoint", f"step {step}, {max(0, newest_step - step)} steps and {minutes:.0f} min ago")


missing = [name for name in sys.argv[1:] if not pathlib.Path(name).is_dir()]
if missing:
    sys.exit(f"status: there is no folder {missing[0]}")
for name in sys.argv[1:]:
    folder = pathlib.Path(name)
    steps = last_lines(folder / "metrics.jsonl")
    print(folder)
    show("job", job_state(last_lines(folder / "jobs.jsonl")))
    show_preflight(folder)
    if steps:
        show_steps(steps, total_steps(folder))
    else:
        show("step", "none yet")
    show_checkpoint(folder, steps[-1]["step"] if steps else 0)
PYTHON
