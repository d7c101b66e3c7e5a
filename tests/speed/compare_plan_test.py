"""compare_plan.py: its judgement on made-up values, and a small comparison."""
import contextlib
import io
import sys
import unittest
from unittest import mock

import compare_plan


class ComparePlanTest(unittest.TestCase):
    def test_faults(self):
        def faults(what, **values):
            return list(compare_plan.faults_of(values, what))

        self.assertEqual(faults("time", a=(1.19, 1), b=(1.7, 2)), [])
        self.assertEqual(faults("time", a=(0.79, 1)), ["a: the planned time is -21.0% off"])
        self.assertEqual(faults("time", a=(1.15, 1), b=(1.1, 1.3)), ["the plan prefers b to a"])
        self.assertEqual(faults("time", a=(1.15, 1), b=(1.1, 1.19)), [])  # too close to be ranked
        self.assertEqual(faults("memory", a=(1.09, 1), b=(1.11, 1)), ["b: the planned memory is +11.0% off"])

    def test_a_small_comparison(self):
        for what in ("time", "memory"):
            words = ["compare_plan.py", what, "--rounds", "1", "--only", "dp_replicate 2"]
            sizes = {what: compare_plan.runs.Sizes(dim=64, layers=2, heads=2, hidden=128, vocab=512, seq=32, batch=4)}
            out = io.StringIO()
            with mock.patch.object(sys, "argv", words), mock.patch.object(compare_plan, "SIZES", sizes), \
                    contextlib.redirect_stdout(out):
                self.assertIn(compare_plan.main(), (0, 1))  # so small a model says nothing about the plan
            self.assertRegex(out.getvalue(), r"dp_replicate 2 +\d\S* +\d\S* +[+-]\d+\.\d%")


if __name__ == "__main__":
    unittest.main()
