"""Encodes the same texts with our tokenizer and with the package `tokenizers` (encode_batch), in turns:

    PYTHONPATH=.deps/tests python3 tests/tokenizer/bench_tokenize.py DRIVER [TOKENIZER.json] [--threads 1 2] [--megabytes 20]
                                                                     [--rounds 5] [--input F.jsonl ...]

DRIVER is build/tests/tokenizer_driver. Without TOKENIZER.json, tokenizers with the stages of GPT-2, Llama 3 and Qwen 2 and
32,000 tokens are trained first. Texts: records of --input, else a mix of prose, code and scripts of the project's own files.
The ids must be equal. A figure is MB/s of encoding alone: both sides hold the texts in memory and keep the ids.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("ARGOSY_SOURCE", str(SOURCE))


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("tokenizers", nargs="*")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--input", nargs="*", default=[])
    return parser.parse_args()


def mixed_texts(samples):
    """Prose, code and every script, in texts of about 4 kB."""
    whole = "\n".join(text for text in samples.SENTENCES if len(text) < 300) + "\n"
    pieces = [path.read_text() for pattern in ("lib/*/*/*.cpp", "lib/*/*/*.h", "tests/*/*.py", "*/README.md") for path in sorted(SOURCE.glob(pattern))
              if path.name != "unicode_tables.cpp"]
    texts = [text[begin:begin + 4000] for text in pieces for begin in range(0, len(text), 4000)]
    return texts + [whole] * (len(texts) // 40)


def repeat_to(texts, num_bytes):
    size = sum(len(text.encode()) for text in texts)
    return texts * max(1, round(num_bytes / size))


def train_all(samples, texts, folder):
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    paths = []
    for name in ("gpt2", "llama3", "qwen2"):
        tokenizer = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if name == "gpt2" else pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(samples.PATTERNS[name]), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        if name == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=32000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                                 show_progress=False))
        tokenizer.add_special_tokens(["<|endoftext|>"])
        paths.append(folder / f"{name}.json")
        tokenizer.save(str(paths[-1]))
    return paths


def ours(arguments, path, texts_file, threads):
    done = subprocess.run([arguments.driver, "time", str(path), str(threads)], stdin=texts_file.open("rb"), capture_output=True, check=True)
    return json.loads(done.stdout)


def package(path, texts_file, threads):
    """Runs in a process of its own, because the number of threads is fixed at its start."""
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false"}
    done = subprocess.run([sys.executable, __file__, "--package", str(path), str(texts_file)], env=environment, capture_output=True, check=True)
    return json.loads(done.stdout)


def run_package(path, texts_file):
    from tokenizers import Tokenizer
    import samples
    tokenizer = Tokenizer.from_file(path)
    texts = [text.decode() for text in samples.parse_records(pathlib.Path(texts_file).read_bytes(), "B")]
    begin = time.perf_counter()
    encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    seconds = time.perf_counter() - begin
    checksum = 0
    for encoding in encodings:
        for id in encoding.ids:
            checksum = (checksum * 31 + id + 1) % 2**64
    print(json.dumps({"seconds": seconds, "checksum": checksum}))


def main():
    os.environ.setdefault("ARGOSY_TOKENIZER_DRIVER", sys.argv[1])
    import samples
    if sys.argv[1] == "--package":
        return run_package(*sys.argv[2:])
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        texts = [json.loads(line)["text"] for file in arguments.input for line in open(file)] or mixed_texts(samples)
        paths = arguments.tokenizers or train_all(samples, texts, folder)
        texts = repeat_to(texts, arguments.megabytes * 1e6)
        texts_file = folder / "texts"
        texts_file.write_bytes(samples.records([text.encode() for text in texts], "B"))
        megabytes = sum(len(text.encode()) for text in texts) / 1e6
        for path in paths:
            for threads in arguments.threads:
                pairs = [(ours(arguments, path, texts_file, threads), package(path, texts_file, threads)) for _ in range(arguments.rounds)]
                assert all(ours["checksum"] == theirs["checksum"] for ours, theirs in pairs), "the ids differ"
                speeds = [[megabytes / result["seconds"] for result in results] for results in zip(*pairs)]
                print(f"{pathlib.Path(path).name:14} {threads} threads: ours {statistics.median(speeds[0]):6.1f} MB/s, tokenizers "
                      f"{statistics.median(speeds[1]):5.2f} MB/s, ratio of each round "
                      f"{', '.join(f'{a / b:.1f}' for a, b in zip(*speeds))}", flush=True)


main()
