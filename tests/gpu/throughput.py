"""What training reaches on one GPU, as tables of Markdown: a row a run, and each target beside what was found. Cases with
a peer (torch_peer.py, eager and compiled) run all programs in turn, round by round. The microbatch is the first of a
case's list that fits. Exits with 3 where a target is missed.

tokens/s are those of the median step, first steps left out. TFLOP/s count what the mathematics needs, recompute not: causal
6 N + 6 L d T a token, non-causal 6 N + 12 L d T (lib/observe/peak_flops.h); MFU is their share of the datasheet's dense peak,
`of GEMM` the causal share of what products of 8192 x 8192 bf16 matrices reached on this GPU just before.

--compare-graphs also runs each case without CUDA graphs, judges no target, and fails if a loss differs by more than
MAX_DIFFERENCE of it: graphs change no loss, but attention's backward adds in any order.
usage: throughput.py [--quick] [--compare-graphs] [--tokens N] [--rounds N] [CASE ...]
"""
import argparse
import dataclasses
import json
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
MAX_DIFFERENCE = 5e-3
BFLOAT16_STATES = {"training.dtype": "bfloat16", "optimizer.state_dtype": "bfloat16"}
BFLOAT16_GRADIENTS = BFLOAT16_STATES | {"training.gradient_accumulation_dtype": "bfloat16"}  # fits GPUs of 80 GB


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    flavor: str
    vocab: int
    layers: int
    width: int  # of all heads
    fits: tuple  # (microbatch, recompute) from the fastest to the smallest
    settings: dict
    least: dict  # {figure of Result or ratio: target}
    peer: dict | None = None
    seq: int = 1024


