"""compare_harness.py without its peer: how it judges figures, and that it ends at once without lm-evaluation-harness."""
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import compare_harness  # noqa: E402


class TableTest(unittest.TestCase):
    def test_the_harness_fastest_batch_counts(self):
        measured = {"gsm8k": ({"eval": (6.0, 6.0), "batch 1": (1.0, 1.0), "batch 16": (2.1, 1.5)}, {"batch 1": 8, "batch 16": 7}, 8)}
        text, missed = compare_harness.table(measured)
        self.assertIn("| 6.00 x  | 6.00 x | 8 of 8 ", text)
        self.assertEqual(missed, ["gsm8k: 2.86 x the harness's documents/s, and the target is 3 x"])
        measured["gsm8k"][0]["batch 16"] = (2.0, 1.5)
        self.assertEqual(compare_harness.table(measured)[1], [])

    def test_results_must_be_equal(self):
        measured = {"choices": ({"eval": (6.0, 6.0), "batch 1": (1.0, 1.0)}, {"batch 1": 7}, 8)}
        self.assertEqual(compare_harness.table(measured)[1], ["choices: only 7 of 8 documents have equal results"])

    def test_scale(self):
        measured = {"gsm8k": ({"eval": (2.0, 2.0), "eval, 2 threads": (3.0, 1.6)}, {"eval, 2 threads": 7}, 8)}
        text, missed = compare_harness.scale_table(measured)
        self.assertIn("| 1.50 x ", text)
        self.assertEqual(missed, ["gsm8k: only 7 of 8 documents have equal results with eval, 2 threads"])

    def test_equal_responses(self):
        ours, theirs = [["a"], [[-2.0, True], [-3.0, False]]], [["a"], [[-2.0001, True], [-3.0, False]]]
        self.assertEqual(compare_harness.num_equal(ours, theirs), 2)
        for i, other in ((0, ["b"]), (1, [[-2.0, False], [-3.0, False]]), (1, [[-2.01, True], [-3.0, False]]), (1, [[-2.0, True]])):
            changed = list(theirs)
            changed[i] = other
            self.assertEqual(compare_harness.num_equal(ours, changed), 1, other)


class PeerTest(unittest.TestCase):
    def test_without_the_harness_it_ends_at_once(self):
        done = subprocess.run([sys.executable, HERE / "compare_harness.py", "--bin", "/nowhere", "--peer-python", "/nowhere/python"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("lm-eval==0.4.13", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
