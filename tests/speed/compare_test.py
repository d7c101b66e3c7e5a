"""The comparison with PyTorch at tiny sizes, against a stand-in for the peer that reports the results that a test sets.
"""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import compare_pytorch  # noqa: E402
import comparison  # noqa: E402
from runs import Run, Sizes  # noqa: E402

TINY = ["--dim=64", "--layers=2", "--heads=2", "--hidden=128", "--vocab=512", "--seq=32", "--batch=2", "--quick",
        "--limit=30", "--dtype=fp32"]
WAIT_SECONDS = 50
LOSS = 6.7  # ln(512) = 6.24, and 1/2 from the head's logits


def claim(**changes):
    """The report of a peer."""
    return dict(tokens_per_step=128, step_seconds=[1.0, 1.0, 1.0], losses=[LOSS] * 3, first_step_seconds=9.0,
                peak_mib=2000.0) | changes


class ComparisonTest(unittest.TestCase):
    def contender(self, **changes):
        values = dict(name="one", dtype="bf16", best_tokens_per_second=100.0, median_tokens_per_second=90.0,
                      peak_mib=100.0, first_step_seconds=1.0, first_loss=9.4)
        return comparison.Contender(**(values | changes))

    def figures(self, ours, peers):
        floor = comparison.Floor(best_tokens_per_second=150, median_tokens_per_second=150, attention_share=0.25,
                                 flops_per_token=1e9, peak_gflops=200)
        return {figure.name: figure for figure in comparison.figures(ours, peers, floor)}

    def test_a_contender_is_its_runs_without_their_first_steps(self):
        runs = [Run(1000, [9.0, 2.0, 4.0], [6.5], 3.0, 10.0), Run(1000, [1.0, 5.0, 8.0], [6.5], 2.0, 12.0)]
        one = comparison.Contender.of("one", "fp32", runs)
        self.assertEqual((one.best_tokens_per_second, one.median_tokens_per_second), (1000 / 2, 1000 / 4.5))
        self.assertEqual((one.peak_mib, one.first_step_seconds), (12, 2))

    def test_each_target_is_met_at_its_value_and_missed_beyond(self):
        for attribute, good, bad, name in [
                ("best_tokens_per_second", 176.0, 175.0, "share of the processor's peak, whole step, GFLOP/s"),
                ("best_tokens_per_second", 90.0, 89.0, "share of the products' floor, best"),
                ("best_tokens_per_second", 108.0, 107.0, "share of the floor with attention's products, best"),
                ("peak_mib", 60.0, 61.0, "peak memory of a rank, MiB"),
                ("first_step_seconds", 0.2, 0.21, "command to end of first step, s")]:
            for value, met in ((good, True), (bad, False)):
                figure = self.figures(self.contender(**{attribute: value}), [self.contender()])[name]
                self.assertIs(figure.met, met, f"{name} {value}")

    def test_the_share_of_attention_is_that_of_the_loops(self):
        sizes = Sizes(dim=6, layers=2, heads=3, hidden=5, vocab=7, seq=4, batch=3)
        pairs = sum(1 for query in range(4) for key in range(4) if key <= query)
        attention = 2 * 7 * 2 * pairs * 6  # layers, products; 2 FLOPs per element of a head
        matrices = [(6, 6)] * 4 + [(6, 5)] * 3
        others = 4 * 3 * 2 * (2 * sum(m * n for m, n in matrices) + 6 * 7)
        self.assertAlmostEqual(sizes.attention_share, attention / others)

    def test_the_peer_counts_with_its_best_variant_in_each_figure(self):
        peers = [self.contender(best_tokens_per_second=300.0, peak_mib=50.0), self.contender(first_step_seconds=0.5),
                 self.contender(best_tokens_per_second=999.0, full=False)]
        figures = self.figures(self.contender(), peers)
        self.assertEqual(figures["tokens/s, best step"].other, 300)
        self.assertEqual(figures["peak memory of a rank, MiB"].other, 50)
        self.assertEqual(figures["command to end of first step, s"].other, 0.5)

    def test_the_ratio_to_eager_is_shown_and_not_judged(self):
        eager, other = self.contender(name="PyTorch eager", best_tokens_per_second=1e6), self.contender()
        figures = self.figures(self.contender(), [eager, other])
        figure = figures["tokens/s, best step, PyTorch eager bf16"]
        self.assertEqual((figure.other, figure.met), (1e6, None))
        self.assertIsNone(figures["tokens/s, best step"].met)

    def test_a_loss_far_from_that_of_random_tokens_is_an_error(self):
        fine = self.contender()
        self.assertEqual(comparison.check_losses([fine, self.contender(first_loss=9.5)], 8192), [])
        self.assertEqual(len(comparison.check_losses([fine, self.contender(first_loss=2.0)], 8192)), 2)
        self.assertEqual(len(comparison.check_losses([fine, self.contender(first_loss=float("nan"))], 8192)), 1)


