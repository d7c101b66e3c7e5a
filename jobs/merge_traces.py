#!/usr/bin/env python3
"""merge_traces.py FOLDER [--output FILE]: merges the traces of a step's ranks (profiling.enable_profiling), checks them, and writes
one file for chrome://tracing or ui.perfetto.dev.

FOLDER is a step's folder, RUN/profile_traces/step-N, where N has eight digits (step-00000010). The check: spans of a rank nest,
times of a rank ascend, each operation between ranks ends once, the curve of memory has no negative value, and each rank
occurs once. Exit codes: 0 done, 2 bad arguments, 3 a trace breaks a rule.
"""
import argparse
import json
import pathlib
import sys

SLACK_US = 0.002  # times are rounded to nanoseconds


def faults_of_spans(events, rank):
    """Spans of one thread nest: the next one begins after the last has ended, or lies inside of it."""
    open_ends = []
    for event in sorted((e for e in events if e["ph"] == "X"), key=lambda e: (e["ts"], -e["dur"])):
        begin, end = event["ts"], event["ts"] + event["dur"]
        if event["dur"] < 0:
            yield f"rank {rank}: {event['name']} ends before it begins"
        while open_ends and open_ends[-1] <= begin + SLACK_US:
            open_ends.pop()
        if open_ends and end > open_ends[-1] + SLACK_US:
            yield f"rank {rank}: {event['name']} at {begin} us ends after the span around it"
        open_ends.append(end)


def faults_of_launches(events, rank):
    """Each operation between ranks begins once and ends once, later."""
    begun = {}
    for event in events:
        key = event.get("id")
        if event["ph"] == "b":
            if key in begun:
                yield f"rank {rank}: operation {key} begins twice"
            begun[key] = event["ts"]
        elif event["ph"] == "e":
            if begun.pop(key, event["ts"] + 1) > event["ts"] + SLACK_US:
                yield f"rank {rank}: operation {key} ends before it begins"
    for key in begun:
        yield f"rank {rank}: operation {key} never ends"


def faults_of_memory(events, rank):
    """The points of the curve follow each other in time, and none is negative."""
    points = [event for event in events if event["ph"] == "C"]
    for point in points:
        if point["args"]["bytes"] < 0:
            yield f"rank {rank}: {point['args']['bytes']} bytes at {point['ts']} us"
    if any(one["ts"] > other["ts"] for one, other in zip(points, points[1:])):
        yield f"rank {rank}: the curve of memory goes back in time"


def faults_of(traces):
    """All faults of the traces, {file name: events}."""
    seen = {}
    for name, events in traces.items():
        ranks = {event["pid"] for event in events}
        if len(ranks) != 1:
            yield f"{name} has the events of {len(ranks)} ranks"
            continue
        rank = ranks.pop()
        if rank in seen:
            yield f"{name} and {seen[rank]} are both of rank {rank}"
        seen[rank] = name
        yield from faults_of_spans(events, rank)
        yield from faults_of_launches(events, rank)
        yield from faults_of_memory(events, rank)


def read(folder):
    """{file name: events}. ValueError if the folder holds no traces, or those of different runs."""
    folder = pathlib.Path(folder)
    files = sorted(folder.glob("rank-*.json"))
    if not files:
        places = folder, folder.parent, folder / "profile_traces"
        steps = sorted({file.parent for place in places for file in place.glob("step-*/rank-*.json")})
        there = ": " + ", ".join(map(str, steps[-5:])) if steps else ", RUN/profile_traces/step-N"
        raise ValueError(f"{folder} holds no rank-*.json; name the folder of a step{there}")
    traces = {file.name: json.loads(file.read_text()) for file in files}
    ids = {trace["otherData"]["id"] for trace in traces.values()}
    if len(ids) > 1:
        raise ValueError(f"{folder} holds the traces of {len(ids)} runs ({', '.join(sorted(ids))}); remove the older files")
    return {name: trace["traceEvents"] for name, trace in traces.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--output", help="default: FOLDER/merged.json")
    arguments = parser.parse_args()
    output = pathlib.Path(arguments.output or pathlib.Path(arguments.folder) / "merged.json")
    try:
        traces = read(arguments.folder)
        merged = {"displayTimeUnit": "ms", "traceEvents": [event for events in traces.values() for event in events]}
        output.write_text(json.dumps(merged))
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"merge_traces.py: error: {error}", file=sys.stderr)
        return 2
    faults = list(faults_of(traces))
    for fault in faults[:20]:
        print(f"merge_traces.py: {fault}", file=sys.stderr)
    if faults:
        print(f"merge_traces.py: {len(faults)} faults in all", file=sys.stderr)
    print(output)
    return 3 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
