"""preflight from outside: what passes, and what each injected fault makes of it."""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BIN, SOURCE = pathlib.Path(os.environ["ARGOSY_BIN"]), pathlib.Path(os.environ["ARGOSY_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests" / "pretrain"))
import run  # noqa: E402

CONFIG = SOURCE / "configs" / "debug_cpu.toml"
LIMIT_SECONDS = 150


class PreflightTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.json = self.folder / "preflight.json"

    def words(self, *more, program=BIN / "preflight"):
        return [program, "--config", CONFIG, "--job.dump_folder", self.folder / "run", "--json", self.json,
                *more]

    def start(self, *groups, environment=None):
        """Groups of ranks: (number, command), as mpirun puts them into one job."""
        words = []
        for number, command in groups:
            words += [":", "-n", number, *command] if words else [number, *command]
        return run.start_job(*words, environment=environment)

    def end(self, process):
        code, out, err = run.end_of_job(process, LIMIT_SECONDS)
        self.assertIsNotNone(code, f"no end within {LIMIT_SECONDS} s\n{out}{err}")
        return code, out, err

    def run_ranks(self, *groups, environment=None):
        return self.end(self.start(*groups, environment=environment))

    def findings(self, check):
        return [one for one in json.loads(self.json.read_text())["findings"] if one["check"] == check]

    def expect_failure(self, check, *groups, environment=None):
        """Of that check, in text and JSON; the finding."""
        code, out, err = self.run_ranks(*groups, environment=environment)
        self.assertEqual(code, 3, out + err)
        self.assertIn("\nFAIL in ", out)
        report = json.loads(self.json.read_text())
        self.assertEqual(report["verdict"], "FAIL")
        failed = [one for one in self.findings(check) if one["verdict"] == "FAIL"]
        self.assertEqual(len(failed), 1, report["findings"])
        for part in ("where", "what", "remedy"):
            self.assertIn(failed[0][part], out)
        return failed[0]

    @staticmethod
    def rank(number, session):
        """The process of that rank."""
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if os.getsid(int(path.name)) == session and (path / "comm").read_text().strip() == "preflight":
                    if f"OMPI_COMM_WORLD_RANK={number}".encode() in (path / "environ").read_bytes().split(b"\0"):
                        return int(path.name)
        raise AssertionError(f"rank {number} is not there")


class Alone(PreflightTest):
    """Compares the speeds of ranks, so nothing runs beside it."""

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "ranks would share a core, and are not compared then")
    def test_a_slow_rank(self):
        """Its kernels are those for any processor, several times slower than what the others run."""
        bf16 = ("--training.mixed_precision_param", "bfloat16")
        finding = self.expect_failure("matrix products", (1, self.words(*bf16)),
                                      (1, ["env", "ARGOSY_CPU_KERNELS=portable", *self.words(*bf16)]))
        self.assertTrue(finding["where"].startswith("rank 1 on "), finding)
        report = json.loads(self.json.read_text())
        self.assertEqual(report["bad_nodes"], [report["nodes"][0]["name"]])


