#!/usr/bin/env python3
"""Plans the experiments of why_slow.sh and explains their results; why_slow.sh calls it.

  why_slow.py plan FOLDER NAME=VALUE ...   FOLDER/config.toml is the run's configuration; writes plan (alternate.sh), facts.json
  why_slow.py show FOLDER       prints what the plan tries, and what it leaves out
  why_slow.py report FOLDER     prints the table and the factor; ends with 1 if nothing was measured
"""
import json
import os
import pathlib
import re
import statistics
import sys

from alternating import Attempts, compare, main, noise_of, outcome, plan_line, table
from run_metrics import Speed
from run_record import fail, newest_lines, objects, read_config
from slow_variants import Job, remedies, variants_of

BASELINE = "baseline"
SETTABLE = ("compile", "recomputation", "mesh")  # causes whose remedy is what the experiment set
# What a run does beside training: it would add to the time of single steps. Without checkpoint.enable, pretrain refuses a
# folder with saved steps, which a checkpoint.folder outside job.dump_folder may be.
TURNED_OFF = {"checkpoint.enable": "false", "checkpoint.folder": "checkpoint", "validation.enable": "false",
              "evaluation.tasks": "[]", "metrics.baseline": "", "metrics.enable_tensorboard": "false", "profiling.enable_profiling": "false",
              "checkpoint.initial_load_path": "", "checkpoint.initial_load_in_hf": "false",
              "checkpoint.last_save_in_hf": "false"}


