"""run.sh and unpack_and_run.sh without a GPU; run_parts.py over programs that only print: the report and its log, that no
part stops another, that the sections of parts that are not run again stay, and that a budget holds; the table of
kernel_times.py, and the losses that throughput.py compares."""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(os.environ["ARGOSY_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests/support"))
import gpu_name  # noqa: E402
NVIDIA_SMI = """#!/bin/sh
case "$1" in
    --query-gpu=memory.total) echo 100 ;;
    *) echo 'NVIDIA Paper-1, 580.1, 100 MiB, 700.00 W, 1980 MHz, 3201 MHz' ;;
esac
"""
# Leaves a process in a session of its own that holds the output, as ranks of a crashed mpirun do.
LEAVES_A_PROCESS = "setsid sh -c 'echo $$ >\"$0.pid\"; exec sleep 60' \"$0\" & while [ ! -s \"$0.pid\" ]; do sleep 0.01; done"
PROGRAMS = {
    "test_kernels_gpu_device": "echo '[  PASSED  ] 12 tests.'",
    "test_cublas_library": "echo '[  FAILED  ] 1 test, listed below:'; echo what was wrong; exit 1",
    "test_nccl_libraries": "sleep 60",
    "test_ops_cuda": f"{LEAVES_A_PROCESS}; echo '| so far |'; trap 'echo told to end; exit 1' TERM; sleep 60 & wait",
    "kernel_bandwidth": "echo words; echo '| kernel | percent |'; echo '| --- | --- |'; echo '| cast | 70 |'; exit 3",
    "gemm_speed": "echo 'skipped: for this test'; exit 77",
}
# A run of two steps as kernel_recorder writes it.
RECORDED = r"""#!/bin/sh
[ "$CUDA_INJECTION64_PATH" = "$ARGOSY_BIN/../tests/kernel_recorder" ] || exit 9
cat >"$ARGOSY_KERNEL_TIMES" <<'LINES'
100 9999999 initial_weights(float*)
1000 2000 void argosy::kernels::cuda::(anonymous namespace)::embedding_kernel<float>(argosy::kernels::Embedding<float>)
4000 8888888 product
20001000 2000 void argosy::kernels::cuda::(anonymous namespace)::embedding_kernel<float>(argosy::kernels::Embedding<float>)
20017000 10000 product
20002000 6000 product
LINES
"""


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def ends(pid):
    """Whether the process ends within some seconds: a killed one needs a moment on a busy machine."""
    until = time.monotonic() + 10
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(pid)


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        executable(self.folder / "path" / "nvidia-smi", NVIDIA_SMI)
        for name, text in PROGRAMS.items():
            executable(self.folder / "build" / "tests" / name, f"#!/bin/sh\n{text}\n")
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        os.environ |= {"ARGOSY_BUILD": str(self.folder / "build"), "PATH": f"{self.folder}/path:{os.environ['PATH']}"}
        self.parts = self.module("run_parts")

    def module(self, name):
        """A new copy of a script beside this file, which a test may change."""
        found = importlib.util.spec_from_file_location(name, SOURCE / f"tests/gpu/{name}.py")
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        return module

    def script(self, name, *words):
        """(exit status, all output) of a script beside this file."""
        done = subprocess.run([SOURCE / "tests/gpu" / name, *words], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


class Scripts(RunTest):
    def test_without_a_gpu_they_say_so(self):
        executable(self.folder / "path" / "nvidia-smi", "#!/bin/sh\nexit 9\n")
        for name in ("run", "unpack_and_run"):
            status, text = self.script(f"{name}.sh")
            self.assertEqual((status, text), (2, f"{name}: there is no GPU here (nvidia-smi names none)\n"))

    def test_wrong_arguments_are_refused(self):
        for name in ("run.sh", "unpack_and_run.sh", "bundle.sh"):
            executable(self.folder / "path" / "nvidia-smi", "#!/bin/sh\necho 'GPU 0: Paper-1'\n")
            status, text = self.script(name, "no-such-part")
            self.assertEqual((status, text[:27]), (2, "run: no part no-such-part: "), text)
        for words, message in ((["--budget"], "--budget wants a value"),
                               (["--budget", "ten"], "--budget wants seconds, not 'ten'"),
                               (["--bundle", "/no/such.tar.xz", "nccl"], "there is no /no/such.tar.xz: make it with ")):
            status, text = self.script("unpack_and_run.sh", *words)
            self.assertEqual(status, 2)
            self.assertIn(message, text)
        for words, message in ((["--output"], "--output wants a value"), (["--quick"], "unknown argument '--quick'")):
            status, text = self.script("bundle.sh", *words)
            self.assertEqual(status, 2)
            self.assertIn(message, text)

    def test_parts_name_their_build_targets(self):
        done = subprocess.run(["python3", SOURCE / "tests/gpu/run_parts.py", "--targets", "throughput", "gemm"],
                              capture_output=True, text=True)
        self.assertEqual(done.stdout, "pretrain prepare-data gemm_speed\n")

    def test_kernel_times(self):
        executable(self.folder / "bin" / "prepare-data", "#!/bin/sh\n")
        executable(self.folder / "bin" / "pretrain", RECORDED)
        executable(self.folder / "tests" / "kernel_recorder", "")
        done = subprocess.run([sys.executable, SOURCE / "tests/gpu/kernel_times.py", "tiny"], capture_output=True,
                              text=True, env=os.environ | {"ARGOSY_BIN": str(self.folder / "bin")})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.splitlines()[4:], ["| `product` | 2 | 16 | 59.26 |", "| `embedding_kernel<float>` | 1 | 2 | 7.407 |",
                                                        "| waits |  | 9 | 33.33 |", "| all | 3 | 27 | 100 |"])
        executable(self.folder / "bin" / "pretrain", RECORDED + "exit 1\n")
        failed = subprocess.run([sys.executable, SOURCE / "tests/gpu/kernel_times.py", "tiny"], capture_output=True,
                                text=True, env=os.environ | {"ARGOSY_BIN": str(self.folder / "bin")})
        self.assertEqual((failed.returncode, failed.stdout), (1, ""))


