"""Scenarios of slurm_test.py in which a script of jobs/ submits several jobs: sweeps, pipelines, bring-up of new nodes.
"""
import json
import os
import pathlib
import re
import shutil

from scenarios import Scenarios, scenario
from submitted import BIN, FOREVER, JOBS, LIMIT_SECONDS, SOURCE, Run


class SeveralJobs(Scenarios):
    @scenario
    def sweep(self):
        """A point that gets the warning before its limit is requeued alone, although the number of the last point is
        the array's."""
        run = self.new_run()
        points = self.cluster.folder / "points"
        points.write_text(f"--optimizer.lr 1e-3 --training.steps 3\n \n--optimizer.lr 2e-3 --training.steps {FOREVER}")
        job = run.submit("--sweep", points, "--ranks-per-node", 1, environment=self.container(run))
        points.write_text("--no.such option\n")
        first, last = (Run(self.cluster, f"{run.name}/point-000{task}") for task in (0, 1))
        self.assertEqual(run.wait(f"{job}_0"), ("COMPLETED", 0))
        self.assertEqual([step["step"] for step in first.steps()], [1, 2, 3])
        self.assertEqual(first.steps()[-1]["lr"], 1e-3)
        last.wait_for_step(3)
        self.cluster.run("scancel", "--batch", "--signal=USR1", f"{job}_1")
        self.cluster.wait_until(lambda: len(last.attempts()) == 2, "the point's restart", LIMIT_SECONDS, run.tail)
        saved = max(last.saved())
        last.wait_for_step(saved + 2)
        self.cluster.run("scancel", job)
        self.assertEqual((len(first.attempts()), last.attempts()[1]["newest_step"]), (1, saved))
        calls = (self.cluster.folder / "container-calls").read_text().split("\n")
        self.assertIn(f"exec --nv --bind /data image {BIN}/pretrain", calls)

    @scenario
    def sweep_with_a_baseline(self):
        """A sweep is compared with expected speeds, and is the baseline of the next one."""
        run, points, csv = self.new_run(), self.cluster.folder / "two-points", self.cluster.folder / "expected.csv"
        again = Run(self.cluster, run.name + "-next")
        points.write_text("--optimizer.lr 1e-3\n--optimizer.lr 2e-3\n")
        for sweep, words in ((run, ()), (again, ("--baseline", run.folder))):
            job = sweep.submit("--sweep", points, "--ranks-per-node", 1, *words, training__steps=12)
            for task in (0, 1):
                self.assertEqual(sweep.wait(f"{job}_{task}"), ("COMPLETED", 0))
            csv.write_text(csv.read_text() if words else run.call("status.sh", "--compare", run.folder, "--format", "csv") + "\n")
        self.assertIn("too few steps to compare with", "".join(path.read_text() for path in (again.folder / "logs").iterdir()))
        table = again.call("status.sh", "--compare", again.folder, "--expected", csv).splitlines()
        self.assertEqual([line.split()[0] for line in table[1:3]], ["point-0000", "point-0001"])
        self.assertEqual([line.split()[-1].replace(".", "").isdigit() for line in table[1:3]], [True, True], table)
        said = again.call("status.sh", again.folder)
        for point in ("point-0000", "point-0001"):
            self.assertRegex(said, rf"efficiency \d+ % of {run.folder}/{point}, ")

    @scenario
    def arriving(self):
        """arrive.sh takes a TorchTitan TOML and texts to a job that trains on two nodes."""
        run = self.new_run()
        file = self.cluster.folder / "theirs.toml"
        file.write_text('[model]\nname = "llama3"\nflavor = "debugmodel"\n[training]\nlocal_batch_size = 2\nseq_len = 32\nsteps = 3\n'
                        '[parallelism]\ndata_parallel_shard_degree = -1\n')
        job = run.call("arrive.sh", file, "--jsonl", SOURCE / "data" / "tiny.jsonl", "--tokenizer", "bytes", "--folder", run.folder,
                       "--nodes", 2, environment={"ARGOSY_RANKS_PER_NODE": "1"}).splitlines()[-1]
        self.assertEqual(run.wait(job), ("COMPLETED", 0))
        self.assertIn("(dp_shard 2)", run.log(job))
        self.assertEqual([step for step, *_ in run.losses()], [1, 2, 3])

    def container(self, run):
        """A stand-in for Apptainer that runs its command outside of any container and records it."""
        script = f'echo "${{@:1:6}}" >>{self.cluster.folder}/container-calls\nexec "${{@:6}}"'
        return {"ARGOSY_CONTAINER": "image", "ARGOSY_CONTAINER_MOUNTS": "/data"} | self.commands(run, apptainer=script)

    @scenario
    def template_as_it_is(self):
        """Runs the template from the checkout, without submit.sh."""
        run = self.new_run()
        run.folder.mkdir(parents=True)
        self.cluster.run("sbatch", "--wait", "--ntasks-per-node=1", "--cpus-per-task=1", "--gpus-per-node=0",
                         f"--output={run.folder}/log", JOBS / "templates" / "single_node.sbatch",
                         "configs/debug_cpu.toml", *run.options(training__steps=3), timeout=LIMIT_SECONDS, cwd=SOURCE,
                         env=os.environ | {"ARGOSY_SITE": str(self.cluster.folder / "site.conf")})
        self.assertEqual([step for step, *_ in run.losses()], [1, 2, 3])

    @scenario
    def pipeline(self):
        run = self.new_run()
        tasks = self.cluster.folder / "tasks.jsonl"
        tasks.write_text('{"tokens": [72, 101, 108, 108, 111, 32, 119, 111, 114, 108, 100]}\n')
        path = run.call("pipeline.sh", SOURCE / "configs" / "debug_cpu.toml", f"--tasks={tasks}", "--ranks-per-node", 2,
                        *run.options(checkpoint__folder="elsewhere"), environment={"ARGOSY_CPU_PARTITION": "fragile"})
        steps = json.loads(pathlib.Path(path).read_text())["steps"]
        self.assertEqual([step["step"] for step in steps], ["train", "convert", "eval"])
        self.assertEqual(run.wait(steps[2]["job"]), ("COMPLETED", 0))
        records = [json.loads(pathlib.Path(step["record"]).read_text()) for step in steps]
        self.assertEqual([record["exit_code"] for record in records], [0, 0, 0])
        self.assertEqual([record["job"] for record in records], [step["job"] for step in steps])
        self.assertEqual([record["outputs"] for record in records],
                         [[f"{run.folder}/{path}"] for path in ("elsewhere/step-00000012", "hf", "results.json")])
        self.assertIn("token_perplexity", (run.folder / "results.json").read_text())
        partitions = [self.cluster.job(step["job"])["Partition"] for step in steps]
        self.assertEqual(partitions, ["main", "fragile", "main"])

    @scenario
    def pipeline_that_fails(self):
        """Slurm removes the later jobs from the queue."""
        run = self.new_run()
        path = run.call("pipeline.sh", SOURCE / "configs" / "debug_cpu.toml", "--tasks", SOURCE / "data" / "tiny.jsonl", "--tokenizer=bytes",
                        "--ranks-per-node", 1, *run.options(training__dataset_path="/nowhere/tokens.h5"))
        steps = json.loads(pathlib.Path(path).read_text())["steps"]
        for step in steps[1:]:
            self.assertEqual(run.wait(step["job"])[0], "CANCELLED")
            self.assertFalse(pathlib.Path(step["record"]).exists())
        record = json.loads(pathlib.Path(steps[0]["record"]).read_text())
        self.assertEqual((record["exit_code"], record["outputs"]), (2, []))

    @scenario
    def pipeline_that_is_refused(self):
        """Slurm accepts the training job but not the later ones: nothing stays in the queue, and the script reports it.
        """
        run = self.new_run()
        sbatch = f'case $* in *convert*) echo no >&2; exit 1 ;; esac\nexec {shutil.which("sbatch")} "$@"'
        run.folder.mkdir(parents=True)
        (run.folder / "train.json").write_text("of an earlier job")
        with self.assertRaisesRegex(AssertionError, "ended with 1\n(.|\n)*cancelled job") as raised:
            run.call("pipeline.sh", SOURCE / "configs" / "debug_cpu.toml", "--tasks", SOURCE / "data" / "tiny.jsonl", "--tokenizer=bytes",
                     "--ranks-per-node", 1, *run.options(training__steps=FOREVER),
                     environment=self.commands(run, sbatch=sbatch))
        job = re.search(r"cancelled job (\d+)", str(raised.exception))[1]
        self.assertEqual(run.wait(job)[0], "CANCELLED")
        record = run.folder / "train.json"
        self.assertNotIn("earlier", record.read_text() if record.exists() else "")

    @scenario
    def bringup(self):
        """One node passes. Two nodes never have a thousand times the speed of one, so a gate of 1000 stops; a low gate
        passes, on one rank (the proxy), one node and two nodes."""
        run = self.new_run()
        done = self.bring_up(run, "--gate", 1000, "--sbatch", "--comment=ours")
        self.assertEqual(done.returncode, 3, done.stderr)
        for part in ("measuring collectives on 2 nodes", "nodes-1: running ", "no stage to compare with", "FAILED: nodes-2: a rank has ",
                     "below 1000"):
            self.assertIn(part, done.stderr)
        report = json.loads((run.folder / "bringup" / "collectives" / "all_reduce.json").read_text())
        self.assertEqual([row["size"] for row in report["results"]], [16384, 65536])
        for stage, ranks in (("collectives", 2), ("nodes-2", 2)):
            log = next((run.folder / "bringup" / stage / "logs").glob("*.log"))
            self.assertIn(f": {ranks} ranks on ", log.read_text())
            self.assertEqual(self.cluster.job(log.stem)["Comment"], "ours")
        names = self.cluster.job(next((run.folder / "bringup" / "nodes-2" / "logs").glob("*.log")).stem)["NodeList"]
        good = self.cluster.folder / "good"
        done = self.bring_up(run, "--gate", 0.0001, "--nodelist", names, "--ranks-per-node", 2, "--proxy",
                             SOURCE / "configs" / "debug_cpu.toml", good=good)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("passed: 2 nodes", done.stderr)
        for stage in ("collectives", "nodes-2"):
            log = next((run.folder / "bringup" / stage / "logs").glob("*.log"))
            self.assertEqual(self.cluster.job(log.stem)["ReqNodeList"], names)
        stages = [json.loads(line) for line in (run.folder / "bringup" / "stages.jsonl").read_text().splitlines()]
        self.assertEqual([(stage["stage"], stage["ranks"], stage["mesh"]) for stage in stages],
                         [("ranks-1", 1, "one rank"), ("nodes-1", 2, "dp_shard 2"), ("nodes-2", 4, "dp_shard 4")])
        self.assertEqual([stage["baseline"] and pathlib.Path(stage["baseline"]).name for stage in stages], [None, "ranks-1", "nodes-1"])
        speeds = [stage["tokens_per_second_per_device"] for stage in stages]
        self.assertAlmostEqual(stages[2]["efficiency"], speeds[2] / speeds[1], places=3)
        said = run.call("status.sh", run.folder / "bringup")
        self.assertRegex(said, rf"nodes-2 .* efficiency {100 * stages[2]['efficiency']:.0f} % of nodes-1 \(.*debug_cpu.toml, dp_shard 4\)")
        lines = [line.split() for line in good.read_text().splitlines()]
        self.assertEqual([line[:4] for line in lines], [["main", "2", "2", name] for name in (
            "all_gather", "all_reduce", "reduce_scatter", "sendrecv")])

    def bring_up(self, run, *words, good="/nowhere/good"):
        return self.cluster.run(JOBS / "bringup.sh", SOURCE / "configs" / "debug_cpu.toml", "--nodes", 2, "--steps", 8,
                                "--ranks-per-node", 1, *words, *run.options(), check=False, timeout=2 * LIMIT_SECONDS,
                                env=os.environ | {"ARGOSY_SITE": str(self.cluster.folder / "site.conf"),
                                                  "ARGOSY_GOOD_BANDWIDTH": str(good)})
