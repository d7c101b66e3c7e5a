#!/usr/bin/env python3
"""plan_scaling.py PRETRAIN: plans Llama 3 8B, 70B and 405B on 8 to 16,384 H100 with `pretrain --plan`, and writes the page
README.md and the figure scaling.svg beside this script. Weak scaling: the batch grows with the number of GPUs. Two more tables
have the plans of published runs: of dense models, and of models with experts.
"""
import concurrent.futures
import dataclasses
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "jobs/python"))
import plot  # noqa: E402

GPU, PER_NODE, SEQ_LEN = "h100", 8, 8192
# Name, flavor, the smallest number of GPUs, and the settings of a number of GPUs.
MODELS = (
    ("8B, shards in a node", "8B", 8, lambda gpus: {
        "parallelism.data_parallel_shard_degree": 8, "parallelism.data_parallel_replicate_degree": gpus // 8,
        "training.local_batch_size": 2, "activation_checkpoint.mode": "selective"}),
    ("8B, over all", "8B", 8, lambda gpus: {
        "training.local_batch_size": 2, "activation_checkpoint.mode": "selective"}),
    ("70B, FSDP x TP 8", "70B", 64, lambda gpus: {
        "parallelism.tensor_parallel_degree": 8, "training.local_batch_size": 8,
        "parallelism.enable_async_tensor_parallel": True, "activation_checkpoint.mode": "full"}),
    ("405B, PP 8 x FSDP x TP 8", "405B", 512, lambda gpus: {
        "parallelism.tensor_parallel_degree": 8, "parallelism.pipeline_parallel_degree": 8,
        "parallelism.enable_async_tensor_parallel": True, "training.local_batch_size": 32,
        "activation_checkpoint.mode": "full"}),
)
FLOAT8 = {"model.converters": "quantize.linear.float8", "quantize.linear.float8.filter_fqns": "output",
          "quantize.linear.float8.enable_fsdp_float8_all_gather": True}
NONE, SELECTIVE, FULL = ({"activation_checkpoint.mode": mode} for mode in ("none", "selective", "full"))
ASYNC = {"parallelism.enable_async_tensor_parallel": True}


def batch(local, seq_len=SEQ_LEN):
    return {"training.local_batch_size": local, "training.seq_len": seq_len}


def mesh(tensor=1, pipeline=1, context=1, schedule="1F1B", microbatch=1, layers=""):
    return {"parallelism.tensor_parallel_degree": tensor, "parallelism.pipeline_parallel_degree": pipeline,
            "parallelism.context_parallel_degree": context, "parallelism.pipeline_parallel_schedule": schedule,
            "parallelism.pipeline_parallel_microbatch_size": microbatch} | ({"parallelism.pipeline_parallel_layers_per_stage": layers} if layers else {})


# TorchTitan's H100 had 96 GB of memory at 2.4 TB/s, and 500 W.
TITAN = {"h100": ["--gpu", "h100:96", "--memory-speed", "2.4TB/s", "--power", 500], "h200": ["--gpu", "h200"],
         "a100": ["--gpu", "a100"]}
MEGATRON = {"h100": ["--gpu", "h100"], "b200": ["--gpu", "b200"]}
SMALL = batch(2) | SELECTIVE
LARGE = batch(16) | mesh(tensor=8) | FULL | FLOAT8
PIPELINE = batch(32) | FULL | FLOAT8 | ASYNC


@dataclasses.dataclass
class Run:
    """A published one: its name, the program, the number and kind of GPUs, the model, settings, and tokens/s a GPU."""
    name: str
    program: str
    gpus: int
    kind: str
    flavor: str
    settings: dict
    published: int
    model: str = "llama3"

    def machine(self):
        """Automodel has no share of its own: it is planned as this program."""
        share = [] if self.program == "automodel" else ["--program", self.program]
        return share + (TITAN if self.program == "torchtitan" else MEGATRON)[self.kind]