class Preflight(PreflightTest):
    @unittest.skipIf(os.cpu_count() > 8, "so many ranks are no small test")
    def test_nodes_without_faults_pass(self):
        """More ranks than cores: their speeds are shown and not compared."""
        ranks = 2 * os.cpu_count()
        code, out, err = self.run_ranks((ranks, self.words("--parallelism.data_parallel_shard_degree", 2,
                                                           "--parallelism.data_parallel_replicate_degree", ranks // 2)))
        self.assertEqual(code, 0, out + err)
        report = json.loads(self.json.read_text())
        self.assertIn(report["verdict"], ("PASS", "WARN"))
        self.assertEqual((report["format"], report["version"], report["bad_nodes"]), ("argosy pre-flight", 3, []))
        self.assertFalse(report["speeds"]["judged"])
        self.assertEqual(len(report["speeds"]["products"]["tera_flops"]), ranks)
        self.assertEqual([(one["collective"], one["axes"], len(one["groups"])) for one in report["speeds"]["collectives"]],
                         [("all_gather", "dp_shard", ranks // 2), ("reduce_scatter", "dp_shard", ranks // 2),
                          ("all_reduce", "dp_replicate", 2)])
        self.assertEqual([rank["rank"] for rank in report["ranks"]], list(range(ranks)))
        self.assertEqual(len({(rank["load"]["device"], rank["load"]["hash"]) for rank in report["ranks"]}), 1)
        self.assertRegex(out, r"sustained +[0-9.e-]+ ")
        self.assertEqual(len(report["nodes"]), 1)
        self.assertLess(report["seconds"], 120)
        self.assertIn(f"in {report['seconds']:.1f} s", out)

    def test_sizes_are_those_of_the_step(self):
        """A block of the debug model is gathered in float32: its parameters from the configuration, by hand."""
        self.run_ranks((2, self.words()))
        gathers, = [one for one in json.loads(self.json.read_text())["speeds"]["collectives"]
                    if one["collective"] == "all_gather"]
        done = subprocess.run([BIN / "pretrain", "--config", CONFIG, "--print-config"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0)
        dim, heads, kv_heads, hidden = 128, 4, 2, 352
        block = 2 * dim * dim + 2 * dim * dim * kv_heads // heads + 3 * dim * hidden + 2 * dim
        self.assertEqual(gathers["step_bytes"], 4 * block)
        self.assertEqual(gathers["type"], "float")

    def test_the_time_of_the_sustained_products_is_an_option(self):
        for seconds, least in ((0, None), (1, 1)):
            code, out, err = self.run_ranks((1, self.words("--sustain", seconds)))
            self.assertEqual(code, 0, out + err)
            report = json.loads(self.json.read_text())
            self.assertEqual(report["ranks"][0]["load"]["num_products"] > 0, least is not None)
            self.assertEqual("  sustained " in out, least is not None)
            for line in report["not_checked"]:
                self.assertIn(f"\nnot checked: {line}\n", out)
            self.assertGreaterEqual(report["seconds"], least or 0)

    @unittest.skipIf(os.cpu_count() > 8, "so many ranks are no small test")
    def test_a_variable_of_gpus_does_not_fail_a_build_without_them(self):
        """More ranks than cores, so that other programs on the machine do not make a rank too slow."""
        code, out, err = self.run_ranks((2 * os.cpu_count(), self.words()), environment={"CUDA_LAUNCH_BLOCKING": "1"})
        self.assertEqual(code, 0, out + err)
        finding, = self.findings("CUDA_LAUNCH_BLOCKING")
        self.assertEqual((finding["verdict"], finding["at_fault"]), ("WARN", []))
        self.assertIn("this build does not use GPUs", finding["what"])
        self.assertIn("unset", finding["remedy"])

    def test_an_environment_that_differs(self):
        finding = self.expect_failure("UCX_TLS", (2, self.words()), (1, ["env", "UCX_TLS=self,sm", *self.words()]))
        self.assertTrue(finding["where"].startswith("rank 2 on "), finding)
        self.assertIn("self,sm", finding["what"])

    def test_a_program_that_differs(self):
        other = run.another_build(self, BIN / "preflight")
        code, out, err = self.run_ranks((1, self.words()), (1, self.words(program=other)))
        self.assertEqual(code, 3, out + err)
        self.assertRegex(out, "FAIL  .*(program|executable)")

    def test_a_history_and_figures_for_prometheus(self):
        """Each line is one of Prometheus's text format: a comment of a metric, or a sample of the newest one."""
        figures = self.folder / "preflight.prom"
        words = self.words("--prometheus", figures, "--history")
        for run in (1, 2):
            code, out, err = self.run_ranks((2, ["env", 'SLURMD_NODENAME=a"\\b', *words]))
            report = json.loads(self.json.read_text())
            self.assertIn(code, (0, 3), out + err)  # other programs may make a rank slow
            history = self.folder / "run" / "node_history" / 'a"\\b.jsonl'
            if report["speeds"]["judged"]:
                entries = [json.loads(line) for line in history.read_text().splitlines()]
                self.assertEqual([(one["format"], one["version"]) for one in entries],
                                 [("argosy node history", 2)] * run)
                self.assertEqual([rate / 1e12 for rate in entries[-1]["rates"]["products"]],
                                 report["speeds"]["products"]["tera_flops"])
            else:
                self.assertFalse(history.exists())
        label = r'[a-z_]+="(?:[^"\\\n]|\\["\\n])*"'
        sample = re.compile(rf"(argosy_preflight_[a-z_]+)(?:\{{({label}(?:,{label})*)\}})? ([-+.e0-9]+|nan|[-+]?inf)")
        newest, samples = None, {}
        for line in figures.read_text().removesuffix("\n").split("\n"):
            if comment := re.fullmatch(r"# (HELP|TYPE) (argosy_preflight_[a-z_]+) (.+)", line):
                self.assertNotIn(comment[2], samples, "a metric's lines stand together")
                self.assertEqual(newest, None if comment[1] == "HELP" else comment[2], line)
                newest = comment[2] if comment[1] == "HELP" else None
                if comment[1] == "TYPE":
                    self.assertEqual(comment[3], "gauge")
                    samples[comment[2]] = {}
                continue
            found = sample.fullmatch(line)
            self.assertTrue(found, line)
            self.assertEqual(found[1], list(samples)[-1], line)
            self.assertNotIn(found[2], samples[found[1]], "a series has one sample")
            samples[found[1]][found[2]] = float(found[3])
        node = r'node="a\"\\b"'
        self.assertEqual(set(samples["argosy_preflight_bad_node"]), {node})
        self.assertEqual(samples["argosy_preflight_product_flops_per_second"][node + ',rank="1"'] / 1e12,
                         report["speeds"]["products"]["tera_flops"][1])
        self.assertAlmostEqual(samples["argosy_preflight_end_timestamp_seconds"][None], time.time(), delta=600)

    def test_a_history_that_hangs(self):
        """Pipes that nobody writes to, or reads from, block as a file system that hangs. The report comes first."""
        for blocks in ("reading", "writing"):
            with self.subTest(blocks), tempfile.TemporaryDirectory() as name:
                pipe, figures = pathlib.Path(name) / "n1.jsonl", pathlib.Path(name) / "preflight.prom"
                os.mkfifo(pipe)
                if blocks == "writing":
                    end = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
                    self.addCleanup(os.close, end)
                    with contextlib.suppress(BlockingIOError):
                        while True:
                            os.write(end, bytes(4096))
                code, out, err = self.run_ranks((1, ["env", "SLURMD_NODENAME=n1", *self.words(
                    "--history", name, "--prometheus", figures)]))
                self.assertEqual(code, 0, out + err)
                self.assertRegex(out, r"\n(PASS|WARN) in ")
                self.assertIn(json.loads(self.json.read_text())["verdict"], ("PASS", "WARN"))
                self.assertIn("argosy_preflight_severity ", figures.read_text())
                self.assertEqual(len(re.findall(rf"--history is left out: '{name}' took more than 10 s for a file, or 30 s in all \(0 of 1 files done\)", err)), 1, err)

    def test_files_that_a_rank_reads_slowly_are_no_difference(self):
        """The tokenizer of rank 1 never answers. Keys of the configuration are compared all the same."""
        for name in ("usual", "slow"):
            (self.folder / name).mkdir()
        (self.folder / "usual" / "tokenizer.json").write_text("{}")
        os.mkfifo(self.folder / "slow" / "tokenizer.json")
        words = lambda name, *more: self.words("--deadline", 0, "-T", 8, "--model.hf_assets_path", self.folder / name, *more)
        code, out, err = self.run_ranks((1, words("usual")), (1, words("slow")))
        self.assertEqual(code, 0, out + err)
        finding, = self.findings("settings and inputs of the run")
        self.assertEqual((finding["verdict"], finding["at_fault"]), ("WARN", []))
        self.assertTrue(finding["where"].startswith("rank 1 on "), finding)
        self.assertIn("are not read in time: their contents were not compared", finding["what"])
        self.assertEqual(json.loads(self.json.read_text())["bad_nodes"], [])
        code, out, err = self.run_ranks((1, words("usual")), (1, words("slow", "--optimizer.lr", "1e-4")))
        self.assertEqual(code, 3, out + err)
        self.assertEqual([(one["verdict"], "optimizer.lr differs" in one["what"])
                          for one in self.findings("settings and inputs of the run")], [("FAIL", True), ("WARN", False)])

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "ranks would share a core, and keep no history then")
    def test_a_history_in_slow_files(self):
        """The second file takes 6 s to open, which is within the limit."""
        nodes = ["n1", "n2"]
        pipes = first, second = [self.folder / f"{node}.jsonl" for node in nodes]
        for pipe in pipes:
            os.mkfifo(pipe)
        end_of_second = self.folder / "end"
        end_of_second.hardlink_to(second)

        def answer_slowly():
            with first.open("w"):  # as soon as it is read
                first.unlink()
                time.sleep(6)
            second.unlink()  # the program is in open(), and must find no pipe when it writes
            end_of_second.open("w").close()

        threading.Thread(target=answer_slowly, daemon=True).start()
        code, out, err = self.run_ranks(*((1, ["env", f"SLURMD_NODENAME={node}", *self.words("--history", self.folder)])
                                          for node in nodes))
        self.assertIn(code, (0, 3), out + err)  # other programs may make a rank slow
        self.assertTrue(json.loads(self.json.read_text())["speeds"]["judged"])
        self.assertNotIn("--history is left out", err)
        self.assertTrue(all(pipe.is_file() for pipe in pipes), f"not written, although all were read\n{out}{err}")

    def test_a_deadline_that_has_passed(self):
        """Nothing is measured: a warning says so, and the settings are checked."""
        code, out, err = self.run_ranks((2, self.words("--deadline", 0)))
        self.assertEqual(code, 0, out + err)
        late, = self.findings("deadline")
        self.assertEqual(late["verdict"], "WARN")
        self.assertIn("matrix products, all_gather over dp_shard", late["what"])
        speeds = json.loads(self.json.read_text())["speeds"]
        self.assertEqual((speeds["products"]["tera_flops"], speeds["collectives"]), ([], []))
        self.assertEqual(speeds["not_done"][0], "matrix products")

    def test_a_rank_that_never_arrives(self):
        """It is started, and never comes to MPI."""
        arrivals = self.folder / "arrivals"
        arrivals.mkdir()
        code, out, err = self.run_ranks((2, self.words()), (1, ["sleep", "1000"]),
                                        environment={"ARGOSY_START_SECONDS": "8", "ARGOSY_ARRIVALS": str(arrivals)})
        self.assertEqual(code, 76, out + err)
        self.assertEqual(err.count("preflight: error"), 1, err)
        self.assertIn("; missing: rank 2\n", err)
        self.assertFalse(self.json.exists())

    def test_a_rank_that_never_arrives_where_others_start_late(self):
        """Rank 1 waits longest, and leaves the word to rank 0, whose message would not come otherwise."""
        arrivals = self.folder / "arrivals"
        arrivals.mkdir()
        late = ["sh", "-c", 'sleep 4; exec "$@"', "sh"]
        code, out, err = self.run_ranks((1, [*late, *self.words()]), (1, self.words()), (1, ["sleep", "1000"]),
                                        environment={"ARGOSY_START_SECONDS": "8", "ARGOSY_ARRIVALS": str(arrivals)})
        self.assertEqual(code, 76, out + err)
        self.assertEqual(err.count("preflight: error"), 1, err)
        self.assertIn("; missing: rank 2\n", err)

    def has_arrived(self, rank, arrivals):
        lines = [line for file in pathlib.Path(arrivals).iterdir() for line in file.read_text().splitlines()]
        return any(line.split()[0] == str(rank) for line in lines)

    def test_a_rank_that_stops_while_the_job_starts(self):
        """Without a delay it stops before or in MPI_Init, with it in what follows."""
        for delay in (0, 0.3):
            with self.subTest(delay), tempfile.TemporaryDirectory() as arrivals:
                process = self.start((3, self.words("--timeout", 8)),
                                     environment={"ARGOSY_START_SECONDS": "8", "ARGOSY_ARRIVALS": arrivals})
                while not self.has_arrived(2, arrivals) and process.poll() is None:
                    time.sleep(0.005)
                time.sleep(delay)
                os.kill(self.rank(2, process.pid), signal.SIGSTOP)
                code, out, err = self.end(process)
                self.assertEqual(code, 76, out + err)
                self.assertEqual(err.count("preflight: error"), 1, err)
                self.assertRegex(err, r"; missing: rank 2(\.|\n)")

    def test_a_rank_that_stops(self):
        """While the ranks look around, or later, in whatever they do then."""
        process = self.start((3, self.words("--timeout", 4)), environment={"ARGOSY_START_SECONDS": "20"})
        said = ""
        while "settings and hardware" not in said and process.poll() is None:
            said += process.stderr.readline()
        os.kill(self.rank(2, process.pid), signal.SIGSTOP)
        code, out, err = self.end(process)
        self.assertEqual(code, 76, out + err)
        self.assertEqual(err.count("preflight: error"), 1, err)
        self.assertIn("; missing: rank 2.", err)

    def test_the_variables_of_a_shell_without_a_job(self):
        environment = os.environ | {"CUDA_LAUNCH_BLOCKING": "1", "NCCL_P2P_DISABLE": "1", "NCCL_NET": "Socket", "NCCL_DEBUG": "WARN"}
        for where, names in (("2,8", ["CUDA_LAUNCH_BLOCKING", "NCCL_P2P_DISABLE", "NCCL_NET"]), ("1,8", ["CUDA_LAUNCH_BLOCKING", "NCCL_P2P_DISABLE"]),
                             ("2,1", ["CUDA_LAUNCH_BLOCKING", "NCCL_NET"])):
            done = subprocess.run([BIN / "preflight", "--variables", where], env=environment, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual([line.split("=")[0] for line in done.stdout.splitlines()], names)
        self.assertIn("NCCL_NET=Socket: the adapters stay unused", done.stdout)

    def test_mistakes_end_with_2_and_one_message(self):
        mistakes = ((self.words("--parallelism.tensor_parallel_degree", 3), "3"),
                    (self.words("--training.steps", "many"), "training.steps"),
                    (self.words("--parallelism.context_parallel_degree", 2, "--training.seq_len", 255),
                     "training.seq_len = 255"),
                    (self.words("--timeout", 0), "--timeout 0"),
                    (self.words("--links", "/nowhere.json"), "/nowhere.json"),
                    (self.words("--links", CONFIG), f"--links {CONFIG}"),
                    (self.words("--sustain", -1), "--sustain"),
                    (self.words("--deadline", -1), "--deadline"),
                    ([BIN / "preflight"], "--config is required"), ([BIN / "preflight", "--variables", "2"], "--variables"),
                    ([BIN / "preflight", "--confg", CONFIG], "unknown option --confg; did you mean --config?"),
                    (self.words("--susatin", 1), "unknown option --susatin; did you mean --sustain?"),
                    (self.words("--print-config"), "unknown option --print-config"),
                    ([BIN / "preflight", "--config", "/nowhere.toml"], "/nowhere.toml"),
                    ([BIN / "preflight", "--config", CONFIG, "--json", self.folder / "no" / "such"], "no/such"))
        # mpirun waits a second after its ranks have failed before it checks that they have exited.
        environment = {"OMPI_MCA_odls_base_sigkill_timeout": "0"}
        calls = [lambda words=words: self.run_ranks((2, words), environment=environment) for words, _ in mistakes]
        for (_, part), (code, out, err) in zip(mistakes, run.at_once(calls, workers=2)):
            with self.subTest(part):
                self.assertEqual(code, 2, out + err)
                self.assertEqual(err.count("preflight: error"), 1, err)
                self.assertIn(part, err)


if __name__ == "__main__":
    run.main(workers=3)  # most ranks wait: for a rank that is late or stopped, or for a file
