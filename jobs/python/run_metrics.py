"""The speed of a run, and the columns of metrics.jsonl (lib/trainer/observe/metrics.h) with a shorter form of them for drawing.
run_metrics.py FILE prints the tokens/s of a rank, for bringup.sh; nothing if no step counts.

A file may hold the lines of several starts of a run. A step that is not after the step of the line before it begins another
start: the lines of that step and of later steps are replaced, as `pretrain` does where it resumes. So each step has one line.
"""
import bisect
import dataclasses
import statistics
import sys

import expert_loads
from run_record import is_number, newest_lines, objects

NAMES = ("loss", "grad_norm", "lr", "tokens", "tokens_per_second", "tokens_per_second_per_device",
         "model_tflops_per_device", "mfu_causal", "mfu_noncausal", "memory_peak_gib", "memory_reserved_gib", "rss_gib",
         "memory_retries", "skipped_updates", "efficiency", "validation_loss", "validation_perplexity")
DIGITS = 6  # of means, minima and maxima
NEWEST_STEPS = 50  # that count, whose medians are the figures of a run


@dataclasses.dataclass
class Metrics:
    steps: list = dataclasses.field(default_factory=list)
    columns: dict = dataclasses.field(default_factory=dict)  # by name as `values_of` gives it; None: unknown
    nonfinite: list = dataclasses.field(default_factory=list)  # steps
    num_replaced: int = 0  # lines of earlier starts
    loads: expert_loads.Loads = dataclasses.field(default_factory=expert_loads.Loads)
    newest: dict = dataclasses.field(default_factory=dict)  # the last line, as it is

    def cut(self, step):
        """Removes the lines from `step` on."""
        end = bisect.bisect_left(self.steps, step)
        self.num_replaced += len(self.steps) - end
        for column in (self.steps, *self.columns.values()):
            del column[end:]
        del self.nonfinite[bisect.bisect_left(self.nonfinite, step):]
        self.loads.cut(step)

    def total(self, name):
        return sum(value for value in self.columns.get(name, ()) if value is not None)


def part(line, name):
    """A value that must be an object; {} if it is missing or cut off."""
    value = line.get(name)
    return value if isinstance(value, dict) else {}


def values_of(line):
    """What is drawn of a line, by name: "loss", "time_ms.data", "time_ms.exposed.tp", "compute_kinds_ms.forward",
    "evaluation.TASK.acc", "experts.load.worst"."""
    scores = flat(part(line, "evaluation"), "evaluation.")
    return {**{name: line.get(name) for name in NAMES}, **dict(flat(part(line, "time_ms"), "time_ms.")),
            **dict(flat(part(line, "compute_kinds_ms"), "compute_kinds_ms.")), **expert_loads.curves_of(part(line, "experts")),
            **{name: value for name, value in scores if not name.endswith("_stderr")}}


def read_metrics(path):
    metrics = Metrics(columns={name: [] for name in (*NAMES, "time_ms.total")})
    for line in objects(path):
        step = line.get("step")
        if type(step) is not int:
            continue
        if metrics.steps and step <= metrics.steps[-1]:
            metrics.cut(step)
        values = values_of(line)
        for name in values:
            if name not in metrics.columns:
                metrics.columns[name] = [None] * len(metrics.steps)
        for name, column in metrics.columns.items():
            column.append(values.get(name))
        metrics.steps.append(step)
        metrics.loads.add(step, part(line, "experts"))
        if line.get("finite") is False:
            metrics.nonfinite.append(step)
        metrics.newest = line
    metrics.columns = {name: [value if is_number(value) else None for value in column]
                       for name, column in metrics.columns.items()}
    return metrics


def step_ms_of(line):
    return part(line, "time_ms").get("total")


class Speed:
    """The speed of a run as lib/trainer/observe/FORMAT.md defines it, from its lines as newest_lines() gives them. Without a step that
    counts, `num_steps` is 0, and the figures are those of the newest step. A figure that is not known is None."""

    def __init__(self, lines):
        kept = []  # the newest first, without those that a later start replaced
        for line in reversed(lines):
            if not kept or line["step"] < kept[-1]["step"]:
                kept.append(line)
        counted = [line for line in kept if line.get("counts_for_speed") is not False][:NEWEST_STEPS]
        self.num_steps = len(counted)
        self.lines = counted or kept[:1]
        self.tokens_per_second_per_device = self.median(lambda line: line.get("tokens_per_second_per_device"))
        self.step_ms = self.median(step_ms_of)
        # With saves and validations: the time to go follows from it.
        times = [step_ms_of(line) for line in kept if line["step"] >= self.lines[-1]["step"]]
        self.mean_step_ms = statistics.fmean(filter(is_number, times)) if self.step_ms is not None else None

    def known(self, figure):
        """The values of the function `figure` for the lines, where they are known."""
        return [value for value in map(figure, self.lines) if is_number(value)]

    def median(self, figure):
        known = self.known(figure)
        return statistics.median(known) if known else None

    def noise(self):
        """The standard error of tokens_per_second_per_device, as a share of it."""
        speed, known = self.tokens_per_second_per_device, self.known(lambda line: line.get("tokens_per_second_per_device"))
        if self.num_steps < 3 or not speed:
            return None
        return 1.2533 * 1.4826 * statistics.median(abs(value - speed) for value in known) / len(known)**0.5 / speed


def rounded(value):
    return None if value is None else float(f"{value:.{DIGITS}g}")


def summary(values):
    """Mean, minimum and maximum of the known values."""
    known = [value for value in values if value is not None]
    return (sum(known) / len(known), min(known), max(known)) if known else (None, None, None)


def thinned(metrics, max_points):
    """{first, last: steps of each point; series: by name {mean, min, max} of each point}. If there are at most `max_points`
    steps, each step is a point with its exact values, and `min` and `max` are left out. Columns without values are left
    out."""
    number = len(metrics.steps)
    columns = {name: column for name, column in metrics.columns.items() if any(value is not None for value in column)}
    if number <= max_points:
        return {"first": metrics.steps, "last": metrics.steps,
                "series": {name: {"mean": column} for name, column in columns.items()}}
    bounds = [number * index // max_points for index in range(max_points + 1)]
    pairs = list(zip(bounds, bounds[1:]))
    series = {}
    for name, column in columns.items():
        points = zip(*(map(rounded, summary(column[begin:end])) for begin, end in pairs))
        series[name] = dict(zip(("mean", "min", "max"), map(list, points)))
    return {"first": [metrics.steps[begin] for begin, _ in pairs], "last": [metrics.steps[end - 1] for _, end in pairs],
            "series": series}


def flat(values, prefix="", separator="."):
    """The values of an object and of the objects in it, with names as "time_ms.exposed.tp"."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}{separator}", separator)
        else:
            yield prefix + name, value


def lines_of_steps(path):
    """Yields the line of each step, without those that another start replaced."""
    kept = []  # (step, number of the line)
    for number, line in enumerate(objects(path)):
        if type(line.get("step")) is int:
            while kept and kept[-1][0] >= line["step"]:
                kept.pop()
            kept.append((line["step"], number))
    numbers = iter(number for _, number in kept)
    wanted = next(numbers, None)
    for number, line in enumerate(objects(path)):
        if number == wanted:
            yield line
            wanted = next(numbers, None)


if __name__ == "__main__":
    speed_of_file = Speed(newest_lines(sys.argv[1]))
    print(speed_of_file.num_steps and speed_of_file.tokens_per_second_per_device or "")
