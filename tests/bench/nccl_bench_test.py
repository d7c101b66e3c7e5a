"""The command line of nccl-bench: what it prints, writes and returns, and how it ends when a rank stays away."""
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

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall", "sendrecv")
OF_HALF_THE_SIZE = ("all_gather", "reduce_scatter", "alltoall")  # on two ranks
QUICK = ("-b", "64", "-e", "4K", "-f", "8", "-n", "5")
SIZES = [64, 512, 4096]


def bench(ranks, *arguments, environment=None):
    """One rank is started without a launcher, which is quicker."""
    launcher = [SOURCE / "jobs/mpirun.sh", str(ranks)] if ranks > 1 else []
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.run([*launcher, BIN / "nccl-bench", *map(str, arguments)], capture_output=True, text=True,
                          timeout=300, stdin=subprocess.DEVNULL, env=os.environ | as_root | (environment or {}))


def rows(text):
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def is_nccl_bench(pid):
    """And not another process that has the number by now."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "nccl-bench"
    except (FileNotFoundError, ProcessLookupError):
        return False


class NcclBench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_well(self, ranks, *arguments, **options):
        done = bench(ranks, *arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return done

    def expect_refused(self, *arguments, parts=(), ranks=1):
        done = bench(ranks, *arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)
        self.assertEqual(done.stderr.count("nccl-bench: error"), 1, done.stderr)

    def test_every_collective_prints_a_row_for_each_size(self):
        for collective in COLLECTIVES:
            with self.subTest(collective):
                found = rows(self.run_well(2, collective, *QUICK).stdout)
                self.assertEqual([int(row[0]) for row in found], SIZES)
                for row in found:
                    self.assertEqual(len(row), 17)  # nccl-tests' thirteen, then p50 and p99 twice
                    self.assertEqual(row[2], "float")
                    size, seconds, algbw, busbw = float(row[0]), float(row[5]) * 1e-6, float(row[6]), float(row[7])
                    self.assertAlmostEqual(algbw, size / seconds / 1e9, delta=0.006 + 0.02 * algbw)
                    self.assertAlmostEqual(busbw, algbw * (0.5 if collective in OF_HALF_THE_SIZE else 1), delta=0.011)
                    self.assertEqual((row[8], row[12]), ("0", "0"))

    def test_the_frame_is_nccl_tests(self):
        text = self.run_well(2, "all_reduce", *QUICK, "-g", "1", "-t", "1").stdout
        for line in ("# Collective test starting: all_reduce", "# Using devices", "# Out of bounds values : 0 OK",
                     "# Collective test concluded: all_reduce"):
            self.assertIn("\n" + line + "\n", text)
        self.assertIn("minBytes 64 maxBytes 4096 step: 8(factor) warmup iters: 1 iters: 5 agg iters: 1 validation: 1", text)
        self.assertRegex(text, r"\n# Avg bus bandwidth    : [\d.e-]+ \n")
        self.assertEqual(len(re.findall(r"^#  Rank  \d Group  0 Pid +\d+ on +\S+ device", text, re.MULTILINE)), 2)

    def test_options_change_the_table(self):
        shown = rows(self.run_well(2, "all_reduce", "-b", "8", "-e", "24", "-i", "8", "-n", "3").stdout)
        self.assertEqual([row[0] for row in shown], ["8", "16", "24"])
        shown = rows(self.run_well(2, "broadcast", *QUICK, "-r", "all").stdout)
        self.assertEqual([row[4] for row in shown], ["0"] * 3 + ["1"] * 3)
        shown = rows(self.run_well(2, "all_reduce", *QUICK, "-d", "all", "-o", "all").stdout)
        self.assertEqual(len(shown), 3 * 12 * 2)
        self.assertEqual({row[3] for row in shown}, {"sum", "max"})
        self.assertEqual({(row[8], row[12]) for row in shown}, {("0", "0")})
        shown = rows(self.run_well(2, "all_reduce", *QUICK, "-c", "0").stdout)
        self.assertEqual({(row[8], row[12]) for row in shown}, {("N/A", "N/A")})

    def test_json_has_types_and_shows_no_secret(self):
        path = self.folder / "x.json"
        secrets = {"AWS_SECRET_ACCESS_KEY": "hush-1", "SLURM_JWT": "hush-2", "NCCL_DEBUG": "WARN"}
        self.run_well(2, "broadcast", *QUICK, "-J", path, "-r", "1", "--min-busbw", "1e-9", environment=secrets)
        text = path.read_text()
        self.assertNotIn("hush", text)
        found = json.loads(text)
        self.assertEqual((found["format"], found["version"], found["okay"]), ("argosy nccl-bench", 3, True))
        self.assertEqual(found["env"]["NCCL_DEBUG"], "WARN")
        self.assertEqual([row["size"] for row in found["results"]], SIZES)
        row = found["results"][0]
        self.assertEqual((row["root"], row["redop"], row["count"], row["type"]), (1, None, 16, "float"))
        for side in ("out_of_place", "in_place"):
            self.assertIsInstance(row[side]["time_us"], float)
            self.assertEqual(row[side]["nwrong"], 0)
            slowest = row[side]["slowest_rank_us"]
            self.assertTrue(slowest["min"] <= slowest["p50"] <= slowest["p99"] <= slowest["max"])
        self.assertEqual(found["backend"], "mpi")
        self.assertEqual([one["rank"] for one in found["config"]["devices"]], [0, 1])
        for one in found["config"]["devices"]:
            self.assertEqual((set(one), one["device"]), ({"rank", "host", "process", "device"}, None))
        axis = found["axes"][0]
        self.assertEqual(axis["transport"], ["host memory, within a node"])
        self.assertIs(axis["out_of_bounds"]["okay"], True)
        self.assertIs(axis["average_bus_bandwidth"]["okay"], True)
        self.assertEqual(list(self.folder.iterdir()), [path])

    def test_a_collective_is_timed_beside_products(self):
        report = self.folder / "report.json"
        done = self.run_well(2, "all_reduce", *QUICK, "--beside-products", "--json", report)
        self.assertEqual([int(row[0]) for row in rows(done.stdout)], SIZES)
        said = re.findall(r"^# beside products: .* us, (.*) times as long as alone; a product (.*) us, (.*) times$",
                          done.stdout, re.MULTILINE)
        results = json.loads(report.read_text())["results"]
        self.assertEqual(len(said), len(results))
        for (longer, product, slower), result in zip(said, results):
            beside = result["beside_products"]
            self.assertAlmostEqual(float(longer), beside["time_us"] / result["out_of_place"]["time_us"], delta=0.01)
            self.assertAlmostEqual(float(product), beside["product_us"], delta=0.1)
            self.assertAlmostEqual(float(slower), beside["product_us"] / beside["product_alone_us"], delta=0.01)
            self.assertGreater(beside["product_alone_us"], 50)
        self.run_well(1, "all_reduce", *QUICK, "--json", report)
        self.assertEqual({str(result["beside_products"]) for result in json.loads(report.read_text())["results"]}, {"None"})

    def test_a_mesh_is_measured_by_axis(self):
        path = self.folder / "x.json"
        text = self.run_well(4, "all_reduce", *QUICK, "--mesh", "2x2", "--json", path).stdout
        self.assertEqual(re.findall(r"# Mesh axis (\w+): (\d) x (\d) ranks", text),
                         [("within", "2", "2"), ("across", "2", "2"), ("all", "1", "4")])
        found = json.loads(path.read_text())
        self.assertEqual([axis["axis"] for axis in found["axes"]], ["within", "across", "all"])
        self.assertEqual(len(found["results"]), 9)
        for row in found["results"]:
            side = row["in_place"]
            factor = 1.5 if row["axis"] == "all" else 1
            self.assertAlmostEqual(side["bus_bw"], side["alg_bw"] * factor, delta=1e-6)

    def test_too_little_bandwidth_exits_with_3(self):
        path = self.folder / "x.json"
        done = bench(2, "all_reduce", *QUICK, "--min-busbw", "1e6", "--json", path)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stdout, r"# Avg bus bandwidth    : \S+ FAILED")
        found = json.loads(path.read_text())
        self.assertIs(found["okay"], False)
        self.assertEqual(found["axes"][0]["average_bus_bandwidth"]["minimum"], 1e6)

    def test_wrong_usage_exits_with_2_and_says_why(self):
        self.expect_refused("all_reduce", "-m", "2", parts=("-m",), ranks=2)
        self.expect_refused("all_reduce", "-g", "8", parts=("--ngpus 8", "start more ranks"))
        self.expect_refused("all_reduce", "--backend", "nccl", parts=("no NCCL",))
        self.expect_refused("all_reduce", "--mesh", "3x2", parts=("6 ranks", "1 were started"))
        for option in ("--min-busbw", "--timeout"):
            self.expect_refused("all_reduce", f"{option}=nan", parts=(f"{option}: nan is not a number",))
        self.expect_refused("all_reduce", "--min-busbw=-1", parts=("--min-busbw -1: it must be more than 0",))
        self.expect_refused("all_reduce", "--nonsense", parts=("--nonsense",))
        self.expect_refused("all_reduce", "--product-sms", "64", parts=("add --beside-products",))
        self.expect_refused("all_reduce", "--beside-products", "--product-sms", "64", parts=("products on GPUs",))
        self.expect_refused("all_reduce", "-b", "8", "--minbytes", "16", parts=("--minbytes is given 2 times; give it once",))
        self.expect_refused("all_reduce", "-t", "1", "-t", "1", parts=("--nthreads is given 2 times",))
        self.expect_refused("all_reduce", "--percentiles", "none", parts=("--percentiles", "none"))
        self.expect_refused(*QUICK, parts=("collective",))
        self.expect_refused("alltoall", "-b", "4", "-e", "4", ranks=2,
                            parts=("--maxbytes 4 is too small",))

    def test_a_file_that_cannot_be_written_is_noticed_before(self):
        done = bench(1, "all_reduce", *QUICK, "--json", self.folder / "none/x.json")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(rows(done.stdout), [])

    def test_reports_go_to_standard_output(self):
        """The table is then on stderr, so that stdout has one thing."""
        done = self.run_well(2, "all_reduce", *QUICK, "--json", "-")
        self.assertEqual(len(json.loads(done.stdout)["results"]), len(SIZES))
        self.assertIn("# Avg bus bandwidth", done.stderr)
        self.expect_refused("all_reduce", "--json", "/dev/stdout", parts=("cannot write /dev/stdout", "- for"))
        self.expect_refused("all_reduce", "-b", "1T", parts=("--minbytes 1T: 'T' is not a unit", "1024G"))

    def test_only_its_own_reports_are_replaced(self):
        path = self.folder / "x.json"
        command = (1, "all_reduce", *QUICK, "--json", path)
        for _ in range(2):
            self.run_well(*command)
        path.write_text("mine")
        done = bench(*command)
        self.assertEqual((done.returncode, rows(done.stdout)), (2, []), done.stderr)
        self.assertIn(f"cannot write {path}: it exists, and this tool did not write it", done.stderr)
        self.assertEqual(path.read_text(), "mine")
        self.assertEqual(list(self.folder.iterdir()), [path])

    def test_a_step_of_singletons_is_refused(self):
        done = bench(1, "all_reduce", *QUICK, environment={"SLURM_STEP_ID": "0", "SLURM_NTASKS": "4"})
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("4 ranks were requested, but MPI_COMM_WORLD has 1", done.stderr)

    def test_variables_of_nccl_tests_are_not_ignored_in_silence(self):
        done = self.run_well(1, "all_reduce", *QUICK, environment={"NCCL_TESTS_SPLIT": "DIV 8"})
        self.assertIn("nccl-bench ignores NCCL_TESTS_SPLIT=DIV 8", done.stderr)

    def test_help_and_version_come_once(self):
        self.assertEqual(self.run_well(2, "--help").stdout.count("Usage:"), 1)
        self.assertRegex(self.run_well(2, "--version").stdout, r"^nccl-bench \d+\.\d+\.\d+ \(.*\)\n$")

    def test_a_rank_that_stops_is_named(self):
        command = [SOURCE / "jobs/mpirun.sh", "3", BIN / "nccl-bench", "all_reduce", "-b", "64", "-e", "256K",
                   "-i", "4", "-T", "6"]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   stdin=subprocess.DEVNULL)
        limit = threading.Timer(100, process.kill)  # a line that never comes ends with the process
        limit.start()
        ranks, started = {}, False
        self.addCleanup(self.end, limit, process, ranks)
        while not started:
            line = process.stdout.readline()
            self.assertTrue(line, process.stderr.read() if not line else "")
            match = re.match(r"#  Rank +(\d+) Group +0 Pid +(\d+) ", line)
            if match:
                ranks[int(match[1])] = int(match[2])
            started = not line.startswith("#")
        os.kill(ranks[1], signal.SIGSTOP)
        begun = time.monotonic()
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 76, errors)
        self.assertLess(time.monotonic() - begun, 45)
        self.assertIn(f"rank 1 (process {ranks[1]} on ", errors)
        self.assertNotIn(f"rank 2 (process {ranks[2]} on ", errors)

    @staticmethod
    def end(limit, process, ranks):
        """Ranks first, and by SIGKILL: one that is stopped takes note of nothing else."""
        limit.cancel()
        for pid in ranks.values():
            if is_nccl_bench(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


if __name__ == "__main__":
    run.main(workers=3)
