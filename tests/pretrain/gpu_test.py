"""Training as it runs on GPUs: their kernels emulated, NCCL, cuBLASLt and graphs by stand-ins. Losses are those of the
processor, whatever the layout; a graph changes no bit. usage: gpu_test.py PRETRAIN_WITH_STAND_INS"""
import json
import pathlib
import sys

import run

GPU = pathlib.Path(sys.argv.pop())
REPLICATE, SHARD = "parallelism__data_parallel_replicate_degree", "parallelism__data_parallel_shard_degree"
TENSOR, PIPELINE = "parallelism__tensor_parallel_degree", "parallelism__pipeline_parallel_degree"
SMALL = {"training__global_batch_size": 8, "training__seq_len": 16}
CONFIG = {"vocab_size": 260, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 12, "intermediate_size": 80, "max_position_embeddings": 64,
          "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu"}
FAMILIES = {"llama": ("LlamaForCausalLM", False), "qwen2": ("Qwen2ForCausalLM", True), "qwen3": ("Qwen3ForCausalLM", True)}
BFLOAT16 = {"training__mixed_precision_param": "bfloat16"}
LAYOUTS = {"fsdp2": (2, {SHARD: 2}), "ddp2": (2, {REPLICATE: 2}), "tp2": (2, {TENSOR: 2}), "pp2": (2, {PIPELINE: 2}),
           "hsdp2x2": (4, {REPLICATE: 2})}


class Gpu(run.PretrainTest):
    def train(self, program, num_ranks, dump, **settings):
        done = self.run_ranks(num_ranks, *self.small(dump, **SMALL, **settings), program=(program,), limit=300)
        self.assert_code(done, 0)
        self.assertEqual("computes on Fake GPU" in done.stderr, program == GPU, done)
        return [(step["loss"], step["grad_norm"]) for step in self.steps(dump)]

    def assert_alike(self, one, other, tolerance):
        self.assertEqual(len(one), len(other))
        for (loss, norm), (other_loss, other_norm) in zip(one, other):
            self.assertLess(abs(loss / other_loss - 1), tolerance, f"{one} and {other}")
            self.assertLess(abs(norm / other_norm - 1), 100 * tolerance, f"{one} and {other}")

    def test_losses_are_those_of_the_processor(self):
        for family, (architecture, tied) in FAMILIES.items():
            with self.subTest(family):
                assets = self.folder / family
                assets.mkdir()
                (assets / "config.json").write_text(json.dumps(CONFIG | {
                    "model_type": family, "architectures": [architecture], "tie_word_embeddings": tied}))
                cpu, gpu = (self.train(program, 1, f"{family}{i}", model__hf_assets_path=assets)
                            for i, program in enumerate((run.PRETRAIN, GPU)))
                self.assert_alike(gpu, cpu, 1e-5)

    def test_bfloat16_stays_in_band(self):
        cpu, gpu = (self.train(program, 1, f"run{i}", **BFLOAT16) for i, program in enumerate((run.PRETRAIN, GPU)))
        self.assert_alike(gpu, cpu, 5e-3)

    def test_losses_do_not_depend_on_the_layout(self):
        expected = self.train(GPU, 1, "one")
        for name, (num_ranks, settings) in LAYOUTS.items():
            with self.subTest(name):
                self.assert_alike(self.train(GPU, num_ranks, name, **settings), expected, 1e-5)

    def test_a_graph_changes_no_bit(self):
        for num_ranks in (1, 2):
            with self.subTest(num_ranks):
                graphs = self.train(GPU, num_ranks, f"graphs{num_ranks}")
                self.assertEqual(graphs, self.train(GPU, num_ranks, f"none{num_ranks}", compile__graphs=False))

    def test_recompute_and_a_search_change_no_loss(self):
        expected = self.train(GPU, 1, "plain")
        again = self.train(GPU, 1, "full", activation_checkpoint__mode="full", compile__search_algorithms=True)
        self.assert_alike(again, expected, 1e-6)


if __name__ == "__main__":
    run.main()