class VariantsTest(unittest.TestCase):
    def variants(self, words, bf16_gflops):
        their_peer = mock.Mock()
        their_peer.gflops.return_value = dict(bf16_gflops=bf16_gflops, fp32_gflops=80)
        return compare_pytorch.variants(compare_pytorch.parse(words), their_peer)

    def test_fast_bf16_is_compared_with_bf16(self):
        chosen, remarks = self.variants([], 300)
        self.assertEqual([one.name for one in chosen],
                         ["PyTorch eager", "PyTorch compiled", "PyTorch compiled with head and loss",
                          "PyTorch compiled with head and loss, tuned malloc"])
        self.assertEqual({(one.dtype, one.short) for one in chosen}, {("bf16", False)})
        self.assertEqual(remarks, [])

    def test_if_bf16_is_slow_the_peer_is_compared_in_fp32(self):
        chosen, remarks = self.variants([], 1)
        self.assertEqual([(one.dtype, one.short) for one in chosen], [("fp32", False)] * 4 + [("bf16", True)])
        self.assertEqual(chosen[-1].name, "PyTorch eager, 1 x 64 tokens")
        self.assertIn("1.0 GFLOP/s against 80.0 in fp32", remarks[0])

    def test_requested_types_run_in_full(self):
        chosen, _ = self.variants(["--peer-types=both"], 1)
        self.assertEqual([one.short for one in chosen], [False] * 8)


class WholeTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def compare(self, *arguments, says=None):
        """(exit status, stdout, stderr) of the comparison against a peer with this report."""
        stand_in = self.folder / "python"
        if says:
            stand_in.write_text(f"#!/bin/sh\necho '{json.dumps(says)}'\n")
            stand_in.chmod(0o755)
        done = subprocess.run([HERE / "compare_pytorch.sh", *TINY, *arguments], capture_output=True, text=True,
                              env=os.environ | {"ARGOSY_PEER_PYTHON": str(stand_in)})
        return done.returncode, done.stdout, done.stderr

    def test_without_a_peer_argosy_is_compared_with_the_floor(self):
        file = self.folder / "report.json"
        code, out, err = self.compare("--case", "fsdp", "--without-peer", "--json", file)
        self.assertEqual(code, 0, err)
        report = json.loads(file.read_text())
        self.assertEqual([case["name"] for case in report["cases"]], ["2 ranks, FSDP, one thread each"])
        for case in report["cases"]:
            ours, = case["contenders"]
            self.assertGreater(ours["peak_mib"], 50)
            self.assertLess(ours["first_step_seconds"], 30)
            share = next(one for one in case["figures"] if one["name"] == "share of the products' floor, best")
            self.assertGreater(share["ratio"], 0)
            self.assertGreater(max(case["peaks"].values()), 0)
            whole = next(one for one in case["figures"] if one["name"].startswith("share of the processor's peak"))
            self.assertTrue(0 < whole["ratio"] < 1, whole)
        self.assertIn("not measured", out)

    def test_check_exits_with_3_if_a_target_is_missed(self):
        code, out, err = self.compare("--case", "fsdp", "--check", says=claim(step_seconds=[1e-6] * 3))
        self.assertEqual(code, 3, out + err)
        self.assertRegex(out, r"share of the processor's peak, whole step, GFLOP/s .* missed")
        self.assertRegex(out, r"peak memory of a rank, MiB .* met")

    def test_a_broken_run_is_not_compared(self):
        code, _, err = self.compare("--case", "fsdp", says=claim(losses=[2.0] * 3))
        self.assertEqual(code, 1)
        self.assertIn("the first loss is 2.000, not near ln(512)", err)

    def test_ended_by_a_signal_it_leaves_nothing(self):
        scratch = self.folder / "scratch"
        scratch.mkdir()
        process = subprocess.Popen([HERE / "compare_pytorch.sh", *TINY[:-3], "--steps=4000", "--without-peer"],
                                   env=os.environ | {"TMPDIR": str(scratch)}, stderr=subprocess.DEVNULL)
        self.addCleanup(process.terminate)
        self.wait_until(lambda: list(scratch.glob("compare-*/*/metrics.jsonl")))
        process.terminate()
        self.assertEqual(process.wait(WAIT_SECONDS), 143)
        self.assertEqual(list(scratch.iterdir()), [])
        self.wait_until(lambda: not self.commands_naming(scratch))

    def wait_until(self, condition):
        end = time.monotonic() + WAIT_SECONDS
        while not condition():
            self.assertLess(time.monotonic(), end, "it does not come about")
            time.sleep(0.05)

    @staticmethod
    def commands_naming(folder):
        found = []
        for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                found += [file] if str(folder).encode() in file.read_bytes() else []
        return found

    def test_without_a_python_it_says_how_to_make_one(self):
        code, _, err = self.compare()
        self.assertEqual(code, 2)
        self.assertIn("pip install torch==", err)


if __name__ == "__main__":
    unittest.main()
