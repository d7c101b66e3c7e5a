"""why_slow.sh on runs with planted slowness: it names the right factor. The first argument is the library of slow_parts.c. What
needs no times is tested by why_slow_use_test.py, which may run beside other suites."""
import re

import noise
import why_slow_case
from why_slow_case import run

LINE = re.compile(r"^Factor: (.*)\. It takes (\d+) % of a step \(noise (\d+\.\d) %\)\.$", re.MULTILINE)


class WhySlow(why_slow_case.WhySlowTest):
    def explained(self, ranks, only, settings=None, **environment):
        """Trains a run with planted slowness, and what why_slow.sh says about it: (factor, everything)."""
        words = self.small(training__steps=12, training__seq_len=64, **(settings or {}))
        done = self.run_ranks(ranks, *words, environment=environment, program=(self.bin / "pretrain",))
        self.assert_code(done, 0)
        said = self.script(self.folder / "run", "--local", ranks, "--rounds", 2, "--steps", 12, "--only", only, **environment)
        noise.skip_if_busy(self, said)
        found = LINE.search(said)
        self.assertTrue(found, said)
        factor, share, share_noise = found[1], float(found[2]), float(found[3])
        self.assertGreater(share, share_noise, said)  # a slower machine takes a smaller share for the planted part
        return factor, said

    def test_a_slow_link(self):
        factor, said = self.explained(2, "one_rank,small_data,ddp", {"comm__shared_memory": False}, SLOW_LINK="200e6")
        self.assertTrue(factor.startswith("communication between ranks"), said)

    def test_a_slow_rank(self):
        factor, said = self.explained(2, "one_rank,small_data", SLOW_RANK="1")
        self.assertRegex(factor, r"^a slow rank: rank 1 \(host \S+\) computes \d+ % slower than rank 0", said)

    def test_a_slow_loader(self):
        factor, said = self.explained(1, "small_data,compile_off", SLOW_FILE="tiny.h5", SLOW_READ="0.05")
        self.assertEqual(factor, f"reading the data ({self.tokens})", said)

    def test_a_variable(self):
        factor, said = self.explained(1, "without_ARGOSY_CPU_KERNELS,small_data", ARGOSY_CPU_KERNELS="portable")
        self.assertEqual(factor, "the variable ARGOSY_CPU_KERNELS=portable", said)
        self.assertIn("\nTo change it: unset the variable, in the shell, ", said)


if __name__ == "__main__":
    run.main()