def base_options(config, steps):
    options = [word for key, value in TURNED_OFF.items() if config.get(key, value) != value
               for word in ("--" + key, value)]
    return [*options, "--training.steps", str(steps), "--metrics.log_freq", str(max(1, steps // 4))]


def write_tokens(folder, config, bin_folder):
    """The command that makes the small token file: made-up tokens below 250, which every vocabulary has."""
    length = int(config["training.seq_len"]) + 1
    with open(folder / "tokens.jsonl", "w") as file:
        for number in range(64):
            file.write(json.dumps({"tokens": [(7 * i * i + 31 * i + number) % 250 for i in range(length)]}) + "\n")
    return [f"{bin_folder}/prepare-data", "tokenize", "--input", str(folder / "tokens.jsonl"), "--output",
            str(folder / "tokens.h5")]


def plan(folder, run, bin, nodes, ranks_per_node, steps, fabric, only):
    """`fabric`: lines `PROFILE with|without NAME=VALUE ...`. `only`: names with commas between them; empty: all."""
    config, _ = read_config((folder / "config.toml").read_text())
    job = Job(config, int(nodes), int(ranks_per_node), folder, [tuple(line.split()) for line in fabric.splitlines()], os.environ)
    variants, left_out = variants_of(job)
    names = [*(one.name for one in variants), *(name for name, _ in left_out)]
    wanted = only.split(",") if only else names
    unknown = sorted(set(wanted) - set(names))
    if unknown:
        fail(f"--only {','.join(unknown)} names no experiment; there are {', '.join(names)}")
    variants = [one for one in variants if one.name in wanted]
    left_out = [(name, why) for name, why in left_out if name in wanted]
    if not variants:
        fail("no experiment applies:" + "".join(f"\n  {name}: {why}" for name, why in left_out))
    base = [f"{bin}/pretrain", "--config", str(folder / "config.toml"), *base_options(config, int(steps)), "--job.dump_folder", "@HERE@"]
    lines = [plan_line(BASELINE, job.ranks, [], base)]
    if any(one.name == "small_data" for one in variants):
        lines.append(plan_line("once", 1, [], write_tokens(folder, config, bin)))
    lines += [plan_line(one.name, one.ranks or job.ranks, one.environment, [*base, *one.options]) for one in variants]
    (folder / "plan").write_text("".join(lines))
    (folder / "facts.json").write_text(json.dumps({
        "run": run, "ranks": job.ranks, "steps": int(steps), "left_out": left_out, "variants": list(map(vars, variants))}, indent=1))


def show(folder):
    facts = json.loads((folder / "facts.json").read_text())
    print(f"the baseline: the run's configuration on {facts['ranks']} ranks, {facts['steps']} steps, without saves, validation, "
          "evaluation and traces. Each experiment changes one thing:")
    for one in facts["variants"]:
        print(f"  {one['name']}: {' '.join([*one['environment'], *one['options']])}"
              f"{' on %d ranks' % one['ranks'] if one['ranks'] else ''}")
    for name, why in facts["left_out"]:
        print(f"  left out: {name}: {why}")


def speed_of(folder):
    return Speed(newest_lines(folder / "metrics.jsonl"))


def diagnoses(path):
    """What a run says at its end about its own speed: [(cause, sentence)] (lib/trainer/observe/diagnosis.h)."""
    return re.findall(r"diagnosis \(([^)]*)\): (.*)", (path / "log").read_text(errors="replace"))


def slow_ranks(paths):
    """What the baseline's runs say at their end about slow ranks, if more than half of them do: (the sentences of the newest
    one, the share of the step by which the slowest rank computes longer than the median rank, half the range of that share)."""
    said, shares = [], []
    for path in paths:
        found = [sentence for cause, sentence in diagnoses(path) if cause == "slow ranks"]
        if not found:
            continue
        said.append(found)
        excess, total, first = 0.0, 0.0, speed_of(path).lines[-1]["step"]
        for window in objects(path / "ranks.jsonl"):
            if window.get("step", 0) - window.get("num_steps", 0) + 1 >= first:
                times = [compute + data for compute, data in zip(window["compute_ms"], window["data_ms"])]
                excess += window["num_steps"] * (max(times) - statistics.median_low(times))
                total += window["num_steps"] * statistics.fmean(window["total_ms"])
        shares.append(excess / total if total else 0)
    if 2 * len(said) <= len(paths):
        return [], 0.0, 0.0
    return said[-1], statistics.median(shares), (max(shares) - min(shares)) / 2


def explain(facts, sound, ranks_said, rank_share, rank_noise):
    """The candidates: (share of the step's time, its noise, what it is, what to do), the largest first. `sound`: the changes of
    the variants that never failed."""
    found, remedy_of = [], remedies()
    if ranks_said:
        found.append((rank_share, rank_noise, "a slow rank: " + "; ".join(ranks_said),
                      remedy_of["slow ranks"].replace("RUN", facts["run"])))
    for one in facts["variants"]:
        change = sound.get(one["name"])
        if change and change.differs and change.percent < 0:
            share, noise = -change.percent / 100, change.noise / 100
            if one["ranks"]:  # fewer ranks also do without the slow one, which has its own line
                share -= rank_share
            if share > noise:
                settings = [" ".join(one["options"])] if one["cause"] in SETTABLE else []
                remedy = remedy_of[one["cause"]].replace("PROFILE", one["profile"])
                found.append((share, noise, one["factor"], ": ".join([*settings, remedy])))
    return sorted(found, key=lambda one: -one[0])


def own_speed(facts, baseline, noise):
    """A sentence about the run itself, if it had as many ranks: saves, validation and evaluation are in its mean alone."""
    run = pathlib.Path(facts["run"])
    own, starts = speed_of(run), list(objects(run / "starts.jsonl"))
    if not own.num_steps or own.step_ms is None or not starts or starts[-1].get("ranks") != facts["ranks"]:
        return ""
    more = own.step_ms / baseline - 1
    rest = "" if more <= noise / 100 else f": {100 * more:.0f} % more than the baseline, because of traces, other nodes or variables, " \
        "or what ran beside it"
    return f"The run itself has {own.step_ms:.1f} ms a step, in the mean with saves and validations {own.mean_step_ms:.1f} ms{rest}.\n"


def report(folder):
    facts = json.loads((folder / "facts.json").read_text())
    attempts = Attempts(folder)
    names = [BASELINE, *(one["name"] for one in facts["variants"])]
    rounds = {name: [[one.step_ms for one in map(speed_of, paths) if one.num_steps and one.step_ms] for paths in attempts.of(name)]
              for name in names}
    if not any(rounds[BASELINE]):
        print(f"why_slow: nothing was measured, because the baseline {attempts.failure(BASELINE)}. See {folder}/round-1/"
              f"{BASELINE}/log", file=sys.stderr)
        return 1
    changes = compare(rounds, BASELINE)
    rows = [[name, f"{changes[name].median:.1f}" if changes[name].median else "-",
             *outcome(changes[name], name == BASELINE, attempts.failure(name), True)] for name in names]
    print(table(["variant", "ms a step", "change %", "noise %", "the variant is"], rows), end="")
    for name, why in facts["left_out"]:
        print(f"left out: {name}: {why}")
    paths = [path for of_round in attempts.of(BASELINE) for path in of_round]
    for cause, sentence in diagnoses(paths[-1]):
        print(f"The baseline's diagnosis ({cause}): {sentence}")
    slow = slow_ranks(paths)
    noise = noise_of(rounds, BASELINE) or 1.0
    print(own_speed(facts, changes[BASELINE].median, noise), end="")
    found = explain(facts, {name: changes[name] for name in names if not attempts.failure(name)}, *slow)
    if not found:
        print(f"No factor: no experiment is faster than the baseline by more than noise ({noise:.1f} %). The parts of "
              f"the run's steps: jobs/report.py {facts['run']}")
        return 0
    (share, noise, what, remedy), *others = found
    print(f"Factor: {what}. It takes {100 * share:.0f} % of a step (noise {100 * noise:.1f} %).\nTo change it: {remedy}")
    for share, noise, what, remedy in others:
        print(f"Also: {what} ({100 * share:.0f} %, noise {100 * noise:.1f} %): {remedy}")
    return 0


if __name__ == "__main__":
    main({"plan": plan, "show": show, "report": report})
