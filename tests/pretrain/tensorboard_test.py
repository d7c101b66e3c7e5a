"""Event files as TensorBoard reads them, compared with metrics.jsonl."""
import math
import re
import signal
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as missing:
    print(f"skipped: {missing}; `jobs/setup.sh --tests` installs what this reads event files with")
    sys.exit(77)

import run

FILE = re.compile(r"events\.out\.tfevents\.\d{10}\..+\.\d+\.\d+")
PARTS = {"data": "data_loading", "compute": "compute", "optimizer": "optimizer", "checkpoint": "checkpoint",
         "validation": "validation", "evaluation": "evaluation", "other": "other"}


def mean(numbers):
    return sum(numbers) / len(numbers)


def expected(window):
    """{tag: value} of the steps since the previous point, computed from their lines; a second implementation of the
    definitions in lib/trainer/observe/tensorboard.h."""
    newest, times = window[-1], [step["time_ms"] for step in window]
    seconds = sum(time["total"] for time in times) / 1000
    share = sum(step["tokens_per_second_per_device"] * step["time_ms"]["total"] for step in window) / 1000 / seconds
    tflops = share * newest["model_tflops_per_device"] / newest["tokens_per_second_per_device"]
    points = {"loss_metrics/global_avg_loss": newest["loss"], "grad_norm": newest["grad_norm"], "lr": newest["lr"],
              "throughput(tps)": share, "time_metrics/end_to_end(s)": seconds / len(window),
              "time_metrics/data_loading(%)": sum(time["data"] for time in times) / seconds / 10,
              "memory/max_active(GiB)": max(step["memory_peak_gib"] for step in window),
              "memory/rss(GiB)": newest["rss_gib"]}
    for key, name in PARTS.items():
        points[f"time_metrics/{name}(s)"] = mean([time[key] for time in times]) / 1000
    for axes in newest["time_ms"]["exposed"]:
        points[f"time_metrics/exposed({axes})(s)"] = mean([time["exposed"].get(axes, 0) for time in times]) / 1000
    if newest["mfu_causal"] is not None:
        points["of_gemm(%)"] = 100 * newest["mfu_causal"] * tflops / newest["model_tflops_per_device"]
        points["tflops"] = tflops * newest["mfu_noncausal"] / newest["mfu_causal"]
    return points


class TensorBoard(run.PretrainTest):
    def read(self, dump="run", folder="tb"):
        """{tag: {step: value}} as TensorBoard reads it from the folder."""
        path = self.folder / dump / folder
        for file in path.iterdir():
            self.assertTrue(FILE.fullmatch(file.name), file)
        reader = EventAccumulator(str(path), size_guidance={"scalars": 0})
        reader.Reload()
        tags = reader.Tags()["scalars"]
        curves = {tag: [(point.step, point.value) for point in reader.Scalars(tag)] for tag in tags}
        for tag, points in curves.items():
            self.assertEqual(len(dict(points)), len(points), f"{tag} has a step twice: {points}")
        return {tag: dict(points) for tag, points in curves.items()}

    def train(self, num_ranks=1, dump="run", **settings):
        return self.steps_of(num_ranks, dump, metrics__enable_tensorboard=True, **settings)

    def assert_point(self, curves, window):
        """Every curve has one point per window, at the window's last step."""
        newest = window[-1]["step"]
        points = {tag: points[newest] for tag, points in curves.items() if newest in points}
        for tag, value in expected(window).items():
            self.assertAlmostEqual(points.pop(tag), value, delta=2e-7 * abs(value), msg=f"{tag} of step {newest}")
        return points

    def test_every_scalar_is_as_in_the_metrics(self):
        steps = self.train(2, training__steps=8, metrics__log_freq=3, metrics__measure_gemm_peak=True)
        curves = self.read()
        self.assertEqual(set(curves), set(expected(steps)))
        self.assertEqual({tuple(points) for points in curves.values()}, {(1, 3, 6, 8)})
        for first, last in ((0, 1), (1, 3), (3, 6), (6, 8)):
            self.assertEqual(self.assert_point(curves, steps[first:last]), {})

    def test_there_are_no_event_files_by_default(self):
        self.steps_of(1)
        self.assertEqual(sorted(path.name for path in (self.folder / "run").iterdir()), ["effective.toml", "metrics.jsonl", "starts.jsonl"])

    def test_a_run_that_starts_again_writes_a_file_of_its_own(self):
        """Readers show the newer run from its first step on. Without a peak there is no utilisation."""
        settings = {"metrics__log_freq": 1, "metrics__save_tb_folder": "curves/here"}
        steps = self.train(training__steps=6, **settings)
        curves = self.read(folder="curves/here")
        self.assertEqual(list(self.assert_point(curves, steps[5:6])), ["tflops"])
        again = self.train(training__steps=3, debug__seed=7, **settings)[6:]
        self.assertEqual(len(list((self.folder / "run" / "curves/here").iterdir())), 2)
        losses = self.read(folder="curves/here")["loss_metrics/global_avg_loss"]
        self.assertEqual(list(losses), [1, 2, 3])
        for step in again:
            self.assertAlmostEqual(losses[step["step"]], step["loss"], delta=2e-7 * step["loss"])

    def test_a_killed_run_leaves_its_points(self):
        job = self.start(1, *self.small(training__steps=1000000, metrics__log_freq=5, metrics__enable_tensorboard=True))
        self.wait_for_step(job, 23)
        run.send(job.rank_pids()[0], signal.SIGKILL)
        job.finish()
        steps = {step["step"]: step["loss"] for step in self.steps()}
        losses = self.read()["loss_metrics/global_avg_loss"]
        self.assertEqual(list(losses)[:5], [1, 5, 10, 15, 20])
        self.assertLessEqual(max(steps) - max(losses), 5)
        for step, loss in losses.items():
            self.assertAlmostEqual(loss, steps[step], delta=2e-7 * loss)

    def test_nonfinite_values_are_points_too(self):
        self.run_ranks(1, *self.small(optimizer__lr=1e38, lr_scheduler__warmup_steps=0, training__steps=9,
                                      training__mixed_precision_param="bfloat16", metrics__log_freq=1,
                                      metrics__enable_tensorboard=True))
        steps, losses = self.steps(), self.read()["loss_metrics/global_avg_loss"]
        self.assertGreater(len(steps), 2)
        self.assertEqual(list(losses), [step["step"] for step in steps])
        for step in steps:
            self.assertEqual(math.isfinite(losses[step["step"]]), step["loss"] is not None)


if __name__ == "__main__":
    run.main()
