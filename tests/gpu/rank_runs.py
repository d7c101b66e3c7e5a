"""A model on the GPUs of one node with several variants of its settings: a table of Markdown with tokens/s, the time of the
update and the peak of memory of each, beside the first variant. The losses of each run must be those of training, and those of
all variants may differ by MAX_DIFFERENCE of throughput.py, unless variants train in another way. A variant that fails, or comes
to no end in --limit seconds, stops no other, as long as the limit of the whole part permits it; then the exit code is 1. Settings
are those of throughput.py: the same random tokens in every step. Skips with fewer GPUs than ranks, except cases whose ranks may
share a GPU.

experts: experts divided over all ranks, and not. channels: 8B of 8,192 tokens, all parameters sharded, with limits on NCCL's
channels. points: the grid configs/expected/8b.points; --only picks its lines by number. layouts: a tiny model with 21 layouts of up to
8 ranks against one rank, with the memory of each communicator (ARGOSY_LOG=debug) in the output. muon: the update of Muon and AdamW.
usage: rank_runs.py [--ranks N] [--steps N] [--limit SECONDS] [--only NAME ...] [--list] CASE
"""
import argparse
import dataclasses
import json
import pathlib
import re
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
from gpu_name import nccl_rank, num_gpus  # noqa: E402
import throughput  # noqa: E402
from throughput import BFLOAT16_GRADIENTS, BFLOAT16_STATES, LARGE_GB, Case, Failure  # noqa: E402

SOURCE = HERE.parent.parent
RANKS = SOURCE / "jobs/mpirun.sh"
POINTS = SOURCE / "configs/expected/8b.points"
SHOWN = re.compile(r"NCCL's communicator over .*|\d+ NCCL communicators took .*|products leave .*|NCCL registered .*")
PARALLELISM = {"replicate": "data_parallel_replicate_degree", "shard": "data_parallel_shard_degree",
               "tp": "tensor_parallel_degree", "cp": "context_parallel_degree", "pp": "pipeline_parallel_degree",
               "async": "enable_async_tensor_parallel", "rotate": "context_parallel_rotate_method",
               "schedule": "pipeline_parallel_schedule"}
TINY = {"vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 8,
        "head_dim": 16, "intermediate_size": 352, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "model_type": "llama", "architectures": ["LlamaForCausalLM"]}


@dataclasses.dataclass(frozen=True)
class Variant:
    name: str
    settings: dict
    ranks: int


@dataclasses.dataclass(frozen=True)
class Runs:
    case: Case
    variants: object  # of a number of ranks
    sequences: object  # of a step, of a number of ranks
    same_losses: bool = True
    share: bool = False  # several ranks may share a GPU


def layout(name, more=None, **degrees):
    settings = {f"parallelism.{PARALLELISM[key]}": value for key, value in degrees.items()} | (more or {})
    ranks = 1
    for key in ("replicate", "shard", "tp", "cp", "pp"):
        ranks *= degrees.get(key, 1)
    return Variant(name, settings, ranks)


INTERLEAVED, ZERO_BUBBLE, ZBV = "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble"
LAYOUTS = (
    layout("one rank"), layout("shard8", shard=8), layout("replicate8", replicate=8),
    layout("replicate4 x shard2", replicate=4, shard=2), layout("tp8", tp=8), layout("tp8 async", tp=8, **{"async": "true"}),
    layout("tp2 async x shard4", tp=2, shard=4, **{"async": "true"}), layout("tp4 x replicate2", tp=4, replicate=2),
    layout("pp2 x shard4", pp=2, shard=4), layout("pp4 x shard2", pp=4, shard=2), layout("pp8", pp=8),
    layout("pp2 x tp2 x shard2", pp=2, tp=2, shard=2), layout("pp2 x tp2 interleaved", pp=2, tp=2, schedule=INTERLEAVED),
    layout("pp2 x tp2 x replicate2 interleaved", pp=2, tp=2, replicate=2, schedule=INTERLEAVED),
    layout("pp4 x shard2 zero bubble", pp=4, shard=2, schedule=ZERO_BUBBLE), layout("pp2 x shard4 ZBV", pp=2, shard=4, schedule=ZBV),
    layout("cp2 x shard4", cp=2, shard=4), layout("cp8", cp=8), layout("cp4 ring x shard2", cp=4, shard=2, rotate="ring"),
    layout("cp2 ring x tp2 x shard2", cp=2, tp=2, shard=2, rotate="ring"), layout("pp2 x cp2 x tp2", pp=2, cp=2, tp=2),
    layout("pp2 x shard4 in graphs", {"compile.graphs": "true"}, pp=2, shard=4))


