"""What a run says about its speed and its experts: slow ranks, faults of routers, and the files from which it knows them."""
import base64
import json
import re
import shutil
import statistics
import subprocess
import sys

import run
import saved

sys.path.insert(0, str(run.SOURCE / "jobs" / "python"))
from run_metrics import Speed  # noqa: E402
from run_record import newest_lines  # noqa: E402

SLOW_RANK = re.compile(r" W \[0\] rank 1 \(host n2\) computes (\d+) % slower than rank 0: check that node's")


class SlowRanks(run.PretrainTest):
    def lines(self, dump="run"):
        return [json.loads(line) for line in (self.folder / dump / "ranks.jsonl").read_text().splitlines()]

    def test_a_slow_rank_is_named_with_its_host(self):
        words = self.small(training__steps=12, training__seq_len=256, metrics__log_freq=3)
        host = ("-x", "SLURMD_NODENAME=n2", "-x", "ARGOSY_CPU_KERNELS=portable")
        done = self.run_ranks(1, *words, ":", "-n", 1, *host, run.PRETRAIN, *words,
                              environment={"SLURMD_NODENAME": "n1"})
        self.assert_code(done, 0)
        self.assertEqual(len(SLOW_RANK.findall(done.stderr)), 1, done)
        header, *windows = self.lines()
        self.assertEqual((header["hosts"], header["host_of_rank"]), (["n1", "n2"], [0, 1]))
        self.assertEqual([(line["step"], line["num_steps"]) for line in windows], [(1, 1), (3, 2), (6, 3), (9, 3), (12, 3)])
        for line in windows[1:]:
            self.assertGreater(line["compute_ms"][1], 1.1 * line["compute_ms"][0])

    def test_a_window_is_the_mean_of_its_steps(self):
        """Rank 0's own part is known from metrics.jsonl."""
        steps = self.steps_of(2, training__steps=6, metrics__log_freq=4, parallelism__tensor_parallel_degree=2)
        header, *windows = self.lines()
        self.assertEqual(header["mesh"], {"pp": 1, "dp_replicate": 1, "dp_shard": 1, "cp": 1, "tp": 2})
        self.assertEqual(len(header["hosts"]), 1)
        self.assertEqual([line["step"] for line in windows], [1, 4, 6])
        for line in windows:
            times = [step["time_ms"] for step in steps[line["step"] - line["num_steps"]:line["step"]]]
            for name in ("total", "compute", "data", "exposed"):
                sums = [sum(each[name].values()) if name == "exposed" else each[name] for each in times]
                mean = sum(sums) / len(sums)
                self.assertEqual(len(line[f"{name}_ms"]), 2)
                self.assertAlmostEqual(line[f"{name}_ms"][0], mean, delta=max(1e-3 * mean, 1e-6) if mean < 1000 else 1)


class Diagnosis(run.PretrainTest):
    PIPELINE = {"parallelism__pipeline_parallel_degree": 2, "training__local_batch_size": 1}

    def diagnoses(self, num_ranks, dump, **settings):
        done = self.run_ranks(num_ranks, *self.small(dump, **settings))
        self.assert_code(done, 0)
        return re.findall(r"diagnosis \(\w+\): (.*)", done.stderr)

    def test_a_pipeline_without_microbatches_is_explained(self):
        """With one microbatch each of two stages waits while the other one computes."""
        found = self.diagnoses(2, "run", training__steps=16, training__seq_len=128, **self.PIPELINE)
        about = [text for text in found if text.startswith("waiting for other pipeline stages takes ")]
        self.assertEqual(len(about), 1, found)
        self.assertIn("; the bubble of 1F1B with 1 microbatch is 50 %: twice as many have 33 % "
                      "(training.global_batch_size, or ", about[0])

    def test_a_short_run_has_no_diagnosis(self):
        self.assertEqual(self.diagnoses(2, "run", training__steps=9, **self.PIPELINE), [])

    def test_saves_that_stop_training_are_named(self):
        found = self.diagnoses(1, "run", training__steps=16, checkpoint__enable=True, checkpoint__interval=1,
                               checkpoint__async_mode="disabled")
        about = [text for text in found if text.startswith("saving stops training for ")]
        self.assertEqual(len(about), 1, found)
        self.assertIn(": --checkpoint.async_mode=async saves in the background; --checkpoint.interval=", about[0])


class Experts(run.PretrainTest):
    def test_uneven_experts_are_named_and_drawn(self):
        """Loads are never even, so that a plan for even ones is exceeded. The report has the counts of metrics.jsonl."""
        done = self.run_ranks(2, *self.small(model__name="qwen3_moe", training__steps=300, training__seq_len=16, metrics__log_freq=50,
                                             parallelism__expert_parallel_degree=2, moe__planned_imbalance=1))
        self.assert_code(done, 0)
        said = re.findall(r"([WI]) \[0\] experts \(uneven\): layer \d, the worst of \d such layers: the rank with the busiest experts got "
                          r"1\.\d\d times an equal share of the tokens in steps 201 to 300 ", done.stderr)
        self.assertEqual(said, ["W", "I"], done)
        steps = self.steps()
        self.assertGreater(steps[-1]["time_ms"]["exposed"]["ep"], 0)
        subprocess.run([sys.executable, run.SOURCE / "jobs/report.py", self.folder / "run"], check=True)
        page = (self.folder / "run/report.html").read_text()
        drawn, = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])["runs"]
        counted = {step["step"]: step["experts"]["counts"] for step in steps if "counts" in step["experts"]}
        self.assertEqual(sorted(counted), [1, 50, 100, 150, 200, 250, 300])
        for stretch in drawn["experts"]["stretches"]:
            counts = [count for layer in counted[stretch["first"]] for count in layer]
            cells = base64.b64decode(stretch["cells"], b"+-")
            order = sorted(range(len(cells)), key=lambda at: counts[at])
            self.assertEqual(len(cells), len(counts))
            self.assertEqual([byte == 0 for byte in cells], [count == 0 for count in counts])
            self.assertEqual([cells[at] for at in order], sorted(cells), "tokens are equal in each layer, so more of them are a larger byte")
        self.assertEqual([one["first"] for one in drawn["experts"]["stretches"]], sorted(counted))


