"""Folders that megatron-core 0.16.1 wrote (megatron/README.md), as convert-checkpoint reads them: every weight is the
reference's, rounded to bfloat16 as the recorded models are."""
import argparse
import array
import json
import os
import pathlib
import pickle
import shutil
import struct
import subprocess
import tarfile
import tempfile
import unittest
import zipfile

BIN, SOURCE = pathlib.Path(os.environ["ARGOSY_BIN"]), pathlib.Path(os.environ["ARGOSY_SOURCE"])
REFERENCE = SOURCE / "tests" / "reference"
RECORDED = pathlib.Path(__file__).parent / "megatron"
CASES = {"llama": "llama_tied", "qwen2": "qwen2", "qwen3": "qwen3"}


def read_safetensors(path):
    """{name: (type, shape, bytes)}"""
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[8 + size:][slice(*entry["data_offsets"])])
            for name, entry in header.items()}


def in_bfloat16(tensor):
    """Rounds float32 to nearest, ties to even."""
    kind, shape, data = tensor
    assert kind == "F32"
    return "BF16", shape, array.array("H", [(x + 0x7fff + (x >> 16 & 1)) >> 16 for x in array.array("I", data)]).tobytes()


class MegatronTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def record(self, name):
        with tarfile.open(RECORDED / f"{name}.tar.xz") as tar:
            tar.extractall(self.folder, filter="data")
        return self.folder / name

    def convert(self, source, *more, assets=None):
        """The exit code and the last message of a conversion to `self.folder`/out."""
        command = [BIN / "convert-checkpoint", source, self.folder / "out", "--to", "hf", *more]
        if assets:
            command += ["--assets", assets]
        result = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60)
        return result.returncode, result.stderr

    def assert_refused(self, source, *parts, assets=None, code=2):
        found, message = self.convert(source, assets=assets)
        self.assertEqual(found, code, message)
        for part in parts:
            self.assertIn(part, message)
        self.assertFalse((self.folder / "out").exists())

    def assert_read(self, source, assets):
        code, message = self.convert(source, assets=assets)
        self.assertEqual(code, 0, message)
        shutil.rmtree(self.folder / "out")

    def changed_assets(self, case, **changes):
        folder = self.folder / "assets"
        folder.mkdir(exist_ok=True)
        config = json.loads((REFERENCE / case / "config.json").read_text()) | changes
        (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
        return folder

    def assert_weights(self, name, source, *more):
        code, message = self.convert(source, "--force", *more, assets=REFERENCE / CASES[name])
        self.assertEqual(code, 0, message)
        found = read_safetensors(self.folder / "out" / "model.safetensors")
        expected = read_safetensors(REFERENCE / CASES[name] / "model.safetensors")
        self.assertEqual(found.keys(), expected.keys())
        for weight, tensor in expected.items():
            self.assertEqual(found[weight], in_bfloat16(tensor), weight)

    def test_weights_are_those_that_were_put_in(self):
        for name in CASES:
            with self.subTest(name=name):
                run = self.record(name)
                self.assert_weights(name, run, "--verify")
                self.assert_weights(name, run / "iter_0000003")

    def test_another_model_is_refused(self):
        run = self.record("qwen2")
        self.assert_refused(run, "--assets")
        for changes, part in (({"rope_theta": 5e5}, "rotary_base is 1e+06, and 500000 in the model"),
                              ({"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 12},
                               "num_attention_heads is 6, and 3"),
                              ({"rms_norm_eps": 1e-5}, "norm_epsilon is 1e-06"),
                              ({"num_hidden_layers": 1, "layer_types": ["full_attention"]}, "expected [1, 60, 36]"),
                              ({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "max_window_layers": None,
                                "use_sliding_window": None},
                               'linear_qkv.bias" is not a tensor of the model'),
                              ({"tie_word_embeddings": False}, "output_layer.weight is missing"),
                              ({"vocab_size": 200}, "embedding.word_embeddings.weight has shape [128, 36], expected [200, 36]")):
            with self.subTest(changes=changes):
                self.assert_refused(run, part, assets=self.changed_assets("qwen2", **changes))
        (run / "iter_0000003" / "common.pt").unlink()
        self.assert_refused(run, "Megatron's layers of mixtral are not read", assets=REFERENCE / "mixtral")

    def test_arguments_are_compared_where_they_are_data(self):
        run = self.record("llama")  # they are an object beside the tensors
        self.assert_refused(run, "rotary_base is 10000, and 500 in the model",
                            assets=self.changed_assets("llama_tied", rope_theta=500))
        run = self.record("qwen2")  # they are in common.pt, which another class makes more than data
        with zipfile.ZipFile(run / "iter_0000003" / "common.pt", "w") as file:
            file.writestr("common/data.pkl", pickle.dumps({"args": REFERENCE, "more": MegatronTest}, 2))
            file.writestr("common/version", "3")
        code, message = self.convert(run, assets=REFERENCE / "qwen2")
        self.assertEqual(code, 0, message)
        self.assertIn("the arguments of the run are not compared with the model", message)
        self.assertIn("MegatronTest", message)  # a path is data

    def write_arguments(self, run, **arguments):
        with zipfile.ZipFile(run / "iter_0000003" / "common.pt", "w") as file:
            file.writestr("common/data.pkl", pickle.dumps({"args": argparse.Namespace(**arguments)}, 2))
            file.writestr("common/version", "3")

    def test_arguments_that_no_shape_shows_are_those_of_the_model(self):
        run, assets = self.record("qwen2"), REFERENCE / "qwen2"
        plain = {"position_embedding_type": "rope", "rotary_seq_len_interpolation_factor": None, "no_rope_freq": None,
                 "window_size": None, "window_attn_skip_freq": None, "vocab_size": None,
                 "make_vocab_size_divisible_by": 16, "tensor_model_parallel_size": 2}
        for changes, part in (({"position_embedding_type": "none"}, "position_embedding_type: only rope"),
                              ({"position_embedding_type": "yarn"}, "without YaRN"),
                              ({"rotary_seq_len_interpolation_factor": 4}, "interpolation_factor is 4, and 1 in the model"),
                              ({"no_rope_freq": 4}, "no_rope_freq: layers that do not rotate"),
                              ({"no_rope_freq": [0, 1]}, "no_rope_freq: layers that do not rotate"),
                              ({"window_size": (7, 0)}, "window_size: the model has no window"),
                              ({"window_size": 8}, "window_size: the model has no window"),
                              ({"vocab_size": 98}, "vocab_size is 98, and 97 in the model"),
                              ({"tensor_model_parallel_size": 1}, "has 128 rows, 31 more than vocab_size of config.json")):
            with self.subTest(changes=changes):
                self.write_arguments(run, **plain | changes)
                self.assert_refused(run, part, assets=assets)
        self.write_arguments(run, **plain)
        self.assert_read(run, assets)

        run = self.record("llama")
        assets = self.changed_assets("llama_tied", rope_scaling={"rope_type": "linear", "factor": 4.0})
        self.write_arguments(run, **plain | {"tensor_model_parallel_size": 1})
        self.assert_refused(run, "rotary_seq_len_interpolation_factor is 1, and 4 in the model", assets=assets)
        self.write_arguments(run, **plain | {"rotary_seq_len_interpolation_factor": 4})
        self.assert_read(run, assets)
        assets = self.changed_assets("llama_tied", model_type="mistral", architectures=["MistralForCausalLM"],
                                     attention_bias=None, mlp_bias=None, pretraining_tp=None, sliding_window=8)
        self.write_arguments(run, **plain | {"window_size": (8, 0)})
        self.assert_refused(run, "window_size: the model's window is (7, 0)", assets=assets)
        self.write_arguments(run, **plain | {"window_size": (7, 0), "window_attn_skip_freq": 2})
        self.assert_refused(run, "window_attn_skip_freq is 2, and 0 in the model", assets=assets)
        self.write_arguments(run, **plain | {"window_size": (7, 0)})
        self.assert_read(run, assets)

    def test_damaged_arguments_are_refused(self):
        run = self.record("qwen2")
        common = run / "iter_0000003" / "common.pt"
        sound = common.read_bytes()
        for damaged in (b"", bytes(len(sound)), sound[:len(sound) // 2]):
            common.write_bytes(damaged)
            self.assert_refused(run, "common.pt is", assets=REFERENCE / "qwen2", code=3)

    def pretrain(self, start, dump, *more):
        words = {"training.dataset_path": self.folder / "tokens.h5", "job.dump_folder": self.folder / dump,
                 "model.hf_assets_path": REFERENCE / "qwen2", "training.seq_len": 8, "training.local_batch_size": 1,
                 "training.steps": 1, "checkpoint.enable": "true", "checkpoint.initial_load_path": start}
        command = [SOURCE / "jobs" / "mpirun.sh", "1", BIN / "pretrain"]
        command += [str(part) for key, value in words.items() for part in ("--" + key, value)]
        result = subprocess.run(command + list(more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        return result.returncode, result.stdout

    def test_a_run_begins_with_the_weights_alone(self):
        run = self.record("qwen2")
        (self.folder / "tokens.jsonl").write_text(json.dumps({"tokens": list(range(64))}) + "\n")
        subprocess.run([BIN / "prepare-data", "tokenize", "--input", self.folder / "tokens.jsonl", "--output",
                        self.folder / "tokens.h5"], check=True, capture_output=True)
        code, output = self.pretrain(run, "refused", "--checkpoint.initial_load_model_only", "false")
        self.assertEqual(code, 2, output)
        self.assertIn("only the weights of a checkpoint of Megatron are read, not its optimizer's states", output)
        self.assertIn("set it to true", output)
        code, message = self.convert(run, assets=REFERENCE / "qwen2")
        self.assertEqual(code, 0, message)
        losses = []
        for start, dump in ((run, "of_megatron"), (self.folder / "out", "of_export")):
            code, output = self.pretrain(start, dump)
            self.assertEqual(code, 0, output)
            losses.append(json.loads((self.folder / dump / "metrics.jsonl").read_text().splitlines()[0])["loss"])
        self.assertEqual(*losses)

    def test_other_formats_are_refused_by_name(self):
        run, assets = self.record("llama"), REFERENCE / "llama_tied"
        iteration = run / "iter_0000003"
        (run / "latest_checkpointed_iteration.txt").write_text("4")
        self.assert_refused(run, "iter_0000004 is not there", assets=assets)
        (run / "latest_checkpointed_iteration.txt").write_text("newest")
        self.assert_refused(run, "has \"newest\" in place of an iteration", assets=assets)
        metadata = json.loads((iteration / "metadata.json").read_text())
        (iteration / "metadata.json").write_text(json.dumps(metadata | {"sharded_backend": "zarr"}))
        self.assert_refused(iteration, "Megatron's format \"zarr\" is not read", "--ckpt-format torch_dist", assets=assets)
        shutil.rmtree(iteration)
        (iteration / "mp_rank_00").mkdir(parents=True)
        self.assert_refused(iteration, "mp_rank_00", "--ckpt-convert-format torch_dist", assets=assets)


if __name__ == "__main__":
    unittest.main()
