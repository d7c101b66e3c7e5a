"""What training reaches on one GPU, as tables of Markdown: a row a run, and each target beside what was found. Cases with
a peer (torch_peer.py, eager and compiled) run all programs in turn, round by round. Microbatch and recompute are those
that memory_plan.py chose for the case and the GPU's memory. Exits with 1 where a run failed, else with 3 where a target is
missed.

A run fails if its losses are not those of training, so that no wrong result counts as fast. Every step has the same,
uniformly random tokens. Logits start with a variance of 1 (the head's rows have about unit length, its inputs the
length sqrt(width)), so the first loss is near ln(vocabulary) + 1/2; logits that are all 0, or not of these inputs, miss
it by 1/2. The same tokens again must have a lower loss.

tokens/s are those of the median step, first steps left out. TFLOP/s count what the mathematics needs, recompute not: causal
6 N + 6 L d T a token, non-causal 6 N + 12 L d T (lib/trainer/observe/peak_flops.h); MFU is their share of the datasheet's dense peak,
`of GEMM` the causal share of what products of 8192 x 8192 bf16 matrices reached on this GPU just before.

--compare-graphs also runs each case without CUDA graphs, judges no target, and fails if a loss differs by more than
MAX_DIFFERENCE of it: graphs change no loss, but attention's backward adds in any order.
--float8 RECIPE also runs each case with the products of its linear layers in float8.
usage: throughput.py [--quick] [--compare-graphs] [--float8 RECIPE ...] [--tokens N] [--seq N] [--rounds N] [CASE ...]
"""
import argparse
import dataclasses
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "speed"))
from peer import find_python  # noqa: E402
from runs import Failure, end_on_signal, start  # noqa: E402

BINARIES = pathlib.Path(os.environ.get("ARGOSY_BIN", HERE.parent.parent / "build" / "cuda" / "bin"))
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
NUM_WARM_UPS = 2
LARGE_GB = 141
MAX_FIRST_ERROR = 0.25  # nats between the first loss and ln(vocabulary) + 1/2
MIN_FALL = 0.05  # nats from the first loss to the last
MAX_DIFFERENCE = 5e-3
FLOAT8 = "quantize.linear.float8"
RECIPES = {recipe: {"model.converters": FLOAT8, FLOAT8 + ".recipe_name": recipe}
           for recipe in ("tensorwise", "rowwise", "rowwise_with_gw_hp", "blockwise")}
