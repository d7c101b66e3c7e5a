"""fabric_ab.sh with a made-up profile on a slow link: which variables it keeps. The first argument is the library of
slow_parts.c."""
import contextlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["ARGOSY_SOURCE"])
sys.path[:0] = [str(SOURCE / "jobs/python"), str(SOURCE / "tests" / "jobs")]
import fabric_ab  # noqa: E402
import noise  # noqa: E402

LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve()
REAL = pathlib.Path(os.environ["ARGOSY_BIN"])
# NCCL_MIN_CTAS=32 makes the link five times as fast, NCCL_PROTO=LL a third as fast. With NCCL_NTHREADS=512 nothing runs.
NCCL_BENCH = """#!/bin/bash
speed=18
[ "${{NCCL_MIN_CTAS-}}" != 32 ] || speed=$((speed * 5))
[ "${{NCCL_PROTO-}}" != LL ] || speed=$((speed / 3))
export ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD={library} SLOW_LINK=${{speed}}e6
[ "${{NCCL_NTHREADS-}}" != 512 ] || {{ echo "error: too many threads" >&2; exit 1; }}
exec {real}/nccl-bench "$@"
"""
PROFILE = """# reason
NCCL_MIN_CTAS=32
# reason
NCCL_COLLNET_ENABLE=0
# reason
NCCL_PROTO=LL
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
        noise.skip_if_busy(self, said)
        self.assertIn("\nWins: NCCL_MIN_CTAS=32: +", said)
        self.assertRegex(said, r"\nNCCL_MIN_CTAS=32: the bandwidth falls by [5-8]\d\.\d % without it \(noise \d+\.\d %\): it wins\n")
        self.assertRegex(said, r"\nchosen +\S+ +\+\d+\.\d +\d+\.\d +faster\n")
        output = self.folder / "fabric_ab" / "measured.conf"
        self.assertEqual(self.settings_of(output), ["NCCL_MIN_CTAS=32", "NCCL_COLLNET_ENABLE=0"])
        self.assertRegex(output.read_text(), r"\n# Without it, the bandwidth is [5-8]\d\.\d % lower \(noise ")
        self.assertTrue(said.endswith(self.script(PROFILE, "--report", "--local", "")), said)

    def test_a_variable_with_which_nothing_runs_is_left_out(self):
        said = self.script("# reason\nNCCL_MIN_CTAS=32\n# reason\nNCCL_NTHREADS=512\n", "--output", self.folder / "own.conf")
        self.assertRegex(said, r"\nwith +- +- +- +failed with exit code \d+: .*error: too many threads")
        noise.skip_if_busy(self, said)
        self.assertEqual(self.settings_of(self.folder / "own.conf"), ["NCCL_MIN_CTAS=32"])

    def test_nothing_wins(self):
        said = self.script("# reason\nNCCL_PROTO=LL\n")
        noise.skip_if_busy(self, said)
        self.assertIn("\nNo profile: nothing wins by more than noise", said)
        self.assertFalse((self.folder / "fabric_ab" / "measured.conf").exists())

    def test_wrong_use(self):
        own = self.folder / "own.conf"
        own.write_text("NCCL_ALGO=Tree\n")
        for words, part in ((("--profile", "other"), "there is no profile 'other' in "), (("--rounds", 1), "one round shows no noise"),
                            (("--report",), "has no result: call fabric_ab.sh without --report first"),
                            (("--output", own), "exists, and this script has not written it"),
                            (("--color", "red"), "unknown option --color"), (("--local", "two"), "two is not a number of ranks")):
            self.assertIn(part, self.script(PROFILE, *words, code=2))
        self.assertEqual(own.read_text(), "NCCL_ALGO=Tree\n")
        said = self.script(PROFILE, "--dry-run")
        self.assertIn("\n  but_NCCL_PROTO: NCCL_MIN_CTAS=32 -NCCL_PROTO NCCL_COLLNET_ENABLE=0\n", said)
        self.assertIn("\n  set for each, because it changes nothing: NCCL_COLLNET_ENABLE=0\n", said)
        self.assertNotIn("but_NCCL_COLLNET_ENABLE", said)
        self.assertIn("the profile has only values that change nothing (NCCL_DEBUG=WARN NCCL_IB_DISABLE=0): give another --profile",
                      self.script("# reason\nNCCL_DEBUG=WARN\n# reason\nNCCL_IB_DISABLE=0\n", "--dry-run", code=2))
        self.assertFalse((self.folder / "fabric_ab").exists())

    def test_nothing_is_measured_without_the_program(self):
        (self.folder / "programs" / "nccl-bench").unlink()
        self.assertIn("fabric_ab: nothing was measured, because the variant `without` failed with exit code ",
                      self.script(PROFILE, code=1))


class MadeUp(unittest.TestCase):
    """The profile that follows from bandwidths. A=1 and B=2 are its variables."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.facts = {"profile": "/jobs/fabric/some.conf", "values": {"A": "1", "B": "2"}, "harmless": {}, "collectives": ["all_reduce"], "sizes": "",
                      "bin": "/bin", "ranks": 2, "output": str(self.folder / "measured.conf")}

    def measured(self, folder, **bandwidths):
        for number in (1, 2, 3):
            for name, bandwidth in (bandwidths | {"without-again": bandwidths["without"]}).items():
                here = folder / f"round-{number}" / name
                here.mkdir(parents=True)
                (here / "code").write_text("0\n")
                row = {"out_of_place": {"bus_bw": bandwidth * (1 + 0.001 * number)}}
                (here / "all_reduce.json").write_text(json.dumps({"results": [row]}))

    def call(self, action):
        (self.folder / "facts.json").write_text(json.dumps(self.facts))
        return action(self.folder)

    def reported(self):
        """(what is printed, the profile's settings or None)."""
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(self.call(fabric_ab.report), 0)
        output = pathlib.Path(self.facts["output"])
        lines = output.read_text().splitlines() if output.exists() else None
        return said.getvalue(), lines and [line for line in lines if line and not line.startswith("#")]

    def test_each_of_two_suffices(self):
        """Without one of them nothing changes, but without both everything does: both stay, and are not measured again."""
        self.measured(self.folder, **{"without": 10, "with": 50, "but_A": 50, "but_B": 50})
        self.call(fabric_ab.choose)
        self.assertFalse((self.folder / "confirm").exists())
        said, settings = self.reported()
        self.assertEqual(settings, ["A=1", "B=2"])

    def test_the_chosen_ones_are_measured_together(self):
        self.measured(self.folder, **{"without": 10, "with": 50, "but_A": 30, "but_B": 50})
        self.call(fabric_ab.choose)
        plan = (self.folder / "confirm" / "plan").read_text()
        self.assertIn("chosen 2 A=1 -B -- /bin/nccl-bench all_reduce ", plan)
        for chosen, expected in ((50, ["A=1"]), (40, ["A=1", "B=2"])):  # 40: they need each other
            for path in self.folder.glob("confirm/round-*"):
                shutil.rmtree(path)
            self.measured(self.folder / "confirm", **{"without": 10, "with": 50, "chosen": chosen})
            self.assertEqual(self.reported()[1], expected)

    def test_without_the_second_part_nothing_is_written(self):
        """A and B win, but nothing measured them without C: the job ended after the first part, or before the chosen ones ran.
        A variant that has them alone stands for them."""
        self.facts["values"] = {"A": "1", "B": "2", "C": "3", "D": "4"}
        names = {"without": 10, "with": 50, "but_A": 30, "but_B": 30, "but_C": 50, "but_D": 50}
        self.measured(self.folder, **names)
        said, settings = self.reported()
        self.assertIn("\nThe experiments ended before the chosen variables were measured together.\nNo profile is written: call "
                      "fabric_ab.sh again with a longer --time.\n", said)
        self.assertEqual((settings, "nothing wins" in said), (None, False))
        self.call(fabric_ab.choose)
        self.assertIn("\nNo profile is written: ", self.reported()[0])  # the second part has not begun
        self.measured(self.folder / "confirm", **{"without": 10, "with": 50})
        said, settings = self.reported()
        self.assertIn("\nNo profile is written: ", said)
        self.assertEqual((settings, "nothing wins" in said), (None, False))
        shutil.rmtree(self.folder / "confirm")
        del self.facts["values"]["D"]
        self.assertEqual(self.reported()[1], ["A=1", "B=2"])  # but_C

    def test_a_profile_that_harms_is_not_written(self):
        self.measured(self.folder, **{"without": 50, "with": 10, "but_A": 10, "but_B": 50})
        self.call(fabric_ab.choose)
        self.assertEqual(self.reported()[1], None)


if __name__ == "__main__":
    unittest.main(verbosity=2)
