#!/usr/bin/env python3
"""plan_scaling.py PRETRAIN: plans Llama 3 8B, 70B and 405B on 8 to 16,384 H100 with `pretrain --plan`, and writes the page
README.md and the figure scaling.svg beside this script. Weak scaling: the batch grows with the number of GPUs. A second table
has the plans of runs whose speeds TorchTitan's authors published.
"""
import concurrent.futures
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
SMALL = {"training.local_batch_size": 2, "activation_checkpoint.mode": "selective"}
TENSOR = {"parallelism.tensor_parallel_degree": 8, "activation_checkpoint.mode": "full"}
ASYNC = {"parallelism.enable_async_tensor_parallel": True}


def pipeline(schedule, microbatch):
    return TENSOR | ASYNC | FLOAT8 | {
        "training.local_batch_size": 32, "parallelism.pipeline_parallel_degree": 8,
        "parallelism.pipeline_parallel_schedule": schedule, "parallelism.pipeline_parallel_microbatch_size": microbatch}


# TorchTitan's share of the peak was fitted to the first row; its H100 had memory of 2.4 TB/s.
TORCHTITAN = ["--program", "torchtitan"]
MACHINES = {"h100": [*TORCHTITAN, "--gpu", "h100:96", "--memory-speed", "2.4TB/s"], "h200": [*TORCHTITAN, "--gpu", "h200"]}
# Name, flavor, kind and number of GPUs, settings, and the published tokens/s a GPU.
PUBLISHED = (
    ("8B bf16, FSDP (the fitted one)", "8B", "h100", 8, SMALL, 6667),
    ("8B bf16, FSDP", "8B", "h100", 128, SMALL, 6514),
    ("8B float8, FSDP", "8B", "h100", 8, SMALL | FLOAT8, 8532),
    ("8B float8, FSDP", "8B", "h100", 128, SMALL | FLOAT8, 8380),
    ("8B float8, FSDP", "8B", "h200", 32, SMALL | FLOAT8, 10938),
    ("8B float8, FSDP", "8B", "h200", 64, SMALL | FLOAT8, 10753),
    ("70B float8, TP 8", "70B", "h100", 256, TENSOR | FLOAT8 | {"training.local_batch_size": 16}, 829),
    ("70B float8, async TP 8", "70B", "h100", 256, TENSOR | ASYNC | FLOAT8 | {"training.local_batch_size": 16}, 876),
    ("405B float8, PP 8 1F1B, 32 microbatches of 1", "405B", "h100", 512, pipeline("1F1B", 1), 100),
    ("405B float8, PP 8 1F1B, 8 microbatches of 4", "405B", "h100", 512, pipeline("1F1B", 4), 100),
    ("405B float8, PP 8 interleaved, 32 of 1", "405B", "h100", 512, pipeline("Interleaved1F1B", 1), 128),
    ("405B float8, PP 8 interleaved, 8 of 4", "405B", "h100", 512, pipeline("Interleaved1F1B", 4), 128),
)


def plan(pretrain, flavor, gpus, settings, machine=("--gpu", GPU)):
    words = [pretrain, "--plan", "--json", "--gpus", gpus, *machine, "--gpus-per-node", PER_NODE, "--model.name", "llama3", "--model.flavor", flavor, "--training.seq_len", SEQ_LEN]
    for key, value in settings.items():
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


def published_row(one, found):
    name, _, gpu, gpus, _, published = one
    planned = found["tokens_per_second_per_device"]
    return (f"| {name} | {gpus} {gpu.upper()} | {found['mesh']} | {planned:.0f} | {published} | "
            f"{100 * (planned / published - 1):+.0f} % |\n")


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
    published = "".join(published_row(one, plan(pretrain, one[1], one[3], one[4], MACHINES[one[2]])) for one in PUBLISHED)
    text = with_table((HERE / "README.md").read_text(), "| run |", table)
    (HERE / "README.md").write_text(with_table(text, "| published run |", published))


if __name__ == "__main__":
    main()
