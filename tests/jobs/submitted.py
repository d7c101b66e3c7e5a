"""A run as its user sees it: submitted by the scripts of jobs/, with the files that its jobs leave in its folder."""
import json
import os
import pathlib
import re

SOURCE = pathlib.Path(os.environ["ARGOSY_SOURCE"])
BIN = pathlib.Path(os.environ["ARGOSY_BIN"])
JOBS = SOURCE / "jobs"
LIMIT_SECONDS = 240  # time limit of a job with its restarts, beside all others on two slow cores
INTERVAL = 10  # steps between two saves
FOREVER = 1000000

# The site's settings in these tests; the environment of a submission overrides them, as a user's does.
SITE = """
: "${{ARGOSY_SBATCH_OPTIONS:=--requeue}}" "${{ARGOSY_TIME:=10}}" "${{ARGOSY_SIGNAL_SECONDS:=60}}"
: "${{ARGOSY_PARTITION:=main}}" "${{ARGOSY_BIN:={bin}}}" "${{ARGOSY_CPUS_PER_RANK:=1}}" "${{ARGOSY_GPUS:=no}}"
: "${{ARGOSY_PREFLIGHT:=no}}" "${{ARGOSY_BENCHMARK_SIZES:=-b 16K -e 64K -f 4 -n 5}}"
: "${{ARGOSY_FABRIC:=ethernet}}" "${{ARGOSY_INTERFACE:=lo}}" "${{ARGOSY_RESTARTS_WITHOUT_PROGRESS:=2}}"
: "${{ARGOSY_RESTART_DELAY_SECONDS:=0}}"
source {jobs}/site.conf
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
"""


class Run:
    """A run's folder, and what its jobs left there."""

    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name
        self.folder = cluster.folder / "runs" / name

    def options(self, **settings):
        """Options of a run of tiny steps whose learning rate does not depend on the number of steps."""
        settings = {"job.dump_folder": self.folder, "training.dataset_path": self.cluster.folder / "tokens.h5",
                    "training.seq_len": 32, "training.local_batch_size": 2, "training.steps": 12,
                    "lr_scheduler.warmup_steps": 2, "lr_scheduler.total_steps": FOREVER, "lr_scheduler.decay_ratio": 0,
                    "checkpoint.interval": INTERVAL, "metrics.log_freq": 1000,
                    "comm.train_timeout_seconds": 40} | {
                        key.replace("__", "."): value for key, value in settings.items()}
        return [word for key, value in settings.items() for word in ("--" + key, str(value))]

    def submit(self, *words, environment=None, **settings):
        """Returns the job's number."""
        return self.call("submit.sh", SOURCE / "configs" / "debug_cpu.toml", *words, *self.options(**settings),
                         environment=environment)

    def call(self, script, *words, environment=None):
        environment = os.environ | {"ARGOSY_SITE": str(self.cluster.folder / "site.conf")} | (environment or {})
        return self.cluster.run(JOBS / script, *words, env=environment, timeout=LIMIT_SECONDS).stdout.strip()

    def log(self, job):
        path = self.folder / "logs" / f"{job}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def steps(self):
        """The objects of metrics.jsonl, without a last line that is being written."""
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
        self.cluster.wait_until(lambda: (self.steps() or [{"step": 0}])[-1]["step"] >= step,
                                f"step {step} of {self.name}", limit, self.tail)

    def restarts(self, job):
        return int(self.cluster.job(job)["Restarts"])

    def wait_for_restart(self, job, before=0):
        def started():
            return self.restarts(job) > before and self.log(job).count(f" job {job}, restart ") > before + 1
        self.cluster.wait_until(started, f"restart of {self.name}", LIMIT_SECONDS, self.tail)

    def resumed_at(self, job):
        """The step from which the newest start of the job, or the newest one inside it, resumed."""
        def found():
            newest = re.split(rf" job {job}, restart |; start \d+ inside job {job}", self.log(job))[-1]
            return re.search(r"resumed from .*: (\d+) steps are done", newest)
        return int(self.cluster.wait_until(found, f"resumption of {self.name}", LIMIT_SECONDS, self.tail)[1])

    def wait(self, job, limit=LIMIT_SECONDS):
        return self.cluster.wait_for_job(job, limit, self.tail)

    def tail(self):
        logs = sorted((self.folder / "logs").glob("*.log"))
        return "\n".join(f"--- {path}\n{path.read_text(errors='replace')[-6000:]}" for path in logs)
