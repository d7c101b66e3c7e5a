"""nccl-bench against plain MPI loops: the comparison's arithmetic, and one run at tiny sizes."""
import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from compare_mpi_loops import COLLECTIVES, Comparison  # noqa: E402


class ComparisonTest(unittest.TestCase):
    def test_the_best_rounds_are_compared(self):
        found = Comparison("reduce", {8: [30, 10, 20]}, {8: [12, 10, 11]})
        self.assertAlmostEqual(found.ratio, 1)
        self.assertAlmostEqual(found.spread, 1.1)
        self.assertTrue(found.agrees)

    def test_disagreement_is_more_than_the_loops_have_with_themselves(self):
        self.assertFalse(Comparison("reduce", {8: [12, 12, 12]}, {8: [10, 10, 10]}).agrees)
        self.assertFalse(Comparison("reduce", {8: [8, 8, 8]}, {8: [10, 10, 10]}).agrees)
        self.assertTrue(Comparison("reduce", {8: [12, 12, 12]}, {8: [10, 13, 13]}).agrees)

    def test_it_runs(self):
        done = subprocess.run([sys.executable, HERE / "compare_mpi_loops.py", "--build",
                               pathlib.Path(os.environ["ARGOSY_BIN"]).parent, "--rounds", "2", "--iterations", "5",
                               "--warmup", "1", "--sizes", "4096", "--collectives", "all_reduce,sendrecv"],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("all_reduce", "sendrecv"):
            self.assertRegex(done.stdout, rf"\| {name} +\| \d+\.\d\d")

    def test_every_collective_has_its_loop(self):
        for blocking in ("blocking", "non-blocking"):
            for name in COLLECTIVES:
                loops = pathlib.Path(os.environ["ARGOSY_BIN"]).parent / "tests/bench_mpi_loops"
                done = subprocess.run([loops, name, blocking, "2", "1", "64", "128"], capture_output=True, text=True,
                                      timeout=60, env=os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1",
                                                                    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout, r"^64 [\d.]+\n128 [\d.]+\n$")


if __name__ == "__main__":
    unittest.main()
