#!/usr/bin/env python3
"""status.py BASELINE RUN ...: prints runs at a glance, for status.sh. BASELINE may be empty. Needs Python 3.9."""
import collections
import datetime
import json
import pathlib
import subprocess
import sys
import time

from run_metrics import Speed
from run_record import (checkpoints_of, config_text, fail, fail_to_read, newest_lines, node_names, objects, plain,
                        read_config, total_steps)
from sweep_points import line_of_point, options_in_words, same_point

# The columns that squeue prints. The script is the last one, because its path may contain "|".
COLUMNS = {"id": "%i", "state": "%T", "reason": "%r", "start": "%S", "excluded": "%x", "partition": "%P", "script": "%o"}

# The beginnings of squeue's reasons, the longest first where one begins another.
REASONS = {
    "Resources": "too few nodes are free; Slurm expects a start at {start}",
    "Priority": "jobs of higher priority come first; Slurm expects a start at {start}",
    "DependencyNeverSatisfied": "the job before it failed, so it never starts: scancel {id}",
    "Dependency": "another job must succeed first",
    "BeginTime": "Slurm starts it at {start} or later, because it was requeued or was submitted with --begin",
    "JobHeldUser": "it is held: scontrol release {id}",
    "JobHeldAdmin": "an administrator holds it; ask them",
    "launch failed requeued held": "Slurm could not start it and holds it: scontrol release {id}",
    "job requeued in held state": "it was requeued and is held: scontrol release {id}",
    "Nodes required for job are DOWN": "nodes that it needs are down, drained or reserved; see sinfo -R",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved; see sinfo -R",
    "Reservation": "its reservation has not begun",
    "PartitionDown": "the partition {partition} is down; see sinfo, or submit to another one",
    "PartitionInactive": "the partition {partition} is inactive; see sinfo, or submit to another one",
    "PartitionTimeLimit": "its time limit is longer than the partition {partition} allows: scontrol update jobid={id} "
                          "TimeLimit=MINUTES",
    "PartitionConfig": "its time limit or number of nodes is more than the partition {partition} allows; see scontrol show "
                       "partition {partition}",
    "PartitionNodeLimit": "it wants more nodes than the partition {partition} allows",
    "BadConstraints": "no node has what it asks for; submit with other options",
    "NodeDown": "a node that it needs is down; see sinfo -R",
    "JobArrayTaskLimit": "the sweep already runs as many points as --array allows",
    "Assoc": "a limit of the account is reached ({reason}); see sacctmgr show assoc",
    "QOS": "a limit of the QOS is reached ({reason}); see sacctmgr show qos",
    "Cleaning": "Slurm still cleans up its last start",
    "None": "Slurm has not considered it yet",
}


