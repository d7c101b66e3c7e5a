#!/usr/bin/env python3
"""Compares runs with the first one: speed, memory, utilisation (MFU), exposed communication and loss, and the settings
that differ; and their speeds with expected ones. Needs Python 3.9. `status.sh --compare RUN RUN ...` calls it."""
import argparse
import csv
import io
import pathlib
import statistics
import sys

from run_metrics import NEWEST_STEPS, Speed, part, read_metrics
from run_record import fail, fail_to_read, folders_of, is_number, names_of, newest_lines, plain, read_run
from sweep_points import line_of_point, options_in_words, settings_of

SPEED = "tokens/s a GPU"
IGNORED = ("job.dump_folder", "job.description")


def exposed_ms_of(line):
    waits = list(filter(is_number, part(part(line, "time_ms"), "exposed").values()))
    return sum(waits) if waits else None


class RunFigures:
    """The figures of a run. `loss_step`: the step up to which losses are compared."""

    def __init__(self, run, metrics, loss_step):
        self.run, self.metrics = run, metrics
        self.speed = Speed(newest_lines(run.folder / "metrics.jsonl"))
        self.figures = {
            SPEED: self.speed.tokens_per_second_per_device,
            "memory GiB of rank 0": max(filter(is_number, metrics.columns.get("memory_peak_gib", ())), default=None),
            "MFU": self.speed.median(lambda line: line.get("mfu_causal")),
            "exposed ms": self.speed.median(exposed_ms_of),
            "loss": self.loss(loss_step)}

    def loss(self, last_step):
        """The mean of the newest losses up to this step."""
        losses = [loss for step, loss in zip(self.metrics.steps, self.metrics.columns["loss"])
                  if step <= last_step and loss is not None]
        return statistics.fmean(losses[-NEWEST_STEPS:]) if losses else None


def with_steps(folders):
    """Leaves out the points of a sweep that have no step, and names them."""
    kept = []
    for folder in folders:
        metrics = folder / "metrics.jsonl"
        if metrics.exists() and metrics.stat().st_size > 0 or not (folder.parent / "points").exists():
            kept.append(folder)
        else:
            print(f"{folder}: no step yet, left out", file=sys.stderr)
    return kept


def read_expected(path):
    """The rows of a file as `--format csv` prints it: (name of a run's folder, settings of a point, tokens/s a GPU). The settings
    are None if the file does not have them."""
    try:
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        return [(pathlib.PurePath(row["run"]).name, settings_of(row["settings"]) if row.get("settings") else None,
                 float(row[SPEED])) for row in rows if row[SPEED] != ""]
    except OSError as error:
        fail(f"the expected speeds cannot be read: {error}")
    except (KeyError, TypeError, ValueError):
        fail(f"{path} has no columns `run` and `{SPEED}`, the latter with numbers: --format csv prints such a file")


def expected_of(folder, expected):
    """The speed that the run should reach: of a sweep's point that of the same options, of others that of the same name."""
    line = line_of_point(folder)
    if line and any(settings is not None for _, settings, _ in expected):
        found = [speed for _, settings, speed in expected if settings == settings_of(line)]
        if not found:
            print(f"{folder}: no expected speed has its options, {options_in_words(line)}", file=sys.stderr)
    else:
        found = [speed for name, _, speed in expected if name == folder.name]
    return found[-1] if found else None


def figures_of(folders):
    runs = [read_run(folder, name) for folder, name in zip(folders, names_of(folders))]
    metrics = [read_metrics(run.folder / "metrics.jsonl") for run in runs]
    for run, own in zip(runs, metrics):
        if not own.steps:
            fail(f"{run.folder} has no step yet")
    common = min(own.steps[-1] for own in metrics)
    return [RunFigures(run, own, common) for run, own in zip(runs, metrics)], common


def share(value, first):
    return 100 * value / first if is_number(value) and is_number(first) and first else None


