#!/usr/bin/env python3
"""loss_curves.py PRETRAIN PRETRAIN_NO_SCALE FOLDER [--steps N] [--seeds N] [--page FOLDER | --gpu]: trains one small model on
this project's sources with each recipe of eight bits and without, from several seeds, one run on each processor, and writes
the table of README.md and the figure loss_curves.svg beside this script. FOLDER keeps the tokens and the runs; a complete run
of as many steps there is not repeated. With --gpu, for programs that train on a GPU, the table is only printed. Exits with 1 if
a final loss is not as it must be.

The model has 1.6e6 parameters; every side of a product is at least 256. The tokens are bytes. Each step trains 512 tokens in
bfloat16. A minute or two for each run on a processor.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
sys.path.insert(0, str(SOURCE / "jobs/python"))
import plot  # noqa: E402

LAST = 50  # the final loss is the mean of the last steps
TOLERANCE = 0.01  # of the final loss, relative to bfloat16's, in the mean of the seeds
RUNS_OF_A_GPU = 8  # at the same time
LR = 1e-3
MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512, "hidden_size": 256,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 512,
         "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
         "tie_word_embeddings": False}
HEAD = "| products | first loss | final loss | against bfloat16, % | standard error |\n| --- | --- | --- | --- | --- |\n"
FLOAT8, MX = "quantize.linear.float8", "quantize.linear.mx"


def float8(recipe):
    return ["--model.converters", FLOAT8, f"--{FLOAT8}.recipe_name", recipe]


def mx(recipe):
    return ["--model.converters", MX, f"--{MX}.recipe_name", recipe]


@dataclasses.dataclass(frozen=True)
class Run:
    name: str
    options: list
    panel: int
    right: bool = True  # the final loss must be that of bfloat16; else it must not be
    title: str = ""  # in the panel, where the name is too long


REFERENCE = Run("bfloat16", [], panel=-1)  # in every panel
RUNS = [Run("tensorwise", float8("tensorwise"), 0),
        Run("rowwise", float8("rowwise"), 1),
        Run("rowwise_with_gw_hp", float8("rowwise_with_gw_hp"), 1, title="_gw_hp"),
        Run("blockwise", float8("blockwise"), 2),
        Run("mxfp8_cublas", mx("mxfp8_cublas"), 3), Run("mxfp8_cublas_rceil", mx("mxfp8_cublas_rceil"), 3),
        Run("rowwise without scales", float8("rowwise"), 4, right=False)]


def read_losses(metrics):
    return [json.loads(line)["loss"] for line in metrics.read_text().splitlines()] if metrics.exists() else []


def folder_of(run, seed, folder):
    return folder / f"{re.sub('[^a-z0-9_]+', '-', run.name.lower())}-{seed}"


def prepare(pretrain, folder):
    """Writes the model's configuration and the tokens."""
    (folder / "model").mkdir(parents=True, exist_ok=True)
    (folder / "model" / "config.json").write_text(json.dumps(MODEL))
    if not (folder / "train.h5").exists():
        sources = sorted(path for top in ("lib", "apps") for path in (SOURCE / top).rglob("*")
                         if path.suffix in (".cpp", ".h", ".cu", ".cuh", ".md"))
        subprocess.run([pretrain.with_name("prepare-data"), "tokenize", "--format", "text", "--output", folder / "train.h5",
                        "--input", *sources], check=True, stdout=sys.stderr)


