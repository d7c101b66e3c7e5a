"""compare_plan.py [--rounds N] [--dtype fp32|bf16] [--json FILE]: `pretrain --plan` against runs on this machine.

Plans and runs alternate; the medians of the rounds are compared. Prints for each configuration the seconds of a step
and the bytes of the largest rank, planned and measured, and whether the plan ranks the configurations as the runs do.
The bytes of a run are its peak of resident memory (ru_maxrss) without that of a run of a tiny model on as many ranks.
Exits with 1 if a time differs by more than 20 %, memory by more than 10 %, or two configurations are ranked wrongly
whose measured times differ by more than 20 %.
"""
import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import runs
from workload import BINARIES, Workload

MAX_TIME_ERROR, MAX_MEMORY_ERROR = 0.2, 0.1
STEPS, LIMIT_SECONDS = 8, 300
SIZES = runs.Sizes(dim=384, layers=4, heads=6, hidden=1024, vocab=4096, seq=256, batch=4)
TINY = runs.Sizes(dim=16, layers=1, heads=2, hidden=32, vocab=256, seq=16, batch=1)
PARALLEL, RECOMPUTE = "parallelism.", "activation_checkpoint.mode"
PIPELINE = {PARALLEL + "pipeline_parallel_degree": 2, "training.local_batch_size": 8}
# (name, ranks, settings), each with 8 samples in a step.
CONFIGURATIONS = [
    ("one rank", 1, {"training.global_batch_size": 8}),
    ("recompute all", 1, {"training.global_batch_size": 8, RECOMPUTE: "full"}),
    ("8 microbatches", 1, {"training.global_batch_size": 8, "training.local_batch_size": 1}),
    ("dp_shard 2", 2, {}),
    ("dp_shard 2, recompute all", 2, {RECOMPUTE: "full"}),
    ("dp_shard 2, 8 microbatches", 2, {"training.local_batch_size": 1, "training.global_batch_size": 8}),
    ("dp_replicate 2", 2, {PARALLEL + "data_parallel_replicate_degree": 2}),
    ("tp 2", 2, {PARALLEL + "tensor_parallel_degree": 2, "training.local_batch_size": 8}),
    ("cp 2", 2, {PARALLEL + "context_parallel_degree": 2, "training.local_batch_size": 8}),
    ("pp 2, 8 microbatches", 2, PIPELINE | {PARALLEL + "pipeline_parallel_microbatch_size": 1}),
    ("pp 2, 2 microbatches", 2, PIPELINE | {PARALLEL + "pipeline_parallel_microbatch_size": 4}),
]


def plan(settings, layout):
    words = [str(word) for key, value in settings.items() for word in ("--" + key, value)]
    environment = os.environ | {"OMP_NUM_THREADS": str(layout.threads)}
    done = subprocess.run([BINARIES / "pretrain", "--plan", "--json", "--gpu", "cpu", "--gpus", str(layout.ranks), *words],
                          capture_output=True, text=True, timeout=LIMIT_SECONDS, env=environment)
    if done.returncode != 0:
        raise runs.Failure(done.stderr)
    planned = json.loads(done.stdout)
    return planned["step_seconds"], max(rank["memory"]["peak_bytes"] for rank in planned["ranks"])


class Comparison:
    """The plans and runs of one configuration, round by round."""

    def __init__(self, name, workload, ranks, dtype, settings):
        self.name, self.workload, self.dtype, self.settings = name, workload, dtype, settings
        self.layout = runs.Layout(ranks)
        self.planned, self.measured = [], []

    def add_round(self):
        self.planned.append(plan(self.workload.settings(self.dtype, STEPS) | self.settings, self.layout))
        run = self.workload.pretrain(self.layout, self.dtype, STEPS, LIMIT_SECONDS, self.settings)
        self.measured.append((statistics.median(run.warm_seconds), run.peak_mib * 2**20))

    def result(self, base_bytes):
        seconds, plan_bytes = (statistics.median(column) for column in zip(*self.planned))
        run_seconds, run_bytes = (statistics.median(column) for column in zip(*self.measured))
        return {"name": self.name, "planned_seconds": seconds, "seconds": run_seconds, "planned_bytes": plan_bytes,
                "bytes": run_bytes - base_bytes}


def line_of(result):
    time, memory = (result["planned_" + key] / result[key] - 1 for key in ("seconds", "bytes"))
    return (f"{result['name']:30}{result['planned_seconds']:9.3f}{result['seconds']:9.3f}{time:+8.1%}"
            f"{result['planned_bytes'] / 2**20:10.0f}{result['bytes'] / 2**20:10.0f}{memory:+8.1%}")


def faults_of(results):
    for result in results:
        for key, limit in (("seconds", MAX_TIME_ERROR), ("bytes", MAX_MEMORY_ERROR)):
            error = result["planned_" + key] / result[key] - 1
            if abs(error) > limit:
                yield f"{result['name']}: the planned {key} are {error:+.1%} off"
    for one, other in itertools.permutations(results, 2):
        if (one["seconds"] * (1 + MAX_TIME_ERROR) < other["seconds"]
                and one["planned_seconds"] > other["planned_seconds"]):
            yield f"the plan prefers {other['name']} to {one['name']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--json", type=pathlib.Path, help="writes the results to this file too")
    parser.add_argument("--only", help="configurations whose name contains this text")
    options = parser.parse_args()
    runs.end_on_signal()
    remarks = runs.busy()
    with tempfile.TemporaryDirectory() as scratch:
        work = Workload(pathlib.Path(scratch) / "model", SIZES, 8 * STEPS)
        tiny = Workload(pathlib.Path(scratch) / "tiny", TINY, 8 * STEPS)
        base = {ranks: tiny.pretrain(runs.Layout(ranks), options.dtype, 2, LIMIT_SECONDS).peak_mib * 2**20
                for ranks in (1, 2)}
        chosen = [each for each in CONFIGURATIONS if not options.only or options.only in each[0]]
        comparisons = [Comparison(name, work, ranks, options.dtype, settings) for name, ranks, settings in chosen]
        for _ in range(options.rounds):
            for comparison in comparisons:
                comparison.add_round()
        results = [each.result(base[each.layout.ranks]) for each in comparisons]
    print(f"{runs.machine()}, {options.dtype}, {options.rounds} rounds", *remarks, sep="\n")
    print(f"{'':30}{'planned':>9}{'run':>9}{'':8}{'planned':>10}{'run':>10}\n{'':30}{'s':>9}{'s':>9}{'':8}{'MiB':>10}{'MiB':>10}")
    print(*map(line_of, results), sep="\n")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    faults = list(faults_of(results))
    print(*faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