class Graphs(RunTest):
    def compare(self, default, switched):
        throughput = self.module("throughput")
        bench = object.__new__(throughput.Bench)
        results = [throughput.Result("Argosy", 4, "none", "bf16", [], 1, [], losses) for losses in (default, switched)]
        bench.show = lambda *_: None
        bench.ours = lambda *_, **more: results[1] if more == {"compile.graphs": "false"} else None
        try:
            bench.compare_graphs(throughput.CASES["tiny"], results[0])
        except throughput.Failure as failure:
            return str(failure)
        return None

    def test_losses_are_compared(self):
        self.assertIsNone(self.compare([12.0, 11.0], [12.01, 11.0]))
        self.assertIn("with graphs = false losses differ", self.compare([12.0, 11.0], [12.0, 11.2]))
        self.assertIn("differ by more than", self.compare([12.0, 11.0], [12.0, float("nan")]))
        self.assertEqual(self.compare([12.0, 11.0], [12.0]), "2 steps, 1 with graphs = false")


class Parts(RunTest):
    def run_parts(self, *names):
        report = self.parts.Report(self.folder)
        self.addCleanup(report.log.close)
        good = [self.parts.run_part(report, name, self.parts.PARTS[name], quick=False) for name in names]
        return good, report.path.read_text()

    def test_every_part_is_in_one_group(self):
        self.assertEqual([part for parts in self.parts.GROUPS.values() for part in parts], list(self.parts.PARTS))
        self.assertEqual(list(self.parts.chosen(["training", "first", "eval"], quick=False)),
                         [*self.parts.GROUPS["first"], *self.parts.GROUPS["training"]])

    def test_bundles_end_in_time_by_the_limits_of_their_parts(self):
        for bundle, minutes, gpus in (("one", 10, 1), ("eight", 15, 8)):
            chosen = self.parts.chosen([bundle], quick=False)
            self.assertEqual(chosen.keys(), self.parts.BUNDLES[bundle].keys())
            grace = self.parts.GRACE_SECONDS  # after each part, and before the end
            self.assertLessEqual(sum(part.limit + grace for part in chosen.values()) + grace, 60 * minutes)
            for name, part in chosen.items():
                self.assertLessEqual(part.limit, self.parts.PARTS[name].limit, name)
                self.assertLessEqual(part.least, part.limit, name)
                self.assertLessEqual(part.gpus, gpus, name)
        self.assertGreater(self.parts.chosen(["one", "speed"], quick=False).keys(), self.parts.BUNDLES["one"].keys())

    def test_a_part_that_needs_more_gpus_says_so(self):
        executable(self.folder / "build" / "tests" / "test_kernels_gpu_device",
                   "#!/bin/sh\necho \"pp2: NCCL's communicator over tp, 2 ranks: 9 MiB of the GPU were free, 8 are\"\n")
        self.parts.PARTS["kernels"].gpus = 8
        self.parts.num_gpus = lambda: 2
        good, text = self.run_parts("kernels")
        self.assertEqual(good, [True])
        self.assertIn("## kernels: skipped", text)
        self.assertIn("- skipped: 8 GPUs are needed, and there are 2", text)
        self.parts.num_gpus = lambda: 8
        text = self.run_parts("kernels")[1]
        self.assertIn("## kernels: passed", text)
        self.assertIn("\n- pp2: NCCL's communicator over tp, 2 ranks: 9 MiB of the GPU were free, 8 are", text)

    def test_the_points_and_layouts_of_parts_exist(self):
        runs = self.module("rank_runs")
        for name, part in self.parts.PARTS.items():
            words = [str(word) for word in part.commands[0]]
            if not words[1:] or not words[1].endswith("rank_runs.py"):
                continue
            case = next(word for word in words[2:] if word in runs.CASES)
            ranks = int(words[words.index("--ranks") + 1]) if "--ranks" in words else 8
            names = [variant.name for variant in runs.CASES[case].variants(ranks)]
            with self.subTest(name):
                self.assertEqual(set(words[words.index("--only") + 1:] if "--only" in words else names) - set(names), set())
                self.assertEqual(len(set(names)), len(names))
        self.assertEqual(len(runs.LAYOUTS), 22)  # with one rank
        first, second = runs.points(8)[:2]
        self.assertEqual(second.settings, first.settings | {"parallelism.enable_async_tensor_parallel": "true"})

    def test_every_test_of_training_is_in_a_part(self):
        defined = [name for file in ("tests/pretrain/gpu_run.py", "tests/gpu/train_test.py")
                   for name in re.findall(r"^    def (test_\w+)", (SOURCE / file).read_text(), re.M)]
        named = [word.partition(".")[2] for name, part in self.parts.PARTS.items() if name.startswith(("train.", "ranks."))
                 for command in part.commands for word in map(str, command) if word.startswith(("Train.", "Ranks."))]
        self.assertEqual(sorted(named), sorted(defined))

    def test_only_ranks_that_share_a_gpu_appear_to_be_on_other_nodes(self):
        """On eight GPUs NCCL would see eight nodes, and use no NVLink."""
        self.addCleanup(setattr, gpu_name, "num_gpus", gpu_name.num_gpus)
        for gpus, nodes in ((8, [""] * 8), (4, [""] * 4 + ["1"] * 4), (2, ["", "", "1", "1", "2", "2", "3", "3"]),
                            (1, ["", *"1234567"]), (0, ["", *"1234567"])):
            with self.subTest(gpus=gpus):
                gpu_name.num_gpus = lambda: gpus
                for words in (self.module("train_test").Ranks.gpu[0],
                              self.module("run_parts").collective("all_reduce", 8)[2:]):
                    found = [subprocess.run([*words[:3], "sh", "-c", "echo ${NCCL_HOSTID-}"], capture_output=True, text=True,
                                            env=os.environ | {"OMPI_COMM_WORLD_RANK": str(rank)}).stdout.strip()
                             for rank in range(8)]
                    self.assertEqual(found, nodes)

    def test_a_report_has_every_result(self):
        self.parts.PARTS["nccl"].limit = 1
        self.parts.PARTS["memcheck"].commands = [("no-such-program",)]
        good, text = self.run_parts("kernels", "cublas", "nccl", "bandwidth", "gemm", "memcheck")
        self.assertEqual(good, [True, False, False, False, True, False])
        self.assertTrue(text.startswith("# NVIDIA Paper-1, 20"), text)
        for line in ("| driver | 580.1 |", "| power limit | 700.00 W |", "## kernels: passed, ", "- PASSED: 12 tests",
                     "## cublas: failed (1), ", "what was wrong", "## nccl: over its limit of 1 s, ",
                     "## bandwidth: below its target, ", "| kernel | percent |\n| --- | --- |\n| cast | 70 |",
                     "## gemm: skipped, ", "## memcheck: failed (127)", "| kernels | passed, "):
            self.assertIn(line, text)
        log = next(self.folder.glob("*.log")).read_text()
        self.assertIn("kernel_bandwidth\nwords\n| kernel | percent |", log)

    def test_a_preflight_that_finds_something_has_run(self):
        for code, good in ((3, True), (1, False)):
            with self.subTest(code):
                executable(self.folder / "build" / "bin" / "preflight", f"#!/bin/sh\nexit {code}\n")
                self.parts.PARTS["preflight"].commands = [
                    tuple("env" if str(word).endswith("mpirun.sh") else "A=1" if word == 1 else word for word in command)
                    for command in self.parts.PARTS["preflight"].commands]
                self.assertEqual(self.run_parts("preflight")[0], [good])

    def test_sections_of_other_parts_stay(self):
        _, first = self.run_parts("bandwidth")
        _, second = self.run_parts("kernels")
        self.assertIn("## kernels: passed", second)
        self.assertEqual(first.partition("## bandwidth")[2], second.partition("## bandwidth")[2])
        self.assertEqual(self.run_parts("kernels")[1], second)

    def test_a_bundle_names_the_commit(self):
        (self.folder / "build" / "commit").write_text("0123abcd\n")
        self.assertIn("; commit 0123abcd\n", self.run_parts("kernels")[1])

    def test_processes_that_a_part_leaves_are_killed(self):
        self.parts.GRACE_SECONDS = 0.5
        program = self.folder / "build" / "tests" / "test_kernels_gpu_device"
        executable(program, f"#!/bin/sh\n{LEAVES_A_PROCESS}\n")
        started = time.monotonic()
        self.assertEqual(self.run_parts("kernels")[0], [True])
        self.assertLess(time.monotonic() - started, 20)
        self.assertTrue(ends(program.with_name(program.name + ".pid").read_text().strip()))