PUBLISHED = (
    Run("8B bf16, FSDP (fitted)", "torchtitan", 8, "h100", "8B", SMALL, 6667),
    Run("8B bf16, FSDP", "torchtitan", 128, "h100", "8B", SMALL, 6514),
    Run("8B float8, FSDP", "torchtitan", 8, "h100", "8B", SMALL | FLOAT8, 8532),
    Run("8B float8, FSDP", "torchtitan", 128, "h100", "8B", SMALL | FLOAT8, 8380),
    Run("8B float8, 32,768 tokens", "torchtitan", 8, "h100", "8B", batch(1, 32768) | FULL | FLOAT8, 3890),
    Run("8B float8, 262,144 tokens, CP 8", "torchtitan", 8, "h100", "8B", batch(1, 262144) | mesh(context=8) | FULL | FLOAT8, 548),
    Run("70B float8, TP 8", "torchtitan", 256, "h100", "70B", LARGE, 829),
    Run("70B float8, async TP 8", "torchtitan", 256, "h100", "70B", LARGE | ASYNC, 876),
    Run("405B float8, PP 8 1F1B, 32 microbatches of 1", "torchtitan", 512, "h100", "405B", PIPELINE | mesh(8, 8), 100),
    Run("405B float8, PP 8 1F1B, 8 microbatches of 4", "torchtitan", 512, "h100", "405B", PIPELINE | mesh(8, 8, microbatch=4), 100),
    Run("405B float8, PP 8 interleaved, 32 of 1", "torchtitan", 512, "h100", "405B",
        PIPELINE | mesh(8, 8, schedule="Interleaved1F1B"), 128),
    Run("405B float8, PP 8 interleaved, 8 of 4", "torchtitan", 512, "h100", "405B",
        PIPELINE | mesh(8, 8, schedule="Interleaved1F1B", microbatch=4), 128),
    Run("8B float8, FSDP", "torchtitan", 32, "h200", "8B", SMALL | FLOAT8, 10938),
    Run("8B float8, FSDP", "torchtitan", 64, "h200", "8B", SMALL | FLOAT8, 10753),
    Run("8B bf16, FSDP", "torchtitan", 64, "a100", "8B", batch(1) | SELECTIVE, 2973),
    Run("70B bf16, FSDP", "torchtitan", 64, "a100", "70B", batch(1) | FULL, 331),
    Run("Llama 2 13B bf16, FSDP", "torchtitan", 64, "a100", "13B", batch(2, 4096) | NONE, 2162, "llama2"),
    Run("Llama 2 13B bf16, FSDP, recomputed", "torchtitan", 64, "a100", "13B", batch(2, 4096) | SELECTIVE, 1904, "llama2"),
    Run("Llama 2 70B bf16, FSDP", "torchtitan", 64, "a100", "70B", batch(2, 4096) | FULL, 353, "llama2"),
    Run("8B float8, FSDP (fitted)", "megatron", 8, "h100", "8B", batch(1) | NONE | FLOAT8 | {"training.global_batch_size": 128}, 14451),
    Run("70B float8, PP 8 interleaved, TP 4", "megatron", 64, "h100", "70B",
        batch(128) | NONE | FLOAT8 | ASYNC | mesh(4, 8, schedule="Interleaved1F1B", layers=",".join(["2"] * 40)), 1664),
    Run("405B float8, PP 8 interleaved, TP 8, CP 2", "megatron", 1024, "h100", "405B",
        batch(192) | NONE | FLOAT8 | ASYNC | mesh(8, 8, 2, schedule="Interleaved1F1B", layers="2"), 328),
    Run("8B float8", "megatron", 8, "b200", "8B", batch(2) | NONE | FLOAT8 | {"training.global_batch_size": 128}, 30624),
)

def experts(degree, imbalance=1):
    """Published routing was forced to be equal unless a row says otherwise."""
    return {"parallelism.expert_parallel_degree": degree, "moe.planned_imbalance": imbalance}


# 32 stages for 94 layers: the first and the last, which have embedding and head too, have one less.
QWEN_STAGES = ",".join(["2"] + ["3"] * 30 + ["2"])
QWEN_PIPELINE = batch(128, 4096) | SELECTIVE | mesh(2, 8, schedule="Interleaved1F1B", layers=QWEN_STAGES) | experts(32)
QWEN_LONG = batch(64, 32768) | FULL | mesh(4, 8, 2, schedule="Interleaved1F1B", layers=QWEN_STAGES)
SPARSE = (
    Run("30B-A3B bf16, EP 8", "automodel", 8, "h100", "30B-A3B",
        batch(4, 4096) | FULL | experts(8) | {"training.global_batch_size": 512}, 12040, "qwen3_moe"),
    Run("30B-A3B float8, planned in bf16, EP 16", "megatron", 16, "h100", "30B-A3B",
        batch(1, 4096) | NONE | experts(16) | {"training.global_batch_size": 1024}, 8960, "qwen3_moe"),
    Run("235B-A22B bf16, all-to-all overlapped, TP 2, PP 8 interleaved, EP 32", "megatron", 256, "h100", "235B-A22B",
        QWEN_PIPELINE, 1862, "qwen3_moe"),
    Run("235B-A22B float8, planned in bf16, the same mesh", "megatron", 256, "h100", "235B-A22B",
        QWEN_PIPELINE | {"training.local_batch_size": 512}, 1712, "qwen3_moe"),
    Run("235B-A22B bf16, 32,768 tokens, TP 4, CP 2, PP 8 interleaved, EP 8", "megatron", 256, "h100", "235B-A22B",
        QWEN_LONG | experts(8), 1193, "qwen3_moe"),
    Run("the same, routing not forced, planned with 1.2", "megatron", 256, "h100", "235B-A22B",
        QWEN_LONG | experts(8, 1.2), 986, "qwen3_moe"),
)