def expert_variants(ranks):
    return [Variant(f"expert parallel degree {degree}", {"parallelism.expert_parallel_degree": degree}, ranks)
            for degree in (ranks, 1)]


def channel_variants(ranks):
    sixteen = {"comm.collective_channels": 16}
    return [Variant(name, settings, ranks) for name, settings in (
        ("NCCL's channels", {}), ("16 channels", sixteen), ("8 channels", {"comm.collective_channels": 8}),
        ("16 channels that products leave", sixteen | {"comm.products_leave_channels": "true"}),
        ("registered memory", {"comm.registered_memory": "true"}))]


def points(ranks):
    """A variant for each line of the grid, named by its number."""
    lines = [line.split() for line in POINTS.read_text().splitlines() if line.strip()]
    return [Variant(str(number), {key.removeprefix("--"): value for key, value in zip(words[::2], words[1::2])}, ranks)
            for number, words in enumerate(lines)]


def optimizers(ranks):
    return [Variant(name, {"optimizer.name": name}, ranks) for name in ("AdamW", "Muon")]


LLAMA_8B = Case("llama3", "8B", 128256, 32, 4096, {80: (1, "selective"), LARGE_GB: (2, "selective")}, {}, {}, None, 8192)
TINY_EXPERTS = Case("qwen3_moe", "debugmodel", 512, 4, 128, {0: (4, "none")}, {}, {}, None, 64)
TINY_LAYOUTS = Case("llama3", "", TINY["vocab_size"], 8, 128, {0: (4, "none")}, {}, {}, None, 64)
CASES = {
    "experts": Runs(Case("qwen3_moe", "30B-A3B", 151936, 48, 2048, {80: (1, "full"), LARGE_GB: (2, "full")},
                         BFLOAT16_STATES | BFLOAT16_GRADIENTS, {}, None, 4096), expert_variants, lambda ranks: 2 * ranks),
    "channels": Runs(LLAMA_8B, channel_variants, lambda ranks: 2 * ranks),
    "points": Runs(LLAMA_8B, points, lambda ranks: ranks),
    "layouts": Runs(TINY_LAYOUTS, lambda ranks: [one for one in LAYOUTS if one.ranks <= ranks], lambda ranks: 32, share=True),
    "muon": Runs(throughput.CASES["1.5B"], optimizers, lambda ranks: 64 * ranks, same_losses=False),
    "tiny_experts": Runs(TINY_EXPERTS, expert_variants, lambda ranks: 4 * ranks, share=True),
    "tiny_muon": Runs(throughput.CASES["tiny"], optimizers, lambda ranks: 8 * ranks, same_losses=False, share=True)}


@dataclasses.dataclass
class Found:
    losses: list
    speed: float  # tokens/s of the median step
    update_ms: float
    gib: float


