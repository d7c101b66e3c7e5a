"""throughput.py over a model for CPUs: a run with the losses of training passes; runs whose losses are wrong fail, with the
losses in the message, whatever their speed. usage: throughput_test.py"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import throughput  # noqa: E402

FIRST = math.log(512) + 0.5
# Runs pretrain, then writes other losses: usage: planted.py LOSSES PRETRAIN WORDS ...
PLANTED = """#!/usr/bin/env python3
import json, pathlib, subprocess, sys
done = subprocess.run([{pretrain!r}, *sys.argv[1:]])
path = pathlib.Path(sys.argv[sys.argv.index("--job.dump_folder") + 1]) / "metrics.jsonl"
steps = [json.loads(line) for line in path.read_text().splitlines()]
for step, loss in zip(steps, {losses!r}):
    step["loss"] = loss
path.write_text("".join(json.dumps(step) + chr(10) for step in steps))
sys.exit(done.returncode)
"""


class Losses(unittest.TestCase):
    def wrong(self, *losses):
        with self.assertRaises(throughput.Failure) as caught:
            throughput.check_losses(losses, 512)
        return str(caught.exception)

    def test_losses_of_training_pass(self):
        throughput.check_losses([FIRST, FIRST - 0.1, FIRST - 0.2], 512)
        throughput.check_losses([FIRST + 0.2, FIRST + 0.3, FIRST - 0.2], 512)

    def test_wrong_losses_are_named(self):
        self.assertIn("the first loss is 6.2383, not within 0.25 of ln(512) + 1/2 = 6.7383: 6.2383, 6.0",
                      self.wrong(math.log(512), 6.0), "logits that are all 0")
        self.assertIn("the first loss is 0.0000", self.wrong(0, 0))
        self.assertIn("the first loss is 9.0", self.wrong(9.0, 6.7, 6.6))
        self.assertIn("the loss falls by 0.0000, not by 0.05: 6.7383, 6.7383", self.wrong(FIRST, FIRST))
        self.assertIn("the loss falls by -0.2617", self.wrong(FIRST, 7))
        for bad in (None, math.nan, math.inf):
            self.assertIn("losses are not finite: 6.7383, ", self.wrong(FIRST, bad, 6))


class Program(unittest.TestCase):
    def run_over(self, losses):
        """throughput.py with a pretrain that reports these losses; its own for None."""
        with tempfile.TemporaryDirectory() as folder:
            bin_folder = pathlib.Path(os.environ["ARGOSY_BIN"])
            (pathlib.Path(folder) / "prepare-data").symlink_to(bin_folder / "prepare-data")
            pretrain = pathlib.Path(folder) / "pretrain"
            if losses is None:
                pretrain.symlink_to(bin_folder / "pretrain")
            else:
                pretrain.write_text(PLANTED.format(pretrain=str(bin_folder / "pretrain"), losses=losses))
                pretrain.chmod(0o755)
            return subprocess.run([sys.executable, HERE / "throughput.py", "--tokens", "1024", "--steps", "3", "tiny"],
                                  capture_output=True, text=True,
                                  env=os.environ | {"ARGOSY_BIN": folder, "ARGOSY_PEER_PYTHON": "/nonexistent"})

    def test_a_run_that_trains_meets_its_target(self):
        done = self.run_over(None)
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("| met |", done.stdout)

    def test_a_run_with_wrong_losses_fails(self):
        for losses in ([FIRST - 0.5, FIRST - 0.6, FIRST - 0.7], [FIRST, FIRST, FIRST]):
            with self.subTest(losses=losses):
                done = self.run_over(losses)
                self.assertEqual(done.returncode, 1, done)
                self.assertIn("tiny failed: the ", done.stderr)
                self.assertIn(", ".join(f"{loss:.4f}" for loss in losses), done.stderr)
                self.assertIn("| not measured |", done.stdout)

    def test_a_gpu_without_a_plan_is_refused(self):
        with self.assertRaises(throughput.Failure) as caught:
            throughput.CASES["7B"].plan(24)
        self.assertIn("7B: no plan for a GPU with 24 GB", str(caught.exception))


if __name__ == "__main__":
    unittest.main(verbosity=2)
