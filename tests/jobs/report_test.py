#!/usr/bin/env python3
"""Tests report.py over made-up runs: the page's data are the run's, the page is whole and names nothing outside itself, its
script draws (where Chromium is installed), and the CSV and Prometheus files hold the same figures."""
import csv
import json
import math
import os
import pathlib
import re
import resource
import shutil
import subprocess
import time
import unittest
import unittest.mock

from made_up_runs import RANKS, job_run, line_of, long_run, plain_run, started_run, write_lines
from page_case import CHROMIUM, JOBS, NODE, PageTest
from report_parsers import figures_of

import prometheus_text
import report

EVALUATED = pathlib.Path(__file__).with_name("evaluated.jsonl")  # lines of pretrain, which evaluated three tasks in steps 2 and 3
MAX_SECONDS = 15

SHOW = """
console.log(JSON.stringify({charts: charts.map(({spec, plot}) => [spec.title, plot.querySelector("svg").innerHTML]), below: made.charts.below}));
"""


class ReportTest(PageTest):
    def reloads(self, page):
        return '<meta http-equiv="refresh"' in page.read_text()

    def assert_columns(self, points, lines):
        """The series of a page that shows every step are the run's values."""
        self.assertEqual(points["first"], [line["step"] for line in lines])
        self.assertEqual(points["last"], points["first"])
        for name, series in points["series"].items():
            keys = name.split(".")
            expected = lines
            for key in keys:
                expected = [(line or {}).get(key) for line in expected]
            self.assertEqual(series, {"mean": expected}, name)

    def test_plain_run(self):
        lines = plain_run(self.folder / "run", 30, mfu_causal=None, mfu_noncausal=None, datasheet_tflops=None,
                          number_types={"compute": "float32", "master": "float32", "reduce": "float32"}, compute_type_tflops=67.0)
        run = self.page(self.folder / "run")["runs"][0]
        overview = dict(run["overview"])
        self.assertEqual(overview["Number types"],
                         "computes in float32, weights in float32, gradients summed over ranks in float32")
        self.assertIn("of the run's type 67 TFLOP/s", overview["Peak of MFU"])
        plain_run(self.folder / "float8", 3, number_types={"compute": "bfloat16", "master": "float32", "reduce": "float32",
                                                           "products": "float8 tensorwise"})
        self.assertIn("computes in bfloat16, products in float8 tensorwise, weights",
                      dict(self.page(self.folder / "float8")["runs"][0]["overview"])["Number types"])
        self.assert_columns(run["points"], lines)
        self.assertEqual(set(run["points"]["series"]), {
            "loss", "grad_norm", "lr", "tokens", "tokens_per_second", "tokens_per_second_per_device", "model_tflops_per_device",
            "memory_peak_gib", "rss_gib", "memory_retries", "skipped_updates", *(f"time_ms.{part}" for part in (
                "total", "compute", "data", "optimizer", "checkpoint", "validation", "evaluation", "other", "exposed.tp", "exposed.pp",
                "exposed.dp_shard"))})
        self.assertEqual((run["state"], run["jobs"], run["mesh"], run["restarts"]), ("running", [], {}, []))

    def test_the_kinds_of_compute(self):
        kinds = {"forward": 30.0, "recompute": 10.5, "head": 5.0, "backward": 40.0, "weights": 12.0, "other": 2.5}
        plain_run(self.folder / "run", 30, compute_kinds_ms=kinds)
        series = self.page(self.folder / "run")["runs"][0]["points"]["series"]
        self.assertEqual({name: series[f"compute_kinds_ms.{name}"]["mean"] for name in kinds},
                         {name: [value] * 30 for name, value in kinds.items()})

    def test_job_run(self):
        lines = job_run(self.folder / "run")
        run = self.page(self.folder / "run")["runs"][0]
        self.assert_columns(run["points"], lines)
        self.assertEqual((run["nonfinite"], run["restarts"], run["num_aside"], run["num_jobs"]), ([61, 62], [40], 1, 3))
        self.assertEqual((run["skipped"]["steps"], run["skipped"]["newest"][0]["samples"]), ([61, 62], list(range(61, 69))))
        self.assertEqual(run["skipped"]["newest"][1]["num_samples"], 16)
        overview = dict(run["overview"])
        self.assertEqual(overview["Step"], "120 of 1000 (12.0 %)")
        self.assertIn("10 lines", overview["Replaced"])
        self.assertIn("989 TFLOP/s", overview["Peak of MFU"])
        self.assertEqual(run["mesh"]["degrees"], {"pp": 2, "dp_shard": 4, "tp": 4})
        self.assertEqual(run["mesh"]["nodes"], ["gpu09", "gpu10", "gpu11", "gpu7"])
        self.assertEqual(run["mesh"]["tera_flops"][31], 731)
        self.assertEqual([(one["step"], one["whole"], one["bytes"]) for one in run["checkpoints"]["listed"]],
                         [(40, True, 1000), (80, True, 2000), (120, False, 10)])
        self.assertEqual(run["config"]["parallelism.tensor_parallel_degree"], "4")
        for line in (["Version", "pretrain 9.8.7 (abc)"], ["Pre-flight", "WARN: products: gpu10"], ["MPI", "32 x Open MPI"],
                     ["GPUs", "32 x H200, driver 580"], ["Log", "Argosy's kernels: cuda"]):
            self.assertIn(line, run["environment"])
        self.assertEqual([(one["level"], one["count"], one["ranks"]) for one in run["warnings"]],
                         [("warning", 2, [17, 18]), ("error", 1, [3]), ("warning", 1, [])])
        self.assertIn("</script>", run["warnings"][0]["text"])

    def test_starts(self):
        """The configuration and facts that pretrain leaves at each start, without a job script and without a log."""
        started_run(self.folder / "run")
        run = self.page(self.folder / "run")["runs"][0]
        self.assertEqual((run["config"]["training.steps"], run["mesh"]["degrees"], run["restarts"]),
                         ("2_000", {"pp": 2, "dp_shard": 4, "tp": 4}, [20]))
        self.assertEqual(dict(run["overview"])["Step"], "30 of 1500 (2.0 %)")
        self.assertEqual(run["config_changes"], [
            {"step": 21, "key": "training.steps", "before": "1000", "now": "2_000"},
            {"step": 21, "key": "training.max_tokens", "before": "unset", "now": "7"}])
        self.assertEqual([(start["first_step"], start["host"]) for start in run["starts"]], [(1, "gpu09"), (21, "gpu09")])
        self.assertNotIn("config", run["starts"][0])
        self.assertIn(["Version", "pretrain 9.8.7 (abc)"], run["environment"])

    def test_long_run(self):
        losses = long_run(self.folder / "run", 100_000)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = self.page(self.folder / "run")["runs"][0]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, MAX_SECONDS)
        points = run["points"]
        self.assertEqual((points["first"][0], points["last"][-1], run["nonfinite"]), (1, 100_000, [700]))
        self.assertEqual([last + 1 for last in points["last"][:-1]], points["first"][1:])
        series = points["series"]["loss"]
        for first, last, mean, low, high in zip(points["first"], points["last"], series["mean"], series["min"], series["max"]):
            known = [loss for loss in losses[first - 1:last] if loss is not None]
            for value, expected in ((mean, math.fsum(known) / len(known)), (low, min(known)), (high, max(known))):
                self.assertLessEqual(abs(value - expected), 1e-5 * expected)

    def test_runs_of_every_age(self):
        """A folder without files, without a whole line, with one step, with NaN, and with a run that has ended."""
        (self.folder / "empty").mkdir()
        self.assertEqual(self.page(self.folder / "empty")["runs"][0]["state"], "new")
        plain_run(self.folder / "cut", 0)
        (self.folder / "cut/metrics.jsonl").write_text('{"step":1,"lo')
        self.assertEqual(self.page(self.folder / "cut")["runs"][0]["num_steps"], 0)
        plain_run(self.folder / "one", 1)
        self.assertEqual(self.page(self.folder / "one")["runs"][0]["points"]["first"], [1])
        plain_run(self.folder / "nan", 3, loss=math.nan, grad_norm=math.inf, time_ms=None, finite=False)
        write_lines(self.folder / "nan/skipped_updates.jsonl", [{"step": 2, "loss": math.nan}])
        run = self.page(self.folder / "nan")["runs"][0]
        self.assertEqual((run["nonfinite"], "loss" in run["points"]["series"]), ([1, 2, 3], False))
        self.assertTrue(self.reloads(self.folder / "page.html"))
        self.assertEqual(run["skipped"]["newest"][0]["loss"], None)
        long_ago = time.time() - 3600
        os.utime(self.folder / "nan/metrics.jsonl", (long_ago, long_ago))
        self.assertEqual(self.page(self.folder / "nan")["runs"][0]["state"], "stopped")
        self.assertFalse(self.reloads(self.folder / "page.html"))
        write_lines(self.folder / "nan/jobs.jsonl", [{"event": "start", "newest_step": 0}])
        self.assertEqual(self.page(self.folder / "nan")["runs"][0]["state"], "running")
        plain_run(self.folder / "done", 5)
        write_lines(self.folder / "done/jobs.jsonl", [{"event": "end", "outcome": "done", "exit_code": 0}])
        self.report(self.folder / "done", "--every", "60")  # ends, because the run has ended
        self.assertFalse(self.reloads(self.folder / "done/report.html"))
        log = self.folder / "own.log"
        log.write_text("07:05:33 I [0] llama3: 8.7e+05 parameters on 4 ranks (pp 2 x tp 2), 4 sequences\n"
                       "07:05:33 I [0] step  1/5  loss\n07:05:34 I [0] done after step 5: training.steps = 5\n")
        run = self.page(self.folder / "one", "--log", log)["runs"][0]
        self.assertEqual((run["state"], run["mesh"]["degrees"]), ("finished", {"pp": 2, "tp": 2}))

    def test_several_runs(self):
        """Also of a sweep; equal names get more of their paths."""
        lines = [plain_run(self.folder / "sweep/point-1", 5), plain_run(self.folder / "sweep/point-2", 3)]
        (self.folder / "sweep/points").write_text("--a 1\n--a 2\n")
        runs = self.page(self.folder / "sweep")["runs"]
        self.assertEqual([run["name"] for run in runs], ["point-1", "point-2"])
        for run, expected in zip(runs, lines):
            self.assert_columns(run["points"], expected)
        plain_run(self.folder / "other<b>/point-1", 4)
        runs = self.page(self.folder / "sweep/point-1", self.folder / "other<b>/point-1")["runs"]
        self.assertEqual([run["name"] for run in runs], ["sweep/point-1", "other<b>/point-1"])

    def evaluated_run(self):
        (self.folder / "run").mkdir()
        shutil.copy(EVALUATED, self.folder / "run/metrics.jsonl")
        return [json.loads(line) for line in EVALUATED.read_text().splitlines()]

    def test_evaluation(self):
        """The curves, the table and the figures of Prometheus show the metrics of each task; the table has their errors too."""
        lines = self.evaluated_run()
        points = self.page(self.folder / "run")["runs"][0]["points"]
        self.assert_columns(points, lines)
        self.assertEqual({name for name in points["series"] if name.startswith("evaluation.")}, {
            *(f"evaluation.choices.{name}" for name in ("acc", "acc_norm", "acc_bytes")), "evaluation.words.acc", "evaluation.words.perplexity",
            *(f"evaluation.texts.{name}" for name in ("word_perplexity", "byte_perplexity", "bits_per_byte", "token_perplexity"))})
        self.assertIn("time_ms.evaluation", points["series"])
        self.report(self.folder / "run", "--csv", self.folder / "run.csv", "--prometheus", self.folder / "run.prom")
        with open(self.folder / "run.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["evaluation.choices.acc_stderr"] for row in rows],
                         ["", *(repr(line["evaluation"]["choices"]["acc_stderr"]) for line in lines[1:])])
        found = figures_of((self.folder / "run.prom").read_text())
        figures = {(dict(labels)["task"], dict(labels)["metric"]): value for (name, labels), value in found.items() if name == "argosy_evaluation"}
        self.assertEqual(figures, {(task, metric): value for task, values in lines[-1]["evaluation"].items() for metric, value in values.items()})
        self.assertEqual(found["argosy_evaluation_step", (("run", "run"),)], 3)
        write_lines(self.folder / "run/metrics.jsonl", [*lines, *map(line_of, range(4, 1500))])
        self.report(self.folder / "run", "--prometheus", self.folder / "run.prom")
        later = figures_of((self.folder / "run.prom").read_text())
        self.assertEqual((later["argosy_step", (("run", "run"),)], later["argosy_evaluation_step", (("run", "run"),)]), (1499, 3))

    def test_nulls_and_names(self):
        """Files with null in place of an object or a list, and a folder whose name is not UTF-8."""
        folder = pathlib.Path(os.fsdecode(os.fsencode(self.folder) + b"/run\xff"))
        job_run(folder)
        write_lines(folder / "skipped_updates.jsonl", [{"step": 61, "samples": None}])
        for preflight in ({"verdict": "PASS", "findings": None, "speeds": None}, {"speeds": {"products": {"tera_flops": None}}}):
            write_lines(folder / "preflight.json", [preflight])
            run = self.page(folder)["runs"][0]
            self.assertEqual((run["skipped"]["newest"][0]["num_samples"], run["mesh"]["tera_flops"]), (0, []))
        self.report(folder, "--csv", self.folder / "run.csv", "--prometheus", self.folder / "run.prom")
        self.report(folder)
        self.assertTrue((folder / "report.html").is_file())

    def test_failed_write(self):
        """A file that cannot be replaced leaves no part of the new one."""
        plain_run(self.folder / "run", 1)
        (self.folder / "page.html").mkdir()
        self.assertIn("cannot write", self.report(self.folder / "run", "--html", self.folder / "page.html", code=2))
        self.assertEqual(list(self.folder.glob("*.new")), [])

    def test_run_that_ends_while_it_is_drawn(self):
        """The run's last step comes right after the page was written: the page must be written again."""
        lines = plain_run(self.folder / "run", 4)
        (self.folder / "run/effective.toml").write_text("[training]\nsteps = 5 # the last\n")
        write = report.write

        def write_then_end(path, text):
            write(path, text)
            write_lines(self.folder / "run/metrics.jsonl", [*lines, line_of(5)])

        page = self.folder / "page.html"
        options = report.parse([str(self.folder / "run"), "--html", str(page)])
        with unittest.mock.patch.object(report, "write", write_then_end):
            self.assertTrue(report.write_outputs(options))
            self.assertTrue(self.reloads(page))
            self.assertFalse(report.write_outputs(options))
        self.assertFalse(self.reloads(page))

    def test_refusals(self):
        plain_run(self.folder / "run", 1)
        for words, expected in (([self.folder / "none"], "there is no folder"),
                                ([self.folder, self.folder / "run"], "--html FILE"),
                                ([self.folder / "run", self.folder / "run", "--html", "x"], "named twice"),
                                ([self.folder / "run", "--log", "nowhere"], "there is no file nowhere"),
                                ([self.folder / "run", "--html", self.folder / "no/x.html"], "cannot write"),
                                ([self.folder / "run", "--every", "0"], "--every 0")):
            self.assertIn(expected, self.report(*words, code=2))

    def test_csv(self):
        lines = job_run(self.folder / "run")
        self.report(self.folder / "run", "--csv", self.folder / "run.csv")
        with open(self.folder / "run.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), len(lines))
        for row, line in zip(rows, lines):
            times = line.pop("time_ms")
            exposed = times.pop("exposed")
            expected = {**line, **{f"time_ms.{key}": value for key, value in times.items()},
                        **{f"time_ms.exposed.{key}": value for key, value in exposed.items()}}
            found = {key: json.loads(value) if value != "datasheet" else value for key, value in row.items() if value}
            self.assertEqual(found, {key: value for key, value in expected.items() if value is not None})

    def test_prometheus(self):
        newest = job_run(self.folder / 'run"\\')[-1]
        self.report(self.folder / 'run"\\', "--prometheus", self.folder / "run.prom")
        found = figures_of((self.folder / "run.prom").read_text())
        run = (("run", 'run\\"\\\\'),)
        expected = {"step": 120, "loss": newest["loss"], "finite": 1, "memory_peak_bytes": 50.25 * 2**30, "mfu_causal_ratio": 0.4,
                    "model_flops_per_second_per_device": 400.5e12, "planned_steps": 1000, "checkpoint_step": 80, "starts_total": 2,
                    "validation_step": 100, "gradient_norm": newest["grad_norm"], "skipped_updates_total": 0}
        for name, value in expected.items():
            self.assertAlmostEqual(found[f"argosy_{name}", run], value, delta=1e-9 * value, msg=name)
        self.assertNotIn(("argosy_memory_reserved_bytes", run), found)  # null
        for name, value in newest["time_ms"]["exposed"].items():
            self.assertAlmostEqual(found["argosy_exposed_seconds", (*run, ("axes", name))], value / 1000)
        parts = {labels[1][1]: value for (name, labels), value in found.items() if name == "argosy_step_seconds"}
        self.assertEqual(parts, {name: value * 1e-3 for name, value in newest["time_ms"].items() if name != "exposed"})

    def test_dashboard(self):
        """The panels of jobs/grafana.json show every figure, and no other."""
        dashboard = json.loads((JOBS / "grafana.json").read_text())
        shown = {name for panel in dashboard["panels"] for target in panel["targets"] for name in re.findall(r"argosy_\w+", target["expr"])}
        self.assertEqual(shown, set(prometheus_text.HELP))
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
        self.assertEqual(len(set(places)), len(places))

    def test_status(self):
        """status.sh writes the same page beside its own lines."""
        plain_run(self.folder / "run", 3)
        (self.folder / "run/effective.toml").write_text("[training]\nsteps = 12\n[other]\nsteps = 5\n")
        done = subprocess.run([JOBS / "status.sh", self.folder / "run", "--html", self.folder / "page.html"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("3 of 12 (25.0 %)", done.stdout)
        self.assertIn("tokens/s", done.stdout)
        self.assertIn('"num_steps":3', (self.folder / "page.html").read_text())
        done = subprocess.run([JOBS / "status.sh", self.folder / "run", "--html", self.folder / "no/page.html"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("tokens/s", done.stdout)
        started_run(self.folder / "started")  # with training.max_tokens, which ends it before training.steps
        done = subprocess.run([JOBS / "status.sh", self.folder / "started"], capture_output=True, text=True)
        self.assertIn("30 of 1500 (2.0 %)", done.stdout)

    def test_figures_have_no_exponents(self):
        plain_run(self.folder / "run", 30, tokens=40960000)
        run, = self.page(self.folder / "run")["runs"]
        self.assertNotRegex(json.dumps(run["overview"]), r"\de[+-]\d")
        self.assertEqual(dict(run["overview"])["Tokens"], "1229000000 in 30 steps")

    @unittest.skipUnless(NODE, "there is no Node.js to run the page's script")
    def test_charts_have_plain_numbers_and_values(self):
        """The drawn text, without a browser. A chart without values has no panel, and a line says why."""
        plain_run(self.folder / "run", 30, lr=3e-4, mfu_causal=None, mfu_noncausal=None, loss=None)
        found = self.drawn(self.folder / "run", script=SHOW)
        drawn = dict(found["charts"])
        self.assertEqual(set(drawn), {"Gradient norm", "Learning rate", "Throughput", "Speed of a device", "Memory of rank 0",
                                      "Time of a step on rank 0"})
        for title, shapes in drawn.items():
            texts = re.findall(r"<text[^>]*>([^<]*)</text>", shapes)
            self.assertIn("step", texts, title)
            self.assertFalse([text for text in texts if re.search(r"\de[+-]?\d", text)], title)
        self.assertIn("0.0003", drawn["Learning rate"])
        self.assertEqual(re.sub("<[^>]*>", "", found["below"]), "No values: Loss, Validation loss (no step was validated "
                         "(validation.enable)), MFU (no peak of this device is known).")

    @unittest.skipUnless(CHROMIUM, "there is no Chromium to run the page's script")
    def test_script_of_one_run(self):
        job_run(self.folder / "run")
        found = self.probe(self.folder / "run")
        self.assertEqual((found["charts"], found["cells"], found["injected"], found["nan"]), (9, RANKS, 0, False))
        self.assertEqual(dict(found["curves"]), {
            "Loss": 2, "Validation loss": 3, "Gradient norm": 2, "Learning rate": 1, "Throughput": 1, "Speed of a device": 1, "MFU": 2,
            "Memory of rank 0": 2, "Time of a step on rank 0": 11})
        self.assertEqual(found["rows"], 3 + 2 + 3 + 3)  # checkpoints, skipped updates, warnings, jobs
        self.assertIn("step 120", found["tip"])
        self.assertIn(f"{line_of(120)['loss']:.6g}", found["tip"])
        first, last = found["zoomed"]
        self.assertTrue(1 < first < last < 120, found["zoomed"])
        self.assertIsNone(found["all"])

    @unittest.skipUnless(CHROMIUM, "there is no Chromium to run the page's script")
    def test_script_of_an_evaluated_run(self):
        """A chart for each metric; each task has a line and two points there."""
        self.evaluated_run()
        found = self.probe(self.folder / "run")
        self.assertEqual({title: number for title, number in found["curves"] if title.startswith("Evaluation: ")}, {
            "Evaluation: acc": 6, **{f"Evaluation: {name}": 3 for name in (
                "acc_norm", "acc_bytes", "word_perplexity", "byte_perplexity", "bits_per_byte", "token_perplexity", "perplexity")}})
        self.assertEqual((dict(found["curves"])["Time of a step on rank 0"], found["nan"]), (7, False))

    @unittest.skipUnless(CHROMIUM, "there is no Chromium to run the page's script")
    def test_script_of_several_runs(self):
        """One of them is empty, one has one step, one has several steps to a point."""
        (self.folder / "empty").mkdir()
        plain_run(self.folder / "one", 1)
        long_run(self.folder / "long", 3000)
        found = self.probe(self.folder / "empty", self.folder / "one", self.folder / "long")
        curves = dict(found["curves"])
        self.assertEqual((curves["Loss"], curves["MFU"], found["nan"]), (2, 4, False))
        self.assertIn("(1", found["tip"])  # the minimum
        self.assertIn("long", found["tip"])


if __name__ == "__main__":
    unittest.main()
