#!/usr/bin/env python3
"""report.py RUN [RUN ...]: draws one run, or several over each other, as a page that needs nothing else (report.html)."""
import argparse
import collections
import contextlib
import csv
import datetime
import io
import json
import os
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "python"))
import expert_loads
import prometheus_text
import step_traces
from rank_times import ranks_of
from run_metrics import NEWEST_STEPS, Speed, flat, lines_of_steps, part, read_metrics, thinned
from run_record import (checkpoints_of, fail, fail_to_read, folders_of, is_number, mesh_of, names_of, newest_lines, objects, plain,
                        read_run, state_of)

PAGE = pathlib.Path(__file__).resolve().parent / "report_page"
SCRIPTS = ("charts.js", "cards.js", "timeline.js", "heatmap.js", "rank_times.js", "experts.js", "page.js")
MAX_POINTS, MAX_POINTS_OF_ALL, MIN_POINTS = 1500, 4500, 100  # of a run, of all runs, and of a run among many
MAX_SKIPPED, MAX_JOBS, MAX_NONFINITE = 200, 200, 2000  # the newest ones that the page lists
RELOAD_SECONDS = 30
LIVE = ("new", "running")  # states of runs that go on


def utc(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def skipped_of(run):
    """The skipped updates: their number, the newest ones (of the samples only the first ones), and the steps."""
    lines = [line for line in objects(run.folder / "skipped_updates.jsonl") if "step" in line]
    newest = [{**line, "samples": samples[:8], "num_samples": len(samples)}
              for line in lines[-MAX_SKIPPED:] for samples in [line.get("samples") or []]]
    return {"number": len(lines), "newest": newest, "steps": [line["step"] for line in lines][-MAX_NONFINITE:]}


def overview(run, metrics, speed, state):
    """The figures at the top of a run's part: [name, text]."""
    if not metrics.steps:
        return [["State", f"{state[0]}: {state[1]}"]]
    total, step = run.total_steps(), metrics.steps[-1]
    rows = [["State", f"{state[0]}: {state[1]}"],
            ["Step", f"{step} of {total} ({100 * step / total:.1f} %)" if total else str(step)],
            ["Tokens", f"{plain(metrics.total('tokens'))} in {len(metrics.steps)} steps"],
            ["Time in steps", str(datetime.timedelta(seconds=round(metrics.total("time_ms.total") / 1000)))]]
    tokens = metrics.newest.get("tokens")
    if speed.step_ms and is_number(tokens):
        seconds = speed.step_ms / 1000
        rows.append(["Speed", f"{plain(tokens / seconds)} tokens/s, {plain(seconds, 3)} s a step (median of the newest {NEWEST_STEPS}"
                              " that count)"])
        if total and step < total and state[0] in ("running", "stopped"):
            rows.append(["To go", str(datetime.timedelta(seconds=round((total - step) * speed.mean_step_ms / 1000)))])
    if metrics.num_replaced:
        rows.append(["Replaced", f"{metrics.num_replaced} lines of an earlier start, whose steps were trained again"])
    types = part(metrics.newest, "number_types")
    if types:
        casts = f", products in {types['products']}" if "products" in types else ""
        rows.append(["Number types", f"computes in {types.get('compute')}{casts}, weights in {types.get('master')}, gradients summed "
                                     f"over ranks in {types.get('reduce')}"])
    if "experts" in metrics.newest:
        rows.append(["Experts", expert_loads.in_words(part(metrics.newest, "experts"))])
    return rows + [["Peak of MFU", peak_in_words(metrics.newest)]]


def peak_in_words(line):
    peaks = [f"{name} {plain(line[key])} TFLOP/s" for name, key in
             (("datasheet", "datasheet_tflops"), ("of the run's type", "compute_type_tflops"),
              ("measured GEMM", "measured_gemm_tflops")) if is_number(line.get(key))]
    if not peaks:
        return "none: no peak of this device is known, so MFU is null"
    return f"{line.get('peak_flops_source')} ({', '.join(peaks)})"


def aside_of(run):
    """The number of lines that `pretrain` moved to metrics.jsonl.aside."""
    try:
        with open(run.folder / "metrics.jsonl.aside", "rb") as file:
            return sum(1 for _ in file)
    except FileNotFoundError:
        return 0


def newest_state(run):
    lines = newest_lines(run.folder / "metrics.jsonl")
    return state_of(run, lines[-1]["step"] if lines else 0, (Speed(lines).step_ms or 0) / 1000)[0]


def page_data_of(run, max_points, max_bars):
    """What the page shows of a run."""
    metrics = read_metrics(run.folder / "metrics.jsonl")
    speed = Speed(newest_lines(run.folder / "metrics.jsonl"))
    state = state_of(run, metrics.steps[-1] if metrics.steps else 0, (speed.step_ms or 0) / 1000)
    mesh = mesh_of(run)
    forced = " (FORCED BALANCE of experts)" if part(metrics.newest, "experts").get("forced_balance") else ""
    return {"name": run.name + forced, "folder": str(run.folder), "state": state[0], "overview": overview(run, metrics, speed, state),
            "num_steps": len(metrics.steps), "points": thinned(metrics, max_points),
            "nonfinite": metrics.nonfinite[-MAX_NONFINITE:], "num_nonfinite": len(metrics.nonfinite),
            "num_aside": aside_of(run), "restarts": run.restarts(), "jobs": run.jobs[-MAX_JOBS:], "num_jobs": len(run.jobs),
            "starts": starts_of(run), "num_starts": len(run.starts), "config_changes": run.config_changes()[-MAX_JOBS:],
            "skipped": skipped_of(run), "checkpoints": checkpoints_of(run.folder, run.config), "mesh": mesh,
            "traces": step_traces.traces_of(run, mesh.get("degrees", {}).get("pp", 1), max_bars), "rank_times": ranks_of(run),
            "experts": metrics.loads.page_data(part(metrics.newest, "experts")),
            "environment": environment_of(run), "warnings": run.log["warnings"][-MAX_JOBS:],
            "logs": run.log["files"], "config": run.config, "config_file": run.config_file}


def starts_of(run):
    """The facts of the newest starts, without their configurations."""
    return [{name: value for name, value in start.items() if name != "config"} for start in run.starts[-MAX_JOBS:]]


def environment_of(run):
    """Lines on programs and machines: what the log says before step 1, and what the job's files say."""
    lines = [["Version", run.version]] if run.version else []
    path = run.folder / "program"
    if path.is_file():
        lines.append(["Programs of the newest start", ", ".join(path.read_text(errors="replace").split("\n")[:-1])])
    if run.preflight:
        found = [f"{one.get('check')}: {one.get('where')}" for one in (run.preflight.get("findings") or [])[:5]]
        lines.append(["Pre-flight", ": ".join([str(run.preflight.get("verdict")), *filter(None, ["; ".join(found)])])])
    lines += machines_of(run.preflight)
    return lines + ([["Log", "\n".join(run.log["environment"])]] if run.log["environment"] else [])


def machines_of(preflight):
    """The libraries and GPUs that the newest pre-flight found, with the number of ranks or nodes that have them."""
    ranks, nodes = preflight.get("ranks") or [], preflight.get("nodes") or []
    found = {name: collections.Counter(rank.get(key) for rank in ranks if rank.get(key))
             for name, key in (("MPI", "mpi_library"), ("CUDA", "cuda_version"), ("NCCL", "nccl_version"))}
    found["GPUs"] = collections.Counter(f"{gpu.get('name')}, driver {gpu.get('driver')}"
                                        for node in nodes for gpu in node.get("gpus") or [])
    return [[name, "\n".join(f"{number} x {text}" for text, number in counter.items())]
            for name, counter in found.items() if counter]


def write(path, text):
    """Replaces a file in one step, so that a reader never sees half of it."""
    partial = f"{path}.{os.getpid()}.new"
    try:
        with open(partial, "w", encoding="utf-8", errors="replace") as file:  # a folder's name may be no UTF-8
            file.write(text)
        os.replace(partial, path)
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}. Name a file in a folder that can be written")
    finally:
        with contextlib.suppress(OSError):
            os.unlink(partial)


