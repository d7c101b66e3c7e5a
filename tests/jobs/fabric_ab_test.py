"""fabric_ab.sh with a made-up profile on a slow link: which variables it keeps. The first argument is the library of
slow_parts.c."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["ARGOSY_SOURCE"])
LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve()
REAL = pathlib.Path(os.environ["ARGOSY_BIN"])
# The link is fast with NCCL_MIN_CTAS=32, and with NCCL_NTHREADS=512 nothing runs. Messages over TCP are really slower.
NCCL_BENCH = """#!/bin/bash
export ASAN_OPTIONS=verify_asan_link_order=0
[ "${{NCCL_MIN_CTAS-}}" = 32 ] || export LD_PRELOAD={library} SLOW_LINK=100e6
[ "${{NCCL_NTHREADS-}}" != 512 ] || {{ echo "error: too many threads" >&2; exit 1; }}
exec {real}/nccl-bench "$@"
"""
PROFILE = """# reason
NCCL_MIN_CTAS=32
# reason
NCCL_COLLNET_ENABLE=0
# reason
OMPI_MCA_btl=self,tcp
"""


class FabricAB(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.jobs = self.folder / "jobs"
        shutil.copytree(SOURCE / "jobs", self.jobs)
        (self.folder / "programs").mkdir()
        program = self.folder / "programs" / "nccl-bench"
        program.write_text(NCCL_BENCH.format(library=LIBRARY, real=REAL))
        program.chmod(0o755)

    def script(self, profile, *words, code=0, **environment):
        (self.jobs / "fabric" / "made-up.conf").write_text(profile)
        done = subprocess.run([self.jobs / "fabric_ab.sh", "--local", "2", "--profile", "made-up", "--rounds", "2", "--collectives",
                               "all_reduce", "--sizes", "-b 256K -e 256K -n 5", *map(str, words)], text=True, timeout=300,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | {
                                  "ARGOSY_BIN": str(self.folder / "programs"), "ARGOSY_GPUS": "no",
                                  "ARGOSY_SCRATCH": str(self.folder)} | environment)
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def settings_of(self, output):
        return [line for line in output.read_text().splitlines() if line and not line.startswith("#")]

    def test_what_wins_is_written(self):
        """The shell has set the variable that helps; the variants without it unset it all the same."""
        said = self.script(PROFILE, NCCL_MIN_CTAS="32")
        self.assertIn("\nWins: NCCL_MIN_CTAS=32: +", said)
        self.assertRegex(said, r"\nNCCL_MIN_CTAS=32: the bandwidth falls by [89]\d\.\d % without it \(noise \d+\.\d %\): it wins\n")
        self.assertRegex(said, r"\nchosen +\S+ +\+\d+\.\d +\d+\.\d +faster\n")
        output = self.folder / "fabric_ab" / "measured.conf"
        self.assertEqual(self.settings_of(output), ["NCCL_MIN_CTAS=32"])
        self.assertRegex(output.read_text(), r"\n# Without it, the bandwidth is [89]\d\.\d % lower \(noise ")
        self.assertTrue(said.endswith(self.script(PROFILE, "--report")), said)

    def test_a_variable_with_which_nothing_runs_is_left_out(self):
        said = self.script("# reason\nNCCL_MIN_CTAS=32\n# reason\nNCCL_NTHREADS=512\n", "--output", self.folder / "own.conf")
        self.assertRegex(said, r"\nwith +- +- +- +failed with exit code \d+: .*error: too many threads")
        self.assertEqual(self.settings_of(self.folder / "own.conf"), ["NCCL_MIN_CTAS=32"])

    def test_nothing_wins(self):
        said = self.script("# reason\nOMPI_MCA_btl=self,tcp\n")
        self.assertIn("\nNo profile: nothing wins by more than noise", said)
        self.assertFalse((self.folder / "fabric_ab" / "measured.conf").exists())

    def test_wrong_use(self):
        own = self.folder / "own.conf"
        own.write_text("NCCL_ALGO=Tree\n")
        for words, part in ((("--profile", "other"), "there is no profile 'other' in "), (("--rounds", 1), "one round shows no noise"),
                            (("--report",), "has no result: call fabric_ab.sh without --report first"),
                            (("--output", own), "exists, and this script has not written it"),
                            (("--color", "red"), "unknown option --color"), (("--local", "two"), "'two' is not a number of here")):
            self.assertIn(part, self.script(PROFILE, *words, code=2))
        self.assertEqual(own.read_text(), "NCCL_ALGO=Tree\n")
        self.assertIn("\n  but_OMPI_MCA_btl: NCCL_MIN_CTAS=32 NCCL_COLLNET_ENABLE=0 -OMPI_MCA_btl\n", self.script(PROFILE, "--dry-run"))
        self.assertFalse((self.folder / "fabric_ab").exists())

    def test_nothing_is_measured_without_the_program(self):
        (self.folder / "programs" / "nccl-bench").unlink()
        self.assertIn("fabric_ab: nothing was measured, because the variant `without` failed with exit code ",
                      self.script(PROFILE, code=1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
