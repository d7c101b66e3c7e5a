"""The comparison of a model with experts: its targets, and its own side at tiny sizes."""
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import compare_experts  # noqa: E402
from runs import Run  # noqa: E402

TINY = ["--dim=64", "--layers=2", "--heads=2", "--hidden=32", "--vocab=512", "--seq=32", "--batch=2", "--rounds=1",
        "--steps=3", "--limit=30", "--dtype=fp32", "--without-peer"]


def run(seconds, mib, flops=1e12):
    return [Run(1000, [9.0, seconds], [6.5, 6.5], 3.0, mib, flops_per_step=flops)]


class CompareExpertsTest(unittest.TestCase):
    def verdicts(self, ours, dense, eager):
        _, rows = compare_experts.figures({"Argosy": ours, "Argosy, dense": dense, "PyTorch eager": eager}, "bf16")
        return [row.met for row in rows]

    def test_each_target_is_met_at_its_value_and_missed_beyond(self):
        self.assertEqual(self.verdicts(run(1.0, 60.0), run(0.75, 50.0), run(3.0, 100.0)), [True, True, True])
        self.assertEqual(self.verdicts(run(1.0, 61.0), run(0.74, 50.0), run(2.9, 100.0)), [False, False, False])

    def test_the_dense_model_has_the_active_size(self):
        sizes = compare_experts.SparseSizes(hidden=5, top_k=3)
        self.assertEqual((sizes.dense.hidden, sizes.dense.config()["model_type"]), (15, "llama"))

    def test_our_side_runs(self):
        done = subprocess.run([sys.executable, HERE / "compare_experts.py", *TINY], capture_output=True, text=True,
                              timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| Argosy, dense | fp32 |", done.stdout)


if __name__ == "__main__":
    unittest.main()
