#!/usr/bin/env python3
"""convert-checkpoint against cp of the same files, and against h5py with the safetensors package; see CONVERSION.md."""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from results import cell, markdown, publish
from runs import HERE

ROOT = HERE.parent.parent
CP_TARGET, PEER_TARGET = 0.7, 2.0
# The peer's Python and the folder of its packages, as `jobs/setup.sh --tests` installs them.
PEER_PYTHON, PEER_PACKAGES = ROOT / ".deps" / "venv" / "bin" / "python3", ROOT / ".deps" / "tests"
HIDDEN, DIM, VOCAB = 5504, 2048, 32000
GIGABYTE = 1e9

# Reads all weights with h5py, as anybody would, and writes them with safetensors; $1 is the file, $2 the result.
PEER = """
import os, sys
import h5py
from safetensors.numpy import save_file
with h5py.File(sys.argv[1]) as file:
    tensors = {}
    file["model"].visititems(lambda name, item: tensors.update({name: item[:]}) if isinstance(item, h5py.Dataset) else None)
save_file(tensors, sys.argv[2], metadata={"format": "pt"})
"""


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin", help="folder of convert-checkpoint")
    parser.add_argument("--folder", type=pathlib.Path, help="scratch space: three times the model's size; default: a folder for temporary files")
    parser.add_argument("--layers", type=int, default=8, help="layers of a Llama 2048 wide; 0.2 GB per layer and 0.52 GB for the rest")
    parser.add_argument("--dim", type=int, default=DIM, help="width of the model, a multiple of 128")
    parser.add_argument("--vocab", type=int, default=VOCAB, help="vocabulary of the model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="threads of convert-checkpoint; default: its own default")
    parser.add_argument("--peer-python", default=os.environ.get("ARGOSY_PEER_PYTHON"),
                        help="a Python with h5py and safetensors; default: this one, or what jobs/setup.sh --tests "
                        "installs")
    parser.add_argument("--json", type=pathlib.Path, help="file for all times")
    parser.add_argument("--check", action="store_true", help="exit with 3 if a target is missed")
    parser.add_argument("--publish", metavar="PLACE", help="put the table into CONVERSION.md: convert-disk or convert-memory")
    return parser.parse_args()


def with_packages():
    """The environment in which .deps/tests is among the peer's packages."""
    others = [path for path in [os.environ.get("PYTHONPATH")] if path]
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(PEER_PACKAGES), *others])}


def lacks(python, environment):
    """The reason why that Python cannot be the peer; empty if it can."""
    try:
        done = subprocess.run([python, "-c", "import h5py, safetensors.numpy"], capture_output=True, text=True,
                              env=environment)
    except OSError as error:
        return str(error)
    return (done.stderr.strip().splitlines() or ["it ended without a word"])[-1] if done.returncode else ""


def find_peer(asked):
    """(Python, environment) of the peer: the requested one, else the first suitable one."""
    candidates = [(asked or sys.executable, os.environ), (asked or PEER_PYTHON, with_packages())]
    reasons = {}
    for python, environment in candidates:
        reason = lacks(python, environment)
        if not reason:
            return python, environment
        reasons[str(python)] = reason
    why = "; ".join(f"{python}: {reason}" for python, reason in reasons.items())
    print(f"bench_convert: the peer's Python needs h5py and safetensors ({why}); `jobs/setup.sh --tests` installs them, "
          f"for --peer-python {PEER_PYTHON} with PYTHONPATH={PEER_PACKAGES}", file=sys.stderr)
    sys.exit(2)


def tensor_shapes(options):
    """Hugging Face's names and shapes of a Llama."""
    dim, hidden = options.dim, options.dim * HIDDEN // DIM
    shapes = {"model.embed_tokens.weight": (options.vocab, dim), "model.norm.weight": (dim,),
              "lm_head.weight": (options.vocab, dim)}
    for i in range(options.layers):
        layer = f"model.layers.{i}."
        shapes |= {f"{layer}self_attn.{name}_proj.weight": (dim, dim) for name in "qkvo"}
        shapes |= {f"{layer}mlp.{name}_proj.weight": (hidden, dim) for name in ("gate", "up")}
        shapes |= {f"{layer}mlp.down_proj.weight": (dim, hidden), f"{layer}input_layernorm.weight": (dim,),
                   f"{layer}post_attention_layernorm.weight": (dim,)}
    return shapes, hidden