class Bench:
    def __init__(self, runs, options, folder):
        self.runs, self.options, self.folder = runs, options, pathlib.Path(folder)
        self.case, self.memory_gb = runs.case, throughput.gpu_memory_gb()
        self.sequences = runs.sequences(options.ranks)
        self.tokens = self.folder / "tokens.h5"
        throughput.write_tokens(self.tokens, self.case, self.sequences)
        (self.folder / "config.json").write_text(json.dumps(TINY))

    def settings(self, variant, dump):
        settings = throughput.settings_of(self.case, self.tokens, dump, self.memory_gb) | {
            "training.global_batch_size": self.sequences, "training.steps": self.options.steps} | variant.settings
        if num_gpus() > 0:
            settings["comm.gpu_path"] = "nccl"  # also between ranks that share a GPU
        if not self.case.flavor:
            settings["model.hf_assets_path"] = self.folder
            del settings["model.name"], settings["model.flavor"]
        return settings

    def train(self, variant):
        with tempfile.TemporaryDirectory(dir=self.folder) as dump:
            log = pathlib.Path(dump) / "log"
            try:
                throughput.start([RANKS, variant.ranks, *nccl_rank(num_gpus()), throughput.BINARIES / "pretrain",
                                  *throughput.words_of(self.settings(variant, dump))], self.options.limit,
                                 throughput.AS_ROOT | ({"ARGOSY_LOG": "debug"} if self.runs.share else {}), log=log)
            finally:
                for line in log.read_text(errors="replace").splitlines():
                    if found := SHOWN.search(line):
                        print(f"{variant.name}: {found[0]}", flush=True)
            metrics = pathlib.Path(dump) / "metrics.jsonl"
            lines = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
        if len(lines) != self.options.steps:
            raise Failure(f"{len(lines)} steps of {self.options.steps} in {self.options.limit} s")
        losses = [line["loss"] for line in lines]
        throughput.check_losses(losses, self.case.vocab)
        warm, tokens = lines[throughput.NUM_WARM_UPS:], self.sequences * self.case.seq
        return Found(losses, tokens / statistics.median(line["time_ms"]["total"] / 1e3 * tokens / line["tokens"] for line in warm),
                     statistics.median(line["time_ms"]["optimizer"] for line in warm),
                     max(line["memory_peak_gib"] for line in lines))

    def compare(self, variants):
        """Whether all variants trained, with the losses of the first."""
        throughput.row(("model", "variant", "ranks", "sequences", "tokens/s", "tokens/s per rank", "x", "update ms", "GiB", "losses"))
        throughput.row(["---"] * 10)
        first, good = None, True
        for variant in variants:
            try:
                found = self.train(variant)
                first = first or found
                throughput.row((f"{self.case.name} {self.case.flavor}".strip(), variant.name, variant.ranks,
                                f"{self.sequences} x {self.case.seq}", found.speed, found.speed / variant.ranks,
                                found.speed / first.speed, found.update_ms, found.gib,
                                ", ".join(f"{loss:.4f}" for loss in (found.losses[0], found.losses[-1]))))
                if self.runs.same_losses and not all(abs(one / two - 1) <= throughput.MAX_DIFFERENCE
                                                     for one, two in zip(found.losses, first.losses)):
                    raise Failure(f"losses {found.losses} differ by more than {throughput.MAX_DIFFERENCE} of {first.losses}")
            except Failure as failure:
                print(f"\n{variant.name} failed: {failure}\n", file=sys.stderr, flush=True)
                good = False
        return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES, metavar="CASE")
    parser.add_argument("--ranks", type=int, default=8, help="maximum of a variant (8)")
    parser.add_argument("--steps", type=int, default=5, help=f"steps of a run (5); the first {throughput.NUM_WARM_UPS} do not count")
    parser.add_argument("--limit", type=int, default=400, help="time limit of each run in seconds")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="variants of these names alone, in this order")
    parser.add_argument("--list", action="store_true", help="print the names of the variants, and stop")
    options = parser.parse_args()
    runs = CASES[options.case]
    variants = {one.name: one for one in runs.variants(options.ranks)}
    if options.list:
        print(*variants, sep="\n")
        return 0
    if unknown := set(options.only or ()) - set(variants):
        parser.error(f"no variant {', '.join(unknown)}: there are {', '.join(variants)}")
    if not runs.share and num_gpus() < options.ranks:
        print(f"skipped: {num_gpus()} GPUs for {options.ranks} ranks")
        return 77
    throughput.end_on_signal()
    try:
        with tempfile.TemporaryDirectory() as folder:
            return int(not Bench(runs, options, folder).compare([variants[name] for name in options.only or variants]))
    except Failure as failure:
        print(f"\n{options.case} failed: {failure}\n", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
