"""The time of each kernel in one step, as a table of Markdown: one or more microbatches and their update, at the microbatch
of throughput.py. kernel_recorder, which CUDA loads into pretrain, records the kernels of the last step; they run as they
always do. `waits` is the time in which the GPU runs none of them, `all` the sum of the rows, which is more than the step's
time where kernels run at the same time. --float8 is throughput.py's; --set changes a key.
usage: kernel_times.py [--float8 RECIPE] [--microbatches N] [--set KEY=VALUE ...] [CASE]
"""
import argparse
import collections
import pathlib
import re
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "speed"))
from runs import Failure, start  # noqa: E402
from throughput import AS_ROOT, BINARIES, CASES, RECIPES, gpu_memory_gb, row, settings_of, words_of, write_tokens  # noqa: E402

RECORDER = BINARIES / ".." / "tests" / "kernel_recorder"
FIRST_KERNEL = "embedding_kernel<"  # of a microbatch's forward
NUM_STEPS = 3
NUM_ROWS = 40
NUM_LETTERS = 90  # of a name
LIMIT_SECONDS = 280


def record(case, folder, options):
    """The kernels of a run in order of their starts: [(start, nanoseconds, name)]."""
    sequences = options.microbatches * case.plan(gpu_memory_gb())[0]
    tokens, times = folder / "tokens.h5", folder / "times.txt"
    write_tokens(tokens, case, sequences)
    settings = settings_of(case, tokens, folder / "run", gpu_memory_gb()) | {
        "training.global_batch_size": sequences, "training.steps": NUM_STEPS}
    settings |= RECIPES[options.float8] if options.float8 else {}
    settings |= dict(options.set)
    *_, cut_short = start([BINARIES / "pretrain", *words_of(settings)], LIMIT_SECONDS,
                          AS_ROOT | {"CUDA_INJECTION64_PATH": str(RECORDER), "ARGOSY_KERNEL_TIMES": str(times)})
    if cut_short:
        raise Failure(f"pretrain came to no end in {LIMIT_SECONDS} s")
    lines = [line.split(" ", 2) for line in times.read_text().splitlines()] if times.exists() else []
    return sorted((int(begin), int(nanoseconds), short(name)) for begin, nanoseconds, name in lines)


def short(name):
    """Without the namespaces, the arguments and what a demangler adds."""
    name = re.sub(r"\(anonymous namespace\)::|<unnamed>::|^void |\(int\)|\(bool\)", "", name)
    name = re.sub(r"argosy::kernels::(cuda::)?", "", name)
    depth = 0
    for place, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0 and place > 0:
            name = name[:place]
            break
    return name[:NUM_LETTERS].replace("|", "/").strip()


def last_step(kernels, num_microbatches):
    firsts = [place for place, (_, _, name) in enumerate(kernels) if name.startswith(FIRST_KERNEL)]
    if len(firsts) < num_microbatches:
        raise Failure(f"{len(firsts)} of {len(kernels)} kernels are {FIRST_KERNEL}, the first of a microbatch")
    return kernels[firsts[-num_microbatches]:]


def idle(kernels):
    """Nanoseconds between the first kernel's start and the last one's end in which none runs."""
    waits, end = 0, kernels[0][0]
    for begin, nanoseconds, _ in kernels:
        waits += max(0, begin - end)
        end = max(end, begin + nanoseconds)
    return waits


def show(kernels):
    times = collections.defaultdict(list)
    for _, nanoseconds, name in kernels:
        times[name].append(nanoseconds)
    waits = idle(kernels)
    total = sum(sum(found) for found in times.values()) + waits
    slowest = sorted(times.items(), key=lambda item: -sum(item[1]))
    row(("kernel", "launches", "microseconds", "%"))
    row(["---"] * 4)
    for name, found in slowest[:NUM_ROWS]:
        row((f"`{name}`", len(found), sum(found) / 1e3, 100 * sum(found) / total))
    rest = [one for _, found in slowest[NUM_ROWS:] for one in found]
    if rest:
        row((f"{len(slowest) - NUM_ROWS} others", len(rest), sum(rest) / 1e3, 100 * sum(rest) / total))
    row(("waits", "", waits / 1e3, 100 * waits / total))
    row(("all", len(kernels), total / 1e3, 100.0))


def key_and_value(word):
    key, equals, value = word.partition("=")
    if not equals:
        raise ValueError
    return key, value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="?", default="0.5B", metavar="CASE", choices=CASES, help=", ".join(CASES))
    parser.add_argument("--float8", metavar="RECIPE", choices=RECIPES, help=", ".join(RECIPES))
    parser.add_argument("--microbatches", type=int, default=1, metavar="N", help="of a step")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", type=key_and_value, help="a setting of pretrain")
    options = parser.parse_args()
    if not RECORDER.exists():
        print(f"skipped: there is no {RECORDER}")
        return 77
    case = CASES[options.case]
    try:
        with tempfile.TemporaryDirectory() as folder:
            step = last_step(record(case, pathlib.Path(folder), options), options.microbatches)
    except Failure as failure:
        sys.exit(f"kernel_times: {failure}")
    print(f"{case.name} {case.flavor}{', float8 ' + options.float8 if options.float8 else ''}: {options.microbatches} "
          f"microbatches of {case.plan(gpu_memory_gb())[0]} x {case.seq} tokens, and the update\n", flush=True)
    show(step)
    return 0


if __name__ == "__main__":
    sys.exit(main())
