"""nccl-bench and preflight over NCCL, on stand-ins for GPUs: nccl_bench_fake_test.py NCCL_BENCH PREFLIGHT. What is the same
over MPI is in nccl_bench_test.py."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["ARGOSY_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests" / "pretrain"))
import run  # noqa: E402

NCCL_BENCH, PREFLIGHT = map(pathlib.Path, (sys.argv.pop(1), sys.argv.pop(1)))
QUICK = ("-b", "64", "-e", "4K", "-f", "8", "-n", "3")


def run_ranks(ranks, *words, **environment):
    return subprocess.run([SOURCE / "jobs/mpirun.sh", *map(str, (ranks, *words))], capture_output=True, text=True, timeout=100,
                          stdin=subprocess.DEVNULL, env=os.environ | environment)


def bench(ranks, *arguments, **environment):
    return run_ranks(ranks, NCCL_BENCH, *arguments, **environment)


class NcclBenchOnStandIns(unittest.TestCase):
    def run_well(self, ranks, *arguments, **environment):
        """Returns what it printed, and its JSON."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "x.json"
            done = bench(ranks, *arguments, "--json", path, **environment)
            self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
            return done.stdout, json.loads(path.read_text())

    def test_nccl_is_the_default_and_names_devices_and_transport(self):
        text, found = self.run_well(2, "all_reduce", *QUICK)
        self.assertRegex(text, r"^# nccl-bench \S+ \(\S+\), over NCCL 2\.\d+\.\d+, CUDA 1\d\.\d, driver for CUDA")
        self.assertRegex(text, r"\n#  Rank  1 Group  0 Pid +\d+ on +\S+ device  1 \[0000:3c:00.0\] Fake GPU\n")
        self.assertIn("\n# Transport: NVLS available; P2P/CUMEM\n", text)
        self.assertEqual(found["backend"], "nccl")
        self.assertEqual(found["axes"][0]["transport"], ["NVLS available", "P2P/CUMEM"])
        devices = found["config"]["devices"]
        self.assertEqual([one["rank"] for one in devices], [0, 1])
        self.assertEqual(devices[1]["device"], {"number": 1, "name": "Fake GPU", "pci_bus_id": "0000:3c:00.0",
                                                "memory_bytes": 1 << 40, "compute_capability": "9.0"})
        self.assertNotIn("NCCL_DEBUG", found["env"])

    def test_a_log_of_the_user_stays_his(self):
        text, found = self.run_well(2, "all_reduce", *QUICK, NCCL_DEBUG="WARN")
        self.assertNotIn("Transport", text)
        self.assertEqual(found["axes"][0]["transport"], [])
        self.assertEqual(found["env"]["NCCL_DEBUG"], "WARN")

    def test_everything_comes_out_right(self):
        for collective in ("all_reduce", "alltoall", "broadcast"):
            text, _ = self.run_well(3, collective, *QUICK, "-d", "all", "-o", "all", "-r", "all")
            rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
            self.assertEqual({(row[8], row[12]) for row in rows}, {("0", "0")})

    def test_a_mesh_has_a_transport_for_each_axis(self):
        text, found = self.run_well(4, "all_gather", *QUICK, "--mesh", "2x2")
        self.assertEqual(len(re.findall("# Transport: ", text)), 3)
        self.assertEqual({axis["axis"] for axis in found["axes"]}, {"within", "across", "all"})

    def test_without_gpus_it_is_mpi_unless_nccl_was_asked_for(self):
        _, found = self.run_well(2, "all_reduce", *QUICK, ARGOSY_FAKE_GPUS="0")
        self.assertEqual(found["backend"], "mpi")
        done = bench(2, "all_reduce", *QUICK, "--backend", "nccl", ARGOSY_FAKE_GPUS="0")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r"ranks 0 \(process \d+ on \S+\), 1 \(process \d+ on \S+\) see no GPU")

    def test_a_preflight_measures_over_nccl_too(self):
        """And tells the libraries' versions, which must be the same on all ranks."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "x.json"
            done = run_ranks(2, PREFLIGHT, "--config", SOURCE / "configs/debug_cpu.toml", "--json", path, "--sustain", 0.1)
            self.assertRegex(done.stdout, r"pre-flight of .*\(NCCL 2\.", done.stderr)
            for rank in json.loads(path.read_text())["ranks"]:
                self.assertRegex(rank["nccl_version"], r"^2\.\d+\.\d+$")
                self.assertRegex(rank["cuda_version"], r"^1\d\.\d$")

    def preflight(self, script, *options, nodes=(), **environment):
        """With a stand-in for nvidia-smi, a script in which $number is that of the question about GPUs: 1 is before the
        load, 2 in it. `nodes`: their number of GPUs, for two ranks on each. Returns what ran, its report (None: there is
        none), and the number of questions."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "nvidia-smi").write_text(f"""#!/bin/sh
