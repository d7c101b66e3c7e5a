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

    def test_float16_is_scaled(self):
        settings = {"training__mixed_precision_param": "float16", "training__loss_scale_init": 2**24}
        cpu, gpu = (self.train(program, 1, f"run{i}", **settings) for i, program in enumerate((run.PRETRAIN, GPU)))
        scales = [[step["loss_scale"] for step in self.steps(f"run{i}")] for i in range(2)]
        self.assertEqual(scales[0], scales[1])
        self.assertLess(scales[1][-1], 2**24, "the first gradients overflow")
        applied = [i for i, (_, norm) in enumerate(cpu) if norm is not None]
        self.assertGreater(len(applied), 1, cpu)
        self.assert_alike([gpu[i] for i in applied], [cpu[i] for i in applied], 5e-3)

    def test_deterministic_repeats(self):
        first, second, plain = (self.train(GPU, 2, dump, debug__deterministic=dump != "plain", **BFLOAT16)
                                for dump in ("first", "second", "plain"))
        self.assertEqual(first, second)
        self.assert_alike(first, plain, 1e-6)

    def test_slow_settings_are_named(self):
        environment = {"CUDA_LAUNCH_BLOCKING": "1", "NCCL_DEBUG": "INFO", "NCCL_P2P_DISABLE": "1",
                       "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "MALLOC_CHECK_": "0"}
        words = self.small(**SMALL, training__steps=1)
        done = self.run_ranks(1, *words, ":", "-n", 1, "-x", "NCCL_ALGO=Ring", GPU, *words, program=(GPU,),
                              environment=environment)
        self.assert_code(done, 0)
        warnings = [line.partition("[0] ")[2] for line in done.stderr.splitlines() if " W [0]" in line]
        self.assertEqual([warning.partition(": ")[0] for warning in warnings],
                         ["CUDA_LAUNCH_BLOCKING=1 on all ranks", "NCCL_DEBUG=INFO on all ranks",
                          "NCCL_P2P_DISABLE=1 on all ranks", "NCCL_ALGO on rank 1",
                          "PYTORCH_NO_CUDA_MEMORY_CACHING=1 on all ranks"], done)
        self.assertNotIn(" W [1]", done.stderr)
        for warning in warnings[0], warnings[-1]:
            self.assertIn("many times slower; unset it", warning)
        alone = self.run_ranks(1, *self.small("cpu", training__steps=1), environment=environment)
        self.assert_code(alone, 0)
        self.assertNotIn("CUDA_LAUNCH_BLOCKING", alone.stderr)


if __name__ == "__main__":
    run.main()
