"""The templates of jobs/ on a Slurm of this machine's own, submitted as users do, with CPU ranks of a tiny model.

All scenarios share one cluster, and several run at the same time, each in a folder of its own.
"""
import datetime
import json
import os
import pathlib
import re
import shutil
import signal

import slurm
from experiments import Experiments
from scenarios import add_tests, scenario
from several_jobs import SeveralJobs
from spares import Spares
from submitted import BIN, FOREVER, INTERVAL, LIMIT_SECONDS, Run

CHECKED = {"ARGOSY_PREFLIGHT": "yes"}
ERROR = re.compile(r"pretrain: error.*")


class Slurm(SeveralJobs, Spares, Experiments):
    @scenario
    def time_limit(self):
        """The signal before the time limit saves the run; the job is requeued and resumes."""
        run = self.new_run()
        job = run.submit("--nodes", 2, "--ranks-per-node", 1, "--time", 2, environment={"ARGOSY_SIGNAL_SECONDS": "20"},
                         training__steps=FOREVER, checkpoint__interval=FOREVER)
        run.wait_for_restart(job)
        stopped_at = max(run.saved())
        run.wait_for_step(stopped_at + 5)
        status = run.call("status.sh", run.folder)
        for part in (f"running ({job}, restart 1, 2 ranks on n", f" of {FOREVER} (", "loss", "tokens/s", "ETA",
                     f"step {stopped_at}, "):
            self.assertIn(part, status)
        self.cluster.run("scancel", job)
        self.assertEqual(run.wait(job)[0], "CANCELLED")
        log = run.log(job)
        self.assertIn("the time limit is near", log)
        self.assertRegex(log, rf"stopped by a signal after step {stopped_at} of")
        self.assertRegex(log, rf"resumed from .*step-{stopped_at:08}: {stopped_at} steps are done")
        first = run.attempts("end")[0]
        self.assertEqual(first["exit_code"], 75)
        began, ended = (datetime.datetime.fromisoformat(line["time"][:-1]) for line in (run.attempts()[0], first))
        self.assertLess((ended - began).total_seconds(), 117)  # not by SIGTERM, which comes at the limit
        self.assert_same_as_uninterrupted(run, 2)

    @scenario
    def warned_at_the_start(self):
        """The signal arrives when the training's srun has just started; srun itself may then exit on it or lose it."""
        self.warn_at_the_start("srun")

    @scenario
    def warned_at_the_start_of_mpirun(self):
        self.warn_at_the_start("mpirun")

    def warn_at_the_start(self, launcher):
        run = self.new_run()
        script = ('case "$ARGOSY_RESTART $*" in *--print-config*) ;; 0*/pretrain*) kill -USR1 $PPID ;; esac\n'
                  f'exec {shutil.which(launcher)} "$@"')
        job = run.submit("--nodes", 2, "--ranks-per-node", 1, training__steps=FOREVER,
                         environment={"ARGOSY_LAUNCHER": launcher} | self.commands(run, **{launcher: script}))
        run.wait_for_restart(job)
        self.assertEqual(run.attempts("end")[0]["exit_code"], 75, run.tail())
        self.cluster.run("scancel", job)
        run.wait(job)

    @scenario
    def killed_rank(self):
        """Both starts run a program that sbcast has sent to the nodes, and the first one leaves none there."""
        run = self.new_run()
        program = self.stand_ins(run, pretrain=f'echo "rank runs $0" >&2\nexec {BIN}/pretrain "$@"')  # without 0.5 GB of libraries
        job = run.submit("--nodes", 2, "--ranks-per-node", 1, "--stage", self.cluster.disk, training__steps=FOREVER,
                         environment={"ARGOSY_BIN": program})
        run.wait_for_step(INTERVAL + 2)
        before = run.restarts(job)
        os.kill(slurm.ranks_of(job)[1], signal.SIGKILL)
        reached = run.steps()[-1]["step"]
        run.wait_for_restart(job, before)
        self.assert_resumed(run, job, reached)
        for restart in (before, before + 1):
            self.assertEqual(run.log(job).count(f"rank runs {self.cluster.disk}/argosy.{job}.{restart}/pretrain"), 2, run.tail())
        self.assertEqual([*self.cluster.folder.glob(f"pmix-*/argosy.{job}.{before}")], [])

    @scenario
    def killed_slurmd(self):
        """Its node is lost: the job continues on another node, while ranks of the lost node may still run."""
        self.lose_node("fragile", 1, "--nodes", 2, "--ranks-per-node", 1)

    @scenario
    def killed_slurmd_of_all(self):
        """The lost node runs the script and all ranks, which do not notice and keep training."""
        self.lose_node("brittle", 0, "--nodes", 1, "--ranks-per-node", 2)

    def lose_node(self, partition, number, *words):
        run = self.new_run()
        job = run.submit(*words, training__steps=FOREVER, comm__train_timeout_seconds=10,
                         environment={"ARGOSY_PARTITION": partition})
        run.wait_for_step(INTERVAL + 2)
        nodes = self.cluster.run("scontrol", "show", "hostnames", self.cluster.job(job)["NodeList"]).stdout.split()
        self.cluster.kill(nodes[number])
        self.cluster.wait_until(lambda: self.cluster.job(job)["JobState"] != "RUNNING", "end of the lost node's job",
                                LIMIT_SECONDS, run.tail)
        reached = run.steps()[-1]["step"]
        run.wait_for_restart(job)
        self.assert_resumed(run, job, reached)
        self.assertLessEqual(run.restarts(job), 2, run.log(job))  # processes left on the lost node may spoil one start
        others = self.cluster.run("scontrol", "show", "hostnames", run.attempts()[-1]["nodes"]).stdout.split()
        self.assertNotIn(nodes[number], others)

    @scenario
    def cancelled(self):
        """A failed job stays in its state; submitted again, the run resumes."""
        run = self.new_run()
        job = run.submit("--nodes", 2, "--ranks-per-node", 2, "--template", "hsdp", training__steps=FOREVER)
        run.wait_for_step(INTERVAL + 2)
        self.cluster.run("scancel", job)
        self.assertEqual(run.wait(job)[0], "CANCELLED")
        reached = run.steps()[-1]["step"]
        self.cluster.wait_until(lambda: not slurm.ranks_of(job), "the end of all ranks", 30, run.tail)
        self.assertEqual(self.cluster.job(job).get("Restarts"), "0")
        self.assertIn("(dp_replicate 2 x dp_shard 2)", run.log(job))
        again = self.cluster.run("sbatch", "--parsable", run.folder / "job.sbatch").stdout.strip()
        resumed = run.resumed_at(again)
        self.assertGreater(resumed, reached - 2 * INTERVAL)
        run.wait_for_step(resumed + 2)
        self.cluster.run("scancel", again)
        run.wait(again)

    @scenario
    def two_jobs_on_one_folder(self):
        """A second submission changes no file of the first job; the run's lock refuses one without submit.sh."""
        run = self.new_run()
        first = run.submit("--ranks-per-node", 2, training__steps=FOREVER)
        script = (run.folder / "job.sbatch").read_text()
        with self.assertRaisesRegex(AssertionError, f"ended with 2\n.*in use .job {first}, "):
            run.submit("--ranks-per-node", 1, training__steps=FOREVER)
        run.wait_for_step(2)
        with self.assertRaisesRegex(AssertionError, f"ended with 2\n.*in use .job {first}, restart 0 on n"):
            run.submit("--ranks-per-node", 1, training__steps=FOREVER, environment=self.commands(run, squeue=""))
        self.assertEqual((run.folder / "job.sbatch").read_text(), script)
        names = ("restarts", "effective.toml", "jobs.jsonl", "job.lock", "arrivals")
        before = {name: (run.folder / name).stat() for name in names}
        second = self.cluster.run("sbatch", "--parsable", run.folder / "job.sbatch").stdout.strip()
        self.assertEqual(run.wait(second), ("FAILED", 2))
        self.assertIn(f"{run.folder} is in use (job {first}, restart 0 on n", run.log(second))
        self.assertEqual(ERROR.findall(run.log(second)), [])
        for name in names:
            after = (run.folder / name).stat()
            self.assertEqual((after.st_ino, after.st_mtime_ns), (before[name].st_ino, before[name].st_mtime_ns), name)
        self.assertFalse((run.folder / "train.json").exists())
        run.wait_for_step(run.steps()[-1]["step"] + 2)
        self.cluster.run("scancel", first)
        run.wait(first)
        steps = [step for step, *_ in run.losses()]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        self.cluster.wait_until(lambda: run.attempts("end"), "the line of the end", 30, run.tail)
        self.assertEqual([(line["job"], line["outcome"]) for line in run.attempts("end")], [(first, "cancelled")])
        self.assertEqual(json.loads((run.folder / "train.json").read_text())["outcome"], "cancelled")

    @scenario
    def missing_dataset(self):
        """There is one message within seconds and no retry. The site's fabric variables keep their values."""
        run = self.new_run()
        job = run.submit("--ranks-per-node", 2, training__dataset_path="/nowhere/tokens.h5",
                         environment={"NCCL_SOCKET_IFNAME": "site"})
        self.assertEqual(run.wait(job), ("FAILED", 2))
        self.assertLess(json.loads((run.folder / "train.json").read_text())["seconds"], 60)  # beside all others
        log = run.log(job)
        self.assertEqual(len(ERROR.findall(log)), 1, log)
        self.assertIn("/nowhere/tokens.h5", ERROR.findall(log)[0])
        self.assertEqual(len(run.attempts()), 1)
        self.assertIn("fabric: NCCL_SOCKET_IFNAME=site OMPI_MCA_btl_tcp_if_include=lo", log)

    @scenario
    def no_progress(self):
        """The first start and two restarts fail before anything is saved; then the job gives up. The log has all
        messages."""
        run = self.new_run()
        job = run.submit("--ranks-per-node", 1,
                         environment={"ARGOSY_BIN": self.stand_ins(run, pretrain="echo it broke >&2; exit 1")})
        self.assertEqual(run.wait(job), ("FAILED", 77))
        log = run.log(job)
        self.assertEqual(log.count("it broke"), 3, log)
        self.assertIn("2 restarts of job", log)
        self.assertEqual([line["exit_code"] for line in run.attempts("end")], [1, 1, 1, 77])

    @scenario
    def restarts_in_all(self):
        """Each start saves a step and fails at once: the second restart waits longer, and the third is not made."""
        run = self.new_run()
        pretrain = f"mkdir -p {run.folder}/checkpoint/step-0000000$((ARGOSY_RESTART + 1)); exit 1"
        job = run.submit("--ranks-per-node", 1,
                         environment={"ARGOSY_BIN": self.stand_ins(run, pretrain=pretrain), "ARGOSY_MAX_RESTARTS": "2",
                                      "ARGOSY_RESTART_DELAY_SECONDS": "6", "ARGOSY_RESTARTS_WITHOUT_PROGRESS": "9"})
        self.assertEqual(run.wait(job), ("FAILED", 77))
        log = run.log(job)
        self.assertEqual([seconds for seconds in re.findall(r"starts in (\d+) s at the earliest", log)], ["12", "24"], log)
        self.assertIn("more than ARGOSY_MAX_RESTARTS = 2 times", log)
        ends = run.attempts("end")
        self.assertEqual([(line["exit_code"], line["outcome"]) for line in ends],
                         [(1, "requeued"), (1, "requeued"), (1, "requeued"), (77, "failed")])
        ended, began = (datetime.datetime.fromisoformat(line["time"][:-1]) for line in (ends[1], run.attempts()[2]))
        self.assertGreaterEqual((began - ended).total_seconds(), 11)

    @scenario
    def limit_that_was_lowered(self):
        """A job whose time limit is changed to less than the time of the signal ends, instead of starting for ever."""
        run = self.new_run()
        job = run.submit("--ranks-per-node", 1, "--sbatch", "--hold")
        self.cluster.run("scontrol", "update", f"jobid={job}", "TimeLimit=2")
        self.cluster.run("scontrol", "release", job)
        self.assertEqual(run.wait(job), ("FAILED", 2))
        self.assertIn("the time limit 00:02:00 leaves no time to train: ARGOSY_SIGNAL_SECONDS = 60 before", run.log(job))
        self.assertEqual(self.cluster.job(job)["Restarts"], "0")
        self.assertEqual([line["outcome"] for line in run.attempts("end")], ["failed"])

    @scenario
    def node_that_starts_nothing(self):
        """If even the configuration cannot be read, the job is requeued, but at most three times."""
        run = self.new_run()
        fails = f"""[ -z "$SLURM_JOB_ID" ] || {{ echo x >>{self.cluster.folder}/unread; exit 1; }}"""
        binaries = self.stand_ins(run, pretrain="")
        (pathlib.Path(binaries) / "pretrain").write_text(f'#!/bin/bash\n{fails}\nexec {BIN}/pretrain "$@"\n')
        job = run.submit("--ranks-per-node", 1, environment={"ARGOSY_BIN": binaries})
        self.assertEqual(run.wait(job), ("FAILED", 77))
        self.assertEqual((self.cluster.folder / "unread").read_text(), "x\n" * 3)
        self.assertEqual(json.loads((run.folder / "train.json").read_text())["exit_code"], 77)

    @scenario
    def nameless_check(self):
        """A pre-flight that fails without naming a node ends the job, whatever nodes an older pre-flight named."""
        run = self.new_run()
        run.folder.mkdir(parents=True)
        (run.folder / "preflight.json").write_text('{"bad_nodes": ["n1"]}')
        programs = self.stand_ins(run, preflight="exit 3")
        job = run.submit("--ranks-per-node", 1, environment=CHECKED | {"ARGOSY_BIN": programs})
        self.assertEqual(run.wait(job), ("FAILED", 3))
        self.assertEqual(self.cluster.job(job)["Restarts"], "0")

    @scenario
    def ranks_told_to_save(self):
        """A user sends USR1 without the knowledge of the job's script; the job is requeued all the same."""
        run = self.new_run()
        job = run.submit("--nodes", 2, "--ranks-per-node", 1, training__steps=FOREVER, checkpoint__interval=FOREVER)
        run.wait_for_step(3)
        self.cluster.run("scancel", "--signal=USR1", job)
        run.wait_for_restart(job)
        self.assertEqual(run.resumed_at(job), max(run.saved()))
        self.assertEqual(run.attempts("end")[0]["exit_code"], 75)
        self.cluster.run("scancel", job)
        run.wait(job)

    @scenario
    def bad_node(self):
        """The pre-flight names the node that it ran on; the job then runs on another node."""
        run = self.new_run()
        check = (f"mark={self.cluster.folder}/bad-node-met\n"
                 '[ ! -e "$mark" ] || exit 0\n'
                 'touch "$mark"\n'
                 """printf '{"verdict": "FAIL", "bad_nodes": ["%s"]}' "$SLURMD_NODENAME" >"${@: -1}"; exit 3""")
        job = run.submit("--ranks-per-node", 1,
                         environment=CHECKED | {"ARGOSY_BIN": self.stand_ins(run, preflight=check)})
        self.assertEqual(run.wait(job), ("COMPLETED", 0))
        first, second = run.attempts()
        self.assertNotEqual(first["nodes"], second["nodes"])
        self.assertEqual(self.cluster.job(job)["ExcNodeList"], first["nodes"])
        self.assertEqual([line["exit_code"] for line in run.attempts("end")], [3, 0])

    @scenario
    def checked_nodes(self):
        """The real pre-flight of the real configuration, on two nodes. More ranks than cores: speeds are not judged."""
        run, here = self.new_run(), min(os.cpu_count(), 8) // 2 + 1
        job = run.submit("--nodes", 2, "--ranks-per-node", here, environment=CHECKED)
        self.assertEqual(run.wait(job), ("COMPLETED", 0))
        self.assertRegex(run.log(job), r"\n(PASS|WARN) in [\d.]+ s\n")
        report = json.loads((run.folder / "preflight.json").read_text())
        nodes = self.cluster.run("scontrol", "show", "hostnames", run.attempts()[0]["nodes"]).stdout.split()
        self.assertEqual([node["name"] for node in report["nodes"]], nodes)
        self.assertEqual([pair["node"] for pair in report["speeds"]["pairs_of_nodes"]], nodes)
        self.assertIn(f"on {2 * here} ranks (dp_shard {2 * here})", report["job"])
        self.assertRegex(run.call("status.sh", run.folder), f"pre-flight {report['verdict']}")

    @scenario
    def rank_that_never_arrives(self):
        """The other ranks wait for MPI's start only for a limited time; the job continues without the node where it
        hung. Speeds are not checked: a rank that has a core to itself, beside all other scenarios, would fail the
        check."""
        run = self.new_run()
        check = ("[ $ARGOSY_RESTART = 0 ] || exit 0\n"
                 "[ $SLURM_PROCID != 1 ] || exec sleep 1000\n"
                 f'exec {BIN}/preflight "$@"')
        job = run.submit("--nodes", 2, "--ranks-per-node", 1, training__steps=3,
                         environment=CHECKED | {"ARGOSY_START_SECONDS": "30",
                                                "ARGOSY_BIN": self.stand_ins(run, preflight=check)})
        self.assertEqual(run.wait(job), ("COMPLETED", 0))
        first = run.attempts()[0]
        hung = self.cluster.run("scontrol", "show", "hostnames", first["nodes"]).stdout.split()[1]
        self.assertEqual(self.cluster.job(job)["ExcNodeList"], hung)
        self.assertEqual(len(run.attempts("end")), 2)
        self.assertIn("; missing: rank 1\n", run.log(job))

    @scenario
    def stuck_rank(self):
        """The other ranks name the missing rank, and the job continues without its node."""
        self.stop_rank(1, "--ranks-per-node", 2)

    @scenario
    def stuck_rank_of_another_node(self):
        """The lowest rank of that node is rank 3 of all; ranks that wait for it wait over MPI."""
        self.stop_rank(2, "--nodes", 2, "--ranks-per-node", 2)

    def stop_rank(self, rank, *words):
        run = self.new_run()
        job = run.submit(*words, training__steps=FOREVER, comm__train_timeout_seconds=10)
        run.wait_for_step(INTERVAL + 2)
        before = run.restarts(job)
        node = next(node for node in self.cluster.nodes if rank in slurm.ranks_of(job, node))
        os.kill(slurm.ranks_of(job)[rank], signal.SIGSTOP)
        reached = run.steps()[-1]["step"]
        run.wait_for_restart(job, before)
        self.assertGreater(run.resumed_at(job), reached - 2 * INTERVAL)
        self.assertEqual(self.cluster.job(job)["ExcNodeList"], node)
        self.assertEqual(run.attempts("end")[0]["exit_code"], 76)
        self.cluster.run("scancel", job)
        run.wait(job)

    @scenario
    def most_nodes_missing(self):
        """If most nodes are missing, the nodes are not at fault, and the next start may use all of them. srun reports
        how ranks exited after it ended them."""
        run = self.new_run()
        mark = self.cluster.folder / "missing-met"
        pretrain = (f"[ $SLURM_PROCID = 0 ] || exit 0\n[ ! -e {mark} ] || exit 2\ntouch {mark}\n"
                    "echo 'no answer in 9 s; missing: rank 2, 3, 4. Who' >&2; exit 76")
        job = run.submit("--nodes", 3, "--ranks-per-node", 2,
                         environment={"ARGOSY_BIN": self.stand_ins(run, pretrain=pretrain)})
        self.assertEqual(run.wait(job), ("FAILED", 2))
        self.assertIn("ranks of 2 of 3 nodes are missing", run.log(job))
        self.assertEqual(self.cluster.job(job)["ExcNodeList"], "(null)")

    @scenario
    def meshes(self):
        """Templates whose meshes have more axes, and ranks started by mpirun."""
        pipeline = {"parallelism__pipeline_parallel_degree": 2, "training__local_batch_size": 4, "training__steps": 3}
        cases = {"pp 2 x tp 2": (("--nodes", 2, "--ranks-per-node", 2, "--template", "3d"), pipeline, {}),
                 "pp 2 x dp_replicate 2 x tp 2": (("--nodes", 4, "--ranks-per-node", 2, "--template", "4d"),
                                                  pipeline | {"parallelism__data_parallel_shard_degree": 1}, {}),
                 "dp_shard 2": (("--nodes", 2, "--ranks-per-node", 1), {"training__steps": 3},
                                {"ARGOSY_LAUNCHER": "mpirun"})}
        for number, (mesh, (words, settings, environment)) in enumerate(cases.items()):
            run = Run(self.cluster, f"mesh-{number}{self.run_suffix}")
            job = run.submit(*words, environment=environment, **settings)
            self.assertEqual(run.wait(job), ("COMPLETED", 0), run.tail())
            self.assertIn(f"({mesh})", run.log(job))
            self.assertEqual([step for step, *_ in run.losses()], [1, 2, 3])

    @scenario
    def cores_of_a_step(self):
        """A step has all cores that the job has on a node, here on both sockets, and inherits no number of cores per
        rank."""
        run = self.new_run()
        pretrain = 'echo "step: $SLURM_CPUS_ON_NODE CPUs, rank: $SLURM_CPUS_PER_TASK$SLURM_TRES_PER_TASK." >&2; exit 2'
        job = run.submit("--ranks-per-node", 2, "--sbatch", "--mincpus=24",
                         environment={"SRUN_CPUS_PER_TASK": "1",
                                      "ARGOSY_BIN": self.stand_ins(run, pretrain=pretrain)})
        self.assertEqual(run.wait(job), ("FAILED", 2))
        self.assertEqual(self.cluster.job(job)["NumCPUs"], "24")
        self.assertEqual(sorted(re.findall(r"^(.*): step: 24 CPUs, rank: \.$", run.log(job), re.MULTILINE)), ["0", "1"],
                         run.log(job))


add_tests(Slurm)
if __name__ == "__main__":
    slurm.main()