def plan(pretrain, flavor, gpus, settings, machine=("--gpu", GPU), model="llama3"):
    words = [pretrain, "--plan", "--json", "--gpus", gpus, *machine, "--gpus-per-node", PER_NODE, "--model.name", model, "--model.flavor", flavor]
    for key, value in ({"training.seq_len": SEQ_LEN} | settings).items():
        words += ["--" + key, str(value).lower() if isinstance(value, bool) else value]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def limits(found):
    """What takes the time of the slowest rank besides computation, the largest part first."""
    seconds = max((rank["seconds"] for rank in found["ranks"]), key=lambda each: each["total"])
    parts = {"waiting for other stages": seconds["bubble"], "optimizer": seconds["optimizer"],
             **{f"exposed {axes}": each for axes, each in seconds["exposed"].items()}}
    shares = sorted(((100 * each / seconds["total"], name) for name, each in parts.items()), reverse=True)
    return ", ".join(f"{name} {share:.1f} %" for share, name in shares if share >= 0.5) or "computation"


def row(name, gpus, found):
    memory = max(rank["memory"]["peak_bytes"] for rank in found["ranks"]) / 2**30
    fits = "" if found["fits"] else " (does not fit)"
    return (f"| {name} | {gpus} | {found['mesh']} | {found['tokens_per_second_per_device']:.0f} | "
            f"{100 * found['mfu_causal']:.1f} | {memory:.1f}{fits} | {limits(found)} |\n")


def speed(found):
    return found["tokens_per_second_per_device"]


def published_row(run, found):
    return (f"| {run.name} | {run.program} | {run.gpus} {run.kind.upper()} | {found['mesh']} | {speed(found):.0f} | {run.published} | "
            f"{100 * (speed(found) / run.published - 1):+.0f} % |\n")


def sparse_row(run, found):
    """With the share of the step in which the slowest rank waits for an all-to-all."""
    slowest = max(found["ranks"], key=lambda rank: rank["seconds"]["total"])
    waits = sum(row["exposed_seconds"] for row in slowest["tensor_collectives"] if row["collective"] == "all-to-all")
    return f"{published_row(run, found).rstrip()} {100 * waits / slowest['seconds']['total']:.0f} % |\n"


# Ratios of two rows' speeds cancel the program's share. Name, and what tells the two rows.
RATIOS = (
    ("8B bf16, 128 over 8 H100", ("8B bf16, FSDP", 128), ("8B bf16, FSDP (fitted)", 8)),
    ("8B float8, 128 over 8 H100", ("8B float8, FSDP", 128), ("8B float8, FSDP", 8)),
    ("8B float8, 64 over 32 H200", ("8B float8, FSDP", 64), ("8B float8, FSDP", 32)),
    ("70B, async TP over plain", ("70B float8, async TP 8", 256), ("70B float8, TP 8", 256)),
    ("405B, interleaved over 1F1B, 8 microbatches", ("405B float8, PP 8 interleaved, 8 of 4", 512),
     ("405B float8, PP 8 1F1B, 8 microbatches of 4", 512)),
)


def ratio_row(name, one, other, plans):
    (run, found), (base, of_base) = (next((run, found) for run, found in plans if (run.name, run.gpus) == row) for row in (one, other))
    planned, published = speed(found) / speed(of_base), run.published / base.published
    return f"| {name} | {planned:.3f} | {published:.3f} | {100 * (planned - published):+.1f} |\n"


def with_table(text, head, rows):
    """The text with these rows in its table that begins with `head`."""
    begin = text.index(head)
    lines = text[begin:].splitlines(keepends=True)
    rest = lines[next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines)):]
    return text[:begin] + "".join(lines[:2]) + rows + "".join(rest)


def every_other_power(gpus):
    return str(gpus) if gpus.bit_length() % 2 else ""


def main():
    pretrain = sys.argv[1]
    jobs = [(name, flavor, gpus, settings(gpus)) for name, flavor, least, settings in MODELS
            for gpus in (2**i for i in range(3, 15)) if gpus >= least]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda job: plan(pretrain, *job[1:]), jobs))
    table = "".join(row(job[0], job[2], each) for job, each in zip(jobs, found))
    panels = []
    for flavor in dict.fromkeys(job[1] for job in jobs):
        lines = {}
        for (name, of, gpus, _), each in zip(jobs, found):
            if of == flavor:
                lines.setdefault(name, []).append((gpus, each["tokens_per_second_per_device"]))
        panels.append(plot.Panel("GPUs", "tokens/s a GPU", [plot.Line(*line) for line in lines.items()], every_other_power))
    (HERE / "scaling.svg").write_text(plot.svg("Planned weak scaling of Llama 3 on H100", panels))
    def plans_of(runs):
        return [(run, plan(pretrain, run.flavor, run.gpus, run.settings, run.machine(), run.model)) for run in runs]

    plans = plans_of(PUBLISHED)
    text = with_table((HERE / "README.md").read_text(), "| run |", table)
    text = with_table(text, "| published run |", "".join(published_row(*one) for one in plans))
    text = with_table(text, "| sparse run |", "".join(sparse_row(*one) for one in plans_of(SPARSE)))
    (HERE / "README.md").write_text(with_table(text, "| ratio |", "".join(ratio_row(*each, plans) for each in RATIOS)))


if __name__ == "__main__":
    main()
