#!/usr/bin/env python3
"""eval against lm-evaluation-harness with transformers: the same model, documents and CPU, in alternating runs; EVAL.md beside
this file defines the figures. With --check, exits with 3 if a target is missed. The results must be equal."""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

from peer import VARIABLE, find_python
from results import markdown, publish
from runs import HERE, SOURCE, Failure, busy, end_on_signal, machine, start

PACKAGES = "lm-eval==0.4.13 transformers==4.57.6 torch==2.11.0 accelerate"
TARGET = 3  # times the harness's documents per second
LIMIT_SECONDS = 900
SAME_LIKELIHOOD = 1e-4  # relative


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=os.environ.get("ARGOSY_BIN", SOURCE / "build" / "bin"))
    parser.add_argument("--peer-python", default=find_python(), help=f"a Python with {PACKAGES}; default: ${VARIABLE}")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--documents", type=int, default=32, help="to generate after; twelve times as many to choose in")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batches", default="1,16", help="the harness's batch sizes; its fastest counts")
    parser.add_argument("--scale", type=int, metavar="N", help="eval alone in place of the comparison: on one thread, on N threads, "
                        "on N replicas of one thread")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--publish", action="store_true", help="put the table into EVAL.md beside this file")
    return parser.parse_args(words)


def has_harness(python):
    """Whether it is a Python that has the packages."""
    if python is None or not pathlib.Path(python).exists():
        return False
    return subprocess.run([python, "-c", "import accelerate, lm_eval, torch, transformers"], capture_output=True).returncode == 0


def program(options, *words, launcher=()):
    out, _, cut_short = start([*launcher, options.bin / words[0], *words[1:]], LIMIT_SECONDS)
    if cut_short:
        raise Failure(f"{words[0]} took more than {LIMIT_SECONDS} s")
    return out


def peer(options, *words):
    out, _, cut_short = start([options.peer_python, HERE / "harness_peer.py", *words], LIMIT_SECONDS)
    if cut_short:
        raise Failure(f"the harness took more than {LIMIT_SECONDS} s")
    return out


