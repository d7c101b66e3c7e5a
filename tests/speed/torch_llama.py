"""The peer: the same pretraining step in plain PyTorch, set up as a careful user of FSDP2 would.

One process with T threads, or N ranks under torchrun:

    python torch_llama.py --threads 2 [--compile blocks] [--dtype fp32]
    torchrun --standalone --nproc-per-node 2 torch_llama.py --threads 1 [--compile all]

--compile blocks compiles the layers, as TorchTitan does; --compile all the head and the loss, too.

Ranks share the model by `fully_shard` on every block and the root. bf16 is mixed precision: master weights, sums of
gradients and AdamW in fp32; a single process gets it from autocast, as TorchTitan does. AdamW is fused, gradients are
clipped. Tokens are uniformly random, so the first loss lies near ln(vocab). Rank 0 prints one JSON line:

    step_seconds         wall time of each step, the first included
    peak_mib             peak resident memory (ru_maxrss) of the largest rank
    first_step_seconds   from --started (default: this process's start) to the end of the first step
    losses, ranks, threads, dtype, compiled, params, tokens_per_step, version

--probe prints how fast matrix products are in both types instead: {"bf16_gflops", "fp32_gflops"}.
"""
import argparse
import contextlib
import json
import math
import os
import resource
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def rope_table(seq, head_dim, theta=500000.0):
    frequencies = theta ** (-torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.outer(torch.arange(seq).float(), frequencies)
    return torch.polar(torch.ones_like(angles), angles)


def rotate(x, table):
    """x [batch, seq, heads, head_dim]: neighbouring elements are the parts of a complex number. (Real arithmetic, which
    the compiler could fuse, was measured slower: ten times in eager mode, twice when compiled.)"""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * table[:, None, :]).flatten(-2).type_as(x)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def forward(self, x, table):
        q, k, v = (w(x).unflatten(-1, (self.heads, -1)) for w in (self.wq, self.wk, self.wv))
        q, k, v = (t.transpose(1, 2) for t in (rotate(q, table), rotate(k, table), v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate, self.up = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.attention_norm, self.feed_forward_norm = nn.RMSNorm(dim, eps=1e-5), nn.RMSNorm(dim, eps=1e-5)
        self.attention, self.feed_forward = Attention(dim, heads), FeedForward(dim, hidden)

    def forward(self, x, table):
        x = x + self.attention(self.attention_norm(x), table)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Llama(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.embedding = nn.Embedding(options.vocab, options.dim)
        self.blocks = nn.ModuleList(Block(options.dim, options.heads, options.hidden) for _ in range(options.layers))
        self.norm = nn.RMSNorm(options.dim, eps=1e-5)
        self.head = nn.Linear(options.dim, options.vocab, bias=False)
        self.register_buffer("table", rope_table(options.seq, options.dim // options.heads), persistent=False)
        self.initialise(options.dim)

    @torch.no_grad()
    def initialise(self, dim):
        """Standard deviations as in TorchTitan's Llama: they determine the first loss."""
        nn.init.normal_(self.embedding.weight)
        nn.init.normal_(self.head.weight, std=dim**-0.5)
        for number, block in enumerate(self.blocks):
            for name, weight in block.named_parameters():
                if weight.dim() == 2:
                    residual = name.endswith(("wo.weight", "down.weight"))
                    nn.init.normal_(weight, std=0.02 / math.sqrt(2 * (number + 1)) if residual else 0.02)

    def loss(self, x, targets):
        return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), targets.flatten())

    def forward(self, tokens):
        """The loss of all tokens but the first."""
        x = self.embedding(tokens[:, :-1])
        for block in self.blocks:
            x = block(x, self.table)
        return self.loss(x, tokens[:, 1:])


def shard(model, num_ranks, dtype):
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if dtype == "bf16" else MixedPrecisionPolicy()
    mesh = dist.init_device_mesh("cpu", (num_ranks,))
    for module in (*model.blocks, model):
        fully_shard(module, mesh=mesh, mp_policy=policy)


class Step:
    def __init__(self, model, options, rank, precision):
        self.model, self.options, self.precision = model, options, precision
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        self.generator = torch.Generator().manual_seed(1 + rank)

    def run(self):
        options = self.options
        tokens = torch.randint(options.vocab, (options.batch, options.seq + 1), generator=self.generator)
        with self.precision():
            loss = self.model(tokens)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def process_start():
    """The start of this process in seconds since the epoch; the kernel states it in ticks since boot."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


def gflops(dtype, size=512):
    a, b = torch.randn(size // 2, size).to(dtype), torch.randn(size, size).to(dtype)
    best = math.inf
    for _ in range(3):
        started = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - started)
    return size**3 / best / 1e9


def parse(more_sizes):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = dict(dim=512, layers=6, heads=8, hidden=1344, vocab=8192, seq=512, batch=4, steps=5, threads=1) | more_sizes
    for name, value in sizes.items():
        parser.add_argument("--" + name, type=int, default=value, help=f"{value}")
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--compile", choices=("none", "blocks", "all"), default="none")
    parser.add_argument("--started", type=float, help="when the command was given, in seconds since the epoch")
    parser.add_argument("--probe", action="store_true")
    return parser.parse_args()


def train(options, num_ranks, make_model):
    torch.manual_seed(0)
    model = make_model(options)
    num_parameters = sum(weight.numel() for weight in model.parameters())
    if options.compile != "none":
        for block in model.blocks:
            block.compile()
    if options.compile == "all":
        model.loss = torch.compile(model.loss)
    precision = contextlib.nullcontext
    if num_ranks > 1:
        dist.init_process_group("gloo")
        shard(model, num_ranks, options.dtype)
    elif options.dtype == "bf16":
        precision = lambda: torch.autocast("cpu", torch.bfloat16)  # noqa: E731
    step = Step(model, options, int(os.environ.get("RANK", 0)), precision)
    step_seconds, losses, first_step_end = [], [], 0
    for _ in range(options.steps):
        started = time.perf_counter()
        losses.append(step.run())
        step_seconds.append(time.perf_counter() - started)
        first_step_end = first_step_end or time.time()
    return dict(params=num_parameters, step_seconds=step_seconds, losses=losses,
                first_step_seconds=first_step_end - (options.started or process_start()))


def largest(value, num_ranks):
    if num_ranks == 1:
        return value
    tensor = torch.tensor(float(value))
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor.item()


def main(make_model=Llama, **more_sizes):
    """`make_model` makes a module with the blocks, the loss and the forward pass of Llama from the options, which have
    `more_sizes`, too."""
    options = parse(more_sizes)
    torch.set_num_threads(options.threads)
    if options.probe:
        print(json.dumps(dict(bf16_gflops=gflops(torch.bfloat16), fp32_gflops=gflops(torch.float32))))
        return
    num_ranks = int(os.environ.get("WORLD_SIZE", 1))
    result = train(options, num_ranks, make_model)
    result["peak_mib"] = largest(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, num_ranks)
    if int(os.environ.get("RANK", 0)) == 0:
        result |= dict(version=torch.__version__, ranks=num_ranks, threads=options.threads, dtype=options.dtype,
                       compiled=options.compile, tokens_per_step=num_ranks * options.batch * options.seq)
        print(json.dumps(result), flush=True)
    if dist.is_initialized():
        # All measurements are done. Destroying the process group sometimes aborts on a busy machine ("terminate called
        # without an active exception"), and the launcher would then report a failed run.
        dist.barrier()
        os._exit(0)


if __name__ == "__main__":
    main()
