#!/usr/bin/env python3
"""Chooses microbatch and recompute of each case of throughput.py for a GPU's memory, on paper: prints for each case what
its candidates need, from the fastest, and marks the first that fits. CASES of throughput.py holds the choices for the
GPUs of 80 GB (H100) and 141 GB (H200); memory_plan_test.py compares them, and the figures with a run over stand-ins.

A candidate needs its states (planned_bytes in lib/tools/plan/rank_trace.cpp: weights, their copies for computation,
gradients, moments), the tensors that every layer keeps for backward (Tape in lib/numerics/model/block.h), and the larger of what
one layer and the head need for themselves while they compute.
usage: memory_plan.py [--gb GB ...]
"""
import argparse
import dataclasses
import sys

import throughput

GIB = 2**30
# Of the GPU's memory: CUDA's context and kernels, workspaces of cuBLASLt and cuDNN, rounding by the allocator.
RESERVED_BYTES = 3 * GIB
TOTAL_BYTES = {80: 81559 * 2**20, 141: 143771 * 2**20}  # by nvidia-smi, of an H100 and an H200
MAX_LOGITS, MIN_ROWS, ROW_UNIT = 2**30, 512, 256  # of a chunk of the head: lib/numerics/model/head.cpp
ELEMENT = 2  # bytes of a bf16 activation


@dataclasses.dataclass(frozen=True)
class Sizes:
    """lib/numerics/model/model_spec.cpp."""
    vocab: int
    dim: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    tied: bool = False
    bias: bool = False

    @property
    def queries(self):
        return self.heads * self.head_dim

    @property
    def qkv(self):
        return self.queries + 2 * self.kv_heads * self.head_dim

    @property
    def num_parameters(self):
        layer = self.dim * (2 + self.qkv + self.queries + 3 * self.hidden) + self.bias * self.qkv
        return self.dim * (1 + self.vocab * (1 if self.tied else 2)) + self.layers * layer


FAST, SLOW = ((8, "none"), (8, "selective"), (4, "none"), (4, "selective")), ((8, "full"), (4, "full"), (2, "full"))
# {case: (its model, (microbatch, recompute) from the fastest)}
CANDIDATES = {
    "0.5B": (Sizes(151936, 896, 24, 14, 2, 64, 4864, tied=True, bias=True), ((64, "none"), (32, "none"), (16, "none"))),
    "1.5B": (Sizes(151936, 1536, 28, 12, 2, 128, 8960, tied=True, bias=True), ((32, "none"), (16, "none"), (8, "none"))),
    "3B": (Sizes(151936, 2048, 36, 16, 2, 128, 11008, tied=True, bias=True), ((16, "none"), *FAST)),
    "7B": (Sizes(152064, 3584, 28, 28, 4, 128, 18944, bias=True), (*FAST, *SLOW)),
    "8B": (Sizes(128256, 4096, 32, 32, 8, 128, 14336), (*FAST, *SLOW)),
    "wide": (Sizes(32000, 4096, 12, 32, 32, 128, 11008), ((32, "none"), (16, "none"), (8, "none"))),
    "small": (Sizes(32000, 256, 6, 16, 16, 16, 768), ((256, "none"), (128, "none"), (64, "none"))),
}


def state_bytes(sizes, settings):
    """As planned_bytes: each parameter has a weight, a copy of it in bf16 unless it is bf16, a gradient, and two moments."""
    narrow_weights = settings.get("training.dtype") == "bfloat16"
    narrow_gradients = settings.get("training.gradient_accumulation_dtype") == "bfloat16"
    narrow_moments = settings.get("optimizer.state_dtype") == "bfloat16"
    each = (2 if narrow_weights else 4 + 2) + (2 if narrow_gradients else 4) + (4 if narrow_moments else 8)
    return sizes.num_parameters * each


def step_bytes(sizes, tokens, recompute):
    """The maximum of a step's own tensors for a microbatch with so many tokens."""
    numbers = 4 * (2 + sizes.heads)  # in fp32: both norms' inverse_rms, and log_sum_exp
    norms, wide = ELEMENT * 2 * sizes.dim, ELEMENT * sizes.hidden
    # input and middle; qkv; the output of attention; gate, up and the activation; the norms' outputs
    whole = numbers + norms + ELEMENT * (2 * sizes.dim + sizes.qkv + sizes.queries) + 3 * wide
    kept = {"none": whole, "selective": whole - norms - wide, "full": ELEMENT * sizes.dim}[recompute]
    # 1. the head: its input, the norm of it, the gradient of that, and the logits of a chunk
    max_rows = max(MIN_ROWS, MAX_LOGITS // sizes.vocab // ROW_UNIT * ROW_UNIT)
    num_chunks = -(-tokens // max_rows)
    rows = tokens if num_chunks == 1 else (tokens - 1) // num_chunks // ROW_UNIT * ROW_UNIT + ROW_UNIT
    head = ELEMENT * (3 * sizes.dim * tokens + sizes.vocab * rows)
    # 2. the last layer's feed-forward half, backward: what was not kept, and the gradients of the activation, gate
    #    and up, of the layer's output and input, and of the norm's output
    layer = tokens * (whole - kept + 3 * wide + ELEMENT * 3 * sizes.dim)
    return tokens * sizes.layers * kept + max(head, layer)


def settings_on(name, gpu_bytes):
    return throughput.CASES[name].settings_on(gpu_bytes / 1e9)


def need_bytes(name, settings, microbatch, recompute):
    sizes, case = CANDIDATES[name][0], throughput.CASES[name]
    return state_bytes(sizes, settings) + step_bytes(sizes, microbatch * case.seq, recompute)


def choose(name, gpu_bytes):
    """The first candidate that fits; None if none does."""
    for candidate in CANDIDATES[name][1]:
        if need_bytes(name, settings_on(name, gpu_bytes), *candidate) <= gpu_bytes - RESERVED_BYTES:
            return candidate
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", nargs="+", type=int, default=list(TOTAL_BYTES), help="memory of GPUs, in 10^9 bytes")
    for gb in parser.parse_args().gb:
        total = TOTAL_BYTES.get(gb, gb * 10**9)
        print(f"{gb} GB: {total / GIB:.1f} GiB, {(total - RESERVED_BYTES) / GIB:.1f} of them for tensors")
        for name, (sizes, candidates) in CANDIDATES.items():
            chosen = choose(name, total)
            for candidate in candidates:
                settings = settings_on(name, total)
                need = need_bytes(name, settings, *candidate) / GIB
                states = state_bytes(sizes, settings) / GIB
                print(f"{'->' if candidate == chosen else '':4}{name:6}{candidate[0]:4} {candidate[1]:10}"
                      f"{need:7.1f} GiB, states {states:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
