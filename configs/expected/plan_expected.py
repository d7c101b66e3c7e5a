#!/usr/bin/env python3
"""plan_expected.py PRETRAIN: plans the named runs and the points of the grids with `pretrain --plan`, and writes the tables of
the page README.md beside this script, and a CSV beside each file of points, for `jobs/status.sh --compare SWEEP --expected CSV`."""
import concurrent.futures
import csv
import json
import pathlib
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CONFIGS = HERE.parent
# File, GPUs, and what others measured: tokens/s a GPU, with the source.
RUNS = (
    ("small_256x6x16.toml", 1, "h100", "a plan that no run has shown; others reach an eighth: 219,295 in float32, by mistake; 258,770 a GPU on two in bfloat16 (Lit-GPT)"),
    ("wide_4096x12x32.toml", 1, "h100", "2,799 in float32; 24,158 in bfloat16 (Lit-GPT)"),
    ("qwen2.5_7b_1gpu.toml", 1, "h100", "13,850 (llmq, 1 H100, sequences of 1024); 13,996 on an H200 (this program, likewise)"),
    ("qwen2.5_7b_1node.toml", 8, "h100", ""),
    ("qwen2.5_1.5b_2nodes.toml", 16, "h100", ""),
    ("llama3_8b_1node.toml", 8, "h100", "6,667 with two samples a GPU (TorchTitan, 8 H100 of 500 W)"),
    ("llama3_8b_multinode.toml", 32, "h100", "6,514 on 128 GPUs, sharded over all (TorchTitan)"),
    ("llama3_70b_4x8.toml", 32, "h200", "1,600 for all 32 with shards inside nodes; 200 before, over a bad link (a cluster's report)"),
    ("llama3_70b_hsdp.toml", 32, "h200", ""),
    ("llama3_70b_2d.toml", 256, "h100", ""),
    ("llama3_70b_3d.toml", 256, "h100", ""),
    ("llama3_405b.toml", 512, "h100", ""),
    ("qwen3_30b_a3b_1node.toml", 8, "h100", "12,040 with four samples a GPU and equal loads of experts (Automodel)"),
    ("mixtral_8x7b_4nodes.toml", 32, "h100", ""),
)
# Points, configuration, GPUs; what TorchTitan published for async tensor parallelism: {(tensor degree, recipe): gain in %}.
GRIDS = (
    ("8b.points", "llama3_8b_1node.toml", 8, {("2", "bfloat16"): 2.5, ("4", "bfloat16"): 8}),
    ("70b.points", "llama3_70b_2d.toml", 128,
     {("8", "bfloat16"): 12.5, ("8", "tensorwise"): 15.9, ("8", "rowwise"): 3.7}),
)


def plan(pretrain, config, gpus, gpu, words=()):
    done = subprocess.run([pretrain, "--plan", "--json", "--config", CONFIGS / config, "--gpus", str(gpus), "--gpu", gpu, *words],
                          capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def memory_gib(found):
    return max(rank["memory"]["peak_bytes"] for rank in found["ranks"]) / 2**30


def speed_and_memory(found):
    return f"{found['tokens_per_second_per_device']:,.0f} | {memory_gib(found):.1f}{'' if found['fits'] else ' (does not fit)'}"


def table_of_runs(plans):
    rows = [f"| `{file}` | {gpus} {gpu.upper()} | {found['mesh']} | {speed_and_memory(found)} | {others} |\n"
            for (file, gpus, gpu, others), found in zip(RUNS, plans)]
    return "| file | GPUs | mesh | tokens/s a GPU | GiB | what others measured |\n| --- | --- | --- | ---: | ---: | --- |\n" + "".join(rows)


def setting(words, key, default):
    return words[words.index(key) + 1] if key in words else default


def table_of_grid(points, plans, published):
    """A point without async tensor parallelism is followed by the same point with it."""
    rows = []
    for number, (words, found) in enumerate(zip(points, plans)):
        tensor = setting(words, "--parallelism.tensor_parallel_degree", "1")
        recipe = setting(words, "--quantize.linear.float8.recipe_name",
                         "tensorwise" if "--model.converters" in words else "bfloat16")
        overlapped, speed = "--parallelism.enable_async_tensor_parallel" in words, found["tokens_per_second_per_device"]
        gain = f"{100 * (speed / plans[number - 1]['tokens_per_second_per_device'] - 1):+.1f} %" if overlapped else ""
        other = published.get((tensor, recipe)) if overlapped else None
        rows.append(f"| {number} | {found['mesh']} | {recipe} | {'yes' if overlapped else 'no'} | {speed_and_memory(found)} | "
                    f"{gain} | {f'+{other} %' if other else ''} |\n")
    return ("| point | mesh | products | async TP | tokens/s a GPU | GiB | gain of async TP | published gain |\n"
            "| ---: | --- | --- | --- | ---: | ---: | ---: | ---: |\n" + "".join(rows))


def write_csv(path, points, plans):
    """Some of the columns of `jobs/status.sh --compare SWEEP --format csv`."""
    with open(path, "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["run", "tokens/s a GPU", "memory GiB", "settings"])
        out.writerows([f"point-{number:04}", f"{found['tokens_per_second_per_device']:.0f}", f"{memory_gib(found):.1f}", " ".join(words)]
                      for number, (words, found) in enumerate(zip(points, plans)))


def main():
    pretrain = sys.argv[1]
    grids = [[shlex.split(line) for line in (HERE / file).read_text().splitlines()] for file, *_ in GRIDS]
    jobs = [(file, gpus, gpu) for file, gpus, gpu, _ in RUNS]
    jobs += [(config, gpus, "h100", words) for (_, config, gpus, _), points in zip(GRIDS, grids) for words in points]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        plans = list(pool.map(lambda job: plan(pretrain, *job), jobs))
    tables, plans = [table_of_runs(plans[:len(RUNS)])], plans[len(RUNS):]
    for points, (file, *_, published) in zip(grids, GRIDS):
        write_csv((HERE / file).with_suffix(".csv"), points, plans[:len(points)])
        tables.append(table_of_grid(points, plans[:len(points)], published))
        plans = plans[len(points):]
    page = HERE / "README.md"
    parts = page.read_text().split("\n\n")
    places = [number for number, part in enumerate(parts) if part.startswith("| ")]
    for place, table in zip(places, tables):
        parts[place] = table.rstrip("\n")
    page.write_text("\n\n".join(parts).rstrip("\n") + "\n")


if __name__ == "__main__":
    main()
