#!/usr/bin/env python3
"""export_run.py --mlflow DIR | --wandb DIR RUN [RUN ...]: exports runs to the files of MLflow or of Weights & Biases.

--mlflow writes a run of MLflow's file store into DIR, which MLflow's client reads (since 3.17 with MLFLOW_ALLOW_FILE_STORE=true in
its environment). --wandb writes an offline run, which `wandb sync DIR/offline-run-...` uploads. Neither package is needed. Every
figure of metrics.jsonl becomes a metric with `/` in its name (time_ms/exposed/tp), and the configuration the parameters of
the run. A second export of the same folder replaces the first; a reader finds one run at each moment. If an export is killed,
the next one of the same run on the same host completes it and removes what it left.

metrics.jsonl has no clock: the time of a step is that of its start (starts.jsonl) plus the times of the steps since then.
Exit codes: 0 done, 2 bad arguments, or a file that cannot be read or written.
"""
import argparse
import calendar
import dataclasses
import hashlib
import math
import os
import pathlib
import shutil
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "python"))
import mlflow_files
import wandb_files
from run_metrics import flat, lines_of_steps, part
from run_record import is_number, newest_lines, read_run, state_of


@dataclasses.dataclass
class Exported:
    """A run as both formats need it."""
    folder: pathlib.Path
    name: str
    digest: str  # hexadecimal; the same for every export of this folder
    project: str
    state: str  # running, finished, failed or stopped
    exit_code: int
    config: dict  # "section.key": text of the value
    facts: dict  # of the newest start: version, host, ranks, ...
    starts: list  # (first step, seconds since 1970) of those whose steps count
    begin: float  # seconds since 1970
    end: float

    def steps(self):
        """Yields (step, seconds since 1970, {name: value}) of each step; values that are no numbers are left out."""
        for line, seconds in timed_lines(self.folder, self.begin, self.starts):
            values = {name: value for name, value in flat(line, separator="/") if is_number(value) and name != "step"}
            if isinstance(line.get("finite"), bool):
                values["finite"] = int(line["finite"])
            yield line["step"], seconds, values


def seconds_of(text):
    """Seconds since 1970 of "2026-01-31T23:59:59Z"; None if it is something else."""
    try:
        return float(calendar.timegm(time.strptime(str(text), "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        return None


def step_seconds(line):
    total = part(line, "time_ms").get("total")
    return total / 1000 if is_number(total) else 0.0


def timed_lines(folder, begin, starts):
    """Yields each step's line with the time of its end."""
    starts, now = list(starts), begin
    for line in lines_of_steps(folder / "metrics.jsonl"):
        while starts and starts[0][0] <= line["step"]:
            now = max(now, starts.pop(0)[1])
        now += step_seconds(line)
        yield line, now


def starts_of(run):
    """(first step, seconds since 1970) of each start; a later start replaces the steps of the earlier ones from its first
    step on."""
    found = []
    for start in run.starts:
        first, seconds = start.get("first_step"), seconds_of(start.get("time"))
        if is_number(first) and seconds is not None:
            found = [one for one in found if one[0] < first] + [(first, seconds)]
    return found


def begin_of(path, starts):
    """The time at which the first step began: steps before the first start that is known ended with it, and without a start
    the newest step ended when the file was written."""
    first, end = starts[0] if starts else (math.inf, path.stat().st_mtime)
    return end - sum(step_seconds(line) for line in lines_of_steps(path) if line["step"] < first)


def exit_code_of(run, state):
    ends = [job.get("exit_code") for job in run.jobs if job.get("event") == "end"]
    return 0 if state in ("running", "finished") else ends[-1] if ends and isinstance(ends[-1], int) else 1


def read(folder, project):
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}; name the folder of a run (job.dump_folder)")
    path, run = folder / "metrics.jsonl", read_run(folder, folder.resolve().name)
    newest = newest_lines(path)
    if not newest:
        raise ValueError(f"{path} holds no step, so there is nothing to export")
    starts = starts_of(run)
    state = state_of(run, newest[-1]["step"], step_seconds(newest[-1]))[0]
    begin = begin_of(path, starts)
    facts = {name: value for name, value in run.newest_start().items() if name not in ("config", "time", "first_step", "last_step")}
    return Exported(folder, run.name, hashlib.sha256(os.fsencode(folder.resolve())).hexdigest(), project, state,
                    exit_code_of(run, state), run.config, facts, starts, begin, path.stat().st_mtime)


def replace(made, folder):
    """Gives `folder` the content of `made`, entry by entry, so that the run is there at each moment. The old
    content goes to a folder beside `made`."""
    old = made.with_name("old")
    old.mkdir()
    wanted = os.listdir(made)
    for name in sorted({*os.listdir(folder), *wanted}, key=lambda name: (name in wanted, (made / name).is_file(), name)):
        if not (made / name).is_file() and (folder / name).exists():  # a file is replaced in one step
            os.rename(folder / name, old / name)
        try:
            if name in wanted:
                os.replace(made / name, folder / name)
        except OSError:
            if (old / name).exists():
                os.rename(old / name, folder / name)
            raise


def remove_leftovers(folder):
    """Removes what exports of this run left here that were killed on this host."""
    for path in folder.parent.glob(f".{folder.name}.{socket.gethostname()}.*.new"):
        try:
            os.kill(int(path.name.split(".")[-2]), 0)
        except ProcessLookupError:
            shutil.rmtree(path, ignore_errors=True)
        except (ValueError, OSError):
            continue


def export(run, target, form):
    """Writes the run beside its place and then moves it there. Returns its folder. A reader takes a folder that itself holds
    the files of a run for one, so the new content is a folder deeper until it is whole."""
    folder = form.place_of(run, target)
    staging = folder.with_name(f".{folder.name}.{socket.gethostname()}.{os.getpid()}.new")
    made = staging / "made"
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    try:
        made.mkdir(parents=True)
        form.write(run, made, folder)
        if folder.exists():
            replace(made, folder)
        else:
            os.replace(made, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--mlflow", metavar="DIR", help="the root of a file store, usually called mlruns")
    form.add_argument("--wandb", metavar="DIR", help="a folder of offline runs, usually called wandb")
    parser.add_argument("--project", default="argosy", help="the experiment of MLflow, or the project of W&B; default: argosy")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="the folder of a run (job.dump_folder)")
    options = parser.parse_args()
    target, writer = (options.wandb, wandb_files) if options.mlflow is None else (options.mlflow, mlflow_files)
    if not all((target, options.project, *options.runs)):
        parser.error("a name is empty; name the folder for --mlflow or --wandb, the project, and each RUN")
    try:
        for name in options.runs:
            print(export(read(pathlib.Path(name), options.project), pathlib.Path(target), writer))
    except (OSError, ValueError) as error:
        print(f"export_run.py: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
