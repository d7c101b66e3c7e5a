"""Exhausted memory: one message states the request, its purpose, the holders of the other memory and the remedy; the
exit code is 1, and nothing half-written is left. Tested on the CPU, and on stand-ins for a GPU with as little memory as
a test wants. usage: memory_test.py [PRETRAIN_WITH_STAND_INS]"""
import json
import pathlib
import re
import sys
import unittest

import run

GPU = pathlib.Path(sys.argv.pop()) if len(sys.argv) > 1 and not sys.argv[-1].startswith("-") else None
MIB, GIB, CONTEXT_BYTES = 2**20, 2**30, 300 * 2**20  # the stand-in's
PARTS = {"weights": "weights", "copies": "their copies for computation", "gradients": "gradients",
         "states": "optimizer states", "gathered": "gathered units", "activations": "activations and the rest",
         "unused": "reserved but fragmented", "outside": "CUDA, its libraries and other processes", "free": "free"}
SMALL = {"training__seq_len": 16, "training__global_batch_size": 8}


def parts(text):
    """{"weights": bytes, ...}: the holders of memory that a message lists."""
    found = {}
    for part, words in PARTS.items():
        match = re.search(rf"[:,] {words} ([\d.e+-]+) GiB", text)
        if match:
            found[part] = float(match[1]) * GIB
    return found


class Processor(run.PretrainTest):
    # A sanitizer would end the process on a failed allocation.
    SANITIZED = {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1"}

    def test_a_model_that_is_far_too_large(self):
        (self.folder / "config.json").write_text(json.dumps({
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 2**20,
            "hidden_size": 2**20, "num_hidden_layers": 2, "num_attention_heads": 2**13, "intermediate_size": 64,
            "rms_norm_eps": 1e-6}))
        done = self.run_ranks(1, *self.small(model__hf_assets_path=self.folder), environment=self.SANITIZED)
        self.assert_one_error(done, 1, "out of memory: 4096 GiB requested in the construction of the model",
                              "the model under construction needs", "weights", "optimizer states", "training.local_batch_size below 2", "activation_checkpoint.mode")
        self.assertNotIn("frame #", done.stderr)

    def test_a_batch_that_is_far_too_large(self):
        """The cause is not one of the model's parts, so no setting of the model helps."""
        done = self.run_ranks(1, *self.small(training__local_batch_size=2**31 - 1, training__seq_len=2**14),
                              environment=self.SANITIZED)
        self.assert_one_error(done, 1, "out of memory: ", " GiB requested in the reading of a step's data. What would need less: "
                              "training.local_batch_size below 2147483647; training.seq_len below 16384")
        self.assertNotIn("activation_checkpoint", done.errors[0])


@unittest.skipUnless(GPU, "no headers of CUDA and NCCL")
class Gpu(run.PretrainTest):
    def train(self, limit_bytes, dump, num_ranks=1, **settings):
        environment = {"ARGOSY_FAKE_GPU_BYTES": str(limit_bytes)} if limit_bytes else {}
        return self.run_ranks(num_ranks, *self.small(dump, **SMALL | settings), program=(GPU,), limit=300,
                              environment=environment)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.peak, cls.reserved = cls.of_class().free_bytes()

    def free_bytes(self, **settings):
        """(peak, reserved) of a run with as much memory as it wants."""
        self.assert_code(self.train(None, "free", **settings), 0)
        steps = self.steps("free")
        for step in steps:
            self.assertEqual(step["memory_retries"], 0)
            self.assertGreaterEqual(step["memory_reserved_gib"], step["memory_peak_gib"])
        return [max(step[f"memory_{what}_gib"] for step in steps) * GIB for what in ("peak", "reserved")]

    def assert_parts_add_up(self, message, total):
        found = parts(message)
        self.assertEqual(set(found), set(PARTS), message)
        self.assertLess(abs(sum(found.values()) / total - 1), 1e-3, message)
        return found

    def test_figures_equal_the_allocators(self):
        """The request fits between the tensors and the limit only after cached memory is given back."""
        done = self.train(int((self.peak + self.reserved) / 2), "tight")
        self.assert_code(done, 0)
        steps = self.steps("tight")
        self.assertGreater(steps[-1]["memory_retries"], 0, steps)
        self.assertEqual(done.stderr.count("the allocator released all unused memory"), 1, done)
        self.assertIn("GiB reserved", done.stderr)

    def test_a_step_that_does_not_fit(self):
        limit = int(0.9999 * self.peak)
        done = self.train(limit, "run", checkpoint__enable=True, checkpoint__interval=1)
        self.assert_one_error(done, 1, "out of memory: ", "of stage 0 unit", "What would need less",
                              "training.local_batch_size below 2", "training.seq_len below 16",
                              "activation_checkpoint.mode = full (it is selective)",
                              "optimizer.state_dtype = bfloat16 (it is float32)",
                              "training.gradient_accumulation_dtype = bfloat16 (it is float32)")
        self.assertNotIn("frame #", done.stderr)
        self.assertRegex(done.errors[0], r"[\d.e+-]+ GiB requested in \w+ of stage 0")
        found = self.assert_parts_add_up(done.errors[0], limit + CONTEXT_BYTES)
        self.assertLess(abs(found["outside"] / CONTEXT_BYTES - 1), 1e-3)
        self.assertEqual(found["states"], 2 * found["weights"])
        self.assertEqual((found["copies"], found["gathered"]), (0, 0), "float32 on one rank")
        self.assertGreater(found["activations"], 0)
        self.assertEqual(list((self.folder / "run").glob("**/step-*")), [])
        self.assertEqual((self.folder / "run" / "metrics.jsonl").read_text(), "")

    def test_a_model_that_does_not_fit(self):
        done = self.train(MIB // 4, "run")
        self.assert_one_error(done, 1, "in the construction of the model", "the model under construction needs",
                              "tensors so far")
        found = parts(done.errors[0])
        self.assertEqual(found["states"], 2 * found["weights"])

    def test_remedies_already_in_use_are_not_named(self):
        done = self.train(MIB // 4, "run", training__local_batch_size=1, training__seq_len=1,
                          activation_checkpoint__mode="full", optimizer__state_dtype="bfloat16", compile__graphs=False,
                          training__gradient_accumulation_dtype="bfloat16")
        self.assert_one_error(done, 1, "more ranks to shard over")
        remedies = done.errors[0].partition("What would need less: ")[2]
        self.assertEqual(remedies, "more ranks to shard over", done)

    def test_other_ranks_end_at_once(self):
        """One of two sharding ranks has less memory than the other."""
        settings = {"training__steps": 1000, "parallelism__data_parallel_shard_degree": 2,
                    "training__mixed_precision_param": "bfloat16"}
        limit = int(0.95 * self.free_bytes(**settings | {"training__steps": 4}, num_ranks=2)[0])
        words = self.small("two", **SMALL | settings)
        done = self.run_ranks(1, *words, ":", "-n", 1, "-x", f"ARGOSY_FAKE_GPU_BYTES={limit}", GPU, *words,
                              program=(GPU,))
        self.assert_code(done, 1)
        self.assertEqual(len(done.errors), 1, done)
        self.assertTrue(done.errors[0].startswith("pretrain: error on rank 1 of 2: out of memory: "), done)
        found = self.assert_parts_add_up(done.errors[0], limit + CONTEXT_BYTES)
        self.assertGreater(found["copies"], 0)
        self.assertGreater(found["gathered"], 0)


if __name__ == "__main__":
    run.main()
