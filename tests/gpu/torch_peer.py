"""The peer on one GPU: the same Llama in plain PyTorch, as a careful user would write it: bf16 autocast over fp32 weights,
attention by scaled_dot_product_attention (whose kernels are fused), fused AdamW, clipping, gradients of several
microbatches added up. Tokens are uniformly random. Prints one JSON line:

    step_seconds         wall time of each step, the first included, each waited for
    batch                sequences of a microbatch: the first of --batches that fits
    losses, params, peak_gib, compiled, version

--probe prints {"gemm_tflops"} instead: the median of products of 8192 x 8192 random bf16 matrices.
"""
import argparse
import gc
import json
import math
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


def rope_table(seq, head_dim, theta=500000.0):
    angles = torch.outer(torch.arange(seq).float(), theta ** (-torch.arange(0, head_dim, 2).float() / head_dim))
    return torch.stack((angles.cos(), angles.sin()))


def rotate(x, table):
    """x [batch, heads, seq, head_dim]: element i rotates with element i + head_dim / 2."""
    cos, sin = table.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Block(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.head_dim = sizes.dim // sizes.heads
        self.attention_norm, self.mlp_norm = nn.RMSNorm(sizes.dim, eps=1e-5), nn.RMSNorm(sizes.dim, eps=1e-5)
        self.qkv = nn.Linear(sizes.dim, 3 * sizes.dim, bias=False)
        self.out = nn.Linear(sizes.dim, sizes.dim, bias=False)
        self.gate_up = nn.Linear(sizes.dim, 2 * sizes.hidden, bias=False)
        self.down = nn.Linear(sizes.hidden, sizes.dim, bias=False)

    def forward(self, x, table):
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
                   for part in self.qkv(self.attention_norm(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(rotate(q, table), rotate(k, table), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocab, sizes.dim)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.dim, eps=1e-5)
        self.head = nn.Linear(sizes.dim, sizes.vocab, bias=False)
        self.register_buffer("table", rope_table(sizes.seq, sizes.dim // sizes.heads), persistent=False)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.embedding(tokens).to(torch.bfloat16)  # autocast keeps the lookup, and so the residual stream, in fp32
        for block in self.blocks:
            x = block(x, self.table)
        return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), targets.flatten())


class Trainer:
    def __init__(self, options, device):
        torch.manual_seed(0)
        self.options, self.device = options, device
        with torch.device(device):
            self.model = Llama(options)
        self.num_parameters = sum(weight.numel() for weight in self.model.parameters())
        self.loss_of = torch.compile(self.model) if options.compile else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                           fused=True)

    def step(self, batch):
        microbatches = max(1, self.options.tokens // (batch * self.options.seq))
        total = torch.zeros((), device=self.device)
        for _ in range(microbatches):
            tokens = torch.randint(self.options.vocab, (batch, self.options.seq + 1), device=self.device)
            with torch.autocast(self.device.type, torch.bfloat16):
                loss = self.loss_of(tokens[:, :-1], tokens[:, 1:]) / microbatches
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total.item()  # waits for the whole step

    def train(self, batch):
        seconds, losses = [], []
        for _ in range(self.options.steps):
            started = time.perf_counter()
            losses.append(self.step(batch))
            seconds.append(time.perf_counter() - started)
        return dict(step_seconds=seconds, losses=losses, batch=batch, params=self.num_parameters,
                    compiled=self.options.compile, version=torch.__version__)


def train_with_what_fits(options, device):
    for batch in options.batches:
        try:
            return Trainer(options, device).train(batch)
        except torch.OutOfMemoryError:
            pass
        torch._dynamo.reset()  # after the exception and the tensors that it held are gone
        gc.collect()
        torch.cuda.empty_cache()
    raise SystemExit(f"no microbatch of {options.batches} sequences fits")


def gemm_tflops(device, size):
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    rates = []
    for _ in range(13):
        started = time.perf_counter()
        for _ in range(10):
            a @ b
        if device.type == "cuda":
            torch.cuda.synchronize()
        rates.append(10 * 2 * size**3 / (time.perf_counter() - started) / 1e12)
    return statistics.median(rates[3:])


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = dict(dim=256, layers=6, heads=16, hidden=768, vocab=32000, seq=1024, tokens=524288, steps=5)
    for name, value in sizes.items():
        parser.add_argument("--" + name, type=int, default=value, help=f"{value}")
    parser.add_argument("--batches", type=lambda text: [int(word) for word in text.split(",")], default=[64, 32, 16, 8])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--probe", action="store_true")
    return parser.parse_args()


def main():
    options = parse()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if options.probe:
        print(json.dumps(dict(gemm_tflops=gemm_tflops(device, 8192 if device.type == "cuda" else 256))))
        return
    result = train_with_what_fits(options, device)
    if not abs(result["losses"][0] - math.log(options.vocab)) < 1.5:
        raise SystemExit(f"the first loss is {result['losses'][0]}, and tokens are random")
    if device.type == "cuda":
        result["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
