"""The output and files of pretrain: help, version, configuration, metrics, progress."""
import json
import os
import re
import subprocess

import run

# Keys that lib/trainer/observe/metrics.h documents; spikes_test.py tests layer_grad_norms.
KEYS = ["step", "loss", "grad_norm", "lr", "finite", "counts_for_speed", "tokens", "tokens_per_second", "tokens_per_second_per_device",
        "model_tflops_per_device", "mfu_causal", "mfu_noncausal", "peak_flops_source", "datasheet_tflops",
        "number_types", "compute_type_tflops", "mfu_compute_type", "measured_gemm_tflops", "memory_peak_gib", "rss_gib", "time_ms", "checkpoint_stall_ms", "skipped_updates",
        "memory_reserved_gib", "memory_retries", "compute_kinds_ms"]
TIMES = ["total", "data", "compute", "optimizer", "exposed", "checkpoint", "validation", "evaluation", "other"]
PROGRESS = re.compile(r"^\d\d:\d\d:\d\d I (?:\[0\] )?step +(\d+)/(\d+)  loss", re.MULTILINE)


def keys_of(toml):
    """section.key of each line, including keys without a value."""
    keys, section = [], None
    for line in toml.splitlines():
        header, key = re.fullmatch(r"\[([\w.]+)\]", line), re.match(r"(?:# )?(\w+) (?:=|is unset)", line)
        if header:
            section = header[1]
        elif key:
            keys.append(f"{section}.{key[1]}")
    return keys


