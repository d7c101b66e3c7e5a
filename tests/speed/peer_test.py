"""The peer itself, at tiny sizes: it trains correctly. Skipped without PyTorch."""
import math
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import peer  # noqa: E402
from runs import Layout, Sizes  # noqa: E402

SIZES = Sizes(dim=64, layers=2, heads=2, hidden=128, vocab=512, seq=32, batch=2)
LIMIT = 50


class PeerTest(unittest.TestCase):
    @staticmethod
    def train(layout, dtype="fp32"):
        variant = peer.Variant(dtype, keeps_memory=True)
        run = peer.Peer(peer.find_python(), "unused").train(SIZES, layout, variant, 3, LIMIT)
        assert run is not None, f"no end within {LIMIT} s"
        return run

    @classmethod
    def setUpClass(cls):
        cls.one = cls.train(Layout(1, 1))

    def test_ranks_under_torchrun_train_as_one_process_does(self):
        one, two = self.one, self.train(Layout(2, 1))
        self.assertEqual((one.tokens_per_step, two.tokens_per_step), (64, 128))
        self.assertEqual(one.losses[0], two.losses[0], "rank 0 has the same weights and samples")
        for run in (one, two):
            self.assertEqual(len(run.step_seconds), 3)
            self.assertLess(abs(run.losses[0] - math.log(SIZES.vocab) - 0.5), 0.25)
            self.assertGreater(run.first_step_seconds, run.step_seconds[0])
            self.assertGreater(run.peak_mib, 50)

    def test_bf16_rounds(self):
        exact, rounded = self.one.losses[0], self.train(Layout(1, 1), "bf16").losses[0]
        self.assertNotEqual(exact, rounded)
        self.assertLess(abs(exact - rounded), 0.05)


if __name__ == "__main__":
    if not peer.find_python():
        print(f"skipped: no Python with PyTorch; {peer.REMEDY}")
        sys.exit(77)
    unittest.main()
