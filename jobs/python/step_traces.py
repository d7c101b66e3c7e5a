"""Reduces the traces of a step (profiling.enable_profiling, lib/ground/base/timeline.h) to rows of bars, which report.py draws.

The spans of a rank nest. At each moment the innermost span says what the rank does, and its name says the kind of work:
a wait for other ranks, a transfer, the optimizer, or an operation of the program on a stage, a unit and a microbatch.
"""
import collections
import functools
import json
import math
import pathlib
import re

MAX_ROWS = 64
MAX_BARS, MAX_BARS_OF_ROW = 24000, 2000  # on a page, in a row
MAX_STEPS_TRIED = 4  # the newest ones; a step's traces may not be complete yet

KINDS = {  # in the order of the legend
    "forward": "forward", "recompute": "recomputation", "loss": "head and loss, forward and backward",
    "backward": "backward, gradients of inputs", "weights": "backward, gradients of weights", "optimizer": "optimizer",
    "transfer": "transfers between ranks", "wait": "waits for other ranks", "gpu": "waits for the GPU",
    "graph": "launches of CUDA graphs", "other": "other work: data, checkpoint, validation, local copies, between operations"}
KIND_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
OF_OPERATION = {"Forward": "forward", "ForwardLoss": "forward", "Recompute": "recompute", "Loss": "loss", "LossInput": "loss",
                "BackwardInput": "backward", "BackwardWeight": "weights",
                **dict.fromkeys(("Release", "TakeActivation", "TakeGradient", "MoveActivation", "MoveGradient", "AddTable"), "other")}
# the others move data between ranks

OPERATION = re.compile(r"(\w+) of stage (\d+)( unit \d+)?( microbatch \d+)?")
TRACE_ID = re.compile(r'"otherData":\{"id":"([^"]* of (\d+) ranks)"')
HEAD_BYTES = 4096  # in which a trace has its id

Segment = collections.namedtuple("Segment", "begin end kind name")  # in us; a stretch of time with one innermost span


def kind_of(name):
    if name.startswith("wait "):
        return "gpu" if name == "wait for the GPU" else "wait"
    if name.startswith("submit "):
        return "transfer"
    if name.startswith("launch "):
        return "graph"
    operation = OPERATION.match(name)
    if operation:
        return OF_OPERATION.get(operation[1], "transfer")
    return "optimizer" if name == "the optimizer's update" else "other"


def segments(events):
    """The innermost span at each moment, in order. The name of a wait or a submission has the operation around it."""
    found, around, now = [], [], 0.0  # around: the open spans as (end, kind, name, operation)

    def close(until):
        while around and around[-1][0] <= until:
            add(around[-1][0])
            around.pop()

    def add(until):
        nonlocal now
        if around and until > now:
            found.append(Segment(now, until, *around[-1][1:3]))
        now = max(now, until)

    spans = [(event["ts"], event["ts"] + event["dur"], event["name"]) for event in events if event["ph"] == "X"]
    for begin, end, name in sorted(spans, key=lambda span: (span[0], -span[1])):
        close(begin)
        add(begin)
        operation = name if OPERATION.match(name) else around[-1][3] if around else ""
        around.append((end, kind_of(name), name if operation in ("", name) else f"{name}, in {operation}", operation))
    close(float("inf"))
    return found


def clumps(found, width):
    """The segments, with runs of neighbours shorter than `width` as one bar each: (begin, end, kind, name or number of
    segments). A run has the kind that takes most of its time."""
    bars, run = [], []

    def end_run():
        if len(run) == 1:
            bars.append(tuple(run[0]))
        elif run:
            times = collections.Counter()
            for one in run:
                times[one.kind] += one.end - one.begin
            bars.append((run[0].begin, run[-1].end, times.most_common(1)[0][0], len(run)))
        run.clear()

    for one in found:
        is_long = one.end - one.begin >= width
        if run and (is_long or one.begin - run[-1].end >= width or one.end - run[0].begin > width):
            end_run()
        run.append(one)
        if is_long:
            end_run()
    end_run()
    return bars


def bars_of(found, max_bars):
    """At most `max_bars` bars: if there are more segments, the shortest neighbours share a bar."""
    width = 0.0
    while True:
        bars = clumps(found, width)
        if len(bars) <= max_bars:
            return bars
        width = max(2 * width, (found[-1].end - found[0].begin) / (4 * max_bars))


def overlap(one, first, last):
    return max(0.0, min(one.end, last) - max(one.begin, first))


def group_of_wait(name):
    return name.split(",")[0].removeprefix("wait ") if name.startswith("wait ") else ""


