"""compare_plan.py: its judgement on made-up values, and a small comparison."""
import contextlib
import io
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

import compare_plan
from workload import BINARIES, Workload


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
                code = compare_plan.main()
            shown = re.findall(r"^(dp_replicate 2.*?) +\d\S* +\d\S* +([+-]\d+\.\d)%$", out.getvalue(), re.M)
            self.assertTrue(shown, out.getvalue())
            # So small a model says nothing about the plan: it may be right or wrong, but the code must say which.
            for name, percent in shown:
                fault = f"{name}: the planned {what} is {percent}% off"
                if abs(abs(float(percent)) - 100 * compare_plan.MAX_ERROR[what]) > 0.1:  # as far as the printed digits go
                    is_wrong = abs(float(percent)) > 100 * compare_plan.MAX_ERROR[what]
                    self.assertEqual(fault in out.getvalue(), is_wrong, out.getvalue())
            self.assertEqual(code, int("% off" in out.getvalue()), out.getvalue())

    @unittest.skipIf(b"__asan_init" in (BINARIES / "pretrain").read_bytes(), "the sanitizer has memory of its own")
    def test_the_memory_of_runs_is_that_of_their_plans(self):
        """A model small enough for a test, whose tensors outweigh what a process has beside them."""
        sizes = compare_plan.runs.Sizes(dim=256, layers=4, heads=4, hidden=672, vocab=8192, seq=256, batch=4)
        names = ("recompute all", "cp 2", "pp 2, 8 microbatches")
        chosen = [each for each in compare_plan.CONFIGURATIONS if each[0] in names]
        self.assertEqual(len(chosen), len(names))
        with tempfile.TemporaryDirectory() as scratch:
            work, tiny = (Workload(pathlib.Path(scratch) / name, each, 16)
                          for name, each in (("model", sizes), ("tiny", compare_plan.TINY)))
            values = compare_plan.compare_memory(work, tiny, mock.Mock(dtype="fp32", configurations=chosen))
        self.assertEqual(list(compare_plan.faults_of(values, "memory")), [], values)

    def test_the_tiny_run_has_the_ranks_in_use(self):
        def workload(mib):
            def pretrain(layout, *_):
                asked.append((mib, layout.ranks))
                return mock.Mock(peak_mib=mib)
            return mock.Mock(pretrain=pretrain, settings=lambda *_: {})

        asked, planned = [], {"ranks": [{"memory": {"peak_bytes": 2**20}, "mapped_shared_bytes": 2 * 2**20}]}
        options = mock.Mock(dtype="fp32", configurations=[("a", 2, {}), ("b", 2, {})])
        with mock.patch.object(compare_plan, "plan", return_value=planned):
            self.assertEqual(compare_plan.compare_memory(workload(10), workload(7), options), {"a": (3, 3), "b": (3, 3)})
        self.assertEqual(asked, [(7, 2), (10, 2), (10, 2)])

    def test_times_of_four_ranks(self):
        def compared(*words):
            asked = []
            with mock.patch.object(sys, "argv", ["compare_plan.py", "time", *words]), \
                    mock.patch.object(compare_plan, "Workload"), \
                    mock.patch.object(compare_plan.os, "sched_getaffinity", return_value={0, 1}), \
                    mock.patch.object(compare_plan, "compare_times", lambda _, options: asked.extend(
                        options.configurations) or {name: (1, 1) for name, _, _ in options.configurations}), \
                    contextlib.redirect_stdout(io.StringIO()) as out:
                self.assertEqual(compare_plan.main(), 0)
            return sorted({ranks for _, ranks, _ in asked}), "Up to 4 ranks share 2 cores" in out.getvalue()

        self.assertEqual(compared(), ([1, 2], False))
        self.assertEqual(compared("--four"), ([1, 2, 4], True))

    def test_a_name_that_no_configuration_has(self):
        words, errors = ["compare_plan.py", "time", "--only", "typo"], io.StringIO()
        with mock.patch.object(sys, "argv", words), contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as end:
            compare_plan.main()
        self.assertEqual(end.exception.code, 2)
        self.assertIn("'typo' is in no name of: one rank; recompute all; ", errors.getvalue())


if __name__ == "__main__":
    unittest.main()