class Budget(RunTest):
    def run_all(self, budget, **least):
        """(exit status, seconds, report) of parts with the least number of seconds with which each starts."""
        for name, seconds in least.items():
            self.parts.PARTS[name].least = seconds
        report = self.parts.Report(self.folder)
        self.addCleanup(report.log.close)
        started = time.monotonic()
        status = self.parts.run_all(report, self.parts.chosen(least, quick=False), False, budget)
        return status, time.monotonic() - started, report.path.read_text() if report.path.exists() else ""

    def test_a_part_that_the_budget_ends_keeps_its_rows_and_leaves_no_process(self):
        self.parts.GRACE_SECONDS = 2
        status, took, text = self.run_all(5, kernels=1, attention=1, gemm=1)
        self.assertEqual(status, 0)
        self.assertLess(took, 5.5)
        self.assertIn("## kernels: passed", text)
        self.assertRegex(text, r"## attention: ended by the budget, \d s")
        self.assertIn("| so far |", text)
        self.assertIn("told to end", text)
        self.assertNotIn("## gemm", text)
        self.assertTrue(ends((self.folder / "build/tests/test_ops_cuda.pid").read_text().strip()))

    def test_a_part_starts_only_if_enough_time_is_left(self):
        _, _, text = self.run_all(60, kernels=20, bandwidth=56, gemm=20)
        self.assertEqual(["## kernels" in text, "## bandwidth" in text, "## gemm" in text], [True, False, True])

    def test_parts_that_do_not_measure_run_at_the_same_time(self):
        for name in ("test_kernels_gpu_device", "test_cublas_library", "kernel_bandwidth"):
            executable(self.folder / "build" / "tests" / name, "#!/bin/sh\necho start $(date +%s.%N); sleep 2\n")
        report = self.parts.Report(self.folder)
        self.addCleanup(report.log.close)
        chosen = self.parts.chosen(["bandwidth", "kernels", "cublas"], quick=False)
        self.assertEqual(self.parts.run_all(report, chosen, False, 60, together=True), 0)
        starts = [float(each) for each in re.findall(r"^start (\S+)$", report.path.with_suffix(".log").read_text(), re.M)]
        self.assertEqual(len(starts), 3)
        self.assertLess(starts[1] - starts[0], 2)
        self.assertGreater(starts[2] - starts[1], 1.9)
        for name in chosen:
            self.assertIn(f"## {name}: passed", report.path.read_text())

    def test_a_run_without_a_part_fails(self):
        self.assertEqual(self.run_all(60, kernels=59)[0], 1)

    def test_a_failed_part_fails_the_run(self):
        status, _, _ = self.run_all(60, cublas=1, gemm=1)
        self.assertEqual(status, 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
