"""Updates that are skipped because loss or gradient norm are outliers. The corpus is one pattern with noise in some
steps; samples are in file order, so the steps with noise are known."""
import json
import math
import random

import run

SEQ_LEN, BATCH, NUM_STEPS, NOISY = 32, 4, 22, 18  # the step after the 18th has noise
PIPELINE = "parallelism__pipeline_parallel_degree"


class Spikes(run.PretrainTest):
    def corpus(self, num_noisy_steps):
        """A token file for slightly more than NUM_STEPS steps: 1 2 3 4 1 2 3 4 ..., and noise."""
        generator = random.Random(5)
        tokens = [1 + i % 4 for i in range((NUM_STEPS + 1) * BATCH * SEQ_LEN)]
        # The first token of a sample is also the last target of the previous sample.
        for i in range(NOISY * BATCH * SEQ_LEN + 1, (NOISY + num_noisy_steps) * BATCH * SEQ_LEN):
            tokens[i] = generator.randrange(256)
        source, output = self.folder / "spiky.jsonl", self.folder / "spiky.h5"
        source.write_text(json.dumps({"tokens": tokens}) + "\n")
        self.tokenize(source, output)
        return output

    def settings(self, num_noisy_steps=1, **more):
        return {"training__dataset_path": self.corpus(num_noisy_steps), "training__shuffle": False,
                "training__seq_len": SEQ_LEN, "training__local_batch_size": 2, "training__global_batch_size": BATCH,
                "training__steps": NUM_STEPS, "lr_scheduler__decay_ratio": 0, "lr_scheduler__warmup_steps": 0,
                "optimizer__lr": 3e-3, "training__max_norm": "inf", "metrics__layer_grad_norms": True} | more

    def skipped(self, dump):
        return [json.loads(line) for line in (self.folder / dump / "skipped_updates.jsonl").read_text().splitlines()]

    def test_steps_without_a_target_say_nothing_about_others(self):
        """Their loss and norm are 0. As part of the window they would make every later loss an outlier."""
        count = 12 * BATCH * SEQ_LEN
        tokens = [1 + i % 4 for i in range((NUM_STEPS + 1) * BATCH * SEQ_LEN)]
        source, masked = self.folder / "masked.jsonl", self.folder / "masked.h5"
        mask = [0] * (count + 1) + [1] * (len(tokens) - count - 1)
        source.write_text(json.dumps({"tokens": tokens, "loss_mask": mask}) + "\n")
        self.tokenize(source, masked)
        steps = self.steps_of(1, "masked", **self.settings(
            training__dataset_path=masked, loss_spike__loss_zscore=6, loss_spike__warmup_steps=4, loss_spike__window=8))
        self.assertEqual([step["loss"] == 0 for step in steps], [True] * 12 + [False] * (NUM_STEPS - 12))
        self.assertEqual(steps[-1]["skipped_updates"], 0)

    def test_the_noisy_step_is_skipped_on_every_layout(self):
        by_loss = self.settings(loss_spike__loss_zscore=8, loss_spike__window=8, loss_spike__warmup_steps=4)
        control = self.steps_of(1, "control", **self.settings())
        self.assertFalse((self.folder / "control" / "skipped_updates.jsonl").exists())
        for dump, num_ranks, layout in (("one", 1, {}), ("fsdp2", 2, {}), ("pp2", 2, {PIPELINE: 2})):
            with self.subTest(dump):
                done = self.run_ranks(num_ranks, *self.small(dump, **by_loss, **layout))
                self.assert_code(done, 0)
                self.assert_noise_was_skipped(dump, per_rank=BATCH // (2 if dump == "fsdp2" else 1))
                self.assertEqual(done.stderr.count(f"step {NOISY + 1}: the update is skipped: the loss"), 1, done)
                self.assertIn("its 4 samples, in skipped_updates.jsonl: 72, 73, 74, 75", done.stderr)
                # Without the noisy update the model continues as if there had been no noise; with it the loss is
                # higher.
                after, worse = (steps[NOISY + 1]["loss"] for steps in (self.steps(dump), control))
                self.assertLess(after, 0.9 * worse)

    def assert_noise_was_skipped(self, dump, per_rank):
        self.assertEqual([step["skipped_updates"] for step in self.steps(dump)], NOISY * [0] + (NUM_STEPS - NOISY) * [1])
        line, = self.skipped(dump)
        self.assertEqual((line["step"], line["cause"]), (NOISY + 1, "spike"))
        self.assertEqual(line["samples"], [NOISY * BATCH + i for i in range(BATCH)])
        self.assertEqual(line["samples_per_data_rank"], per_rank)
        self.assertEqual(line["loss"], self.steps(dump)[NOISY]["loss"])
        self.assertGreater(line["loss_zscore"], 8)

    def test_a_norm_above_its_threshold_is_skipped(self):
        self.steps_of(1, **self.settings(loss_spike__grad_norm_zscore=8, loss_spike__window=8,
                                         loss_spike__warmup_steps=4))
        self.assert_noise_was_skipped("run", per_rank=BATCH)

    def test_too_many_in_a_row_stop_the_run(self):
        done = self.run_ranks(2, *self.small(**self.settings(
            num_noisy_steps=4, loss_spike__loss_zscore=8, loss_spike__window=8, loss_spike__warmup_steps=4,
            loss_spike__max_skipped_steps=3)))
        self.assert_one_error(done, 1, f"step {NOISY + 3}:", "update 3 in a row", "loss_spike.max_skipped_steps",
                              "skipped_updates.jsonl")
        self.assertEqual([line["step"] for line in self.skipped("run")], [NOISY + 1, NOISY + 2, NOISY + 3])
        self.assertEqual(len(self.steps()), NOISY + 3)

    def test_nonfinite_losses_are_named_too(self):
        self.run_ranks(2, *self.small(optimizer__lr=1e38, lr_scheduler__warmup_steps=0, training__shuffle=False,
                                      training__max_nonfinite_steps=2))
        lines = self.skipped("run")
        self.assertEqual([(line["step"], line["cause"], line["loss"]) for line in lines],
                         [(2, "nonfinite", None), (3, "nonfinite", None)])
        self.assertEqual([line["samples"] for line in lines], [[4, 5, 6, 7], [8, 9, 10, 11]])

    def test_norms_of_layers_sum_to_the_whole_norm(self):
        for step in self.steps_of(2, **self.settings(training__steps=2, optimizer__qk_clip=20)):
            scores = step["attention_scores"]
            self.assertEqual(scores["heads_too_large"], 0)
            self.assertAlmostEqual(scores["largest"], math.log(SEQ_LEN), delta=1)  # scores begin near 0
            norms = step["layer_grad_norms"]
            self.assertEqual(list(norms), ["embedding", "layers.0", "layers.1", "layers.2", "layers.3", "head"])
            whole = sum(norm**2 for norm in norms.values())**0.5
            self.assertAlmostEqual(whole / step["grad_norm"], 1, delta=1e-12)

    def test_keys_without_effect_are_refused(self):
        self.assert_one_error(self.run_ranks(1, *self.small(loss_spike__window=64)), 2, "loss_spike.loss_zscore",
                              "set one of them")


if __name__ == "__main__":
    run.main()
