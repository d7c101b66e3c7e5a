"""compare_plan.py time|memory [--rounds N] [--dtype fp32|bf16] [--json FILE] [--four]: `pretrain --plan` against runs
on this machine, for configurations on one and two ranks, memory also on four (--only TEXT: those with TEXT in their
names). Exits with 2 if there is none.

time: the seconds of a step. Plans and runs alternate; the medians of the rounds are compared. Exits with 1 if one
differs by more than 20 %, or the plan ranks two configurations wrongly whose measured times differ by more than 20 %.
--four adds the configurations on four ranks. Where ranks share cores, a plan divides the speed of a core by the ranks on
it, for all of the step. In a run a rank that waits leaves its core to others, so that a run of stages is faster than its
plan; the difference says how the ranks share cores, and nothing about a machine that has a core for each rank.

memory: the bytes of the largest rank. Those of a run are its peak of resident memory (ru_maxrss) without that of a run
of a tiny model on as many ranks; they count the memory that ranks share once for each rank. Exits with 1 if one
differs by more than 10 %.
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

STEPS, LIMIT_SECONDS = 8, 300
MAX_ERROR = {"time": 0.2, "memory": 0.1}
SIZES = {"time": runs.Sizes(dim=384, layers=4, heads=6, hidden=1024, vocab=4096, seq=256, batch=4),
         "memory": runs.Sizes()}
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
FOR_MEMORY = [
    ("recompute some", 1, {"training.global_batch_size": 8, RECOMPUTE: "selective"}),
    ("tp 2, recompute all", 2, {PARALLEL + "tensor_parallel_degree": 2, "training.local_batch_size": 8, RECOMPUTE: "full"}),
    ("pp 2, recompute all", 2, PIPELINE | {PARALLEL + "pipeline_parallel_microbatch_size": 1, RECOMPUTE: "full"}),
    ("dp_shard 2, kept gathered", 2, {PARALLEL + "fsdp_reshard_after_forward": "never"}),
]
ON_FOUR_RANKS = [
    ("dp_shard 4", 4, {"training.local_batch_size": 2}),
    ("dp_replicate 2, dp_shard 2", 4, {PARALLEL + "data_parallel_replicate_degree": 2,
                                       "training.local_batch_size": 2}),
    ("dp_shard 2, tp 2", 4, {PARALLEL + "tensor_parallel_degree": 2}),
    ("dp_shard 2, cp 2", 4, {PARALLEL + "context_parallel_degree": 2}),
    ("pp 2, tp 2", 4, PIPELINE | {PARALLEL + "pipeline_parallel_microbatch_size": 2,
                                  PARALLEL + "tensor_parallel_degree": 2}),
    ("pp 4, 8 microbatches", 4, PIPELINE | {PARALLEL + "pipeline_parallel_degree": 4,
                                            PARALLEL + "pipeline_parallel_microbatch_size": 1}),
]


def plan(settings, layout):
    words = [str(word) for key, value in settings.items() for word in ("--" + key, value)]
    done = subprocess.run([BINARIES / "pretrain", "--plan", "--json", "--gpu", "cpu", "--gpus", str(layout.ranks), *words],
                          capture_output=True, text=True, timeout=LIMIT_SECONDS,
                          env=os.environ | {"OMP_NUM_THREADS": str(layout.threads)})
    if done.returncode != 0:
        raise runs.Failure(done.stderr)
    return json.loads(done.stdout)


def planned_bytes(planned):
    return max(rank["memory"]["peak_bytes"] + rank["mapped_shared_bytes"] for rank in planned["ranks"])


def compare_times(work, options):
    """{name: (planned, measured)}."""
    values = {name: ([], []) for name, _, _ in options.configurations}
    for _ in range(options.rounds):
        for name, ranks, settings in options.configurations:
            layout = runs.Layout(ranks)
            planned, measured = values[name]
            planned.append(plan(work.settings(options.dtype, STEPS) | settings, layout)["step_seconds"])
            run = work.pretrain(layout, options.dtype, STEPS, LIMIT_SECONDS, settings)
            measured.append(statistics.median(run.warm_seconds))
    return {name: tuple(map(statistics.median, columns)) for name, columns in values.items()}


def compare_memory(work, tiny, options):
    """{name: (planned, measured)}, in MiB."""
    def measure(workload, ranks, settings=None):
        return workload.pretrain(runs.Layout(ranks), options.dtype, 2, LIMIT_SECONDS, settings).peak_mib

    base = {ranks: measure(tiny, ranks) for ranks in sorted({ranks for _, ranks, _ in options.configurations})}
    values = {}
    for name, ranks, settings in options.configurations:
        layout = runs.Layout(ranks)
        planned = planned_bytes(plan(work.settings(options.dtype, 2) | settings, layout))
        values[name] = planned / 2**20, measure(work, ranks, settings) - base[ranks]
    return values


def shared_cores(configurations):
    """A list with a remark for the results if ranks share cores."""
    ranks, cores = max(ranks for _, ranks, _ in configurations), len(os.sched_getaffinity(0))
    return [f"Up to {ranks} ranks share {cores} cores: those times compare how they share them."] if ranks > cores else []


def faults_of(values, what):
    limit = MAX_ERROR[what]
    for name, (planned, measured) in values.items():
        if abs(planned / measured - 1) > limit:
            yield f"{name}: the planned {what} is {planned / measured - 1:+.1%} off"
    for one, other in itertools.permutations(values, 2) if what == "time" else ():
        if values[one][1] * (1 + limit) < values[other][1] and values[one][0] > values[other][0]:
            yield f"the plan prefers {other} to {one}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=MAX_ERROR)
    parser.add_argument("--rounds", type=int, default=3, help="of time (3)")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--json", type=pathlib.Path, help="writes the values to this file too")
    parser.add_argument("--four", action="store_true", help="of time: also on four ranks")
    parser.add_argument("--only", default="", help="configurations whose name contains this text")
    options = parser.parse_args()
    configurations = list(CONFIGURATIONS)
    if options.what == "memory":
        configurations += FOR_MEMORY
    if options.what == "memory" or options.four:
        configurations += ON_FOUR_RANKS
    options.configurations = [each for each in configurations if options.only in each[0]]
    if not options.configurations:
        parser.error(f"--only {options.only!r} is in no name of: {'; '.join(name for name, _, _ in configurations)}")
    runs.end_on_signal()
    remarks = runs.busy() + shared_cores(options.configurations) if options.what == "time" else []
    with tempfile.TemporaryDirectory() as scratch:
        work = Workload(pathlib.Path(scratch) / "model", SIZES[options.what], 8 * STEPS)
        if options.what == "time":
            values = compare_times(work, options)
        else:
            values = compare_memory(work, Workload(pathlib.Path(scratch) / "tiny", TINY, 8 * STEPS), options)
    print(f"{runs.machine()}, {options.dtype}", *remarks, sep="\n")
    print(f"{'seconds of a step' if options.what == 'time' else 'MiB':30}{'planned':>10}{'run':>10}")
    for name, (planned, measured) in values.items():
        print(f"{name:30}{planned:10.4g}{measured:10.4g}{planned / measured - 1:+8.1%}")
    if options.json:
        options.json.write_text(json.dumps(values, indent=1) + "\n")
    faults = list(faults_of(values, options.what))
    print(*faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
