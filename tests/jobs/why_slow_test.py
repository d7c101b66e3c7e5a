"""why_slow.sh on runs with planted slowness: it names the right factor. The first argument is the library of slow_parts.c."""
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ["ARGOSY_SOURCE"])
sys.path[:0] = [str(SOURCE / "tests" / "pretrain"), str(SOURCE / "jobs")]
import run  # noqa: E402
import slow_variants  # noqa: E402

LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve()
REAL = pathlib.Path(os.environ["ARGOSY_BIN"])
LINE = re.compile(r"^Factor: (.*)\. It takes (\d+) % of a step \(noise (\d+\.\d) %\)\.$", re.MULTILINE)
# The slow rank is rank 1, also of a job of one node. Programs start with the library, and the sanitizers' comes after it.
PRETRAIN = """#!/bin/bash
export LD_PRELOAD={library} ASAN_OPTIONS=verify_asan_link_order=0
[ "${{SLOW_RANK-}}" != "${{OMPI_COMM_WORLD_RANK-}}" ] || export ARGOSY_CPU_KERNELS=portable
exec {real}/pretrain "$@"
"""


class WhySlow(run.PretrainTest):
    def setUp(self):
        super().setUp()
        self.bin = self.folder / "programs"
        self.bin.mkdir()
        (self.bin / "pretrain").write_text(PRETRAIN.format(library=LIBRARY, real=REAL))
        (self.bin / "pretrain").chmod(0o755)
        (self.bin / "prepare-data").symlink_to(REAL / "prepare-data")

    def script(self, *words, code=0, **environment):
        """Output of why_slow.sh, which it also checks for the exit code."""
        done = subprocess.run([SOURCE / "jobs" / "why_slow.sh", *map(str, words)], text=True, timeout=300, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=os.environ | {"ARGOSY_BIN": str(self.bin), "ARGOSY_GPUS": "no"} | environment)
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def explained(self, ranks, only, settings=None, **environment):
        """Trains a run with planted slowness, and what why_slow.sh says about it: (factor, share, noise, everything)."""
        words = self.small(training__steps=12, training__seq_len=64, **(settings or {}))
        done = self.run_ranks(ranks, *words, environment=environment, program=(self.bin / "pretrain",))
        self.assert_code(done, 0)
        said = self.script(self.folder / "run", "--local", ranks, "--rounds", 2, "--steps", 12, "--only", only, **environment)
        found = LINE.search(said)
        self.assertTrue(found, said)
        factor, share, noise = found[1], float(found[2]), float(found[3])
        self.assertGreater(share, 3 * noise, said)
        if "SHOW" in os.environ: print(said)
        return factor, share, noise, said

    def test_a_slow_link(self):
        factor, share, _, said = self.explained(2, "one_rank,small_data,ddp", {"comm__shared_memory": False}, SLOW_LINK="800e6")
        self.assertTrue(factor.startswith("communication between ranks"), said)
        self.assertGreater(share, 50, said)

    def test_a_slow_rank(self):
        factor, share, _, said = self.explained(2, "one_rank,small_data", SLOW_RANK="1")
        self.assertRegex(factor, r"^a slow rank: rank 1 \(host \S+\) computes \d+ % slower than the median of 2 ranks", said)
        self.assertGreater(share, 50, said)

    def test_a_slow_loader(self):
        factor, share, _, said = self.explained(1, "small_data,compile_off", SLOW_FILE="tiny.h5", SLOW_READ="0.012")
        self.assertEqual(factor, f"reading the data ({self.tokens})", said)
        self.assertGreater(share, 50, said)

    def test_a_variable(self):
        factor, share, _, said = self.explained(1, "without_ARGOSY_CPU_KERNELS,small_data", ARGOSY_CPU_KERNELS="portable")
        self.assertEqual(factor, "the variable ARGOSY_CPU_KERNELS=portable", said)
        self.assertIn("\nTo change it: unset ARGOSY_CPU_KERNELS,", said)
        self.assertGreater(share, 50, said)


if __name__ == "__main__":
    run.main()