def figures_of(found, window, pipeline):
    """Times of a row in ms. `window`: the step; `pipeline`: its operations on microbatches; None: there is no bubble.

    The bubble is the part of `pipeline` in which the rank waits for other stages or records nothing. After its own last
    microbatch the rank is in the optimizer's update, where it waits for the ranks of all stages."""
    times, waits, covered, waited = collections.Counter(), collections.Counter(), 0.0, 0.0
    own_end = max((one.end for one in found if " microbatch " in one.name), default=-math.inf)
    for one in found:
        times[one.kind] += one.end - one.begin
        group = group_of_wait(one.name)
        if one.kind == "wait":
            waits[group] += one.end - one.begin
        if pipeline:
            covered += overlap(one, *pipeline)
            is_bubble = group == "pp" or one.kind == "wait" and one.begin >= own_end
            waited += overlap(one, *pipeline) if is_bubble else 0.0
    nothing = window[1] - window[0] - sum(times.values())
    bubble = None
    if pipeline:
        length = pipeline[1] - pipeline[0]
        bubble = round((length - covered + waited) / length, 4) if length > 0 else None
    idle = nothing + times["wait"]
    return {"times_ms": {kind: round(us / 1000, 3) for kind, us in times.items()}, "idle_ms": round(idle / 1000, 3),
            "waits_ms": {group: round(us / 1000, 3) for group, us in sorted(waits.items())}, "bubble": bubble}


def shown_ranks(num_ranks, num_stages):
    """One rank of each pipeline stage, or of all ranks at most MAX_ROWS, evenly spread."""
    number = num_stages if 1 < num_stages <= num_ranks else num_ranks
    rows = min(number, MAX_ROWS)
    return [row * number // rows * (num_ranks // number) for row in range(rows)]


def trace_id(path):
    """(id, number of ranks) of a trace; ("", 0) if the file is missing or no trace."""
    try:
        with open(path, "rb") as file:
            found = TRACE_ID.search(file.read(HEAD_BYTES).decode(errors="replace"))
    except OSError:
        return "", 0
    return (found[1], int(found[2])) if found else ("", 0)


def newest_traces(folder, num_stages):
    """(step, number of ranks, {rank: path}) of the newest step whose traces are there for all ranks to show."""
    steps = sorted((path for path in folder.glob("step-*") if path.name[5:].isdigit()), key=lambda path: -int(path.name[5:]))
    for path in steps[:MAX_STEPS_TRIED]:
        name, num_ranks = trace_id(path / "rank-00000.json")
        files = {rank: path / f"rank-{rank:05}.json" for rank in shown_ranks(num_ranks, num_stages)} if num_ranks else {}
        if files and all(trace_id(file)[0] == name for file in files.values()):
            return int(path.name[5:]), num_ranks, files
    return None


def pipeline_of(rows):
    """From the first to the last operation on a microbatch, on all rows."""
    of_microbatches = [one for found in rows.values() for one in found if " microbatch " in one.name]
    return (min(one.begin for one in of_microbatches), max(one.end for one in of_microbatches)) if of_microbatches else None


@functools.lru_cache(maxsize=32)
def rows_of(files, has_bubble, max_bars):
    """The rows of the page for ((rank, path, time of the file), ...)."""
    rows = {rank: segments(json.loads(pathlib.Path(path).read_text())["traceEvents"]) for rank, path, _ in files}
    every = [one for found in rows.values() for one in found]
    window = (min(one.begin for one in every), max(one.end for one in every))
    pipeline = pipeline_of(rows) if has_bubble else None
    names, shown = {}, []
    for rank, found in rows.items():
        bars = []
        for begin, end, kind, name in bars_of(found, min(MAX_BARS_OF_ROW, max_bars // len(rows))):
            label = -name if isinstance(name, int) else names.setdefault(name, len(names))
            bars += [round(begin - window[0]), max(1, round(end - begin)), KIND_NUMBERS[kind], label]
        stages = sorted({int(match[2]) for one in found for match in [OPERATION.match(one.name)] if match})
        shown.append({"rank": rank, "stages": stages, "bars": bars, "num_spans": len(found), **figures_of(found, window, pipeline)})
    return {"length_us": round(window[1] - window[0]), "kinds": list(KINDS), "words": list(KINDS.values()), "names": list(names),
            "rows": shown}


def traces_of(run, num_stages, max_bars=MAX_BARS):
    """What the page draws of the newest traced step; {} if there is none. `num_stages`: ranks of the pipeline axis."""
    newest = newest_traces(run.folder / run.config.get("profiling.save_traces_folder", "profile_traces"), num_stages)
    if not newest:
        return {}
    step, num_ranks, files = newest
    on_gpus = run.newest_start().get("device", "cpu") != "cpu"  # where spans are the times in which the host queued the work
    try:
        key = tuple((rank, str(path), path.stat().st_mtime_ns) for rank, path in files.items())
        return {"step": step, "num_ranks": num_ranks, "num_stages": num_stages, "on_gpus": on_gpus,
                **rows_of(key, num_stages > 1 and not on_gpus, max_bars)}
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:  # overflow: a time of 1e999
        return {"step": step, "error": f"cannot read the traces of step {step}: {error}"}
