"""Shared parts of the eval scripts: small models, records of tokens, and starting the program."""
import itertools
import json
import math
import os
import pathlib
import random
import struct
import subprocess
import tempfile
import unittest

BIN, SOURCE = pathlib.Path(os.environ["ARGOSY_BIN"]), pathlib.Path(os.environ["ARGOSY_SOURCE"])
VOCABULARY, DIM, HEADS, HIDDEN, LAYERS, EPS = 40, 16, 2, 24, 2, 1e-5


def shapes(dim=DIM, key_dim=DIM, vocabulary=VOCABULARY):
    """{name: shape} of a Llama with these sizes."""
    tensors = {"model.embed_tokens.weight": [vocabulary, dim], "model.norm.weight": [dim],
               "lm_head.weight": [vocabulary, dim]}
    for layer in range(LAYERS):
        start = f"model.layers.{layer}."
        tensors |= {start + f"self_attn.{letter}_proj.weight": [dim, dim] for letter in "qo"}
        tensors |= {start + f"self_attn.{letter}_proj.weight": [key_dim, dim] for letter in "kv"}
        tensors |= {start + f"mlp.{name}_proj.weight": [HIDDEN, dim] for name in ("gate", "up")}
        tensors[start + "mlp.down_proj.weight"] = [dim, HIDDEN]
        tensors |= {start + f"{name}_layernorm.weight": [dim] for name in ("input", "post_attention")}
    return tensors


def write_model(folder, change=lambda name, value: value, vocabulary=VOCABULARY, positions=64):
    """Writes a Hugging Face folder of random fp32 weights. Returns {name: values}."""
    folder.mkdir()
    numbers = random.Random(5)
    values, header, data = {}, {}, b""
    for name, shape in sorted(shapes(vocabulary=vocabulary).items()):
        values[name] = [change(name, struct.unpack("<f", struct.pack("<f", numbers.gauss(0, 0.5)))[0])
                        for _ in range(math.prod(shape))]
        packed = struct.pack(f"<{len(values[name])}f", *values[name])
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocabulary, "hidden_size": DIM,
              "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
              "intermediate_size": HIDDEN, "rms_norm_eps": EPS, "rope_theta": 10000.0, "tie_word_embeddings": False,
              "max_position_embeddings": positions, "hidden_act": "silu"}
    (folder / "config.json").write_text(json.dumps(config))
    return values


def favour(tokens):
    """A change for write_model(): the logits of all tokens but these are 0."""
    places = itertools.count()
    return lambda name, value: value if name != "lm_head.weight" or next(places) // DIM in tokens else 0.0


def random_records(num_records, longest):
    numbers = random.Random(9)
    return [[numbers.randrange(VOCABULARY) for _ in range(numbers.randint(2, longest))] for _ in range(num_records)]


class EvalTest(unittest.TestCase):
    environment = {}
    launcher = ()  # words before the program

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.model, self.output = self.folder / "hf", self.folder / "results.json"

    def task(self, records, name="task"):
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"tokens": record}) + "\n" for record in records))
        return path

    def run_program(self, *arguments, program="eval", code=0, stdout=subprocess.PIPE, **environment):
        done = subprocess.run([*self.launcher, BIN / program, *map(str, arguments)], stdout=stdout, stderr=subprocess.PIPE, text=True,
                              errors="replace", env=os.environ | {"OMP_NUM_THREADS": "1"} | self.environment | environment)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def evaluate(self, tasks, *more, model=None):
        done = self.run_program("--model", model or self.model, "--tasks", tasks, "--output", self.output, *more)
        return json.loads(self.output.read_text()), done

    def perplexity(self, *arguments, **others):
        return self.evaluate(*arguments, **others)[0]["results"]["task"]["token_perplexity,none"]

    def expect_error(self, *arguments, code=2, parts, program="eval"):
        # mpirun waits a second after its ranks have failed before it checks that they have exited; a mistake fails on all.
        environment = {"OMPI_MCA_odls_base_sigkill_timeout": "0"} if code == 2 else {}
        done = self.run_program(*arguments, code=code, program=program, **environment)
        self.assertEqual(done.stdout, "")
        error = [line for line in done.stderr.splitlines() if line.startswith("eval: error")]
        self.assertEqual(len(error), 1, done.stderr)
        for part in parts:
            self.assertIn(part, error[0])
        self.assertNotIn("frame #", done.stderr)
        self.assertEqual(list(self.folder.glob("results*")), [], "nothing is left of an attempt")
