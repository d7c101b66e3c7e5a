"""status.sh --compare: the figures of runs in per cent of the first one's, and a run's efficiency, from made-up runs."""
import csv
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import made_up_runs

JOBS = pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "jobs"
STATUS = JOBS / "status.sh"


class CompareRuns(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.first, self.other = self.folder / "first", self.folder / "other"
        made_up_runs.plain_run(self.first, 30)
        made_up_runs.plain_run(self.other, 60, tokens_per_second_per_device=500.0, memory_peak_gib=25.125, mfu_causal=None)

    def compare(self, *words, code=0):
        done = subprocess.run([STATUS, "--compare", *words], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def test_figures_in_per_cent_of_the_first_run(self):
        first, other = csv.DictReader(io.StringIO(self.compare(self.first, self.other, "--format", "csv")))
        self.assertEqual({first[name] for name in first if name.endswith(" %") and name != "speed ± %"}, {"100.0"})
        self.assertEqual((first["steps"], other["steps"]), ("30", "60"))
        speed = float(first["tokens/s a GPU"])
        self.assertAlmostEqual(float(other["tokens/s a GPU %"]), 100 * 500 / speed)
        self.assertEqual(float(other["speed ± %"]), 0)
        self.assertGreater(float(first["speed ± %"]), 0)
        self.assertEqual(other["memory GiB of rank 0 %"], "50.0")
        self.assertEqual((other["MFU"], other["MFU %"]), ("", ""))
        self.assertEqual(other["loss %"], "100.0", "losses are compared up to the last step of both")

    def test_a_table_for_people(self):
        text = self.compare(self.first, self.other)
        self.assertRegex(text, r"(?m)^other +60 +500 +\d+\.\d +25\.125 +50\.0 +- +- ")
        self.assertIn("up to step 30", text)
        self.assertIn("other: its configuration, or the first run's, is not recorded", text)
        lines = self.compare(self.first, self.other, "--format", "markdown").splitlines()
        self.assertEqual({line.count("|") for line in lines[:4]}, {14})

    def test_a_file_that_cannot_be_read(self):
        """One line, also without --compare, here for a folder in place of the file."""
        for name in ("starts.jsonl", "metrics.jsonl"):
            path = self.other / name
            path.unlink(missing_ok=True)
            path.mkdir()
            expected = f"cannot read {path}: Is a directory\n"
            self.assertEqual(self.compare(self.first, self.other, code=2), "compare_runs: " + expected)
            done = subprocess.run([STATUS, self.other], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (2, "status: " + expected))
            path.rmdir()

    def test_expected_speeds_of_a_sweep(self):
        """The points of a sweep beside expected speeds, by their folders' names, and beside an earlier sweep's CSV."""
        sweep, expected = self.folder / "sweep", self.folder / "expected.csv"
        for number, speed in enumerate((90.0, 220.0)):
            made_up_runs.plain_run(sweep / f"point-000{number}", 30, tokens_per_second_per_device=speed)
        (sweep / "point-0002").mkdir()
        (sweep / "points").write_text("--a 1\n--a 2\n--a 3\n")
        expected.write_text("run,tokens/s a GPU,memory GiB\npoint-0000,100,1.5\npoint-0001,200,1.5\n")
        first, second = csv.DictReader(io.StringIO(self.compare(sweep, "--expected", expected, "--format", "csv")))
        self.assertEqual([(row["expected tokens/s"], row["expected tokens/s %"]) for row in (first, second)],
                         [("100.0", "90.0"), ("200.0", "110.0")])
        self.assertRegex(self.compare(sweep, "--expected", expected), r"(?m)^point-0001 .* 200 +110\.0$")
        expected.write_text(self.compare(sweep, "--format", "csv"))
        (sweep / "points").write_text("--a 3\n--a 1 --metrics.baseline x\n--a 2\n")  # other numbers for the same options
        self.assertRegex(self.compare(sweep, "--expected", expected), r"(?m)^point-0000 .* - +-$")
        self.assertRegex(self.compare(sweep, "--expected", expected), r"(?m)^point-0001 .* 90 +244\.4$")
        (sweep / "points").write_text("--a 1\n--a=2\n--a 3\n")
        self.assertRegex(self.compare(sweep / "point-0001", "--expected", expected), r"(?m)^point-0001 .* 220 +100\.0$")
        self.assertRegex(self.compare(self.first, "--expected", expected), r"(?m)^first .* - +-$")
        expected.write_text("run,tokens/s a GPU\nempty,\nfirst,100\n")
        self.assertRegex(self.compare(self.first, "--expected", expected), r"(?m)^first .* 100 +877\.5$")
        expected.write_text("run,speed\na,1\n")
        self.assertIn("has no columns `run` and `tokens/s a GPU`", self.compare(sweep, "--expected", expected, code=2))
        self.assertIn("cannot be read", self.compare(sweep, "--expected", self.folder / "none.csv", code=2))

    def test_expected_speeds_of_the_grids(self):
        """The tables of configs/expected have the options of their points, and a point is found by them alone."""
        for table in (JOBS.parent / "configs" / "expected").glob("*.csv"):
            lines = table.with_suffix(".points").read_text().splitlines()
            with open(table, newline="") as file:
                rows = list(csv.DictReader(file))
            self.assertEqual([row["settings"] for row in rows], lines, table)
            sweep = self.folder / table.stem
            made_up_runs.plain_run(sweep / "point-0000", 30)
            (sweep / "points").write_text(lines[-1] + "\n")
            found = next(csv.DictReader(io.StringIO(self.compare(sweep, "--expected", table, "--format", "csv"))))
            self.assertEqual(float(found["expected tokens/s"]), float(rows[-1]["tokens/s a GPU"]))

    def test_a_speed_of_nothing_and_a_bar_in_a_name(self):
        still = self.folder / "a|b"
        made_up_runs.plain_run(still, 30, tokens_per_second_per_device=0.0)
        lines = self.compare(self.first, still, "--format", "markdown").splitlines()
        self.assertIn("a\\|b", lines[3])
        self.assertTrue(lines[3].endswith("| - |"), lines[3])

    def test_settings_that_differ(self):
        runs = [self.folder / "a", self.folder / "b"]
        for run in runs:
            made_up_runs.started_run(run)
        config = runs[1] / "starts.jsonl"
        config.write_text(config.read_text().replace("2_000", "3_000"))
        text = self.compare(*runs)
        self.assertEqual([line for line in text.splitlines() if line.startswith("b: ")],
                         ["b: training.steps = 3_000 (first run: 2_000)"])

    def status(self, *words):
        return subprocess.run([STATUS, *words], capture_output=True, text=True, check=True).stdout

    def test_efficiency(self):
        """The run's metrics.baseline, or the run on the command line; the first five steps do not count."""
        base, slow = self.folder / "base", self.folder / "slow"
        made_up_runs.plain_run(base, 30, tokens_per_second_per_device=200.0)
        lines = [made_up_runs.line_of(step, tokens_per_second_per_device=1.0 if step < 6 else 174.0) for step in range(1, 9)]
        slow.mkdir()
        made_up_runs.write_lines(slow / "metrics.jsonl", lines)
        self.assertNotIn("efficiency", self.status(slow))
        (slow / "effective.toml").write_text(f'[metrics]\nbaseline = "{base}/metrics.jsonl"\n')
        self.assertIn(f"efficiency 87 % of {base}/metrics.jsonl, 174 and 200 tokens/s a GPU", self.status(slow))
        self.assertIn(f"efficiency 35 % of {self.other}, ", self.status(slow, "--baseline", self.other))
        self.assertIn("efficiency unknown: there is no folder /nowhere\n", self.status("--baseline=/nowhere", slow))
        sweep, again = self.folder / "sweep", self.folder / "again"
        for folder, lines in ((sweep, "--a.b 1\n--a.b 2e-3\n"), (again, "--a.b=0.002\n--a.b 3\n")):
            folder.mkdir()
            (folder / "points").write_text(lines)
        self.assertIn(f"efficiency unknown: {sweep} is a sweep; name one of its points\n", self.status(slow, "--baseline", sweep))
        base.rename(sweep / "point-0001")
        shutil.copytree(slow, again / "point-0001")
        slow.rename(again / "point-0000")
        said = self.status(again, "--baseline", sweep)
        self.assertIn(f"efficiency 87 % of {sweep}/point-0001, 174 and 200 ", said)
        self.assertIn(f"efficiency unknown: no point of {sweep} has the options --a.b 3\n", said)

    def test_one_speed(self):
        """status.sh, report.py, bringup.sh and why_slow.py mean the same by a run's speed: the median of the newest 50 steps that
        count, and of each step the newest line. Every tenth step, whose time is 1000 times as long, saves."""
        sys.path.insert(0, str(JOBS / "python"))
        import why_slow
        script = (JOBS / "bringup.sh").read_text()
        speed = script[script.index("speed() {"):]
        speed = f"ARGOSY_JOBS={JOBS}\n{speed.splitlines()[0]}\nspeed "
        for number, median in ((20, 13), (100, (72 + 73) / 2)):  # steps 6 to 19 without 10; 45 to 99 without 50, 60, ...
            folder = self.folder / f"steps-{number}"
            folder.mkdir()
            lines = [made_up_runs.line_of(step, tokens_per_second_per_device=float(step)) for step in range(1, number + 1)]
            for line in lines:
                line["time_ms"]["total"] = float(line["step"])
            for line in lines[9::10]:
                line["time_ms"]["total"] *= 1000
                line["counts_for_speed"] = False
            replaced = [made_up_runs.line_of(step, tokens_per_second_per_device=1e6) for step in range(number - 9, number + 1)]
            made_up_runs.write_lines(folder / "metrics.jsonl", [*lines[:-10], *replaced, *lines[-10:]])
            self.assertIn(f", {median:g} and ", self.status(folder, "--baseline", self.other))
            self.assertRegex(self.status(folder), rf"tokens/s +{4096e3 / median:.0f}, {median / 1000:.3g} s a step")
            subprocess.run([JOBS / "report.py", folder, "--html", folder / "page", "--prometheus", folder / "prom"], check=True)
            self.assertIn(f"{float(f'{4096e3 / median:.4g}'):.0f} tokens/s, {median / 1000:.3g} s a step (median", (folder / "page").read_text())
            self.assertRegex((folder / "prom").read_text(), rf"(?m)^argosy_median_step_seconds{{.*}} {median * 1e-3!r}$")
            said = subprocess.run(["bash", "-c", speed + str(folder)], capture_output=True, text=True, check=True).stdout
            self.assertEqual(float(said), median)
            self.assertEqual(why_slow.speed_of(folder).step_ms, median)
            steps = next(csv.DictReader(io.StringIO(self.compare(folder, self.other, "--format", "csv"))))
            self.assertEqual(float(steps["tokens/s a GPU"]), median)

    def test_validations_count_for_the_end(self):
        """Every tenth step takes 90 seconds more: 6 of the 56 steps since the oldest of the 50 that count."""
        run = self.folder / "validated"
        run.mkdir()
        lines = [made_up_runs.line_of(step) for step in range(1, 101)]
        for line in lines:
            line["time_ms"]["total"] = 1000.0
        for line in lines[9::10]:
            line["time_ms"]["total"] += 90000
            line["counts_for_speed"] = False
        made_up_runs.write_lines(run / "metrics.jsonl", lines)
        (run / "effective.toml").write_text("[training]\nsteps = 200\n")
        self.assertRegex(self.status(run), r"1 s a step\n +ETA +0:17:44\n")
        subprocess.run([JOBS / "report.py", run, "--html", run / "page"], check=True)
        self.assertIn('["To go","0:17:44"]', (run / "page").read_text())

    def test_a_run_whose_steps_do_not_count(self):
        """It shows its newest step, but has no speed to compare with. All steps of earlier versions count."""
        run = self.folder / "young"
        lines = made_up_runs.plain_run(run, 4)
        said = self.status(run, "--baseline", self.other)
        self.assertIn(f", {lines[-1]['time_ms']['total'] / 1000:.3g} s a step\n", said)
        self.assertIn("efficiency unknown: this run has no step yet that counts\n", said)
        for line in lines:
            del line["counts_for_speed"]
        made_up_runs.write_lines(run / "metrics.jsonl", lines)
        self.assertRegex(self.status(run, "--baseline", self.other), r"efficiency \d+ % of ")

    def test_errors(self):
        self.assertIn("one run alone", self.compare(self.first, code=2))
        self.assertIn("a run is named twice", self.compare(self.first, self.other, self.first.parent / "other", code=2))
        done = subprocess.run([STATUS, self.first, "--compare", self.other], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--compare comes first", done.stderr)
        self.assertIn("there is no folder", self.compare(self.first, self.folder / "none", code=2))
        (self.folder / "empty").mkdir()
        self.assertIn("has no step yet", self.compare(self.first, self.folder / "empty", code=2))


if __name__ == "__main__":
    unittest.main()