def queue():
    """The jobs in Slurm's queue, by the folder of their script; None if Slurm does not answer."""
    jobs = collections.defaultdict(list)
    try:
        answer = subprocess.run(["squeue", "-h", "-o", "|".join(COLUMNS.values())], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    if answer.returncode != 0:
        return None
    for line in answer.stdout.splitlines():
        fields = dict(zip(COLUMNS, line.split("|", len(COLUMNS) - 1)))
        if len(fields) == len(COLUMNS):
            jobs[pathlib.Path(fields["script"]).parent.resolve()].append(fields)
    return jobs


def in_words(job):
    """The state of a job in the queue; if it waits, why, and what can be done."""
    state = job["state"].lower()
    if state != "pending":
        return state
    reason = job["reason"].split(",")[0]
    words = next((words for start, words in REASONS.items() if reason.startswith(start)), f"Slurm's reason is {reason}")
    return "waits: " + words.format(**job)


def name_of(start):
    """A start or an end of jobs.jsonl in words; only a job with spares has starts inside."""
    inside = f"start {start['restart_inside']} inside, " if start.get("restart_inside") else ""
    spares = f", spares left: {start['spares']}" if "spares" in start else ""
    return f"{start['job']}, restart {start['restart']}, {inside}{start['ranks']} ranks on {start['nodes']}{spares}"


def show_shortage(folder, job):
    """What the last requeue of the job gave up because too few nodes were usable (jobs/FAILURES.md, `next_start`)."""
    path = folder / "next_start"
    words = path.read_text().split() if path.exists() else []
    if len(words) < 3 or words[0] != job:
        return
    _, spares, wanted, *back = words
    given_up = ([f"spares: {spares} of {wanted}"] if spares != wanted else []) + \
        [f"excluded nodes that may be used again: {nodes}" for nodes in back]
    show("nodes", f"too few were usable at the last requeue; {'; '.join(given_up)}")


def show_job(folder, queued, started):
    """The jobs of the folder in the queue, else how the newest one ended. `queued` is None if Slurm does not answer."""
    newest = started[-1] if started else None
    name = name_of(newest) if newest else ""
    for job in queued or []:
        script = pathlib.Path(job["script"]).stem
        is_newest = newest and job["id"] == newest["job"]
        show(script if script != "job" else "job", f"{in_words(job)} ({name if is_newest else job['id']})")
        if job["state"] == "PENDING" and job["excluded"]:
            show("excluded", f"{job['excluded']}. If too few nodes are left: scontrol update jobid={job['id']} ExcNodeList=")
        show_shortage(folder, job["id"])
        if job["state"] == "PENDING" and is_newest and newest.get("spares"):
            show("spares", f"{newest['spares']}. If too few nodes are left, start without them: scontrol update jobid={job['id']} "
                 f"NumNodes={len(node_names(newest['nodes']))} NumTasks={newest['ranks']} NumCPUs={newest['ranks']}")
    if queued:
        return
    if queued is None:
        show("queue", "Slurm does not answer (squeue failed), so a job may be in the queue")
    if not newest and queued is not None:
        show("job", "none is in the queue, and none has started")
    elif newest and newest["event"] == "end":
        show("job", f"{newest['outcome']} with exit code {newest['exit_code']} ({name})")
    elif newest and queued is None:
        show("job", f"the newest start left no exit code ({name})")
    elif newest:
        show("job", f"not in the queue, and left no exit code ({name})")


def show_efficiency(folder, steps, config, baseline):
    """The speed of a GPU in per cent of the baseline's; if that is a sweep, of its point with the same options."""
    name = baseline or config.get("metrics.baseline")
    if not name:
        return
    path = pathlib.Path(name)
    if (path / "points").exists():
        line = line_of_point(folder)
        path = same_point(path, line) if line else None
        if path is None:
            show("efficiency", f"unknown: no point of {name} has the options {options_in_words(line)}" if line else
                 f"unknown: {name} is a sweep; name one of its points")
            return
        name = str(path)
    if not path.exists():
        show("efficiency", f"unknown: there is no folder {name}")
        return
    earlier = newest_lines(path / "metrics.jsonl" if path.is_dir() else path)
    speed, before = (found.num_steps and found.tokens_per_second_per_device for found in (Speed(steps), Speed(earlier)))
    show("efficiency", f"{100 * speed / before:.0f} % of {name}, {plain(speed, 5)} and {plain(before, 5)} tokens/s a GPU"
         if speed and before else f"unknown: {name if speed else 'this run'} has no step yet that counts")


def show(name, text):
    print(f"  {name:<11}{text}")


def show_preflight(folder):
    """The result of the newest start's pre-flight, and its worst finding."""
    path = folder / "preflight.json"
    if not path.exists():
        return
    report = json.loads(path.read_text())
    found = [f"{one['check']}: {one['where']}" for one in report.get("findings") or []]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    show("pre-flight", report["verdict"] + (f" ({found[0]}{more})" if found else ""))


def show_steps(steps, total):
    newest = steps[-1]
    of_total = f" of {total} ({100 * newest['step'] / total:.1f} %)" if total else ""
    show("step", f"{newest['step']}{of_total}")
    show("loss", newest["loss"] if newest["loss"] is None else f"{newest['loss']:.4f}")
    speed = Speed(steps)
    if not speed.step_ms:
        return
    show("tokens/s", f"{1000 * newest['tokens'] / speed.step_ms:.0f}, {plain(speed.step_ms / 1000, 3)} s a step")
    if total:
        show("ETA", datetime.timedelta(seconds=round(max(0, total - newest["step"]) * speed.mean_step_ms / 1000)))


def show_checkpoint(folder, config, newest_step):
    whole = [one for one in checkpoints_of(folder, config)["listed"] if one["whole"]]
    if not whole:
        show("checkpoint", "none")
        return
    step, minutes = whole[-1]["step"], (time.time() - whole[-1]["time"]) / 60
    show("checkpoint", f"step {step}, {max(0, newest_step - step)} steps and {minutes:.0f} min ago")


def show_steps_of(folder, baseline):
    steps, starts = newest_lines(folder / "metrics.jsonl"), list(objects(folder / "starts.jsonl"))
    config, _ = read_config(config_text(folder, starts)[0])
    if steps:
        show_steps(steps, total_steps(config, starts))
        show_efficiency(folder, steps, config, baseline)
    else:
        show("step", "none yet")
    show_checkpoint(folder, config, steps[-1]["step"] if steps else 0)


def show_run(folder, queued, baseline):
    print(folder)
    show_job(folder, queued, list(objects(folder / "jobs.jsonl")))
    show_preflight(folder)
    show_steps_of(folder, baseline)


def show_sweep(folder, queued, baseline):
    """The points that wait, then each point that has started."""
    waiting = [job for job in queued or [] if job["state"] == "PENDING"]
    points = sorted(path for path in folder.glob("point-*") if path.is_dir())
    print(folder)
    num_points = len((folder / "points").read_text().splitlines())
    show("sweep", f"{num_points} points, {len(points)} have started, {len(queued or []) - len(waiting)} are running")
    if waiting:
        show_job(folder, waiting, [])
    for point in points:
        started = list(objects(point / "jobs.jsonl"))
        jobs = None if queued is None else [job for job in queued if started and job["id"] == started[-1]["job"]]
        show_run(point, jobs, baseline)


def show_bringup(folder, jobs_of):
    """The stages that have ended, as bringup.sh left them, then the one that runs."""
    print(folder)
    stages = list(objects(folder / "stages.jsonl"))
    if not stages:
        show("stages", "none has ended yet")
    for stage in stages:
        name, efficiency = pathlib.Path(stage["baseline"] or ""), stage["efficiency"]
        shown = name.name if name.parent == folder.resolve() else name
        share = "no stage to compare with" if efficiency is None else f"efficiency {100 * efficiency:.0f} % of {shown}"
        show(stage["stage"], f"{plain(stage['tokens_per_second_per_device'], 5)} tokens/s a GPU, {share} ({stage['config']}, "
                             f"{stage['mesh']})")
    for path in sorted(folder.glob("*/job.sbatch")):
        for job in (jobs_of or {}).get(path.parent.resolve(), []):
            show(path.parent.name, f"{in_words(job)} ({job['id']})")


def main(baseline, names):
    missing = [name for name in names if not pathlib.Path(name).is_dir()]
    if missing:
        fail(f"there is no folder {missing[0]}")
    jobs_of = queue()
    for folder in map(pathlib.Path, names):
        queued = None if jobs_of is None else jobs_of[folder.resolve()]
        if (folder / "points").exists():
            show_sweep(folder, queued, baseline)
        elif (folder / "stages.jsonl").exists():
            show_bringup(folder, jobs_of)
        else:
            show_run(folder, queued, baseline)


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2:])
    except OSError as error:
        fail_to_read(error)
