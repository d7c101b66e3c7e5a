"""Validation inside of a run: the same loss on every mesh as `eval` finds on the same windows, and a training that it
does not change."""
import itertools
import json
import math
import os
import pathlib
import subprocess
import unittest

import run
from layouts_test import CONTEXT, LAYOUTS, PIPELINE, SCHEDULE, SHARD, TENSOR

EVAL = pathlib.Path(os.environ["ARGOSY_BIN"]) / "eval"
LENGTH = 32
NUM_TOKENS = 45 * LENGTH + 9  # 45 samples and a rest that is too short for one
TOLERANCE = 1e-6  # relative, in float32

CHOSEN = {name: LAYOUTS[name] for name in ("fsdp2", "ddp2", "tp2_async", "pp2_interleaved", "cp2_fsdp2_ring")}
CHOSEN["pp2_zbv"] = (2, {PIPELINE: 2, SCHEDULE: "ZBVZeroBubble"})


def numbers(steps):
    return [(step["loss"], step["grad_norm"]) for step in steps]


class Validation(run.PretrainTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        lines = (run.SOURCE / "data" / "tiny.jsonl").read_text().splitlines()
        text = "".join(json.loads(line)["text"] for line in lines)
        cls.stream = list(text.encode()[-NUM_TOKENS:])
        cls.valid = cls.shared / "valid.h5"
        records = cls.shared / "valid.jsonl"
        records.write_text(json.dumps({"tokens": cls.stream}) + "\n")
        cls.tokenize(records, cls.valid)

    def validated(self, num_ranks, dump, **settings):
        settings = {"validation__enable": True, "validation__dataset_path": self.valid, "validation__freq": 2,
                    "training__steps": 3, "training__global_batch_size": 8} | settings
        return self.steps_of(num_ranks, dump, **settings)

    def perplexity(self, model, length=LENGTH, num_samples=None):
        starts = range(0, len(self.stream) - length, length)[:num_samples]
        task, output = self.folder / "windows.jsonl", self.folder / "results.json"
        task.write_text("".join(json.dumps({"tokens": self.stream[at:at + length + 1]}) + "\n" for at in starts))
        subprocess.run([EVAL, "--model", model, "--tasks", task, "--output", output], check=True, capture_output=True)
        results = json.loads(output.read_text())["results"]["windows"]
        return next(value for key, value in results.items() if key.startswith("token_perplexity"))

    def test_equals_eval_on_every_mesh_and_does_not_change_training(self):
        saving = {"checkpoint__enable": True, "checkpoint__interval": 1}
        expected = self.validated(1, "one", **saving)
        self.assertEqual([step["step"] for step in expected if "validation_loss" in step], [2, 3])
        loss = math.log(self.perplexity(self.folder / "one" / "checkpoint" / "step-00000003"))
        self.assertAlmostEqual(expected[2]["validation_loss"] / loss, 1, delta=TOLERANCE)
        for step in expected[1:]:
            self.assertAlmostEqual(step["validation_perplexity"], math.exp(step["validation_loss"]), delta=1e-9)
            self.assertEqual(step["validation_tokens"], 45 * LENGTH)
            self.assertGreater(step["time_ms"]["validation"], 0)
        runs = run.at_once([lambda name=name: self.validated(CHOSEN[name][0], name, **CHOSEN[name][1])
                            for name in CHOSEN], workers=2)
        for name, steps in zip(CHOSEN, runs):
            for one, other in zip(steps[1:], expected[1:]):
                self.assertEqual(one["validation_tokens"], other["validation_tokens"], name)
                self.assertAlmostEqual(one["validation_loss"] / other["validation_loss"], 1, delta=TOLERANCE, msg=name)
        validated = dict(zip(CHOSEN, runs)) | {"one": expected}
        for name, (num_ranks, layout) in {"one": (1, {}), "fsdp2": CHOSEN["fsdp2"], "pp2_zbv": CHOSEN["pp2_zbv"]}.items():
            without = self.validated(num_ranks, f"without_{name}", validation__enable=False, **layout)
            self.assertEqual(numbers(without), numbers(validated[name]), name)

    def test_some_batches_of_shorter_samples(self):
        settings = {"validation__steps": 3, "validation__seq_len": 20, "validation__local_batch_size": 4}
        saving = {"checkpoint__enable": True, "checkpoint__interval": 3}
        expected = self.validated(1, "one", **settings, **saving)[-1]
        loss = math.log(self.perplexity(self.folder / "one" / "checkpoint" / "step-00000003", 20, 12))
        self.assertAlmostEqual(expected["validation_loss"] / loss, 1, delta=TOLERANCE)
        runs = {name: self.validated(2, name, **settings, **{name: 2})[-1] for name in (TENSOR, CONTEXT, SHARD)}
        for name, step in ({"one": expected} | runs).items():
            self.assertEqual(step["validation_tokens"], 3 * 4 * 20)
            self.assertAlmostEqual(step["validation_loss"] / expected["validation_loss"], 1, delta=TOLERANCE, msg=name)

    def test_shorter_samples_of_documents(self):
        """Attention of the kernels, of plain operations and of other meshes sees the same documents before padding."""
        records, valid = self.folder / "documents.jsonl", self.folder / "documents.h5"
        sizes = itertools.cycle([1, 3, 8, 20])
        starts = list(itertools.takewhile(lambda at: at < NUM_TOKENS, itertools.accumulate(sizes)))
        records.write_text("".join(json.dumps({"tokens": self.stream[start:end]}) + "\n"
                                   for start, end in zip([0] + starts, starts)))
        self.tokenize(records, valid)
        for length in (30, 6):
            settings = {"validation__dataset_path": valid, "validation__seq_len": length, "training__steps": 1,
                        "training__attend_across_documents": False}
            expected = self.validated(1, f"plain{length}", debug__plain_operations=True, **settings)[-1]["validation_loss"]
            for num_ranks, layout in ((1, {}), (2, {TENSOR: 2}), (2, {CONTEXT: 2})):
                name = next(iter(layout), "one") + str(length)
                loss = self.validated(num_ranks, name, **settings, **layout)[-1]["validation_loss"]
                self.assertAlmostEqual(loss / expected, 1, delta=TOLERANCE, msg=name)

    def test_counts_what_the_loss_mask_counts(self):
        """Of window w the first counted[w] targets count, so the loss is that of `eval` on windows of that length. Whole
        batches of a rank have none."""
        counted = [0 if 4 <= window < 8 else window * 5 % (LENGTH + 1) for window in range(45)]
        mask = [0] * NUM_TOKENS
        for window, count in enumerate(counted):
            mask[window * LENGTH + 1:window * LENGTH + 1 + count] = [1] * count
        records, valid = self.folder / "masked.jsonl", self.folder / "masked.h5"
        records.write_text("".join(json.dumps({"tokens": self.stream[at:at + 100], "loss_mask": mask[at:at + 100]}) + "\n"
                                   for at in range(0, NUM_TOKENS, 100)))
        self.tokenize(records, valid)
        settings = {"validation__dataset_path": valid}
        one = self.validated(1, "one", checkpoint__enable=True, checkpoint__interval=3, **settings)[-1]
        task, output = self.folder / "windows.jsonl", self.folder / "results.json"
        task.write_text("".join(json.dumps({"tokens": self.stream[at * LENGTH:at * LENGTH + count + 1]}) + "\n"
                                for at, count in enumerate(counted) if count > 0))
        subprocess.run([EVAL, "--model", self.folder / "one", "--tasks", task, "--output", output], check=True,
                       capture_output=True)
        results = json.loads(output.read_text())["results"]["windows"]
        loss = math.log(next(value for key, value in results.items() if key.startswith("token_perplexity")))
        for step in (one, self.validated(2, "two", **{SHARD: 2}, **settings)[-1]):
            self.assertEqual(step["validation_tokens"], sum(counted))
            self.assertAlmostEqual(step["validation_loss"] / loss, 1, delta=TOLERANCE)

    def test_batches_without_a_counted_token_give_no_result(self):
        records, valid = self.folder / "masked.jsonl", self.folder / "masked.h5"
        mask = [0] * (NUM_TOKENS - 1) + [1]
        records.write_text(json.dumps({"tokens": self.stream, "loss_mask": mask}) + "\n")
        self.tokenize(records, valid)
        done = self.run_ranks(2, *self.small(validation__enable=True, validation__dataset_path=valid, validation__steps=2,
                                             validation__freq=4))
        self.assert_code(done, 0)
        self.assertEqual(done.stderr.count("no token of the 4 validation samples counts"), 1, done)
        self.assertFalse(any("validation_loss" in step for step in self.steps()))

    def test_a_signal_ends_it(self):
        """The run ends with the step, which is saved, and without a result. The whole validation takes seconds."""
        job = self.start(2, *self.small(validation__enable=True, validation__dataset_path=self.tokens, validation__freq=2,
                                        validation__seq_len=2, training__local_batch_size=1, training__steps=9,
                                        checkpoint__enable=True))
        done = self.stop_in_step_2_of_9(job)
        self.assertEqual(done.stderr.count("a signal ends the validation, without a result"), 1, done)
        self.assertEqual(["validation_loss" in step for step in self.steps()], [False, False])

    def test_mistakes(self):
        missing, other = self.folder / "none.h5", self.folder / "other.h5"
        texts = run.SOURCE / "data" / "tiny.jsonl"
        subprocess.run([run.PREPARE_DATA, "train-tokenizer", "--input", texts, "--vocab-size", "257", "--output",
                        self.folder / "tokenizer.json"], check=True, capture_output=True)
        self.tokenize(texts, other, "--tokenizer", self.folder / "tokenizer.json")
        for parts, settings in (([str(missing)], {"validation__dataset_path": missing}),
                                (["tiny.h5 and ", "other.h5 were made with different tokenizers: bytes"],
                                 {"validation__dataset_path": other}),
                                (["validation.dataset_path is not set"], {})):
            done = self.run_ranks(1, *self.small(validation__enable=True, **settings))
            self.assert_one_error(done, 2, *parts)


if __name__ == "__main__":
    unittest.main(verbosity=2)