case $1 in --query-gpu=*) ;; *) exit 2 ;; esac
echo >>{folder}/questions
number=$(wc -l <{folder}/questions) reasons=0x1 errors=0 used=4
{script}
for gpu in 0 1; do
    [ $gpu = 1 ] || echo "00000000:3B:00.0,a GPU,580,0x1,0,16,16,5,5,$used,1000,,"
    [ $gpu = 0 ] || echo "00000000:3C:00.0,a GPU,580,$reasons,$errors,16,16,5,5,4,1000,,"
done
""")
            (folder / "nvidia-smi").chmod(0o700)
            path = folder / "x.json"
            words = [PREFLIGHT, "--config", SOURCE / "configs/debug_cpu.toml", "--json", path, *options]
            on_nodes = []
            for number, gpus in enumerate(nodes, 1):
                on_nodes += [":", "-n", 2, "env", f"ARGOSY_FAKE_GPUS={gpus}", f"SLURMD_NODENAME=n{number}",
                             f"NCCL_HOSTID=n{number}", *words]
            done = run_ranks(*(on_nodes[2:] or [2, *words]), **environment, PATH=f"{folder}:{os.environ['PATH']}")
            report = json.loads(path.read_text()) if path.exists() else None
            return done, report, len((folder / "questions").read_text())

    def expect_no_speeds(self, done, report, check, bad_nodes):
        """A FAIL of that check, and a report of everything but speeds. Returns what was found."""
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"\n  not measured, because .*: matrix products, all_gather over dp_shard, ")
        found, = [one for one in report["findings"] if one["check"] == check]
        self.assertEqual((found["verdict"], report["bad_nodes"]), ("FAIL", bad_nodes))
        speeds = report["speeds"]
        self.assertEqual((speeds["products"]["tera_flops"], speeds["collectives"], speeds["judged"]), ([], [], False))
        self.assertEqual(speeds["not_done"][-1], "the sustained load")
        self.assertNotIn("deadline", [one["check"] for one in report["findings"]])
        return found["what"]

    def test_a_node_with_more_ranks_than_gpus_is_named(self):
        done, report, _ = self.preflight("", nodes=(2, 2, 1))
        self.assertIn("2 ranks for 1 on n3", self.expect_no_speeds(done, report, "ranks per GPU", ["n3"]))

    def test_more_ranks_than_gpus_on_every_node_are_a_mistake_unless_a_node_is_bad(self):
        done, report, _ = self.preflight("", nodes=(1, 1), CUDA_VISIBLE_DEVICES="0")
        self.assertEqual((done.returncode, report), (2, None), done.stdout + done.stderr)
        self.assertIn("start as many ranks on a node as it has GPUs", done.stderr)
        done, report, _ = self.preflight("used=900", ARGOSY_FAKE_GPUS="1", CUDA_VISIBLE_DEVICES="0")
        self.expect_no_speeds(done, report, "ranks per GPU", report["bad_nodes"])
        self.assertEqual(len(report["bad_nodes"]), 1)

    def test_a_node_on_which_cuda_fails_is_named(self):
        """Its GPUs cannot even be counted. What else is wrong is said, too."""
        done, report, _ = self.preflight("", nodes=(2, -1), CUDA_LAUNCH_BLOCKING="1")
        self.assertIn("cudaGetDeviceCount failed", self.expect_no_speeds(done, report, "GPUs that CUDA sees", ["n2"]))
        self.assertIn("CUDA_LAUNCH_BLOCKING", [one["check"] for one in report["findings"]])

    def test_gpus_that_nvidia_smi_lists_and_cuda_does_not_show(self):
        for nodes, bad, part in (((2, 0), ["n2"], "CUDA sees no GPU, but nvidia-smi lists some"),
                                 ((0,), ["n1"], "CUDA sees no GPU, but nvidia-smi lists some"),
                                 ((2, 1), ["n2"], "CUDA sees 1 GPUs, but nvidia-smi lists 2")):
            with self.subTest(nodes):
                done, report, _ = self.preflight("", nodes=nodes)
                self.assertIn(part, self.expect_no_speeds(done, report, "GPUs that CUDA sees", bad))

    def test_ranks_of_builds_with_and_without_cuda(self):
        """They report that they differ, and do not wait for each other in calls that only some of them make."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "x.json"
            words = ["--config", SOURCE / "configs/debug_cpu.toml", "--json", path]
            done = run_ranks(1, PREFLIGHT, *words, ":", "-n", 1, pathlib.Path(os.environ["ARGOSY_BIN"]) / "preflight", *words)
            self.expect_no_speeds(done, json.loads(path.read_text()), "CUDA version", [])

    def test_a_preflight_asks_nvidia_smi_before_during_and_after_the_load(self):
        """Heat slows GPU 1 at the second question, and it has memory errors at the third."""
        done, report, _ = self.preflight("case $number in 2) reasons=0x40 ;; 3) errors=5 ;; esac", "--sustain", 4)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        findings = {one["check"]: one["what"] for one in report["findings"]}
        self.assertIn("GPU 1: heat lowers the clocks", findings.get("GPU clocks under load", ""))
        self.assertIn("GPU 1: uncorrected memory errors", findings.get("GPU memory errors under load", ""))

    def test_an_nvidia_smi_that_hangs_or_fails_under_load_is_a_finding(self):
        """After a question that hung, nvidia-smi is not asked again."""
        for script, verdict, part, num_questions in (
                ("[ $number = 1 ] || sleep 600", "FAIL", "does not answer while the GPUs multiply", 2),
                ("[ $number != 2 ] || { echo GPU is lost; exit 15; }", "FAIL", "under load, it exits with 15", 3)):
            with self.subTest(part):
                # A call hangs that does not end in 20 s; a look has half of the timeout.
                done, report, asked = self.preflight(script, "--sustain", 4, "--timeout", 44)
                self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
                finding, = [one for one in report["findings"] if one["check"] == "nvidia-smi"]
                self.assertEqual(finding["verdict"], verdict)
                self.assertIn(part, finding["what"])
                self.assertEqual(asked, num_questions)

    def test_an_nvidia_smi_that_hangs_on_another_node_is_not_asked_again_there(self):
        """Its facts are on rank 0, and its first rank asks."""
        done, report, asked = self.preflight('[ $SLURMD_NODENAME = n1 ] || [ $number -le 2 ] || sleep 600', "--sustain", 4,
                                             "--timeout", 44, nodes=(2, 2))
        self.assertEqual((done.returncode, report["bad_nodes"], asked), (3, ["n2"], 3 + 2), done.stdout + done.stderr)
        self.assertEqual([len(node["gpus_after"]) for node in report["nodes"]], [2, 0])
        self.assertEqual([rank["load"]["num_products"] > 0 for rank in report["ranks"]], [True] * 4)

    def test_the_deadline_leaves_time_for_a_second_look(self):
        done, report, asked = self.preflight("[ $number = 1 ] || errors=5", "--deadline", 0.001)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        checks = {one["check"]: one["what"] for one in report["findings"]}
        self.assertIn("GPU 1: uncorrected memory errors", checks["GPU memory errors under load"])
        self.assertIn("the sustained load", checks["deadline"])
        self.assertEqual(asked, 2)

    def test_ranks_that_share_a_gpu_are_refused(self):
        done = bench(2, "all_reduce", *QUICK, ARGOSY_FAKE_GPUS="1")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("have the same GPU", done.stderr)


if __name__ == "__main__":
    run.main(workers=3)
