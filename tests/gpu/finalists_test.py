"""gemm_speed --finalists over stand-ins of cuBLASLt, which has three algorithms, and of NVML.
usage: finalists_test.py GEMM_SPEED FOLDER_OF_NVML"""
import os
import subprocess
import sys
import unittest

GEMM_SPEED, NVML = sys.argv[1:]
WORDS = ("--quick", "--tokens", "24", "--preheat", "0.001", "--sustained", "0.004")


class Finalists(unittest.TestCase):
    def rows(self, finalists, slow, nvml=True):
        done = subprocess.run([GEMM_SPEED, *WORDS, "--finalists", str(finalists)], capture_output=True, text=True,
                              env=os.environ | {"ARGOSY_FAKE_CUBLAS_SLOW": str(slow)} | ({"LD_LIBRARY_PATH": NVML} if nvml else {}))
        self.assertEqual(done.returncode, 0, done)
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if line.startswith("|")]
        products = [row for row in rows if row[0] == "tiny"]
        self.assertEqual(len(products), 15, done.stdout)
        return products, rows[-1]

    def test_a_slow_first_choice_is_found(self):
        products, total = self.rows(5, slow=0)
        for _, _, _, algorithms, rate, watts, joules, number, best, _, best_joules, less in products:
            self.assertEqual(algorithms, "3")
            self.assertIn(number, ("1", "2"))
            self.assertGreater(float(best), float(rate))
            self.assertGreater(float(less), 0)
            self.assertAlmostEqual(float(watts), 500, delta=50)
            self.assertLess(float(best_joules), float(joules))
        self.assertGreater(float(total[3]), 0)
        self.assertLess(float(total[2]), float(total[1]))

    def test_a_choice_that_is_fastest_stays(self):
        products, total = self.rows(2, slow=1)
        self.assertEqual({(row[3], row[7], row[11]) for row in products}, {("2", "0", "0.00")})
        self.assertEqual((total[0], total[3]), ("24 tokens", "0.00"))

    def test_without_nvml_there_are_no_joules(self):
        products, _ = self.rows(1, slow=-1, nvml=False)
        self.assertEqual({(row[5], row[6], row[9], row[10]) for row in products}, {("-",) * 4})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