def make_model(options, folder):
    """A random Llama with a tokenizer of its own, and the tasks, from the synthetic corpus."""
    program(options, "prepare-data", "synthetic", "--output", folder / "corpus", "--megabytes", "1")
    train, model = folder / "corpus" / "train.jsonl", folder / "model"
    model.mkdir()
    program(options, "prepare-data", "train-tokenizer", "--input", train, "--vocab-size", "1024", "--output",
            model / "tokenizer.json")
    heads, end_of_text = options.dim // 64, json.loads((model / "tokenizer.json").read_text())["added_tokens"][0]["id"]
    peer(options, "make", model, json.dumps({
        "vocab_size": 1024, "hidden_size": options.dim, "intermediate_size": options.dim * 11 // 4, "num_attention_heads": heads,
        "num_key_value_heads": heads, "num_hidden_layers": options.layers, "max_position_embeddings": 2048,
        "bos_token_id": end_of_text, "eos_token_id": end_of_text}))
    documents = [json.loads(line)["text"] for line in train.read_text().splitlines()]
    records = [{"question": text[:40 + 23 * (i % 16)], "answer": "#### 1"} for i, text in enumerate(documents[:options.documents])]
    (folder / "gsm8k.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    choices = (folder / "corpus/tasks/arithmetic.jsonl").read_text().splitlines(keepends=True)
    records = [json.loads(line) for line in choices[:12 * options.documents]]
    records = [record | {"context": f"{documents[i % len(documents)][:300]} {record['context']}"} for i, record in enumerate(records)]
    (folder / "choices.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return model, [{"name": name, "file": str(folder / f"{name}.jsonl"), "max_new_tokens": options.new_tokens}
                   for name in ("choices", "gsm8k")]


def run_ours(options, folder, model, task, threads, replicas=1):
    """{"seconds", "responses"} as harness_peer.py prints them. The times are those of the whole process, or of all replicas."""
    reader = {"gsm8k": "gsm8k=", "choices": ""}[task["name"]]
    limit = ["--max-new-tokens", task["max_new_tokens"]] if task["name"] == "gsm8k" else []
    wall, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    program(options, "eval", "--model", model, "--tasks", reader + task["file"], "--output", folder / "results.json",
            "--log-samples", "--threads", threads, "--device", "cpu", *limit,
            launcher=[SOURCE / "jobs" / "mpirun.sh", replicas] if replicas > 1 else [])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = {"wall": time.monotonic() - wall,
               "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}
    lines = map(json.loads, (folder / f"samples_{task['name']}.jsonl").read_text().splitlines())
    def value(response):
        return response if isinstance(response, str) else [float(response[0]), response[1] == "True"]
    return {"seconds": seconds, "responses": [[value(response[0]) for response in line["resps"]] for line in lines
                                              if line["filter"] in ("none", "strict-match")]}


def num_equal(ours, theirs):
    """The number of documents with equal responses: texts, or log-likelihoods up to rounding."""
    def same(one, other):
        if isinstance(other, str):
            return one == other
        return abs(one[0] - other[0]) <= SAME_LIKELIHOOD * abs(other[0]) and one[1] == bool(other[1])
    assert len(ours) == len(theirs) > 0, (len(ours), len(theirs))
    return sum(len(one) == len(other) and all(map(same, one, other)) for one, other in zip(ours, theirs))


def measure(options, folder, model, task):
    """Documents per second of wall and of CPU time: {side: (wall, cpu)}, and how many documents have equal results."""
    runs, sides = {}, {"eval": lambda: run_ours(options, folder, model, task, options.threads)}
    if options.scale:
        sides |= {f"eval, {options.scale} threads": lambda: run_ours(options, folder, model, task, options.scale),
                  f"eval, {options.scale} replicas": lambda: run_ours(options, folder, model, task, 1, options.scale)}
    for batch in [] if options.scale else options.batches.split(","):
        sides[f"harness, batch {batch}"] = lambda batch=batch: json.loads(
            peer(options, "run", model, json.dumps(task), batch, options.threads).splitlines()[-1])
    for _ in range(options.rounds):
        for side, one in sides.items():
            runs.setdefault(side, []).append(one())
    ours, count = runs["eval"][0]["responses"], len(runs["eval"][0]["responses"])
    equal = {side: num_equal(ours, all_[0]["responses"]) for side, all_ in runs.items() if side != "eval"}
    rates = {side: tuple(count / min(run["seconds"][kind] for run in all_) for kind in ("wall", "cpu"))
             for side, all_ in runs.items()}
    return rates, equal, count


def table(measured):
    """The table, and what missed a target."""
    rows, missed = [["task", "side", "documents/s", "per s of CPU", "eval is", "by CPU", "equal results"]], []
    for name, (rates, equal, count) in measured.items():
        ours = rates["eval"]
        for side, (wall, cpu) in rates.items():
            ratios = ["", "", ""] if side == "eval" else [f"{ours[0] / wall:.2f} x", f"{ours[1] / cpu:.2f} x",
                                                          f"{equal[side]} of {count}"]
            rows.append([name, side, f"{wall:.3g}", f"{cpu:.3g}", *ratios])
        ratio = ours[0] / max(rate[0] for side, rate in rates.items() if side != "eval")
        if ratio < TARGET:
            missed.append(f"{name}: {ratio:.2f} x the harness's documents/s, and the target is {TARGET} x")
        if equal and max(equal.values()) < count:
            missed.append(f"{name}: only {max(equal.values())} of {count} documents have equal results")
    return markdown(rows), missed


def scale_table(measured):
    """The table of --scale, and whose results differ."""
    rows, missed = [["task", "side", "documents/s", "per s of CPU", "times one thread", "equal results"]], []
    for name, (rates, equal, count) in measured.items():
        for side, (wall, cpu) in rates.items():
            more = ["", ""] if side == "eval" else [f"{wall / rates['eval'][0]:.2f} x", f"{equal[side]} of {count}"]
            rows.append([name, side, f"{wall:.3g}", f"{cpu:.3g}", *more])
        missed += [f"{name}: only {found} of {count} documents have equal results with {side}"
                   for side, found in equal.items() if found < count]
    return markdown(rows), missed


def main(words):
    end_on_signal()
    options = parse(words)
    if options.scale:
        options.threads = 1
    if not has_harness(options.peer_python):
        print(f"compare_harness: {options.peer_python} is no Python with {PACKAGES}; install them and name it in ${VARIABLE}",
              file=sys.stderr)
        return 2
    load, remarks = os.getloadavg()[0], busy()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model, tasks = make_model(options, folder)
        measured = {task["name"]: measure(options, folder, model, task) for task in tasks}
    text, missed = scale_table(measured) if options.scale else table(measured)
    heading = (f"{machine()}; {options.threads} thread(s), dim {options.dim}, {options.layers} layers, at most {options.new_tokens} new "
               f"tokens; load {load:.1f} before.")
    print("\n\n".join([heading, text, *remarks, *missed]))
    if options.publish:
        publish("scale" if options.scale else "harness", f"{heading}\n\n{text}")
    return 3 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
