#!/usr/bin/env python3
"""Bus bandwidth over size as SVG, from the JSON files that nccl-bench wrote: a panel for each axis of a mesh.

plot_bandwidth.py RESULTS.json [MORE.json ...] --output FIGURE.svg
One file: a line for each placement. Several files: a line for each, out of place (or with --in-place).
"""
import argparse
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "python"))
from plot import COLOURS, Line, Panel, svg

MAX_TICKS = 7
SIDES = {"out_of_place": "out of place", "in_place": "in place"}


class BadInput(Exception):
    """A file of the user that does not hold results of nccl-bench."""


def read(path):
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: {error}") from error
    if not isinstance(found, dict) or found.get("format") != "argosy nccl-bench" or found.get("version") != 3:
        raise BadInput(f"{path}: not results that nccl-bench wrote with --json (format 'argosy nccl-bench', version 3)")
    return found


def size_text(num_bytes):
    """Powers of 1024, as nccl-bench takes them: 8, 4K, 128M."""
    for power, unit in ((30, "G"), (20, "M"), (10, "K")):
        if num_bytes >= 1 << power:
            return f"{num_bytes / (1 << power):.3g}{unit}"
    return f"{num_bytes:g}"


class Ticks:
    """Labels for at most MAX_TICKS sizes, evenly chosen; other sizes have no label."""

    def __init__(self, sizes):
        sizes = sorted(set(sizes))
        step = -(-len(sizes) // MAX_TICKS)
        self.shown = set(sizes[::step])

    def __call__(self, size):
        return size_text(size) if size in self.shown else ""


def kind_of(row):
    """The type, operation and root of a row, which all rows of a line share."""
    return tuple(str(row[key]) for key in ("type", "redop", "root") if row[key] is not None)


def lines_of(results, axis, side, name):
    """A line for each type, operation and root; the best row counts. Sizes without bandwidth have no place on
    logarithmic axes."""
    best = {}
    for row in results["results"]:
        bandwidth = row[side]["bus_bw"]
        if row["axis"] == axis and bandwidth > 0:
            sizes = best.setdefault(kind_of(row), {})
            sizes[row["size"]] = max(bandwidth, sizes.get(row["size"], 0))
    many = len({kind_of(row) for row in results["results"]}) > 1
    return [Line(" ".join([name, *(kind if many else ())]), sorted(sizes.items())) for kind, sizes in best.items()]


def panel_of(axis, runs, sides):
    """`runs`: (name, results)."""
    lines = []
    for name, results in runs:
        for side in sides:
            lines += lines_of(results, axis, side, name if len(runs) > 1 else SIDES[side])
    if not lines:
        return None
    if len(lines) > len(COLOURS):
        raise BadInput(f"{len(lines)} lines in one panel, of which {len(COLOURS)} can be told apart: name fewer files, "
                       "or measure fewer types, operations and roots at once")
    shape = next(one for one in runs[0][1]["axes"] if one["axis"] == axis)
    return Panel(f"size, bytes ({axis}: {shape['num_groups']} x {shape['group_size']} ranks)", "bus bandwidth, GB/s",
                 lines, Ticks(x for line in lines for x, _ in line.points))


def figure(runs, sides):
    axes = [one["axis"] for one in runs[0][1]["axes"]]
    panels = [panel for panel in (panel_of(axis, runs, sides) for axis in axes) if panel]
    if not panels:
        raise BadInput("no row has a bandwidth above 0: on one rank nothing goes over a bus")
    names = sorted({results["collective"] for _, results in runs})
    return svg(f"{', '.join(names)} over {runs[0][1]['backend']}", panels)


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path, nargs="+")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--in-place", action="store_true", help="draw this placement of several files")
    return parser.parse_args(words)


def main(words):
    options = parse(words)
    try:
        runs = [(path.stem, read(path)) for path in options.results]
        one_side = ["in_place" if options.in_place else "out_of_place"]
        text = figure(runs, one_side if len(runs) > 1 else list(SIDES))
        partial = options.output.with_name(options.output.name + ".partial")
        partial.write_text(text)
        os.replace(partial, options.output)
    except (BadInput, OSError) as error:
        print(f"plot_bandwidth: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