def write_model(folder, options):
    """Random bytes that are finite numbers: no exponent is all ones."""
    shapes, hidden = tensor_shapes(options)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "vocab_size": options.vocab, "hidden_size": options.dim, "intermediate_size": hidden,
        "num_hidden_layers": options.layers, "num_attention_heads": options.dim // 128, "rms_norm_eps": 1e-5}))
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 4
        for extent in shape:
            size *= extent
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    block = bytearray(os.urandom(1 << 20))
    block[3::4] = bytes(value & 0xBF for value in block[3::4])
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for begin in range(0, at, len(block)):
            file.write(block[:at - begin])
    return at


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class Bench:
    def __init__(self, options, folder, peer):
        self.options, self.folder = options, folder
        self.peer_python, self.peer_environment = peer
        self.program = options.bin / "convert-checkpoint"
        self.threads = ["--threads", str(options.threads)] if options.threads else []

    def convert(self, source, to, destination, *more):
        subprocess.run([self.program, source, destination, "--to", to, *self.threads, *more], check=True,
                       env=os.environ | {"ARGOSY_LOG": "warn"})

    def copy(self, source, destination):
        subprocess.run(["cp", "-r", source, destination], check=True)

    def copy_and_sync(self, source, destination):
        self.copy(source, destination)
        self.sync(destination)

    def peer(self, source, destination):
        source = source / "checkpoint.h5" if source.is_dir() else source
        subprocess.run([self.peer_python, "-c", PEER, source, destination], check=True, env=self.peer_environment)
        self.sync(destination)

    def sync(self, path):
        files = list(path.iterdir()) if path.is_dir() else [path]
        subprocess.run(["sync", *files], check=True)

    def seconds(self, work, source):
        """Seconds of one run into a new folder, with no unwritten data of earlier runs."""
        destination = self.folder / "out"
        os.sync()
        started = time.perf_counter()
        work(source, destination)
        seconds = time.perf_counter() - started
        return seconds, destination


def check_result(bench, destination, model):
    """Before a time counts: a model converted from a checkpoint equals one converted from the model itself."""
    direct = bench.folder / "direct"
    bench.convert(model, "hf", direct, "--verify")
    same = subprocess.run(["cmp", direct / "model.safetensors", destination / "model.safetensors"]).returncode == 0
    remove(direct)
    if not same:
        raise SystemExit("the export differs from the model")


def cases(bench, forms):
    """{case: (source, {contender: work})}; the first contender is Argosy."""
    def ours(to, *more):
        return lambda source, destination: bench.convert(source, to, destination, *more)
    rivals = {"cp, then sync": bench.copy_and_sync, "cp": bench.copy}
    with_peer = rivals | {"h5py and safetensors, then sync": bench.peer}
    return {"full -> hf": (forms["full"], {"ours": ours("hf")} | with_peer),
            "4 shards -> hf": (forms["sharded"], {"ours": ours("hf")} | with_peer),
            "hf -> 4 shards": (forms["hf"], {"ours": ours("sharded", "--shards", "4")} | rivals)}


def measure(bench, forms):
    """{case: {contender: [seconds]}}; each round runs all contenders, so that all see the same noise."""
    times, checked = {}, False
    for _ in range(bench.options.rounds):
        for case, (source, contenders) in cases(bench, forms).items():
            for name, work in contenders.items():
                seconds, destination = bench.seconds(work, source)
                times.setdefault(case, {}).setdefault(name, []).append(seconds)
                if name == "ours" and case.endswith("hf") and not checked:
                    check_result(bench, destination, forms["hf"])
                    checked = True
                remove(destination)
    return times


def table(times, num_bytes):
    """Rows of every case and contender, and the targets that were missed."""
    rows, missed = [("case", "contender", "best s", "median s", "GB/s, best", "ours is", "target")], []
    for case, contenders in times.items():
        ours = min(contenders["ours"])
        for name, seconds in contenders.items():
            ratio = min(seconds) / ours
            target = None if name in ("ours", "cp") else CP_TARGET if name.startswith("cp") else PEER_TARGET
            if target and ratio < target:
                missed.append(f"{case}: {ratio:.2f} of {name}, wanted {target}")
            rows.append((case, name, cell(min(seconds)), cell(statistics.median(seconds)),
                         cell(num_bytes / GIGABYTE / min(seconds)), "" if name == "ours" else f"{ratio:.2f} x",
                         f">= {target}" if target else ""))
    return markdown(rows), missed


def main():
    options = parse()
    peer = find_peer(options.peer_python)
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        folder = pathlib.Path(scratch)
        bench = Bench(options, folder, peer)
        forms = {"hf": folder / "hf", "full": folder / "full", "sharded": folder / "sharded"}
        num_bytes = write_model(forms["hf"], options)
        bench.convert(forms["hf"], "full", forms["full"])
        bench.convert(forms["hf"], "sharded", forms["sharded"], "--shards", "4")
        times = measure(bench, forms)
    text, missed = table(times, num_bytes)
    load = os.getloadavg()[1]
    text = f"{num_bytes / GIGABYTE:.2f} GB of fp32, {options.rounds} rounds, load {load:.1f}.\n\n{text}"
    print(text)
    if options.json:
        options.json.write_text(json.dumps({"bytes": num_bytes, "seconds": times}, indent=2) + "\n")
    if options.publish:
        publish(options.publish, text)
    for sentence in missed:
        print(f"missed: {sentence}", file=sys.stderr)
    return 3 if missed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
