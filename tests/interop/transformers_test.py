"""transformers loads what convert-checkpoint exports, and computes the logits that the reference recorded."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy
import torch
import transformers

from convert_checkpoint_test import write_tokenizer

PROGRAM = pathlib.Path(os.environ["ARGOSY_BIN"]) / "convert-checkpoint"
REFERENCE = pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "tests" / "reference"
CASES = sorted(path.parent.name for path in REFERENCE.glob("*/model.safetensors"))
TOLERANCE = 2e-6  # of the largest logit; tests/reference/README.md has what float32 is off by, and what faults cost


def convert(*arguments):
    subprocess.run([PROGRAM, *map(str, arguments)], check=True, stderr=subprocess.DEVNULL)


def load(folder, **more):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True,
                                                                    attn_implementation="eager", **more)
    problems = {key: value for key, value in info.items() if value}
    assert not problems, problems
    return model.eval()


class TransformersTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def export(self, case, *more, drop_config=False):
        """Through a sharded checkpoint, so that nothing is carried over as a file. `drop_config`: config.json holds our
        keys alone, as that of a run of ours does."""
        source = REFERENCE / case
        if drop_config:
            own = self.folder / f"{case}.own"
            own.mkdir()
            (own / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes())
            config = json.loads((source / "config.json").read_text())
            kept = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps",
                    "num_key_value_heads", "head_dim", "intermediate_size", "tie_word_embeddings", "rope_theta", "rope_scaling",
                    "attention_bias", "mlp_bias", "sliding_window", "layer_types",
                    "max_position_embeddings", "original_max_position_embeddings", "partial_rotary_factor",
                    "query_pre_attn_scalar", "rope_local_base_freq", "num_local_experts", "num_experts", "num_experts_per_tok",
                    "moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers", "n_routed_experts",
                    "n_shared_experts", "n_group", "topk_group", "first_k_dense_replace", "routed_scaling_factor", "use_qk_norm")
            (own / "config.json").write_text(json.dumps({key: config[key] for key in kept if key in config}))
            source = own
        convert(source, self.folder / f"{case}.s", "--to", "sharded", "--shards", 3)
        convert(self.folder / f"{case}.s", self.folder / case, "--to", "hf", *more)
        return self.folder / case

    def assert_logits(self, case, model, tolerance):
        with h5py.File(REFERENCE / f"{case}.h5") as file:
            tokens, expected = file["tokens"][0], file["logits"][:]
        with torch.no_grad():
            found = model(input_ids=torch.from_numpy(tokens)).logits.float().numpy()
        self.assertEqual(found.shape, expected.shape)
        self.assertLessEqual(numpy.abs(found - expected).max(), tolerance * numpy.abs(expected).max(), case)

    def test_logits_are_those_of_the_reference(self):
        for case in CASES:
            with self.subTest(case=case):
                model = load(self.export(case))
                self.assertEqual(model.dtype, torch.float32)
                self.assert_logits(case, model, TOLERANCE)

    def test_our_own_config_is_enough(self):
        for case in CASES:
            with self.subTest(case=case):
                self.assert_logits(case, load(self.export(case, drop_config=True)), TOLERANCE)

    def test_several_files_and_bf16(self):
        for case in CASES:
            with self.subTest(case=case):
                folder = self.export(case, "--dtype", "bf16", "--max-shard-size", "10KB")
                self.assertTrue((folder / "model.safetensors.index.json").exists())
                model = load(folder, dtype="auto")
                self.assertEqual(model.dtype, torch.bfloat16)
                self.assert_logits(case, model.float(), 2e-2)

    def test_biases_of_experts_travel(self):
        """Biases in GLM's choice of experts, which move its logits."""
        model, own = load(REFERENCE / "glm4_moe"), self.folder / "own"
        tokens = torch.arange(24)[None]
        with torch.no_grad():
            without = model(input_ids=tokens).logits
            for name, bias in model.named_buffers():
                if name.endswith("e_score_correction_bias"):
                    bias.copy_(torch.rand(bias.shape, generator=torch.Generator().manual_seed(3)))
            expected = model(input_ids=tokens).logits
        self.assertFalse(torch.allclose(without, expected))
        model.save_pretrained(own)
        convert(own, self.folder / "own.s", "--to", "sharded", "--shards", 2)
        convert(self.folder / "own.s", self.folder / "back", "--to", "hf", "--verify")
        with torch.no_grad():
            self.assertTrue(torch.equal(load(self.folder / "back")(input_ids=tokens).logits, expected))

    def test_it_generates(self):
        model = load(self.export("llama", drop_config=True))
        output = model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=8, do_sample=False, pad_token_id=0)
        self.assertEqual(output.shape, (1, 11))  # no made-up end-of-text token ends it

    def test_it_stops_at_the_end_of_text(self):
        """The end of text is a token that the model chooses, so generate() must stop there."""
        torch.manual_seed(1)
        own = self.folder / "own"
        transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=1024, initializer_range=0.3, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=4, bos_token_id=None, eos_token_id=None)).save_pretrained(own)
        (own / "generation_config.json").unlink()
        model = load(own)
        texts = [model.generate(torch.tensor([[i, 3 * i, 7]]), max_new_tokens=8, do_sample=False, pad_token_id=0)[0].tolist()
                 for i in range(1, 20)]
        text, end = next((text, end) for text in texts for end in range(5, 8)
                         if text[end] >= 256 and text[end] not in text[:end])
        write_tokenizer(own, end_id=text[end])
        for file in ("tokenizer_config", "special_tokens_map"):
            with self.subTest(file):
                (own / f"{file}.json").write_text(json.dumps({"eos_token": "<end>"}))
                convert(own, self.folder / f"{file}.s", "--to", "sharded")
                convert(self.folder / f"{file}.s", self.folder / file, "--to", "hf")
                (own / f"{file}.json").unlink()
                output = load(self.folder / file).generate(torch.tensor([text[:3]]), max_new_tokens=8, do_sample=False)
                self.assertEqual(output[0].tolist(), text[:end + 1])
                tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder / file)
                self.assertEqual((tokenizer.eos_token, tokenizer.eos_token_id), ("<end>", text[end]))


if __name__ == "__main__":
    print(f"transformers {transformers.__version__}, torch {torch.__version__}", file=sys.stderr)
    unittest.main(verbosity=2)
