"""A model with experts on the GPUs of one node, its experts divided over all ranks (expert parallel degree N) and not
(1): tokens/s of both as a table of Markdown, and their losses, which must be those of training and may differ by
MAX_DIFFERENCE of throughput.py. All parameters are sharded over the ranks in both. Settings are those of throughput.py: the same
random tokens in every step, states and gradients in bf16. Skips with fewer GPUs than ranks.
usage: expert_ranks.py [--ranks N] [--steps N] [CASE]
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
from gpu_name import nccl_rank, num_gpus  # noqa: E402
import throughput  # noqa: E402
from throughput import Case, Failure  # noqa: E402

RANKS = HERE.parent.parent / "jobs/mpirun.sh"
CASES = {case_name: Case(*fields) for case_name, *fields in (
    ("30B-A3B", "qwen3_moe", "30B-A3B", 151936, 48, 2048, {80: (1, "full"), throughput.LARGE_GB: (2, "full")},
     throughput.BFLOAT16_STATES | throughput.BFLOAT16_GRADIENTS, {}, None, 4096),
    ("tiny", "qwen3_moe", "debugmodel", 512, 4, 128, {0: (4, "none")}, {}, {}, None, 64))}


def train(case, degree, tokens, folder, options):
    """(losses, tokens/s of the median step) with the experts divided over so many ranks."""
    memory_gb = throughput.gpu_memory_gb()
    sequences = case.plan(memory_gb)[0] * options.ranks
    with tempfile.TemporaryDirectory(dir=folder) as dump:
        settings = throughput.settings_of(case, tokens, dump, memory_gb) | {
            "training.global_batch_size": sequences, "training.steps": options.steps,
            "parallelism.expert_parallel_degree": degree}
        throughput.start([RANKS, options.ranks, *nccl_rank(num_gpus()), throughput.BINARIES / "pretrain",
                          *throughput.words_of(settings)], options.limit, throughput.AS_ROOT)
        lines = [json.loads(line) for line in (pathlib.Path(dump) / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines]
    if len(lines) != options.steps:
        raise Failure(f"{len(lines)} steps of {options.steps} in {options.limit} s")
    throughput.check_losses(losses, case.vocab)
    seconds = [line["time_ms"]["total"] / 1e3 * sequences * case.seq / line["tokens"] for line in lines]
    return losses, sequences * case.seq / statistics.median(seconds[throughput.NUM_WARM_UPS:])


def compare(case, options, folder):
    sequences = case.plan(throughput.gpu_memory_gb())[0] * options.ranks
    tokens = pathlib.Path(folder) / "tokens.h5"
    throughput.write_tokens(tokens, case, sequences)
    throughput.row(("model", "GPUs", "expert parallel degree", "sequences", "tokens/s", "tokens/s per GPU", "x"))
    throughput.row(["---"] * 7)
    found = {}
    for degree in (options.ranks, 1):
        losses, speed = found[degree] = train(case, degree, tokens, folder, options)
        throughput.row((f"{case.name} {case.flavor}", options.ranks, degree, f"{sequences} x {case.seq}", speed,
                        speed / options.ranks, found[options.ranks][1] / speed))
    losses = [found[degree][0] for degree in found]
    print(f"\nlosses {losses[0]}, with degree 1 {losses[1]}\n", flush=True)
    if not all(abs(one / two - 1) <= throughput.MAX_DIFFERENCE for one, two in zip(*losses)):
        raise Failure(f"losses differ by more than {throughput.MAX_DIFFERENCE} of them")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="?", default="30B-A3B", choices=CASES, metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--ranks", type=int, default=8, help="a GPU each (8)")
    parser.add_argument("--steps", type=int, default=5, help=f"steps of a run (5); the first {throughput.NUM_WARM_UPS} do not count")
    parser.add_argument("--limit", type=int, default=400, help="time limit of each run in seconds")
    options = parser.parse_args()
    case = CASES[options.case]
    if case.plans.keys() != {0} and num_gpus() < options.ranks:
        print(f"skipped: {num_gpus()} GPUs for {options.ranks} ranks")
        return 77
    throughput.end_on_signal()
    try:
        with tempfile.TemporaryDirectory() as folder:
            compare(case, options, folder)
    except Failure as failure:
        print(f"\n{options.case} failed: {failure}\n", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