class Answers(run.PretrainTest):
    def ask_alone(self, *arguments):
        """The answer where MPI cannot start."""
        alone = subprocess.run([run.PRETRAIN, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                               timeout=run.LIMIT_SECONDS, env=os.environ | {"OMPI_MCA_pml": "none"})
        self.assertEqual((alone.returncode, alone.stderr), (0, ""))
        return alone

    def ask(self, *arguments):
        """The single output, for any number of ranks, with and without mpirun."""
        alone = self.ask_alone(*arguments)
        two = self.run_ranks(2, *arguments)
        self.assert_code(two, 0)
        self.assertEqual((two.stdout, two.stderr), (alone.stdout, ""))
        return alone.stdout

    def test_help_lists_every_key(self):
        keys = keys_of(self.ask("--print-config"))
        self.assertGreater(len(keys), 40)
        text = self.ask("--help", "all")
        for key in keys:
            self.assertEqual(len(re.findall(rf"^  --{re.escape(key)} ", text, re.MULTILINE)), 1, key)
        for option in ("--config F.toml", "--print-config", "--version", "--help"):
            self.assertIn(option, text)

    def test_version_has_the_commit(self):
        commit = r"\w{7,}(-dirty)?" if (run.SOURCE / ".git").exists() else ".+"
        version = self.ask("--version")
        self.assertRegex(version, rf"^pretrain \d+\.\d+\.\d+ \({commit}\)\n$")
        self.assertEqual(self.ask_alone("--print-config").stdout.split("\n")[0], f"# {version.strip()}")

    def test_printed_configuration_runs_as_it_is(self):
        command = self.small("run", lr_scheduler__decay_type="cosine", training__max_norm="inf",
                             job__description='a "quoted" \\ word', model__flavor="debugmodel")
        file = self.folder / "printed.toml"
        file.write_text(self.ask_alone(*command, "--print-config").stdout)
        self.assertEqual(self.ask_alone("--config", file, "--print-config").stdout, file.read_text())
        done = self.run_ranks(1, *command)
        self.assert_code(done, 0)
        self.assertIn('description: "a "quoted" \\ word"\n', done.stderr)
        expected = self.steps()
        subprocess.run([run.PRETRAIN, "--config", file], check=True, capture_output=True, timeout=run.LIMIT_SECONDS)
        both = self.steps()  # a second run appends to the file
        self.assertEqual(len(expected), 4)
        self.assertEqual([(step["step"], step["loss"]) for step in both],
                         2 * [(step["step"], step["loss"]) for step in expected])


class Starts(run.PretrainTest):
    """effective.toml and starts.jsonl of the run's folder (lib/trainer/setup/FORMAT.md)."""

    def lines(self, dump="run"):
        return [json.loads(line) for line in (self.folder / dump / "starts.jsonl").read_text().splitlines()]

    def printed(self, command):
        return subprocess.run([run.PRETRAIN, *command, "--print-config"], check=True, capture_output=True, text=True).stdout

    def test_each_start_leaves_its_configuration(self):
        """The second start resumes with another configuration: effective.toml has the second, starts.jsonl has both."""
        first = self.small(checkpoint__enable=True, parallelism__pipeline_parallel_degree=2)
        second = [*first, *run.words({"training.steps": 6, "job.description": 'a "quoted" \\ \u00e9'})]
        printed = [self.printed(command) for command in (first, second)]
        self.assertNotEqual(*printed)
        for command, text in zip((first, second), printed):
            self.assert_code(self.run_ranks(2, *command), 0)
            self.assertEqual((self.folder / "run/effective.toml").read_text(), text)
        lines = self.lines()
        self.assertEqual([line["config"] for line in lines], printed)
        self.assertEqual([(line["first_step"], line["last_step"]) for line in lines], [(1, 4), (5, 6)])
        facts = {"ranks": 2, "mesh": {"pp": 2}, "device": "cpu", "model": "llama3 debugmodel", "sequences_per_step": 2,
                 "tokens_per_step": 64, "version": printed[0].split("\n")[0].removeprefix("# pretrain "), "host": os.uname().nodename}
        for line in lines:
            self.assertEqual({name: line[name] for name in facts}, facts)
            self.assertRegex(line["time"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
            self.assertEqual(set(line), {*facts, "number_types", "time", "first_step", "last_step", "parameters", "config"})
        self.assertEqual([path.name for path in (self.folder / "run").glob("effective.toml?*")], [])

    def test_a_file_of_the_user_stays(self):
        (self.folder / "run").mkdir()
        (self.folder / "run/effective.toml").write_text("[training]\n")
        done = self.run_ranks(1, *self.small())
        self.assert_code(done, 0)
        self.assertIn("effective.toml in the run's folder does not show this start: ", done.stderr)
        self.assertEqual((self.folder / "run/effective.toml").read_text(), "[training]\n")

    def test_a_start_that_fails_leaves_nothing(self):
        self.assert_code(self.run_ranks(1, *self.small(training__dataset_path=self.folder / "none.h5")), 2)
        self.assertFalse((self.folder / "run").exists())


class Metrics(run.PretrainTest):
    def test_what_runs_on_one_rank_and_two_write(self):
        """metrics.jsonl has one object per step with every key; progress is on stderr, and nothing on stdout. The second run
        measures the peak of products."""
        idle = {"enable_async_tensor_parallel": "true", "context_parallel_load_balancer": "none",
                "fsdp_reshard_after_forward": "always"}  # on one rank
        for num_ranks in (1, 2):
            more = {f"parallelism__{key}": value for key, value in idle.items()} if num_ranks == 1 else {}
            done = self.run_ranks(num_ranks, *self.small(f"run{num_ranks}", training__steps=11, metrics__log_freq=4,
                                                         lr_scheduler__decay_ratio=0,
                                                         metrics__measure_gemm_peak=num_ranks == 2, **more),
                                  environment={"ARGOSY_CPU_KERNELS": "avx2"})
            self.assert_code(done, 0)
            self.assertEqual(done.stdout, "")
            self.assertEqual(PROGRESS.findall(done.stderr), [(step, "11") for step in ("1", "4", "8", "11")], done)
            self.assertNotIn("no instructions for", done.stderr)  # float32 needs none of bfloat16
            steps = self.steps(f"run{num_ranks}")
            self.assertEqual([step["step"] for step in steps], list(range(1, 12)))
            self.assertEqual([step["counts_for_speed"] for step in steps], 5 * [False] + 6 * [True])
            self.assertEqual([round(step["lr"], 12) for step in steps], [0.005] + 10 * [0.01], "the schedule")
            for step in steps:
                self.assertEqual(list(step), KEYS)
                self.assertEqual(list(step["time_ms"]), TIMES)
                self.assert_consistent(step, num_ranks)
            exposed = set(steps[-1]["time_ms"]["exposed"])
            self.assertEqual(bool(exposed), num_ranks > 1, exposed)
            self.assert_utilisation(done, steps[-1], measured=num_ranks == 2)
            self.assertEqual(re.findall(r"parallelism\.(\w+) has no effect: ", done.stderr), list(idle) if num_ranks == 1 else [])
            self.assertIn("enable_async_tensor_parallel has no effect: parallelism.tensor_parallel_degree is 1"
                          if num_ranks == 1 else
                          "llama3 debugmodel: 8.7e+05 parameters on 2 ranks (dp_shard 2), 4 sequences of 32 tokens", done.stderr)

    def assert_utilisation(self, done, step, measured):
        self.assertEqual(done.stderr.count("matrix products reach "), int(measured), done)
        self.assertEqual(step["peak_flops_source"], "measured GEMM" if measured else "none")
        self.assertEqual(step["measured_gemm_tflops"] is not None, measured)
        self.assertIsNone(step["datasheet_tflops"], "of a processor")
        for name in ("mfu_causal", "mfu_noncausal"):
            if measured:
                self.assertTrue(0 < step[name] < 1, step)
            else:
                self.assertIsNone(step[name])

    def assert_consistent(self, step, num_ranks):
        times = step["time_ms"]
        parts = sum(times[name] for name in TIMES[1:] if name != "exposed") + sum(times["exposed"].values())
        self.assertAlmostEqual(parts, times["total"], delta=0.01 * times["total"])
        kinds = step["compute_kinds_ms"]
        self.assertAlmostEqual(sum(kinds.values()), times["compute"], delta=0.01 * times["compute"])
        self.assertEqual([name for name, ms in kinds.items() if ms <= 0], [])  # selective recomputation
        self.assertEqual(step["tokens"], 2 * 32 * num_ranks)
        self.assertAlmostEqual(step["tokens_per_second"] * times["total"] / 1000, step["tokens"], delta=1e-6)
        self.assertAlmostEqual(step["tokens_per_second_per_device"] * num_ranks, step["tokens_per_second"], delta=1e-6)
        for name in ("loss", "grad_norm", "lr", "model_tflops_per_device", "memory_peak_gib", "rss_gib"):
            self.assertGreater(step[name], 0, name)
        self.assertEqual((step["finite"], step["skipped_updates"]), (True, 0))

    def test_overlap_of_tensor_parallelism_is_chosen_and_said(self):
        """All ranks take rank 0's choice, which is off on processors; effective.toml has it."""
        done = self.run_ranks(2, *self.small(parallelism__tensor_parallel_degree=2,
                                             parallelism__enable_async_tensor_parallel="auto"))
        self.assert_code(done, 0)
        said = re.findall(r"async tensor parallelism (.*)", done.stderr)
        self.assertEqual(said, ["off: processors move the data themselves"], done)
        self.assertIn("enable_async_tensor_parallel = false\n", (self.folder / "run/effective.toml").read_text())

    def test_number_types_are_stated_alike_on_any_number_of_ranks(self):
        stated = []
        for num_ranks in (1, 2):
            done = self.run_ranks(num_ranks, *self.small(f"types{num_ranks}", training__mixed_precision_param="bfloat16"),
                                  environment={"ARGOSY_CPU_KERNELS": "avx2"})
            self.assert_code(done, 0)
            self.assertIn("computes in bfloat16, weights in float32, gradients summed over ranks in float32", done.stderr)
            start = json.loads((self.folder / f"types{num_ranks}" / "starts.jsonl").read_text())
            stated += [start["number_types"]] + [step["number_types"] for step in self.steps(f"types{num_ranks}")]
            warning = re.findall(r"no instructions for bfloat16; products of float32 have (\d+\.\d) times", done.stderr)
            self.assertLessEqual(len(warning), 1, done)  # by a measurement: a busy machine may show no difference
            self.assertTrue(all(float(factor) >= 1.1 for factor in warning), done)
        expected = {"compute": "bfloat16", "master": "float32", "reduce": "float32"}
        self.assertEqual(stated, [expected] * len(stated))
        self.assert_code(self.run_ranks(1, *self.small("float8", model__converters="quantize.linear.float8")), 0)
        for line in (json.loads((self.folder / "float8" / "starts.jsonl").read_text()), self.steps("float8")[0]):
            self.assertEqual(line["number_types"]["products"], "float8 tensorwise")

    def test_folder_that_cannot_be_written(self):
        """Only rank 0 writes, so only rank 0 gets this error."""
        (self.folder / "file").write_text("in the way")
        done = self.run_ranks(2, *self.small("file"))
        self.assert_one_error(done, 2, str(self.folder / "file"), "Set job.dump_folder")
        self.assertLess(done.seconds, 10)

    def test_folder_of_events_that_cannot_be_written(self):
        os.makedirs(self.folder / "run")
        (self.folder / "run" / "tb").write_text("in the way")
        done = self.run_ranks(2, *self.small(metrics__enable_tensorboard=True))
        self.assert_code(done, 2)
        self.assertEqual(len(done.errors), 1, done)
        for part in (str(self.folder / "run" / "tb"), "Set job.dump_folder"):
            self.assertIn(part, done.errors[0])

    def test_metrics_of_another_run_are_reported(self):
        for first in (0, 4):
            done = self.run_ranks(1, *self.small())
            warned = f"{self.folder / 'run'}/metrics.jsonl has steps up to {first} of an earlier run" in done.stderr
            self.assertEqual(warned, first > 0, done)
        self.assertEqual([step["step"] for step in self.steps()], 2 * [1, 2, 3, 4])

    def test_disk_that_is_full(self):
        os.makedirs(self.folder / "run")
        os.symlink("/dev/full", self.folder / "run" / "metrics.jsonl")
        done = self.run_ranks(2, *self.small())
        self.assert_code(done, 1)
        self.assertEqual(len(done.errors), 1, done)
        self.assertIn("No space left on device", done.errors[0])


if __name__ == "__main__":
    run.main()
