"""Reduces ranks.jsonl (lib/observe/FORMAT.md), the times of all ranks in windows of steps, to a heat map of ranks over steps.

A cell is the difference of a rank from the median of the ranks with the same work, which are those of its pipeline stage, in
the same steps. It is in percent: of that median for `compute`, of the median step for the other measures, which may be nearly
zero.
"""
import base64
import dataclasses
import math
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
    """The ranks of a start, from its header."""
    hosts: list  # the name of each rank's host
    gpus: list  # the number of each rank's GPU; empty on CPUs
    stages: int  # of the pipeline; the ranks of a stage are neighbours

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


class Columns:
    """Sums over the steps of each column. All columns have the same number of steps, which doubles when there are too many."""

    def __init__(self, width):
        self.width = width
        self.sums = {}  # by number: [steps, {key: sum for each rank}]

    def add(self, line, ranks):
        steps, number = line["num_steps"], (line["step"] - 1) // self.width
        for key in KEYS:
            values = line.get(key)
            is_whole = isinstance(values, list) and len(values) == ranks
            self.add_sums(number, key, [steps * value if is_number(value) else math.nan for value in values] if is_whole
                          else [math.nan] * ranks)
        self.sums[number][0] += steps
        while max(self.sums) - min(self.sums) >= MAX_COLUMNS:
            self.widen()

    def add_sums(self, number, key, values):
        own = self.sums.setdefault(number, [0, {}])[1]
        own[key] = [one + more for one, more in zip(own[key], values)] if key in own else values

    def widen(self):
        old, self.sums, self.width = self.sums, {}, 2 * self.width
        for number, (steps, sums) in old.items():
            for key, values in sums.items():
                self.add_sums(number // 2, key, values)
            self.sums[number // 2][0] += steps

    def cut(self, step):
        """Removes the columns from `step` on, whose steps another start trains again."""
        for number in [number for number in self.sums if number >= (step - 1) // self.width]:
            del self.sums[number]


def width_of(lines):
    """The steps of a column: as many as there are mostly from one window in the file to the next."""
    distances = [after["step"] - before["step"] for before, after in zip(lines, lines[1:]) if after["step"] > before["step"]]
    return max(*(line["num_steps"] for line in lines), *statistics.multimode(distances), 1)


def read_ranks(path):
    """(job, columns, number of windows) of the starts that have as many ranks as the newest one; (None, None, 0) without
    any."""
    job, columns, first, windows, last = None, None, [], 0, 0

    def add(line):
        nonlocal windows, last
        if line["step"] <= last:
            columns.cut(line["step"])
        columns.add(line, len(job.hosts))
        windows, last = windows + 1, line["step"]

    for line in objects(path):
        if isinstance(line.get("host_of_rank"), list):
            now = Job.of(line)
            if job and len(now.hosts) != len(job.hosts):
                columns, first, windows, last = None, [], 0, 0
            job = now
        elif job and all(type(line.get(key)) is int and line[key] > 0 for key in ("step", "num_steps")):
            if columns:
                add(line)
                continue
            first.append(line)
            if len(first) == FIRST_WINDOWS:
                columns = Columns(width_of(first))
                for one in first:
                    add(one)
    if first and not columns:
        columns = Columns(width_of(first))
        for one in first:
            add(one)
    return job, columns, windows


def median(values):
    known = [value for value in values if value == value]
    return statistics.median(known) if known else math.nan


def deviations(columns, key, job):
    """By column the median of each stage in ms per step, and the percents of all ranks."""
    found = {}
    for number, (steps, sums) in columns.sums.items():
        medians, percents = [], []
        for ranks in job.ranks_of_stages():
            values = [sums[key][rank] / steps for rank in ranks]
            middle = median(values)
            whole = middle if key == "compute_ms" else median([sums["total_ms"][rank] / steps for rank in ranks])
            medians.append(middle)
            percents += [100 * (value - middle) / whole if whole > 0 else math.nan for value in values]
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
    scale = min(limit, max(MIN_SCALE, sizes[int(0.99 * (len(sizes) - 1))])) if sizes else MIN_SCALE

    def byte(value):
        return 0 if value != value else 1 + LEVELS + round(LEVELS * max(-1.0, min(1.0, value / limit)))
    data = base64.b64encode(bytes(map(byte, cells)), b"+-")  # no "//", which looks like the address of another page
    return {"cells": data.decode(), "limit": round(limit, 3), "scale": round(scale, 3)}


def slowest_of(found, columns, job, lowest):
    """The ranks that differ most, with their mean, their newest percents, and the share of steps in which they were first."""
    sign = -1 if lowest else 1
    total = sum(columns.sums[number][0] for number in found)
    means, firsts = [0.0] * len(job.hosts), [0] * len(job.hosts)
    for number, (_, percents) in found.items():
        steps = columns.sums[number][0]
        known = [sign * value if value == value else -math.inf for value in percents]
        if max(known) > -math.inf:
            firsts[known.index(max(known))] += steps
        means = [mean + steps * value / total for mean, value in zip(means, percents)]
    newest = found[max(found)][1]
    order = sorted((rank for rank, mean in enumerate(means) if mean == mean), key=lambda rank: -sign * means[rank])
    return [{"rank": rank, "host": job.hosts[rank], "gpu": job.gpus[rank] if job.gpus else None, "mean": round(means[rank], 2),
             "newest": round(newest[rank], 2) if newest[rank] == newest[rank] else None,
             "share": round(100 * firsts[rank] / total, 1)} for rank in order[:MAX_SLOWEST]]


def ranks_of(run):
    """What the page draws of ranks.jsonl; {} if there is none, or of one rank only."""
    job, columns, windows = read_ranks(run.folder / "ranks.jsonl")
    if columns is None or len(job.hosts) < 2:
        return {}
    groups, row_hosts = rows_for(job.hosts)
    numbers, measures = range(min(columns.sums), max(columns.sums) + 1), {}
    for measure, key in MEASURES.items():
        found = deviations(columns, key, job)
        medians = [[found[number][0][stage] if number in found else math.nan for number in numbers] for stage in range(job.stages)]
        if any(value == value for of_stage in medians for value in of_stage):
            measures[measure] = {
                **cells_of(found, groups, numbers, min if measure == "exposed" else max),
                "slowest": slowest_of(found, columns, job, measure == "exposed"),
                "medians": [[float(f"{value:.5g}") if value == value else None for value in of_stage] for of_stage in medians]}
    return {"num_ranks": len(job.hosts), "num_stages": job.stages, "num_windows": windows, "num_rows": len(groups),
            "hosts": row_hosts, "measures": measures, "num_columns": len(numbers),
            "first_step": numbers[0] * columns.width + 1, "steps_of_column": columns.width}
