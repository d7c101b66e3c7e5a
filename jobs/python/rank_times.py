"""Reduces ranks.jsonl (lib/trainer/observe/FORMAT.md), the times of all ranks in windows of steps, to a heat map of ranks over steps.

A cell is the difference of a rank from the median of the ranks with the same work, which are those of its pipeline stage, in
the same steps. It is in percent: of that median for `compute`, of the median step for the other measures, which may be nearly
zero. After a start on other hosts or with other stages the cells before it keep the stages of their own start, and the table
of the slowest ranks has only the steps since then.
"""
import array
import base64
import dataclasses
import math
import operator
import statistics

from run_record import is_number, objects

MEASURES = {"compute": "compute_ms", "data": "data_ms", "exposed": "exposed_ms"}
KEYS = ("total_ms", *MEASURES.values())
MAX_COLUMNS, MAX_ROWS, MAX_SLOWEST = 200, 512, 8
FIRST_WINDOWS = 6  # their distances give the steps of a column
MIN_SCALE, MAX_SCALE = 5.0, 100.0  # percent at which colours end
LEVELS = 127  # on each side of the median; a cell is one byte, 0: unknown


@dataclasses.dataclass
class Job:
    """The ranks of a start, from its header. Starts one after the other with equal ranks are one job."""
    hosts: list  # the name of each rank's host
    gpus: list  # the number of each rank's GPU; empty on CPUs
    stages: int  # of the pipeline; the ranks of a stage are neighbours
    first_step: int = dataclasses.field(default=0, compare=False)  # of the job's first window

    @staticmethod
    def of(header):
        names, numbers = header.get("hosts") or [], header["host_of_rank"]
        known = [type(number) is int and 0 <= number < len(names) for number in numbers]
        hosts = [names[number] if is_known else "unknown host" for number, is_known in zip(numbers, known)]
        gpus, mesh = header.get("gpu_of_rank") or [], header.get("mesh") or {}
        stages = mesh.get("pp", 1)
        divides = type(stages) is int and stages > 0 and len(hosts) % stages == 0
        return Job(hosts, gpus if len(gpus) == len(hosts) else [], stages if divides else 1)

    def ranks_of_stages(self):
        size = len(self.hosts) // self.stages
        return [range(stage * size, (stage + 1) * size) for stage in range(self.stages)]


@dataclasses.dataclass
class Column:
    """Sums over the steps of a column."""
    job: Job
    steps: int
    sums: dict  # by key: an array with a sum for each rank