def rows_of(runs, expected):
    """The header and a row for each run: values, each followed by what per cent of the first run's it is; then the expected
    speed, followed by what per cent of it the run reaches."""
    figures = list(runs[0].figures)
    header = ["run", "steps", *(cell for name in figures for cell in (name, "%")), "speed ± %"]
    rows = []
    for one in runs:
        pairs = [(one.figures[name], share(one.figures[name], runs[0].figures[name])) for name in figures]
        rows.append([one.run.name, one.metrics.steps[-1], *(cell for pair in pairs for cell in pair), share(one.speed.noise(), 1)])
        if expected is not None:
            target = expected_of(one.run.folder, expected)
            rows[-1] += [target, share(one.figures[SPEED], target)]
    return header + (["expected tokens/s", "%"] if expected is not None else []), rows


def written(cell, column):
    if not is_number(cell):
        return "-" if cell is None else str(cell)
    return f"{cell:.1f}" if column == "%" else f"{cell:.2f}" if column.endswith("%") else \
        str(cell) if isinstance(cell, int) else plain(cell, 5)


def differences(runs):
    """A line for each run and setting that is not the first run's."""
    first = runs[0].run.config
    for one in runs[1:]:
        if not (first and one.run.config):
            yield f"{one.run.name}: its configuration, or the first run's, is not recorded"
            continue
        for key in sorted({*first, *one.run.config} - set(IGNORED)):
            before, now = first.get(key, "unset"), one.run.config.get(key, "unset")
            if before != now:
                yield f"{one.run.name}: {key} = {now} (first run: {before})"


def table(header, rows, form):
    cells = [header, *([written(cell, name) for cell, name in zip(row, header)] for row in rows)]
    if form == "markdown":
        lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]
        lines.insert(1, "| --- |" + " ---: |" * (len(header) - 1))
        return "\n".join(lines) + "\n"
    widths = [max(map(len, column)) for column in zip(*cells)]
    return "".join("  ".join(cell.ljust(width) if not i else cell.rjust(width)
                             for i, (cell, width) in enumerate(zip(row, widths))).rstrip() + "\n" for row in cells)


def csv_table(header, rows, runs):
    """The table, and in a last column the options of a sweep's points."""
    text, names = io.StringIO(), []
    for name in header:
        names.append(f"{names[-1]} %" if name == "%" else name)
    lines = [line_of_point(one.run.folder) for one in runs]
    rows = [[*row, options_in_words(line) if line else ""] for row, line in zip(rows, lines)]
    csv.writer(text, lineterminator="\n").writerows([[*names, "settings"], *rows])
    return text.getvalue()


def parse(words):
    parser = argparse.ArgumentParser(prog="status.sh --compare", description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run, or of a sweep; the first is compared with")
    parser.add_argument("--format", choices=("text", "markdown", "csv"), default="text")
    parser.add_argument("--expected", metavar="FILE.csv", type=pathlib.Path,
                        help="the speeds to reach: configs/expected/*.csv, or what --format csv printed of an earlier sweep")
    options = parser.parse_args(words)
    options.folders = with_steps(folders_of(options.runs))
    if not options.folders:
        fail("no run has a step yet")
    if len(options.folders) < 2 and not options.expected:
        fail("one run alone; name the runs to compare with it")
    return options


def main():
    options = parse(sys.argv[1:])
    runs, common = figures_of(options.folders)
    header, rows = rows_of(runs, read_expected(options.expected) if options.expected else None)
    if options.format == "csv":
        print(csv_table(header, rows, runs), end="")
        return
    print(table(header, rows, options.format))
    print(f"Speed, MFU and exposed time: medians of the newest {NEWEST_STEPS} steps that count. Memory: their "
          f"maximum, of rank 0 alone. Loss: the mean of {NEWEST_STEPS} steps up to step {common}. ±: standard error.")
    changed = list(differences(runs))
    if changed:
        print("", *changed, sep="\n")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        fail_to_read(error)
