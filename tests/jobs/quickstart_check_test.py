"""The quick start's check of its models: it passes what training explains, and nothing else."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

JOBS = pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "jobs"
UNTRAINED, BIGRAM, TRAINED = 0.525, 0.56, 0.995  # accuracies that a run of the quick start had


class QuickstartCheck(unittest.TestCase):
    def check(self, untrained=UNTRAINED, bigram=BIGRAM, trained=TRAINED, loss=0.9):
        with tempfile.TemporaryDirectory() as folder:
            files = {name: pathlib.Path(folder) / name for name in ("metrics", "corpus", "untrained", "bigram", "trained")}
            files["metrics"].write_text("".join(json.dumps({"loss": loss}) + "\n" for _ in range(12)))
            files["corpus"].write_text(json.dumps({"bigram_entropy": 2.0}))
            for name, accuracy in (("untrained", untrained), ("bigram", bigram), ("trained", trained)):
                results = {"agreement": {"acc,none": accuracy, "acc_stderr,none": 0.025},
                           "last_word": {"acc,none": 0.1, "perplexity,none": 12.5}}
                files[name].write_text(json.dumps({"results": results}))
            return subprocess.run([sys.executable, JOBS / "quickstart_check.py", *files.values()], capture_output=True, text=True)

    def expect_failure(self, part, **values):
        done = self.check(**values)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("quickstart: FAILED: ", done.stderr)
        self.assertIn(part, done.stderr)

    def test_a_trained_model_passes(self):
        done = self.check()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| trained   |      0.995 +- 0.025 |", done.stdout)
        self.assertEqual(done.stdout.count("\n"), 6, "a table of three models, and that it passed")

    def test_an_untrained_model_fails_as_the_trained_one(self):
        self.expect_failure("did not learn which form", trained=UNTRAINED)

    def test_a_trained_model_fails_as_the_untrained_one(self):
        self.expect_failure("standard errors away", untrained=TRAINED)

    def test_a_task_that_pairs_of_tokens_solve_fails(self):
        self.expect_failure("half of the trained model's gain", bigram=0.76)
        self.expect_failure("half of the trained model's gain", trained=0.72, bigram=0.62)

    def test_loss(self):
        self.expect_failure("no more than pairs", loss=2.0)
        self.expect_failure("no more than pairs", loss=float("nan"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
