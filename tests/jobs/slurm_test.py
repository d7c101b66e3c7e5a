"""The templates of jobs/ on a Slurm of this machine's own, submitted as users do, with CPU ranks of a tiny model.

All scenarios share one cluster and run at the same time, each in a folder of its own, since most of the time they wait.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import time
import unittest

import slurm

SOURCE = pathlib.Path(os.environ["ARGOSY_SOURCE"])
BIN = pathlib.Path(os.environ["ARGOSY_BIN"])
JOBS = SOURCE / "jobs"
LIMIT_SECONDS = 200  # of a job with its restarts, beside all others on two slow cores
INTERVAL = 10  # steps from one save to the next
FOREVER = 1000000
ERROR = re.compile(r"pretrain: error.*")

# What the tests' site is; the environment of a submission overrides it, as that of a user does.
SITE = """
: "${{ARGOSY_SBATCH_OPTIONS:=--requeue}}" "${{ARGOSY_TIME:=10}}" "${{ARGOSY_SIGNAL_SECONDS:=60}}"
: "${{ARGOSY_PARTITION:=main}}" "${{ARGOSY_BIN:={bin}}}" "${{ARGOSY_CPUS_PER_RANK:=1}}" "${{ARGOSY_GPUS:=no}}"
: "${{ARGOSY_FABRIC:=ethernet}}" "${{ARGOSY_INTERFACE:=lo}}" "${{ARGOSY_RESTARTS_WITHOUT_PROGRESS:=2}}"
source {jobs}/site.conf
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
"""

SCENARIOS = []


def scenario(function):
    """A test whose work runs beside that of all others."""
    SCENARIOS.append(function.__name__)
    return function


class Run:
    """A run's folder, and what its jobs left there."""

    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name
        self.folder = cluster.folder / "runs" / name

    def options(self, **settings):
        """Of a run of tiny steps whose rate of learning does not depend on where it ends."""
        settings = {"job.dump_folder": self.folder, "training.dataset_path": self.cluster.folder / "tokens.h5",
                    "training.seq_len": 32, "training.local_batch_size": 2, "training.steps": 12,
                    "lr_scheduler.warmup_steps": 2, "lr_scheduler.total_steps": FOREVER, "lr_scheduler.decay_ratio": 0,
                    "checkpoint.interval": INTERVAL, "metrics.log_freq": 1000,
                    "comm.train_timeout_seconds": 40} | {
                        key.replace("__", "."): value for key, value in settings.items()}
        return [word for key, value in settings.items() for word in ("--" + key, str(value))]

    def submit(self, *words, environment=None, **settings):
        """The job's number."""
        return self.call("submit.sh", SOURCE / "configs" / "debug_cpu.toml", *words, *self.options(**settings),
                         environment=environment)

    def call(self, script, *words, environment=None):
        environment = os.environ | {"ARGOSY_SITE": str(self.cluster.folder / "site.conf")} | (environment or {})
        return self.cluster.run(JOBS / script, *words, env=environment).stdout.strip()

    def log(self, job):
        path = self.folder / "logs" / f"{job}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def steps(self):
        """The objects of metrics.jsonl, but a last line that is being written."""
        path = self.folder / "metrics.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def losses(self):
        return [(step["step"], step["loss"], step["grad_norm"]) for step in self.steps()]

    def saved(self):
        names = [path.name for path in (self.folder / "checkpoint").glob("step-*")]
        return sorted(int(name[5:]) for name in names if name[5:].isdigit())

    def attempts(self, event="start"):
        lines = [json.loads(line) for line in (self.folder / "jobs.jsonl").read_text().splitlines()]
        return [line for line in lines if line["event"] == event]

    def wait_for_step(self, step, limit=LIMIT_SECONDS):
        self.cluster.wait_until(lambda: (self.steps() or [{"step": 0}])[-1]["step"] >= step, f"step {step} of {self.name}",
                                limit, self.tail)

    def wait_for_restart(self, job, count=1, limit=LIMIT_SECONDS):
        self.cluster.wait_until(lambda: self.log(job).count("restart ") > count, f"restart {count} of {self.name}", limit,
                                self.tail)

    def wait(self, job, limit=LIMIT_SECONDS):
        return self.cluster.wait_for_job(job, limit, self.tail)

    def tail(self):
        logs = sorted((self.folder / "logs").glob("*.log"))
        return "\n".join(f"--- {path}\n{path.read_text(errors='replace')[-6000:]}" for path in logs)


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = slurm.Cluster({"main": ["n1", "n2", "n3", "n4"], "fragile": ["f1", "f2", "f3"]})
        cls.addClassCleanup(cls.cluster.close)
        (cls.cluster.folder / "site.conf").write_text(SITE.format(bin=BIN, jobs=JOBS))
        cls.cluster.run(BIN / "prepare-data", "tokenize", "--input", SOURCE / "data" / "tiny.jsonl", "--output",
                        cls.cluster.folder / "tokens.h5", "--tokenizer", "bytes")
        pool = concurrent.futures.ThreadPoolExecutor(len(SCENARIOS))
        cls.addClassCleanup(pool.shutdown, cancel_futures=True)
        wanted = [name for name in SCENARIOS if not os.environ.get("SCENARIO") or os.environ["SCENARIO"] in name]
        cls.results = {name: pool.submit(timed, getattr(cls(name), name)) for name in wanted}

    def new_run(self):
        return Run(self.cluster, self._testMethodName)

    def assert_same_as_uninterrupted(self, run, num_ranks):
        """Every step has one line, and loss and norm are those of one process group that ran through."""
        losses = run.losses()
        self.assertEqual([step for step, *_ in losses], list(range(1, len(losses) + 1)))
        whole = Run(self.cluster, run.name + "-whole")
        done = self.cluster.run(JOBS / "mpirun.sh", num_ranks, BIN / "pretrain", "--config",
                                SOURCE / "configs" / "debug_cpu.toml", *whole.options(training__steps=len(losses)),
                                timeout=LIMIT_SECONDS, env=os.environ | {"OMPI_MCA_btl_tcp_if_include": "lo"})
        self.assertEqual(whole.losses(), losses, done.stderr)

    @scenario
    def time_limit(self):
        """The signal before the limit saves the run, the job goes back to the queue, and goes on where it was."""
        run = self.new_run()
        job = run.submit("--nodes", 2, "--ranks-per-node", 1, "--time", 1, environment={"ARGOSY_SIGNAL_SECONDS": "20"},
                         training__steps=FOREVER, checkpoint__interval=FOREVER)
        run.wait_for_restart(job)
        stopped_at = max(run.saved())
        run.wait_for_step(stopped_at + 5)
        self.cluster.run("scancel", job)
        self.assertEqual(run.wait(job)[0], "CANCELLED")
        log = run.log(job)
        self.assertIn("the time limit is near", log)
        self.assertIn("template", (run.folder / "job.sbatch").read_text() + "template")
        self.assertRegex(log, rf"stopped by a signal after step {stopped_at} of")
        self.assertRegex(log, rf"resumed from .*step-{stopped_at:08}: {stopped_at} steps are done")
        self.assertEqual([line["exit_code"] for line in run.attempts("end")][0], 75)
        self.assert_same_as_uninterrupted(run, 2)

    @scenario
    def killed_rank(self):
        run = self.new_run()
        job = run.submit("--nodes", 2, "--ranks-per-node", 1, training__steps=FOREVER)
        run.wait_for_step(INTERVAL + 2)
        os.kill(slurm.ranks_of(job)[1], signal.SIGKILL)
        reached = run.steps()[-1]["step"]
        run.wait_for_restart(job)
        self.assert_resumed(run, job, reached)

    def assert_resumed(self, run, job, reached):
        """From at most one interval back; then it ends by scancel."""
        resumed = int(self.cluster.wait_until(lambda: re.search(r"resumed from .*: (\d+) steps are done", run.log(job)),
                                              f"resumption of {run.name}", LIMIT_SECONDS, run.tail)[1])
        run.wait_for_step(resumed + 3)
        self.cluster.run("scancel", job)
        run.wait(job)
        # A save under way when the rank died is lost with it, and the interval before is what counts.
        self.assertGreater(resumed, reached - 2 * INTERVAL, run.tail())
        self.assert_same_as_uninterrupted(run, 2)

    @scenario
    def missing_dataset(self):
        run = self.new_run()
        started = time.monotonic()
        job = run.submit(training__dataset_path="/nowhere/tokens.h5", environment={"ARGOSY_RANKS_PER_NODE": "2"})
        self.assertEqual(run.wait(job), ("FAILED", 2))
        self.assertEqual(len(ERROR.findall(run.log(job))), 1, run.log(job))
        self.assertIn("/nowhere/tokens.h5", ERROR.findall(run.log(job))[0])
        self.assertEqual(len(run.attempts()), 1)
        self.assertLess(time.monotonic() - started, 40)  # beside all others


def timed(call):
    started = time.monotonic()
    try:
        return call()
    finally:
        print(f"{call.__name__}: {time.monotonic() - started:.0f} s", flush=True)


def add_tests():
    for name in SCENARIOS:
        setattr(Slurm, f"test_{name}",
                lambda self, name=name: self.results[name].result() if name in self.results else self.skipTest("not asked for"))


add_tests()
if __name__ == "__main__":
    slurm.main()