class Regression(saved.SavedTest):
    """The earlier runs are copies of a real one, as if it had been ten times as fast or as slow."""
    STEPS = 25

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.of_class().steps_of(2, "old", training__steps=cls.STEPS)

    def setUp(self):
        super().setUp()
        shutil.copytree(self.shared / "old", self.folder / "old")

    def made(self, name, factor):
        """A copy of the old run with `factor` times the speed."""
        lines = []
        for step in self.steps("old"):
            times = step["time_ms"]
            for part in times:
                if part == "exposed":
                    times[part] = {axes: ms / factor for axes, ms in times[part].items()}
                elif isinstance(times[part], (int, float)):
                    times[part] /= factor
            for speed in ("tokens_per_second", "tokens_per_second_per_device", "model_tflops_per_device"):
                step[speed] *= factor
            lines.append(json.dumps(step) + "\n")
        (self.folder / name).mkdir()
        (self.folder / name / "metrics.jsonl").write_text("".join(lines))
        return self.folder / name

    def compared(self, baseline, code, **settings):
        settings = {"training__steps": self.STEPS, "metrics__baseline": baseline,
                    "checkpoint__interval": self.STEPS} | settings
        done = self.run_ranks(2, *self.saving(**settings))
        self.assert_code(done, code)
        return done

    def test_a_slower_run_is_saved_and_ends_with_3(self):
        fast = self.made("fast", 10)
        done = self.compared(fast, 3)
        said = re.search(r"E \[0\] slower than the baseline: (\S+) tokens/s, \d+\.\d % less than \S+/fast with (\S+) "
                         r"\(medians of \d+ and 20 steps; noise \d+\.\d %\)\. \w+ ?\w* takes .* more a step", done.stderr)
        self.assertTrue(said, done)
        # What the scripts say about the same files.
        for folder, speed in ((self.folder / "run", said[1]), (fast, said[2])):
            found = Speed(newest_lines(folder / "metrics.jsonl"))
            self.assertEqual(f"{2 * found.tokens_per_second_per_device:.5g}", f"{float(speed):.5g}")
        self.assertEqual(done.stderr.count("slower than the baseline"), 1, done)
        self.assertEqual(done.errors, [])
        self.assertIn(self.STEPS, self.whole_steps())
        self.assertIn(f"done after step {self.STEPS}", done.stderr)

    def test_a_faster_run_has_one_line(self):
        done = self.compared(self.made("slow", 0.1) / "metrics.jsonl", 0)
        self.assertRegex(done.stderr, r"I \[0\] \S+ tokens/s, \d+\.\d % more than \S+/slow/metrics\.jsonl with ")
        self.assertGreater(statistics.median(step["efficiency"] for step in self.steps()[1:]), 1)

    def test_a_baseline_that_does_not_fit_is_refused_at_the_start(self):
        (self.folder / "empty").mkdir()
        for baseline, settings, part in (
                ("old", {"training__seq_len": 64}, "128 tokens a step on 2 devices there, 256 on 2 here"),
                ("old", {"training__seq_len": 16, "training__local_batch_size": 4}, "another model or sequence length")):
            done = self.compared(self.folder / baseline, 2, **settings)
            self.assertEqual(len(done.errors), 1, done)
            self.assertIn(f"metrics.baseline = {self.folder / baseline}: ", done.errors[0])
            self.assertIn(part, done.errors[0])
            self.assertFalse((self.folder / "run" / "metrics.jsonl").exists(), "the run has started")
        alone = self.run_ranks(1, *self.saving(metrics__baseline=self.folder / "empty"))
        self.assert_one_error(alone, 2, f"metrics.baseline = {self.folder / 'empty'}: ", "empty/metrics.jsonl cannot be read")
        self.assertNotIn("MPI_ABORT", alone.stderr)  # nothing waits for a rank that is alone

    def test_too_few_steps_are_a_warning(self):
        done = self.compared(self.made("fast", 10), 0, training__steps=8)
        self.assertIn("W [0] too few steps to compare with ", done.stderr)


class Resumed(saved.SavedTest):
    def test_lines_of_repeated_steps_move_aside(self):
        settings = {"training__steps": 8, "metrics__log_freq": 2}
        self.train(2, **settings)
        self.train(2, checkpoint__load_step=4, **settings)
        steps = [json.loads(line).get("step") for line in (self.folder / "run/ranks.jsonl").read_text().splitlines()]
        self.assertEqual(steps, [None, 1, 2, 4, None, 5, 6, 8])
        aside = [json.loads(line)["step"] for line in (self.folder / "run/ranks.jsonl.aside").read_text().splitlines()]
        self.assertEqual(aside, [6, 8])


if __name__ == "__main__":
    run.main()
