"""The time of each kernel in one microbatch and its update: a table of Markdown, from Nsight Compute's timings of the
first step of a run (0.5B, without graphs, with cuBLASLt's heuristic, at the microbatch of throughput.py). Nsight
Compute runs kernels one at a time; it leaves the clocks as they are. Gaps between kernels do not count. Skips without
ncu.
usage: kernel_times.py [CASE]
"""
import argparse
import collections
import csv
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from throughput import AS_ROOT, BINARIES, CASES, gpu_memory_gb, row, settings_of, words_of, write_tokens  # noqa: E402

METRIC = "gpu__time_duration.sum"
FIRST_KERNEL = "embedding_kernel"  # of a microbatch's forward
NUM_ROWS = 30
LIMIT_SECONDS = 280


def profile(case, folder):
    """The launches of a step in order: [(name of the kernel, nanoseconds)]."""
    microbatch, recompute = case.plan(gpu_memory_gb())
    tokens, report = folder / "tokens.h5", folder / "times.csv"
    write_tokens(tokens, case, microbatch)
    settings = settings_of(case, tokens, microbatch, recompute, folder / "run") | {
        "training.global_batch_size": microbatch, "training.steps": 1, "compile.graphs": "false"}
    command = ["ncu", "--metrics", METRIC, "--print-units", "base", "--print-kernel-base", "function",
               "--csv", "--page", "raw", "--log-file", report, "--clock-control", "none", "--cache-control", "none",
               BINARIES / "pretrain", *words_of(settings)]
    done = subprocess.run([*map(str, command)], timeout=LIMIT_SECONDS, env=os.environ | AS_ROOT)
    text = report.read_text() if report.exists() else ""
    if "ERR_NVGPUCTRPERM" in text:
        print("skipped: ncu may not read this GPU's counters")
        sys.exit(77)
    if done.returncode != 0 or '\n"ID"' not in "\n" + text:
        sys.exit(f"kernel_times: ncu ended with {done.returncode}: " + "\n".join(text.splitlines()[-20:]))
    return launches(text)


def launches(report):
    """The rows of Nsight Compute's table; lines before the table's head are remarks, and its first row has the units."""
    lines = report.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith('"ID"'))
    rows = list(csv.DictReader(lines[head:]))[1:]
    return [(one["Kernel Name"], float(one[METRIC].replace(",", ""))) for one in rows]


def last_microbatch(timed):
    first = max((place for place, (name, _) in enumerate(timed) if FIRST_KERNEL in name), default=None)
    if first is None:
        sys.exit(f"kernel_times: none of {len(timed)} launches is {FIRST_KERNEL}, the first of a microbatch")
    return timed[first:]


def show(timed):
    times = collections.defaultdict(list)
    for name, nanoseconds in timed:
        times[name].append(nanoseconds)
    total = sum(sum(one) for one in times.values())
    slowest = sorted(times.items(), key=lambda item: -sum(item[1]))
    row(("kernel", "launches", "microseconds", "%"))
    row(["---"] * 4)
    for name, found in slowest[:NUM_ROWS]:
        row((f"`{name}`", len(found), sum(found) / 1e3, 100 * sum(found) / total))
    rest = [one for _, found in slowest[NUM_ROWS:] for one in found]
    if rest:
        row((f"{len(slowest) - NUM_ROWS} others", len(rest), sum(rest) / 1e3, 100 * sum(rest) / total))
    row(("all", len(timed), total / 1e3, 100.0))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="?", default="0.5B", metavar="CASE", choices=CASES, help=", ".join(CASES))
    case = CASES[parser.parse_args().case]
    if not shutil.which("ncu"):
        print("skipped: there is no ncu here")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        timed = last_microbatch(profile(case, pathlib.Path(folder)))
    print(f"{case.name} {case.flavor}, microbatch {case.plan(gpu_memory_gb())[0]} of {case.seq} tokens\n", flush=True)
    show(timed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