def page(runs):
    """The text of the page, and whether it shows a run that goes on."""
    max_points = max(MIN_POINTS, min(MAX_POINTS, MAX_POINTS_OF_ALL // len(runs)))
    data = {"generated": utc(time.time()), "runs": [page_data_of(run, max_points, step_traces.MAX_BARS // len(runs)) for run in runs]}
    live = any(run["state"] in LIVE for run in data["runs"])
    title = ", ".join(run["name"] for run in data["runs"][:4]) + (f" and {len(runs) - 4} more" if len(runs) > 4 else "")
    for old, new in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        title = title.replace(old, new)
    parts = {"TITLE": title, "DATA": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
             "RELOAD": f'<meta http-equiv="refresh" content="{RELOAD_SECONDS}">' if live else "",
             "STYLE": (PAGE / "page.css").read_text(),
             "SCRIPT": "".join((PAGE / name).read_text() for name in SCRIPTS)}
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda match: parts[match[1]], (PAGE / "page.html").read_text()), live


def csv_text(runs):
    """All values of all lines, one line per step; with the run's name first if there are several runs."""
    rows, names = [], {"run": None} if len(runs) > 1 else {}
    for run in runs:
        for line in lines_of_steps(run.folder / "metrics.jsonl"):
            rows.append({"run": run.name, **dict(flat(line))})
            names.update(dict.fromkeys(name for name in rows[-1] if name != "run"))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        values = [row.get(name) for name in names]
        writer.writerow(json.dumps(value) if isinstance(value, (bool, list)) else value for value in values)
    return text.getvalue()


def parse(words):
    parser = argparse.ArgumentParser(prog="report.py", description="""Draws runs of pretrain, over each other if there are
        several, as one HTML page that needs neither a network nor other files. Without options it writes report.html in the
        folder of the run, or of the sweep.""")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run (job.dump_folder), or of a sweep")
    parser.add_argument("--html", metavar="FILE", help="the page")
    parser.add_argument("--csv", metavar="FILE", help="all metrics as a table, one line per step")
    parser.add_argument("--prometheus", metavar="FILE.prom", help="the newest figures, for the textfile collector of "
                        "Prometheus's node_exporter; jobs/grafana.json is a dashboard of them")
    parser.add_argument("--every", type=float, metavar="SECONDS", help="write again and again until every run has ended")
    parser.add_argument("--log", metavar="FILE", help="the run's log, if it is not in RUN/logs/; only with one RUN")
    options = parser.parse_args(words)
    if not (options.html or options.csv or options.prometheus):
        if len(options.runs) > 1:
            fail("several runs: name the page with --html FILE")
        options.html = str(pathlib.Path(options.runs[0]) / "report.html")
    if options.log and not pathlib.Path(options.log).is_file():
        fail(f"there is no file {options.log}")
    if options.every is not None and not 1 <= options.every <= 86400:
        fail(f"--every {options.every:g} is not between 1 and 86400 seconds")
    return options


def write_outputs(options):
    """Returns whether a run goes on. That is decided first, so that the last outputs show how the runs ended."""
    folders = folders_of(options.runs)
    if len(folders) > 1 and options.log:
        fail("--log belongs to one run, but there are several")
    runs = [read_run(folder, name, options.log) for folder, name in zip(folders, names_of(folders))]
    if options.html:
        text, goes_on = page(runs)
        write(options.html, text)
    else:
        goes_on = any(newest_state(run) in LIVE for run in runs)
    if options.prometheus:
        write(options.prometheus, prometheus_text.text_of(runs))
    if options.csv:
        write(options.csv, csv_text(runs))
    return goes_on


def main():
    options = parse(sys.argv[1:])
    while write_outputs(options) and options.every:
        time.sleep(options.every)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        fail_to_read(error)
