"""A training step of a model with experts against the Qwen3-MoE of transformers under FSDP2, and against our step of a
dense model of the same active size, alternating in one run. PYTORCH.md beside this file has the targets. Tables go to
stdout, progress to stderr. Exits with 3 if --check is given and a target is missed, with 1 if a run fails.
"""
import argparse
import dataclasses
import datetime
import os
import pathlib
import subprocess
import sys
import tempfile

import comparison
import peer
from compare_pytorch import say
from results import publish
from runs import Failure, Layout, Sizes, busy, end_on_signal, machine
from workload import Workload

SPEED_TARGET, DENSE_TARGET, MEMORY_TARGET = 3, 0.75, 0.6
LAYOUT = Layout(2, 1)


@dataclasses.dataclass(frozen=True)
class SparseSizes(Sizes):
    """Each layer has experts, of the width `hidden`."""
    layers: int = 8
    hidden: int = 256
    experts: int = 16
    top_k: int = 4

    @property
    def dense(self):
        """A dense model whose tokens meet as many weights; routers do not count."""
        return Sizes(self.dim, self.layers, self.heads, self.top_k * self.hidden, self.vocab, self.seq, self.batch)

    def config(self):
        return super().config() | dict(
            model_type="qwen3_moe", rms_norm_eps=1e-6, rope_theta=10000.0, max_position_embeddings=self.seq,
            num_key_value_heads=self.heads, head_dim=self.dim // self.heads, moe_intermediate_size=self.hidden,
            num_experts=self.experts, num_experts_per_tok=self.top_k, norm_topk_prob=True)


def parse(words):
    parser = argparse.ArgumentParser(prog="compare_experts.py", description=__doc__)
    for field in dataclasses.fields(SparseSizes):
        parser.add_argument("--" + field.name, type=int, default=field.default, help=f"default {field.default}")
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16", help="type of both sides; default bf16")
    parser.add_argument("--rounds", type=int, default=2, help="rounds; each runs every program once; default 2")
    parser.add_argument("--steps", type=int, default=4, help="steps of a run; the first does not count; default 4")
    parser.add_argument("--limit", type=float, default=150, help="time limit of one run in seconds; default 150")
    parser.add_argument("--without-peer", action="store_true", help="compare with the dense model only")
    parser.add_argument("--check", action="store_true", help="exit with 3 if a target is missed")
    parser.add_argument("--publish", action="store_true", help="put the tables into tests/speed/PYTORCH.md")
    options = parser.parse_args(words)
    if options.rounds < 1 or options.steps < 2:
        parser.error("--rounds must be at least 1 and --steps at least 2: the first step of a run is not counted")
    return options


def has_transformers(python):
    return bool(python) and subprocess.run([python, "-c", "import torch, transformers"], stderr=subprocess.DEVNULL).returncode == 0


def measure(options, their_peer, folder):
    """Returns the runs by name: our sparse and dense ones, and those of each variant of the peer."""
    sizes = SparseSizes(**{field.name: getattr(options, field.name) for field in dataclasses.fields(SparseSizes)})
    num_samples = LAYOUT.ranks * sizes.batch * options.steps
    ours = {"Argosy": Workload(pathlib.Path(folder) / "experts", sizes, num_samples),
            "Argosy, dense": Workload(pathlib.Path(folder) / "dense", sizes.dense, num_samples)}
    variants = [peer.Variant(options.dtype), peer.Variant(options.dtype, "blocks")] if their_peer else []
    runs = {name: [] for name in (*ours, *(one.name for one in variants))}
    for number in range(options.rounds):
        for name, workload in ours.items():
            say(f"round {number + 1} of {options.rounds}: {name}")
            runs[name].append(workload.pretrain(LAYOUT, options.dtype, options.steps, options.limit))
        for variant in variants:
            say(f"  {variant.name}")
            run = their_peer.train(sizes, LAYOUT, variant, options.steps, options.limit)
            if run is None:
                raise Failure(f"{variant.name} came to no end within {options.limit:.0f} s; give a longer --limit")
            runs[variant.name].append(run)
    return runs


def figures(runs, dtype):
    """Returns (contenders, figures)."""
    ours, dense, *theirs = [comparison.Contender.of(name, dtype, some) for name, some in runs.items()]
    speed = {one.name: max(run.flops_per_step / min(run.warm_seconds) for run in runs[one.name]) / 1e9
             for one in (ours, dense)}
    rows = [comparison.Figure("model GFLOP/s, best step, beside the dense model's", speed[ours.name],
                              speed[dense.name], DENSE_TARGET)]
    for one in theirs:
        rows += [comparison.Figure(f"tokens/s, best step, {one.name}", ours.best_tokens_per_second,
                                   one.best_tokens_per_second, SPEED_TARGET),
                 comparison.Figure(f"peak memory of a rank, MiB, {one.name}", ours.peak_mib, one.peak_mib,
                                   MEMORY_TARGET, larger_is_better=False)]
    return [ours, dense, *theirs], rows


def main(words):
    options = parse(words)
    end_on_signal()
    python = None if options.without_peer else peer.find_python()
    if not options.without_peer and not has_transformers(python):
        print(f"compare_experts: there is no Python with PyTorch and transformers; {peer.REMEDY}; then "
              f"{peer.PLACE}/bin/pip install transformers==4.57.6", file=sys.stderr)
        return 2
    remarks, load = busy(), os.getloadavg()[0]
    try:
        with tempfile.TemporaryDirectory(prefix="compare-") as folder:
            cache = pathlib.Path(folder) / "inductor"
            runs = measure(options, peer.Peer(python, cache, "torch_experts.py") if python else None, folder)
    except Failure as failure:
        print(f"compare_experts: {failure}", file=sys.stderr)
        return 1
    contenders, rows = figures(runs, options.dtype)
    faults = comparison.check_losses(contenders, options.vocab)
    if faults:
        print(f"compare_experts: {'; '.join(faults)}", file=sys.stderr)
        return 1
    text = "\n\n".join([f"{datetime.date.today()}, {machine()}; load {load:.1f} before, {os.getloadavg()[0]:.1f} after; "
                        f"`tests/speed/compare_experts.py {' '.join(words)}`", *remarks,
                        comparison.figure_table(rows), comparison.contender_table(contenders)])
    print(text)
    if options.publish:
        publish("experts", text)
    return 3 if options.check and any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