# Weights are cast once after each update, not in each microbatch.
RECIPES["tensorwise_kept"] = RECIPES["tensorwise"] | {FLOAT8 + ".enable_fsdp_float8_all_gather": "true"}
MIN_FLOAT8 = {"7B": 21e3}  # tokens/s of the fastest recipe
BFLOAT16_STATES = {"training.dtype": "bfloat16", "optimizer.state_dtype": "bfloat16"}
BFLOAT16_GRADIENTS = {"training.gradient_accumulation_dtype": "bfloat16"}


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    flavor: str
    vocab: int
    layers: int
    width: int  # of all heads
    plans: dict  # {GB of the GPU's memory, at least: (microbatch, recompute)}, as memory_plan.py prints them
    settings: dict
    least: dict  # {figure of Result or ratio: target}
    peer: dict | None = None
    seq: int = 1024
    more: dict = dataclasses.field(default_factory=dict)  # settings on GPUs with less than LARGE_GB

    def settings_on(self, memory_gb):
        return self.settings | (self.more if memory_gb < LARGE_GB else {})

    def with_seq(self, seq):
        """The same case with longer samples; where a microbatch then has more tokens, with full recompute."""
        plans = {gb: (max(1, microbatch * self.seq // seq), recompute if microbatch * self.seq >= seq else "full")
                 for gb, (microbatch, recompute) in self.plans.items()}
        return dataclasses.replace(self, seq=seq, plans=plans)

    def plan(self, memory_gb):
        known = [gb for gb in self.plans if gb <= memory_gb]
        if not known:
            raise Failure(f"{self.flavor}: no plan for a GPU with {memory_gb:.0f} GB: add one to CASES (memory_plan.py --gb)")
        return self.plans[max(known)]


CASES = {case_name: Case(*fields) for case_name, *fields in (
    ("0.5B", "qwen2", "0.5B", 151936, 24, 896, {80: (64, "none")}, BFLOAT16_STATES,
     {"tokens/s": 165e3}),
    ("1.5B", "qwen2", "1.5B", 151936, 28, 1536, {80: (16, "none"), LARGE_GB: (32, "none")}, BFLOAT16_STATES,
     {"tokens/s": 65e3}),
    ("3B", "qwen2", "3B", 151936, 36, 2048, {80: (8, "none"), LARGE_GB: (16, "none")}, BFLOAT16_STATES,
     {"tokens/s": 34e3, "MFU causal %": 65}),
    ("7B", "qwen2", "7B", 152064, 28, 3584, {80: (4, "none"), LARGE_GB: (8, "none")}, BFLOAT16_STATES,
     {"tokens/s": 15e3, "MFU causal %": 65}, None, 1024, BFLOAT16_GRADIENTS),
    ("8B", "llama3", "8B", 128256, 32, 4096, {80: (4, "selective"), LARGE_GB: (8, "none")}, BFLOAT16_STATES,
     {"tokens/s": 0}, None, 1024, BFLOAT16_GRADIENTS),
    ("wide", "llama3", "4096x12x32", 32000, 12, 4096, {80: (16, "none"), LARGE_GB: (32, "none")}, {},
     {"TFLOP/s causal": 600, "x compiled": 1.15},
     dict(dim=4096, layers=12, heads=32, hidden=11008, vocab=32000, batches="32,16,8,4")),
    ("small", "llama3", "256x6x16", 32000, 6, 256, {80: (256, "none")}, {},
     {"x eager": 3, "x compiled": 1.15},
     dict(dim=256, layers=6, heads=16, hidden=768, vocab=32000, batches="128,64,32")),
    ("tiny", "llama3", "debugmodel", 512, 4, 128, {0: (4, "none")}, {}, {"tokens/s": 1},
     dict(dim=128, layers=4, heads=4, hidden=352, vocab=512, batches="4,2"), 64))}
NAMED_ALONE = ("tiny",)  # to see that this script works, anywhere
COLUMNS = ("model", "program", "microbatch", "recompute", "states", "tokens/s", "TFLOP/s causal", "non-causal",
           "MFU causal %", "MFU non-causal %", "of GEMM %", "GiB", "W", "MHz")


def row(cells):
    def text(cell):
        if cell is None:
            return "-"
        return f"{cell:,.0f}" if isinstance(cell, float) and cell >= 1000 else \
            f"{cell:.4g}" if isinstance(cell, float) else str(cell)
    print("| " + " | ".join(map(text, cells)) + " |", flush=True)


def gpu_memory_gb():
    """Of the first GPU, in 10^9 bytes; 0 without one."""
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=memory.total", "--id=0", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True)
        return float(done.stdout) * 2**20 / 1e9 if done.returncode == 0 else 0
    except FileNotFoundError:
        return 0


def check_losses(losses, vocab):
    """Throws Failure unless these are the losses of training on the same random tokens, step after step."""
    shown = ", ".join("none" if loss is None else f"{loss:.4f}" for loss in losses)
    if any(loss is None or not math.isfinite(loss) for loss in losses):
        raise Failure(f"losses are not finite: {shown}")
    expected = math.log(vocab) + 0.5
    if abs(losses[0] - expected) > MAX_FIRST_ERROR:
        raise Failure(f"the first loss is {losses[0]:.4f}, not within {MAX_FIRST_ERROR} of ln({vocab}) + 1/2 = "
                      f"{expected:.4f}: {shown}")
    if losses[0] - losses[-1] < MIN_FALL:
        raise Failure(f"the loss falls by {losses[0] - losses[-1]:.4f}, not by {MIN_FALL}: {shown}")


def write_tokens(path, case, num_sequences):
    """A file of random tokens: so many sequences, and one token more, the last target."""
    source, engine = path.with_suffix(".jsonl"), random.Random(1)
    with open(source, "w") as file:
        for length in [case.seq] * num_sequences + [1]:
            file.write(json.dumps({"tokens": engine.choices(range(case.vocab), k=length)}) + "\n")
    start([BINARIES / "prepare-data", "tokenize", "--input", source, "--output", path, "--vocab-size", case.vocab], 300)


def settings_of(case, tokens, dump, memory_gb):
    microbatch, recompute = case.plan(memory_gb)
    return {"model.name": case.name, "model.flavor": case.flavor, "training.seq_len": case.seq,
            "training.dataset_path": tokens, "training.local_batch_size": microbatch,
            "activation_checkpoint.mode": recompute, "metrics.log_freq": 1, "job.dump_folder": dump,
            # A step changes a logit by about a tenth, whatever the width: AdamW's first updates are +-lr.
            "optimizer.lr": 0.3 / case.width, "lr_scheduler.warmup_steps": 0, "lr_scheduler.decay_ratio": 0,
            **case.settings_on(memory_gb)}


def words_of(settings):
    return [word for key, value in settings.items() for word in ("--" + key, value)]


class Power:
    """Watts and MHz of the GPU while a `with` block runs: the medians of the busier half of nvidia-smi's samples."""

    def __enter__(self):
        self.samples = []
        try:
            self.process = subprocess.Popen(["nvidia-smi", "--query-gpu=power.draw,clocks.sm", "-lms", "250", "--id=0",
                                             "--format=csv,noheader,nounits"], stdout=subprocess.PIPE, text=True)
        except FileNotFoundError:
            self.process = None
            return self
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        return self

    def read(self):
        for line in self.process.stdout:
            try:
                self.samples.append([float(word) for word in line.split(",")])
            except ValueError:
                continue  # "[N/A]"

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.reader.join()

    def medians(self):
        busier = sorted(self.samples)[len(self.samples) // 2:]
        return [statistics.median(column) for column in zip(*busier)] if busier else [None, None]


@dataclasses.dataclass
class Result:
    program: str
    microbatch: int
    recompute: str
    states: str
    step_seconds: list
    gib: float | None
    power: list
    losses: list = dataclasses.field(default_factory=list)  # of Argosy's steps
    flops: float = 0  # FLOPs per token, causal; Argosy reports its own
    peak: float | None = None  # peak FLOP/s of the datasheet


class Bench:
    def __init__(self, folder, options):
        self.folder, self.options = pathlib.Path(folder), options
        self.python = find_python()
        self.failed = False  # a run in float8
        self.gemm = self.probe()
        self.memory_gb = gpu_memory_gb()

    def peer(self, *words):
        out, _, cut_short = start([self.python, HERE / "torch_peer.py", *words], self.options.limit,
                                  {"TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"), "PYTHONWARNINGS": "ignore"})
        if cut_short:
            raise Failure("PyTorch came to no end")
        return json.loads(out.splitlines()[-1])

    def probe(self):
        """TFLOP/s of PyTorch's products; None without PyTorch, and where only Argosy's runs are compared."""
        if not self.python or self.options.compare_graphs:
            return None
        try:
            return self.peer("--probe")["gemm_tflops"]
        except Failure as failure:
            print(f"\nPyTorch fails: {failure}\n", file=sys.stderr, flush=True)
            self.python = None
            return None

    def num_sequences(self, case):
        microbatch, _ = case.plan(self.memory_gb)
        return max(1, self.options.tokens // case.seq // microbatch) * microbatch

    def tokens_of(self, case):
        """A token file that a step reads as a whole, and one token more, the last target."""
        path = self.folder / f"{case.vocab}x{self.num_sequences(case) * case.seq}.h5"
        if not path.exists():
            write_tokens(path, case, self.num_sequences(case))
        return path

    def ours(self, case, program="Argosy", **more):
        (microbatch, recompute), sequences = case.plan(self.memory_gb), self.num_sequences(case)
        tokens = self.tokens_of(case)
        with tempfile.TemporaryDirectory(dir=self.folder) as dump, Power() as power:
            settings = settings_of(case, tokens, dump, self.memory_gb) | {
                "training.global_batch_size": sequences, "training.steps": self.options.steps} | more
            _, _, cut_short = start([BINARIES / "pretrain", *words_of(settings)], self.options.limit, AS_ROOT)
            lines = [json.loads(line) for line in (pathlib.Path(dump) / "metrics.jsonl").read_text().splitlines()]
        if cut_short or len(lines) <= NUM_WARM_UPS:
            raise Failure(f"pretrain did {len(lines)} steps in {self.options.limit} s")
        check_losses([line["loss"] for line in lines], case.vocab)
        last = lines[-1]
        flops = last["model_tflops_per_device"] * 1e12 / last["tokens_per_second_per_device"]
        return Result(program, microbatch, recompute, "bf16" if case.settings else "fp32",
                      [line["time_ms"]["total"] / 1e3 * sequences * case.seq / line["tokens"] for line in lines],
                      max(line["memory_peak_gib"] for line in lines), power.medians(),
                      [line["loss"] for line in lines], flops,
                      last["model_tflops_per_device"] * 1e12 / last["mfu_causal"] if last["mfu_causal"] else None)

    def compare_graphs(self, case, result):
        setting = "graphs = false"
        other = self.ours(case, f"Argosy, {setting}", **{"compile.graphs": "false"})
        self.show(case, other, other.flops, other.peak)
        if len(other.losses) != len(result.losses):
            raise Failure(f"{len(result.losses)} steps, {len(other.losses)} with {setting}")
        print(f"\nlosses {result.losses}, with {setting} {other.losses}\n", flush=True)
        if not all(abs(one / two - 1) <= MAX_DIFFERENCE for one, two in zip(result.losses, other.losses)):
            raise Failure(f"with {setting} losses differ by more than {MAX_DIFFERENCE} of them")

    def float8(self, case, recipe):
        """tokens/s; None if the run failed."""
        try:
            result = self.ours(case, f"Argosy, float8 {recipe}", **RECIPES[recipe])
        except Failure as failure:
            print(f"\n{case.name} by {recipe} failed: {failure}\n", file=sys.stderr, flush=True)
            self.failed = True
            return None
        return self.show(case, result, result.flops, result.peak)["tokens/s"]

    def peers(self, case, compiled):
        sizes = case.peer | dict(seq=case.seq, tokens=self.num_sequences(case) * case.seq, steps=self.options.steps)
        with Power() as power:
            done = self.peer(*(f"--{key}={value}" for key, value in sizes.items()), *(["--compile"] if compiled else []))
        return Result("PyTorch compiled" if compiled else "PyTorch eager", done["batch"], "none", "fp32",
                      done["step_seconds"], done.get("peak_gib"), power.medians())

    def speed(self, case, results):
        seconds = [value for result in results for value in result.step_seconds[NUM_WARM_UPS:]]
        return self.num_sequences(case) * case.seq / statistics.median(seconds)

    def show(self, case, result, flops, peak):
        speed = self.speed(case, [result])
        causal = speed * flops / 1e12
        noncausal = causal + speed * 6 * case.layers * case.width * case.seq / 1e12
        share = [100e12 * rate / peak if peak else None for rate in (causal, noncausal)]
        row((f"{case.name} {case.flavor}", result.program, result.microbatch, result.recompute, result.states, speed,
             causal, noncausal, *share, 100 * causal / self.gemm if self.gemm else None, result.gib, *result.power))
        return {"tokens/s": speed, "TFLOP/s causal": causal, "MFU causal %": share[0]}

    def run(self, case):
        """The figures with targets: the median of Argosy's speed over all rounds, and its ratios to the peers' medians.
        """
        runs, figures, float8 = {}, [], []
        for _ in range(self.options.rounds if case.peer and self.python else 1):
            result = self.ours(case)
            runs.setdefault("Argosy", []).append(result)
            figures.append(self.show(case, result, result.flops, result.peak))
            if self.options.compare_graphs:
                self.compare_graphs(case, result)
            float8 += [self.float8(case, recipe) for recipe in self.options.float8]
            for compiled in (False, True) if case.peer and self.python else ():
                other = self.peers(case, compiled)
                runs.setdefault("compiled" if compiled else "eager", []).append(other)
                self.show(case, other, result.flops, result.peak)
        found = {name: statistics.median(known) if (known := [one[name] for one in figures if one[name]]) else None
                 for name in figures[0]} | {"tokens/s in float8": max(filter(None, float8), default=None)}
        for name in ("eager", "compiled"):
            found["x " + name] = self.speed(case, runs["Argosy"]) / self.speed(case, runs[name]) if name in runs else None
        return found


def verdict(wanted, found):
    return "not measured" if found is None else "met" if found >= wanted else "MISSED"


def judge(targets):
    print()
    row(("model", "target", "wanted", "found", "verdict"))
    row(["---"] * 5)
    for model, name, wanted, found in targets:
        row((model, name, ">= " + (f"{wanted:,}" if wanted else "trains"), found, verdict(wanted, found)))
    return 3 if any(verdict(wanted, found) == "MISSED" for *_, wanted, found in targets) else 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--quick", action="store_true", help="65536 tokens per step, 4 steps, one round, unless given")
    parser.add_argument("--tokens", type=int, help="tokens per step (524288)")
    parser.add_argument("--steps", type=int, help=f"steps of a run (5); the first {NUM_WARM_UPS} do not count")
    parser.add_argument("--rounds", type=int, help="rounds of cases with a peer (2)")
    parser.add_argument("--compare-graphs", action="store_true", help="compare with runs without CUDA graphs")
    parser.add_argument("--float8", nargs="+", default=[], choices=RECIPES, metavar="RECIPE",
                        help=f"also run with products in float8: {', '.join(RECIPES)}")
    parser.add_argument("--seq", type=int, help="tokens of a sample, with as many in a microbatch as its case has")
    parser.add_argument("--limit", type=int, default=400, help="time limit of each run in seconds")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no case {', '.join(unknown)}: there are {', '.join(CASES)}")
    for key, usual, quick in (("tokens", 524288, 65536), ("steps", 5, 4), ("rounds", 2, 1)):
        if getattr(options, key) is None:
            setattr(options, key, quick if options.quick else usual)
    return options


def main():
    options = parse()
    end_on_signal()
    targets, status = [], 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder, options)
        print(f"{options.tokens:,} tokens a step, {options.steps} steps of which {NUM_WARM_UPS} do not count; GEMM "
              f"{bench.gemm:.4g} TFLOP/s\n" if bench.gemm else "No peer, and no TFLOP/s of PyTorch's products\n", flush=True)
        row(COLUMNS)
        row(["---"] * len(COLUMNS))
        for name in options.cases or [name for name in CASES if name not in NAMED_ALONE]:
            case = CASES[name].with_seq(options.seq or CASES[name].seq)
            try:
                found = bench.run(case)
            except Failure as failure:
                print(f"\n{name} failed: {failure}\n", file=sys.stderr, flush=True)
                found, status = {}, 1
            if not options.compare_graphs:
                least = {"tokens/s in float8": MIN_FLOAT8.get(name, 0)} if options.float8 else case.least
                targets += [(f"{case.name} {case.flavor}", what, wanted, found.get(what)) for what, wanted in least.items()]
        missed = judge(targets) if targets else 0
    return status or int(bench.failed) or missed


if __name__ == "__main__":
    sys.exit(main())