class Columns:
    """All columns have the same number of steps, which doubles when there are too many. A column with steps of two jobs
    has only those of the newer job."""

    def __init__(self, width):
        self.width = width
        self.columns = {}  # by number

    def add(self, line, job):
        steps, sums = line["num_steps"], {}
        for key in KEYS:
            values = line.get(key)
            if not isinstance(values, list) or len(values) != len(job.hosts):
                values = [None] * len(job.hosts)
            sums[key] = array.array("d", (steps * value if is_number(value) else math.nan for value in values))
        self.merge((line["step"] - 1) // self.width, Column(job, steps, sums))
        while max(self.columns) - min(self.columns) >= MAX_COLUMNS:
            self.widen()

    def merge(self, number, more):
        own = self.columns.get(number)
        if own is None or own.job is not more.job:
            self.columns[number] = more
            return
        own.steps += more.steps
        for key, values in more.sums.items():
            own.sums[key] = array.array("d", map(operator.add, own.sums[key], values))

    def widen(self):
        old, self.columns, self.width = self.columns, {}, 2 * self.width
        for number, column in sorted(old.items()):
            self.merge(number // 2, column)

    def cut(self, step):
        """Removes the columns from `step` on, whose steps another start trains again."""
        for number in [number for number in self.columns if number >= (step - 1) // self.width]:
            del self.columns[number]


def width_of(lines):
    """The steps of a column: as many as there are mostly from one window in the file to the next."""
    distances = [after["step"] - before["step"] for before, after in zip(lines, lines[1:]) if after["step"] > before["step"]]
    return max(*(line["num_steps"] for line in lines), *statistics.multimode(distances), 1)


def read_ranks(path):
    """(newest job, columns, number of windows) of the starts that have as many ranks as the newest one; (None, None, 0)
    without any."""
    job, columns, first, windows, last = None, None, [], 0, 0

    def add(line, of_job):
        nonlocal windows, last
        if line["step"] <= last:
            columns.cut(line["step"])
        columns.add(line, of_job)
        windows, last = windows + 1, line["step"]

    def begin():
        nonlocal columns
        columns = Columns(width_of([line for line, _ in first]))
        for line, of_job in first:
            add(line, of_job)

    for line in objects(path):
        if isinstance(line.get("host_of_rank"), list):
            now = Job.of(line)
            if job and len(now.hosts) != len(job.hosts):
                columns, first, windows, last = None, [], 0, 0
            job = job if now == job else now
        elif job and all(type(line.get(key)) is int and line[key] > 0 for key in ("step", "num_steps")):
            begin_of_window = max(1, line["step"] - line["num_steps"] + 1)
            job.first_step = min(job.first_step or begin_of_window, begin_of_window)
            if columns:
                add(line, job)
                continue
            first.append((line, job))
            if len(first) == FIRST_WINDOWS:
                begin()
    if first and not columns:
        begin()
    return job, columns, windows


def median(values):
    known = [value for value in values if value == value]
    return statistics.median(known) if known else math.nan


def deviations(columns, key):
    """By column the median of each stage of its job in ms per step, and the percents of all ranks."""
    found = {}
    for number, column in columns.columns.items():
        sums, steps, medians, percents = column.sums, column.steps, [], array.array("d")
        for ranks in column.job.ranks_of_stages():
            values = [sums[key][rank] / steps for rank in ranks]
            middle = median(values)
            whole = middle if key == "compute_ms" else median([sums["total_ms"][rank] / steps for rank in ranks])
            medians.append(middle)
            percents.extend(100 * (value - middle) / whole if whole > 0 else math.nan for value in values)
        found[number] = medians, percents
    return found


def rows_for(hosts):
    """The ranks of each row, and its hosts: a row for each rank; if there are too many, for each host, or for neighbouring
    hosts."""
    if len(hosts) <= MAX_ROWS:
        return [[rank] for rank in range(len(hosts))], hosts
    by_host = {}
    for rank, name in enumerate(hosts):
        by_host.setdefault(name, []).append(rank)
    names, size = list(by_host), math.ceil(len(by_host) / MAX_ROWS)
    groups = [names[begin:begin + size] for begin in range(0, len(names), size)]
    return ([[rank for name in group for rank in by_host[name]] for group in groups],
            [group[0] if len(group) == 1 else f"{group[0]} to {group[-1]}" for group in groups])


def cells_of(found, groups, numbers, slowest):
    """The bytes of the cells, row by row, with the percents at which the bytes and the colours end. `slowest` selects the
    rank that a row of several shows."""
    unknown = [math.nan] * sum(map(len, groups))
    columns = [found[number][1] if number in found else unknown for number in numbers]
    cells = [slowest((percents[rank] for rank in group if percents[rank] == percents[rank]), default=math.nan)
             for group in groups for percents in columns]
    sizes = sorted(abs(value) for value in cells if value == value)
    limit = min(MAX_SCALE, max(MIN_SCALE, sizes[-1])) if sizes else MIN_SCALE
    is_cut = bool(sizes) and sizes[-1] > limit
    scale = min(limit, max(MIN_SCALE, sizes[int(0.99 * (len(sizes) - 1))])) if sizes else MIN_SCALE

    def byte(value):
        return 0 if value != value else 1 + LEVELS + round(LEVELS * max(-1.0, min(1.0, value / limit)))
    data = base64.b64encode(bytes(map(byte, cells)), b"+-")  # no "//", which looks like the address of another page
    return {"cells": data.decode(), "limit": round(limit, 3), "scale": round(scale, 3), "is_cut": is_cut}


def slowest_of(found, columns, job, lowest):
    """The ranks that differ most since the job's first step, with their mean, their newest percents, and the share of steps in
    which they were first. Unknown values do not count, and where all times are equal no rank is first."""
    sign, total = -1 if lowest else 1, 0
    sums, steps_of_rank, firsts = ([0] * len(job.hosts) for _ in range(3))
    own = {number: percents for number, (_, percents) in found.items() if columns.columns[number].job is job}
    for number, percents in own.items():
        steps = columns.columns[number].steps
        known = [(sign * value, rank) for rank, value in enumerate(percents) if value == value]
        for value, rank in known:
            sums[rank] += steps * value
            steps_of_rank[rank] += steps
        if known:
            total += steps
            largest, rank = max(known, key=lambda one: one[0])
            firsts[rank] += steps if largest > 0 else 0
    means = {rank: sign * sums[rank] / steps for rank, steps in enumerate(steps_of_rank) if steps}
    newest = own[max(own)] if own else []
    return [{"rank": rank, "host": job.hosts[rank], "gpu": job.gpus[rank] if job.gpus else None, "mean": round(means[rank], 2),
             "newest": round(newest[rank], 2) if newest[rank] == newest[rank] else None,
             "share": round(100 * firsts[rank] / total, 1)}
            for rank in sorted(means, key=lambda rank: -sign * means[rank])[:MAX_SLOWEST]]


def ranks_of(run):
    """What the page draws of ranks.jsonl; {} if there is none, or of one rank only."""
    job, columns, windows = read_ranks(run.folder / "ranks.jsonl")
    if columns is None or len(job.hosts) < 2:
        return {}
    groups, row_hosts = rows_for(job.hosts)
    numbers, measures = range(min(columns.columns), max(columns.columns) + 1), {}
    own = [number for number, column in columns.columns.items() if column.job is job]
    for measure, key in MEASURES.items():
        found = deviations(columns, key)
        shown = {number: medians for number, (medians, _) in found.items() if len(medians) == job.stages}
        medians = [[shown[number][stage] if number in shown else math.nan for number in numbers] for stage in range(job.stages)]
        if any(value == value for _, percents in found.values() for value in percents):
            measures[measure] = {
                **cells_of(found, groups, numbers, min if measure == "exposed" else max),
                "slowest": slowest_of(found, columns, job, measure == "exposed"),
                "medians": [[float(f"{value:.5g}") if value == value else None for value in of_stage] for of_stage in medians]}
    return {"num_ranks": len(job.hosts), "num_stages": job.stages, "num_windows": windows, "num_rows": len(groups),
            "hosts": row_hosts, "measures": measures, "num_columns": len(numbers),
            "first_step": numbers[0] * columns.width + 1, "steps_of_column": columns.width,
            "own_column": min(own, default=max(numbers) + 1) - numbers[0], "own_step": job.first_step}
