#!/usr/bin/env python3
"""nccl-bench against plain loops around MPI's calls, in alternating runs on the same ranks; see README.md.
Prints a table of ratios; with --check it exits with 3 if the two differ by more than the loops differ among themselves.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import sys
import tempfile

from results import markdown, publish
from runs import SOURCE, Failure, busy, end_on_signal, machine, start

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv", "scatter",
               "gather")
LEAST_TOLERANCE = 0.1
LIMIT_SECONDS = 300


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build", help="build folder with bin/ and tests/")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--collectives", default=",".join(COLLECTIVES), help="collectives, separated by commas; default: all")
    parser.add_argument("--sizes", default="4096,65536,1048576,8388608", help="bytes, separated by commas")
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--blocking", action="store_true", help="use MPI's blocking calls on both sides")
    parser.add_argument("--check", action="store_true", help="exit with 3 if the two disagree")
    parser.add_argument("--publish", action="store_true", help="put the table into README.md beside this file")
    options = parser.parse_args(words)
    options.sizes = [int(size) for size in options.sizes.split(",")]
    options.collectives = options.collectives.split(",")
    if options.rounds < 2:
        parser.error("--rounds must be at least 2: the loops are compared with themselves too")
    return options


def on_ranks(options, *command):
    out, _, cut_short = start([SOURCE / "jobs/mpirun.sh", options.ranks, *command], LIMIT_SECONDS)
    if cut_short:
        raise Failure(f"{command[0]} took more than {LIMIT_SECONDS} s")
    return out


def run_ours(options, collective):
    """{bytes: microseconds}, out of place, as in the plain loops."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="nccl-bench-") as folder:
        path = pathlib.Path(folder) / "results.json"
        for size in options.sizes:
            on_ranks(options, options.build / "bin/nccl-bench", collective, "-b", size, "-e", size, "-n",
                     options.iterations, "-w", options.warmup, "-z", int(options.blocking), "-J", path)
            row, = json.loads(path.read_text())["results"]
            found[size] = row["out_of_place"]["time_us"]
    return found


def run_loops(options, collective):
    found = {}
    for size in options.sizes:  # one process per size, as for the loops
        out = on_ranks(options, options.build / "tests/bench_mpi_loops", collective,
                       "blocking" if options.blocking else "non-blocking", options.iterations, options.warmup, size)
        bytes_, microseconds = out.split()
        found[int(bytes_)] = float(microseconds)
    return found


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


class Comparison:
    """The times of one collective in all rounds, {bytes: [microseconds]} on each side."""

    def __init__(self, collective, ours, loops):
        self.collective = collective
        self.ratios = {size: min(ours[size]) / min(loops[size]) for size in ours}
        self.spread = geometric_mean([statistics.median(times) / min(times) for times in loops.values()])

    @property
    def ratio(self):
        return geometric_mean(self.ratios.values())

    @property
    def agrees(self):
        tolerance = 1 + max(LEAST_TOLERANCE, self.spread - 1)
        return 1 / tolerance <= self.ratio <= tolerance

    def row(self):
        return [self.collective, *(f"{ratio:.2f}" for ratio in self.ratios.values()), f"{self.ratio:.2f}",
                f"{self.spread:.2f}", "yes" if self.agrees else "NO"]


def pooled(rounds):
    return {size: [one[size] for one in rounds] for size in rounds[0]}


def compare(options, collective):
    ours, loops = [], []
    for _ in range(options.rounds):
        ours.append(run_ours(options, collective))
        loops.append(run_loops(options, collective))
    return Comparison(collective, pooled(ours), pooled(loops))


def table(options, comparisons):
    return markdown([["nccl-bench / plain loops", *(f"{size} B" for size in options.sizes), "all sizes",
                      "loops, median / best", "agree"], *(one.row() for one in comparisons)])


def main(words):
    options = parse(words)
    end_on_signal()
    remarks, load = busy(), os.getloadavg()[0]
    try:
        comparisons = []
        for collective in options.collectives:
            comparisons.append(compare(options, collective))
            print(f"{collective}: {comparisons[-1].ratio:.2f}", file=sys.stderr, flush=True)
    except Failure as failure:
        print(f"compare_mpi_loops: {failure}", file=sys.stderr)
        return 1
    head = f"{machine()}; {options.ranks} ranks, {options.rounds} rounds, load {load:.1f} before."
    text = "\n\n".join([head, *remarks, table(options, comparisons)])
    print(text)
    if options.publish:
        publish("mpi-loops", text)
    return 3 if options.check and not all(one.agrees for one in comparisons) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