def losses(pretrain, folder, run, seed, steps):
    """The loss of each step."""
    dump = folder_of(run, seed, folder)
    if len(read_losses(dump / "metrics.jsonl")) != steps:
        shutil.rmtree(dump, ignore_errors=True)  # an interrupted run, or one of other steps, whose lines would stay
        words = [pretrain, "--model.hf_assets_path", folder / "model", "--training.dataset_path", folder / "train.h5",
                 "--training.seq_len", 256, "--training.local_batch_size", 2, "--training.steps", steps, "--optimizer.lr", LR,
                 "--lr_scheduler.warmup_steps", steps // 10, "--metrics.log_freq", 1, "--debug.seed", seed,
                 "--job.dump_folder", dump, *run.options]
        subprocess.run(list(map(str, words)), check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return read_losses(dump / "metrics.jsonl")


def final(curve):
    return statistics.fmean(curve[-LAST:])


def judge(curves):
    """curves: {a run's name: the losses of each seed}. Returns (the rows of the table, sentences about what is wrong)."""
    expected = [final(curve) for curve in curves[REFERENCE.name]]
    rows, wrong = [], []
    for run in [REFERENCE, *RUNS]:
        finals = [final(curve) for curve in curves[run.name]]
        differences = [one / of_reference - 1 for one, of_reference in zip(finals, expected)]
        difference = statistics.fmean(differences)
        # statistics.stdev() refuses NaN.
        error = (sum((one - difference) ** 2 for one in differences) / max(1, len(differences) - 1) / len(differences)) ** 0.5
        first = statistics.fmean(curve[0] for curve in curves[run.name])
        rows.append(f"| {run.name} | {first:.4f} | {statistics.fmean(finals):.4f} | {100 * difference:+.2f} | {100 * error:.2f} |\n")
        near = abs(difference) <= TOLERANCE  # false for NaN
        if near != run.right:
            wrong.append(f"{run.name}: the final loss differs by {100 * difference:+.2f} % from bfloat16's, "
                         f"{'more' if run.right else 'less'} than {100 * TOLERANCE:.0f} %")
    return rows, wrong


def figure(curves):
    def line(run):
        curve = [statistics.fmean(losses_of_a_step) for losses_of_a_step in zip(*curves[run.name])]
        width = max(1, len(curve) // 20)
        means = [(end, sum(curve[end - width:end]) / width) for end in range(width, len(curve) + 1, width)]
        return plot.Line(run.title or run.name, means)

    steps = len(curves[REFERENCE.name][0])
    shown = {round(steps * share) for share in (0.05, 0.1, 0.2, 0.4, 1)}
    panels = [plot.Panel("step", "loss, mean of 1/20 of the steps",
                         [line(REFERENCE), *(line(run) for run in RUNS if run.panel == panel)],
                         lambda step: str(step) if step in shown else "") for panel in range(5)]
    return plot.svg("Loss with products of eight bits", panels)


def write_page(page, rows):
    """Replaces the rows of the table of losses."""
    text = page.read_text()
    begin = text.index(HEAD) + len(HEAD)
    rest = text[begin:].splitlines(keepends=True)
    while rest and rest[0].startswith("|"):
        rest.pop(0)
    page.write_text(text[:begin] + "".join(rows) + "".join(rest))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("pretrain", "pretrain_no_scale", "folder"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=4, help="runs of each kind, with other initial weights and samples")
    parser.add_argument("--page", type=pathlib.Path, default=HERE, help="where README.md is and the figure goes")
    parser.add_argument("--gpu", action="store_true", help="train on a GPU, and only print the table")
    arguments = parser.parse_args()
    prepare(arguments.pretrain, arguments.folder)

    def train(run, seed):
        pretrain = arguments.pretrain if run.right else arguments.pretrain_no_scale
        return losses(pretrain, arguments.folder, run, seed, arguments.steps)

    with concurrent.futures.ThreadPoolExecutor(RUNS_OF_A_GPU if arguments.gpu else os.cpu_count()) as pool:
        started = {run.name: [pool.submit(train, run, seed) for seed in range(arguments.seeds)]
                   for run in [REFERENCE, *RUNS]}
        try:
            curves = {name: [one.result() for one in all_seeds] for name, all_seeds in started.items()}
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    rows, wrong = judge(curves)
    if not arguments.gpu:
        (arguments.page / "loss_curves.svg").write_text(figure(curves))
        write_page(arguments.page / "README.md", rows)
    print(HEAD + "".join(rows) + "\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
