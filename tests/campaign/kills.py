"""A run on a random mesh is killed at a random time and resumed on another mesh. Nothing is lost beyond one interval and
the time that a save takes, the other mesh has the losses of an uninterrupted run, and at most one partial step is left."""
import json
import random
import re
import signal
import time

import run

STEPS = 12
SHARD, TENSOR = "parallelism.data_parallel_shard_degree", "parallelism.tensor_parallel_degree"
REPLICATE, PIPELINE = "parallelism.data_parallel_replicate_degree", "parallelism.pipeline_parallel_degree"
MESHES = [(1, {}), (2, {SHARD: 2}), (2, {REPLICATE: 2, SHARD: 1}), (2, {TENSOR: 2}), (2, {PIPELINE: 2}),
          (3, {SHARD: 3}), (4, {TENSOR: 2, SHARD: 2}), (4, {REPLICATE: 2, SHARD: 2}), (4, {PIPELINE: 2, TENSOR: 2}),
          (4, {PIPELINE: 2, SHARD: 2}), (4, {PIPELINE: 4})]
TOLERANCE = 1e-5  # relative, of losses in float32 over all steps
SAVED = re.compile(r"step (\d+) is saved in ")
VICTIMS = ("rank", "launcher", "node")


class Trials:
    def __init__(self, shared):
        self.tokens = shared / "tiny.h5"
        run.PretrainTest.tokenize(run.SOURCE / "data" / "tiny.jsonl", self.tokens)
        self.finish(self.start(1, {}, shared / "whole"), 0)
        self.losses = [step["loss"] for step in steps_of(shared / "whole")]
        self.seconds = {}  # of a whole run, by number of ranks
        for num_ranks in sorted({ranks for ranks, _ in MESHES}):
            job = self.start(num_ranks, {}, shared / f"timed{num_ranks}")
            self.seconds[num_ranks] = self.finish(job, 0).seconds

    def start(self, num_ranks, settings, folder):
        settings = {"training.dataset_path": self.tokens, "job.dump_folder": folder, "training.seq_len": 32,
                    "training.local_batch_size": 2, "training.global_batch_size": 24, "training.steps": STEPS,
                    "training.mixed_precision_param": "float32", "lr_scheduler.warmup_steps": 2,
                    "optimizer.lr": 0.01} | settings
        return run.Job(num_ranks, run.words(settings))

    @staticmethod
    def finish(job, code):
        done = job.finish()
        assert not done.hung and (code is None or done.code == code), str(done)
        return done

    def run(self, seed, folder):
        chance = random.Random(seed)
        saving = {"checkpoint.enable": True, "checkpoint.interval": chance.choice([1, 2, 3, 5]),
                  "checkpoint.async_mode": chance.choice(["async", "disabled"]),
                  "checkpoint.keep_latest_k": chance.choice([0, 2, 3])}
        (num_ranks, mesh), (others, other_mesh) = chance.choice(MESHES), chance.choice(MESHES)
        victim = chance.choice(VICTIMS)
        job = self.start(num_ranks, mesh | saving, folder / "run")
        self.wait_for_the_moment(job, folder / "run", chance, num_ranks)
        stepped = kill(job, victim, chance, folder / "run")
        done = self.finish(job, None)
        self.check_what_is_left(folder / "run", saving["checkpoint.interval"], stepped, done)
        done = self.finish(self.start(others, other_mesh | saving, folder / "run"), 0)
        assert "is not intact" not in done.stderr, str(done)
        self.check_whole_run(folder / "run", str(done))
        return victim if stepped else f"{victim} before step 1"

    def wait_for_the_moment(self, job, folder, chance, num_ranks):
        """Any time of a run, its start included, or a moment after a step."""
        if chance.random() < 0.5:
            time.sleep(chance.uniform(0, self.seconds[num_ranks]))
            return
        step, metrics = chance.randint(1, STEPS - 1), folder / "metrics.jsonl"
        while job.mpirun.poll() is None and (not metrics.exists() or metrics.read_text().count("\n") < step):
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.1))

    @staticmethod
    def check_what_is_left(folder, interval, stepped, done):
        names = [path.name for path in (folder / "checkpoint").glob("*")] if (folder / "checkpoint").exists() else []
        whole = [int(name[5:]) for name in names if re.fullmatch(r"step-\d{8}", name)]
        partial = [name for name in names if name.endswith(".partial")]
        newest, said = max(whole, default=0), max(map(int, SAVED.findall(done.stderr)), default=0)
        assert len(partial) <= 1, names
        assert newest >= said, f"step {said} was reported as saved: {names}\n{done}"
        # A save begins every `interval` steps, once the save before has ended; a step is reported before its save begins.
        assert newest >= stepped - 2 * interval, f"step {stepped} was done, saving every {interval}: {names}\n{done}"

    def check_whole_run(self, folder, text):
        steps = steps_of(folder)
        assert [step["step"] for step in steps] == list(range(1, STEPS + 1)), f"{[s['step'] for s in steps]}\n{text}"
        for step, expected in zip(steps, self.losses):
            assert abs(step["loss"] / expected - 1) < TOLERANCE, f"loss of step {step['step']}: {step['loss']}, {expected}"
        left = [path.name for path in (folder / "checkpoint").iterdir()]
        assert not [name for name in left if "partial" in name], left
        assert f"step-{STEPS:08}" in left, left
        assert not (folder / "run.lock").exists()


def kill(job, victim, chance, folder):
    """Kills one rank, mpirun, or everything at once as when a node fails. Returns the number of steps done by then."""
    ranks = list(job.rank_pids().values())
    launchers = [pid for pid in children_of(job.mpirun.pid) if pid not in ranks] or [job.mpirun.pid]
    pids = {"rank": [chance.choice(ranks)] if ranks else launchers, "launcher": launchers, "node": ranks + launchers}
    for pid in pids[victim]:
        run.send(pid, signal.SIGKILL)
    metrics = folder / "metrics.jsonl"
    deadline = time.monotonic() + 30
    while any(map(run.alive, ranks)) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in ranks:  # a rank without its launcher ends when it notices; the next run waits for nobody
        run.send(pid, signal.SIGKILL)
    return metrics.read_text().count("\n") if metrics.exists() else 0


def children_of(parent):
    found = []
    for pid in run.pathlib.Path("/proc").glob("[0-9]*"):
        try:
            stat = (pid / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(stat[1]) == parent:
            found.append(int(pid.name))
    return found


def steps_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
