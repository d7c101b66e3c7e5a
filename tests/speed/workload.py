"""Argosy's side of the benchmarks: pretrain on a model and random tokens of given sizes, and the matrix products of its
step alone. The binaries are in $ARGOSY_BIN (default: build/bin)."""
import json
import os
import pathlib
import random
import sys
import tempfile

from runs import HERE, SOURCE, Failure, Run, start

BINARIES = pathlib.Path(os.environ.get("ARGOSY_BIN", SOURCE / "build" / "bin"))
MPIRUN = SOURCE / "jobs" / "mpirun.sh"
TYPES = {"bf16": "bfloat16", "fp32": "float32"}


class Workload:
    """A folder with the model and random tokens for pretrain; there are enough tokens that none is used twice."""

    def __init__(self, folder, sizes, num_samples):
        self.folder, self.sizes = pathlib.Path(folder), sizes
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "config.json").write_text(json.dumps(sizes.config()))
        source, self.tokens = self.folder / "tokens.jsonl", self.folder / "tokens.h5"
        numbers = random.Random(1).choices(range(sizes.vocab), k=num_samples * sizes.seq + 1)
        source.write_text(json.dumps({"tokens": numbers}) + "\n")
        start([BINARIES / "prepare-data", "tokenize", "--input", source, "--output", self.tokens, "--vocab-size",
               sizes.vocab], 60)

    def settings(self, dtype, steps):
        return {"model.hf_assets_path": self.folder, "training.dataset_path": self.tokens,
                "training.seq_len": self.sizes.seq, "training.local_batch_size": self.sizes.batch,
                "training.steps": steps, "training.mixed_precision_param": TYPES[dtype],
                "activation_checkpoint.mode": "none", "metrics.log_freq": steps}

    def pretrain(self, layout, dtype, steps, limit, more=None):
        """`more`: settings that override those above."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            memory, metrics = pathlib.Path(scratch) / "memory", pathlib.Path(scratch) / "metrics.jsonl"
            settings = self.settings(dtype, steps) | {"job.dump_folder": scratch} | (more or {})
            words = [word for key, value in settings.items() for word in ("--" + key, value)]
            command = [MPIRUN, "--threads", layout.threads, layout.ranks, sys.executable, "-I", "-S",
                       HERE / "rank_memory.py", memory, BINARIES / "pretrain", *words]
            _, first, cut_short = start(command, limit, until=lambda: metrics.exists() and metrics.stat().st_size > 0)
            lines = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
            if not lines or first is None:
                raise Failure(f"pretrain did no step within {limit:.0f} s")
            peaks = [int(line) / 1024 for line in memory.read_text().split()] if not cut_short else [None]
            seconds = [line["time_ms"]["total"] / 1000 for line in lines]
            flops = lines[0]["model_tflops_per_device"] * 1e12 * seconds[0] * layout.ranks
            return Run(lines[0]["tokens"], seconds, [line["loss"] for line in lines], first, max(peaks),
                       [line["memory_peak_gib"] * 1024 for line in lines], flops, cut_short)

    def products(self, layout, dtype, seconds):
        """One step's matrix products, on all ranks at the same time. Returns (best, median) seconds of the slowest
        rank, and the peak in GFLOP/s of each of the processor's instruction sets, of all ranks together."""
        sizes = self.sizes
        words = [f"--{name}={getattr(sizes, name)}" for name in ("dim", "layers", "hidden", "vocab", "tokens")]
        command = [MPIRUN, "--threads", layout.threads, layout.ranks, BINARIES.parent / "tests" / "bench_products",
                   *words, f"--dtype={dtype}", f"--seconds={seconds}"]
        out, _, cut_short = start(command, 120 + seconds)
        if cut_short:
            raise Failure("bench_products came to no end")
        ranks = [json.loads(line) for line in out.splitlines()]
        peaks = {name: sum(rank["peaks"][name] for rank in ranks) for name in ranks[0]["peaks"]}
        return max(rank["best_seconds"] for rank in ranks), max(rank["median_seconds"] for rank in ranks), peaks