CASES = {case_name: Case(*fields) for case_name, *fields in (
    ("0.5B", "qwen2", "0.5B", 151936, 24, 896, ((64, "none"), (32, "none"), (16, "none")), BFLOAT16_STATES,
     {"tokens/s": 165e3}),
    ("1.5B", "qwen2", "1.5B", 151936, 28, 1536, ((32, "none"), (16, "none"), (8, "none")), BFLOAT16_STATES,
     {"tokens/s": 65e3}),
    ("3B", "qwen2", "3B", 151936, 36, 2048, ((16, "none"), (8, "none"), (8, "selective")), BFLOAT16_STATES,
     {"tokens/s": 34e3, "MFU causal %": 65}),
    ("7B", "qwen2", "7B", 152064, 28, 3584, ((8, "none"), (8, "selective"), (4, "none"), (4, "selective"), (4, "full")),
     BFLOAT16_GRADIENTS, {"tokens/s": 15e3, "MFU causal %": 65}),
    ("8B", "llama3", "8B", 128256, 32, 4096, ((8, "none"), (8, "selective"), (4, "none"), (4, "selective"), (4, "full"),
                                              (2, "full")), BFLOAT16_GRADIENTS, {"tokens/s": 0}),
    ("wide", "llama3", "4096x12x32", 32000, 12, 4096, ((32, "none"), (16, "none"), (8, "none")), {},
     {"TFLOP/s causal": 600, "x compiled": 1.15},
     dict(dim=4096, layers=12, heads=32, hidden=11008, vocab=32000, batches="32,16,8,4")),
    ("small", "llama3", "256x6x16", 32000, 6, 256, ((256, "none"), (128, "none"), (64, "none")), {},
     {"x eager": 3, "x compiled": 1.15},
     dict(dim=256, layers=6, heads=16, hidden=768, vocab=32000, batches="128,64,32")),
    ("tiny", "llama3", "debugmodel", 512, 4, 128, ((4, "none"), (2, "none")), {}, {"tokens/s": 1},
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


def write_tokens(path, case, num_sequences):
    """A token file of random tokens for any model with this vocabulary."""
    source, engine = path.with_suffix(".jsonl"), random.Random(1)
    with open(source, "w") as file:
        for _ in range(num_sequences + 2):
            file.write(json.dumps({"tokens": engine.choices(range(case.vocab), k=case.seq)}) + "\n")
    start([BINARIES / "prepare-data", "tokenize", "--input", source, "--output", path, "--vocab-size", case.vocab], 300)


def settings_of(case, tokens, microbatch, recompute, dump):
    return {"model.name": case.name, "model.flavor": case.flavor, "training.seq_len": case.seq,
            "training.dataset_path": tokens, "training.local_batch_size": microbatch,
            "activation_checkpoint.mode": recompute, "metrics.log_freq": 1, "job.dump_folder": dump, **case.settings}


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
        self.gemm = self.probe()

    def peer(self, *words):
        out, _, cut_short = start([self.python, HERE / "torch_peer.py", *words], self.options.limit,
                                  {"TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"), "PYTHONWARNINGS": "ignore"})
        if cut_short:
            raise Failure("PyTorch came to no end")
        return json.loads(out.splitlines()[-1])

    def probe(self):
        return self.peer("--probe")["gemm_tflops"] if self.python else None

    def num_sequences(self, case):
        return max(case.fits[0][0], self.options.tokens // case.seq)

    def tokens_of(self, case):
        path = self.folder / f"{case.vocab}.h5"
        if not path.exists():
            write_tokens(path, case, 2 * self.num_sequences(case))
        return path

    def ours_at(self, case, microbatch, recompute, program="Argosy", **more):
        sequences = self.num_sequences(case) // microbatch * microbatch
        with tempfile.TemporaryDirectory(dir=self.folder) as dump, Power() as power:
            settings = settings_of(case, self.tokens_of(case), microbatch, recompute, dump) | {
                "training.global_batch_size": sequences, "training.steps": self.options.steps,
                "compile.search_algorithms": str(not self.options.heuristic).lower()} | more
            _, _, cut_short = start([BINARIES / "pretrain", *words_of(settings)], self.options.limit, AS_ROOT)
            lines = [json.loads(line) for line in (pathlib.Path(dump) / "metrics.jsonl").read_text().splitlines()]
        if cut_short or len(lines) <= NUM_WARM_UPS:
            raise Failure(f"pretrain did {len(lines)} steps in {self.options.limit} s")
        last = lines[-1]
        flops = last["model_tflops_per_device"] * 1e12 / last["tokens_per_second_per_device"]
        return Result(program, microbatch, recompute, "bf16" if case.settings else "fp32",
                      [line["time_ms"]["total"] / 1e3 * sequences * case.seq / line["tokens"] for line in lines],
                      max(line["memory_peak_gib"] for line in lines), power.medians(),
                      [line["loss"] for line in lines], flops,
                      last["model_tflops_per_device"] * 1e12 / last["mfu_causal"] if last["mfu_causal"] else None)

    def ours(self, case, known=None):
        for microbatch, recompute in [known] if known else case.fits:
            try:
                return self.ours_at(case, microbatch, recompute)
            except Failure as failure:
                if "out of memory" not in str(failure).lower():
                    raise
                print(f"\n{case.flavor}: microbatch {microbatch} with recompute {recompute} does not fit\n", flush=True)
        raise Failure(f"{case.flavor}: nothing fits")

    def compare_graphs(self, case, result):
        other = self.ours_at(case, result.microbatch, result.recompute, "Argosy without graphs",
                             **{"compile.graphs": "false"})
        self.show(case, other, other.flops, other.peak)
        if len(other.losses) != len(result.losses):
            raise Failure(f"{len(result.losses)} steps with graphs, {len(other.losses)} without")
        print(f"\nlosses with graphs {result.losses}, without {other.losses}\n", flush=True)
        if not all(abs(one / two - 1) <= MAX_DIFFERENCE for one, two in zip(result.losses, other.losses)):
            raise Failure(f"losses with graphs and without differ by more than {MAX_DIFFERENCE} of them")

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
        runs, figures = {}, []
        for _ in range(self.options.rounds if case.peer and self.python else 1):
            first = runs.get("Argosy", [None])[0]
            result = self.ours(case, first and (first.microbatch, first.recompute))
            runs.setdefault("Argosy", []).append(result)
            figures.append(self.show(case, result, result.flops, result.peak))
            if self.options.compare_graphs:
                self.compare_graphs(case, result)
            for compiled in (False, True) if case.peer and self.python else ():
                other = self.peers(case, compiled)
                runs.setdefault("compiled" if compiled else "eager", []).append(other)
                self.show(case, other, result.flops, result.peak)
        found = {name: statistics.median(known) if (known := [one[name] for one in figures if one[name]]) else None
                 for name in figures[0]}
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
    parser.add_argument("--quick", action="store_true", help="65536 tokens per step, 4 steps, one round")
    parser.add_argument("--tokens", type=int, default=524288, help="tokens per step")
    parser.add_argument("--steps", type=int, default=5, help=f"steps of a run; the first {NUM_WARM_UPS} do not count")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of cases with a peer")
    parser.add_argument("--compare-graphs", action="store_true", help="compare with runs without CUDA graphs")
    parser.add_argument("--heuristic", action="store_true", help="use the algorithms of cuBLASLt's heuristic, not the fastest ones")
    parser.add_argument("--limit", type=int, default=400, help="time limit of each run in seconds")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no case {', '.join(unknown)}: there are {', '.join(CASES)}")
    if options.quick:
        options.tokens, options.steps, options.rounds = 65536, 4, 1
    return options


def main():
    options = parse()
    end_on_signal()
    targets, status = [], 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder, options)
        print(f"{options.tokens:,} tokens a step, {options.steps} steps of which {NUM_WARM_UPS} do not count; GEMM "
              f"{bench.gemm:.4g} TFLOP/s\n" if bench.gemm else "No peer: no Python with PyTorch\n", flush=True)
        row(COLUMNS)
        row(["---"] * len(COLUMNS))
        for name in options.cases or [name for name in CASES if name not in NAMED_ALONE]:
            case = CASES[name]
            try:
                found = bench.run(case)
            except Failure as failure:
                print(f"\n{name} failed: {failure}\n", file=sys.stderr, flush=True)
                found, status = {}, 1
            if not options.compare_graphs:
                targets += [(f"{case.name} {case.flavor}", what, wanted, found.get(what)) for what, wanted in
                            case.least.items()]
        return (judge(targets) if targets else 0) or status


if __name__ == "__main__":
    sys.exit(main())
