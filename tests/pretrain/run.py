"""pretrain as its users start it: ranks through jobs/mpirun.sh, each job with a time limit, and what it leaves.

A test derives from PretrainTest, which has a folder of its own and a token file. Results are plain values, so that
jobs that do not depend on each other may run at the same time (at_once).
"""
import concurrent.futures
import io
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

PRETRAIN = pathlib.Path(os.environ["ARGOSY_BIN"]) / "pretrain"
PREPARE_DATA = pathlib.Path(os.environ["ARGOSY_BIN"]) / "prepare-data"
SOURCE = pathlib.Path(os.environ["ARGOSY_SOURCE"])
MPIRUN = SOURCE / "jobs" / "mpirun.sh"
LIMIT_SECONDS = 120  # a job that takes longer hangs; a run of a few steps takes two seconds on an idle machine
ERROR = re.compile(r"^pretrain: error.*", re.MULTILINE)
NUM_TOKENS = 19129  # of data/tiny.jsonl as bytes


def words(settings):
    """{"training.steps": 3} as words of a command line; keywords have underscores in place of dots: training__steps=3.
    """
    line = []
    for key, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        line += ["--" + key.replace("__", "."), text]
    return line


def another_build(test, program):
    """A copy with other bytes until the end of the test. A program finds its libraries from its folder, so that is beside `program`'s."""
    folder = tempfile.TemporaryDirectory(dir=program.parent.parent)
    test.addCleanup(folder.cleanup)
    copy = pathlib.Path(folder.name) / program.name
    shutil.copy(program, copy)
    with copy.open("ab") as file:
        file.write(b"another build")
    return copy


class Finished:
    """A job that has ended: code, stdout, stderr, seconds, and `hung` if the time limit ended it."""

    def __init__(self, code, stdout, stderr, seconds, hung):
        self.code, self.stdout, self.stderr, self.seconds, self.hung = code, stdout, stderr, seconds, hung
        self.errors = ERROR.findall(stderr)  # pretrain's own messages, without mpirun's remarks

    def __str__(self):
        return (f"exit code {self.code} after {self.seconds:.1f} s{', hung' if self.hung else ''}\n"
                f"--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}")


class Job:
    """A running jobs/mpirun.sh (`mpirun`) with its ranks. Signals go to single processes of this job, by process id."""

    def __init__(self, num_ranks, arguments, environment=None, program=(PRETRAIN,)):
        self.stdout, self.stderr = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        self.started = time.monotonic()
        self.mpirun = subprocess.Popen([MPIRUN, str(num_ranks), *program, *map(str, arguments)],
                                       stdin=subprocess.DEVNULL, stdout=self.stdout, stderr=self.stderr,
                                       env=os.environ | (environment or {}))

    def rank_pids(self):
        """{rank: process} of the ranks that are alive: mpirun's children with the rank in their environment. mpirun is
        a child of the script, or has replaced it."""
        ranks, parents = {}, {self.mpirun.pid}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                name, _, rest = (folder / "stat").read_text().rpartition(")")
                parent = int(rest.split()[1])
                if parent == self.mpirun.pid and name.endswith("(mpirun"):
                    parents.add(int(folder.name))
                rank = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", (folder / "environ").read_bytes())
                if rank:
                    ranks[int(folder.name)] = (int(rank[1]), parent)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # ended meanwhile, or of another user
        return {rank: pid for pid, (rank, parent) in ranks.items() if parent in parents}

    def finish(self, limit=LIMIT_SECONDS):
        hung = False
        try:
            self.mpirun.wait(limit)
        except subprocess.TimeoutExpired:
            hung = True
            self.end()
        seconds = time.monotonic() - self.started
        texts = []
        for file in (self.stdout, self.stderr):
            file.seek(0)
            texts.append(file.read())
            file.close()
        return Finished(self.mpirun.returncode, *texts, seconds, hung)

    def end(self):
        """The remaining processes of the job. A run that does not stop on SIGTERM is killed."""
        pids = list(self.rank_pids().values())
        for pid in pids:
            send(pid, signal.SIGCONT)
        self.mpirun.terminate()
        try:
            self.mpirun.wait(10)
        except subprocess.TimeoutExpired:
            for pid in pids:
                send(pid, signal.SIGKILL)
            self.mpirun.kill()
            self.mpirun.wait()


def start_job(*words, environment=None):
    """jobs/mpirun.sh with pipes and a session of its own, for end_of_job()."""
    return subprocess.Popen([MPIRUN, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, start_new_session=True, env=os.environ | (environment or {}))


def end_of_job(process, limit):
    """Waits for a job of start_job(): (exit code, stdout, stderr). A job that takes longer than `limit` seconds is killed and has
    the code None. The mpirun of Open MPI 4.1 sometimes crashes or hangs in PMIx_server_finalize, after the last rank has ended.
    If a rank had failed, mpirun has said its code before: that is the job's. If none had, the job counts as failed."""
    lost = False
    try:
        out, err = process.communicate(timeout=limit)
        code = process.returncode
        lost = code == -signal.SIGSEGV and "PMIx_server_finalize" in err
    except subprocess.TimeoutExpired:
        listed = subprocess.run(["ps", "-o", "stat=,comm=", "-g", str(process.pid)], stdout=subprocess.PIPE, text=True).stdout
        lost = all(line.startswith("Z") or line.endswith(" mpirun") for line in listed.splitlines())
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        code = None
    said = re.search(r"Exit code: +(\d+)", err) if lost else None
    return int(said[1]) if said else code, out, err


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def alive(pid):
    """Zombies do not count: they only wait for their parent."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def catches(pid, number):
    """Whether the process has a handler for the signal."""
    try:
        mask = re.search(r"SigCgt:\s*(\w+)", pathlib.Path(f"/proc/{pid}/status").read_text())
        return bool(mask and int(mask[1], 16) >> (number - 1) & 1)
    except (FileNotFoundError, ProcessLookupError):
        return False


def at_once(calls, workers=4):
    """Runs calls without arguments at the same time and returns their results in order. For jobs that mostly wait: an
    mpirun whose rank failed takes seconds to end."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


class PretrainTest(unittest.TestCase):
    """Command lines of a run, running ranks, and their output files; saved.py has the same for runs that save."""

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.shared = pathlib.Path(scratch.name)
        cls.tokens = cls.shared / "tiny.h5"
        cls.tokenize(SOURCE / "data" / "tiny.jsonl", cls.tokens)

    @classmethod
    def of_class(cls):
        """Makes the runs that all tests of the class read, in setUpClass: its folder is `shared`."""
        test = cls()
        test.folder = cls.shared
        cls.addClassCleanup(test.doCleanups)
        return test

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    @staticmethod
    def tokenize(source, output, *more):
        subprocess.run([PREPARE_DATA, "tokenize", "--input", source, "--output", output, *more],
                       check=True, stdout=subprocess.DEVNULL)

    def tokens_below_128(self):
        """The same corpus, which is ASCII, without the end-of-text token: for models with a small vocabulary."""
        lines = (SOURCE / "data" / "tiny.jsonl").read_text().splitlines()
        records = [{"tokens": list(json.loads(line)["text"].encode())} for line in lines]
        source, output = self.folder / "ascii.jsonl", self.folder / "ascii.h5"
        source.write_text("".join(json.dumps(record) + "\n" for record in records))
        self.tokenize(source, output)
        return output

    def small(self, dump="run", **settings):
        """The words of a run that takes a second: the debug model, float32, few short samples. Later options override
        earlier ones."""
        return words({"training.dataset_path": self.tokens, "job.dump_folder": self.folder / dump,
                      "training.seq_len": 32, "training.local_batch_size": 2, "training.steps": 4,
                      "training.mixed_precision_param": "float32", "lr_scheduler.warmup_steps": 2,
                      "optimizer.lr": 0.01}) + words(settings)

    def start(self, num_ranks, *arguments, environment=None, program=(PRETRAIN,)):
        job = Job(num_ranks, arguments, environment, program)
        self.addCleanup(lambda: job.mpirun.poll() is None and job.end())
        return job

    def run_ranks(self, num_ranks, *arguments, environment=None, limit=LIMIT_SECONDS, program=(PRETRAIN,)):
        return self.start(num_ranks, *arguments, environment=environment, program=program).finish(limit)

    def steps(self, dump="run", parse_float=float):
        """The objects of metrics.jsonl."""
        lines = (self.folder / dump / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line, parse_float=parse_float) for line in lines]

    def steps_of(self, num_ranks, dump="run", environment=None, **settings):
        """Trains, and returns the metrics of all steps."""
        done = self.run_ranks(num_ranks, *self.small(dump, **settings), environment=environment)
        self.assert_code(done, 0)
        return self.steps(dump)

    def stop_in_step_2_of_9(self, job):
        """Sends SIGTERM to a rank while the second step goes on, which takes seconds. The run saves it and ends with 75."""
        self.wait_for_step(job, 1)
        time.sleep(1)
        send(job.rank_pids()[1], signal.SIGTERM)
        done = job.finish()
        self.assert_code(done, 75)
        self.assertIn("stopped by a signal after step 2 of 9, which is saved", done.stderr)
        return done

    def wait_for_step(self, job, step, dump="run"):
        """Waits until the line of that step is written, so a test's signal reaches ranks that train."""
        path = self.folder / dump / "metrics.jsonl"
        while not path.exists() or path.read_text().count("\n") < step:
            self.assertIsNone(job.mpirun.poll(), "the job ended early")
            self.assertLess(time.monotonic() - job.started, LIMIT_SECONDS, f"step {step} never came")
            time.sleep(0.05)

    def assert_code(self, done, code):
        self.assertFalse(done.hung, done)
        self.assertEqual(done.code, code, done)

    def assert_one_error(self, done, code, *parts):
        """Checks for one message, of the whole job rather than of one rank, with each of `parts` in it."""
        self.assert_code(done, code)
        self.assertEqual(len(done.errors), 1, done)
        self.assertTrue(done.errors[0].startswith("pretrain: error: "), done)
        for part in parts:
            self.assertIn(part, done.errors[0])


class ShownAtOnce(unittest.TextTestResult):
    """Prints failures as they happen, so that tests that are ended show what failed until then."""

    def show(self, kind, found):
        self.stream.writeln(f"{self.separator1}\n{kind}: {found[-1][0]}\n{self.separator2}\n{found[-1][1]}")
        self.stream.flush()

    def addError(self, test, error):
        super().addError(test, error)
        self.show("ERROR", self.errors)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.show("FAIL", self.failures)

    def addSubTest(self, test, subtest, error):
        before = len(self.failures), len(self.errors)
        super().addSubTest(test, subtest, error)
        if len(self.failures) > before[0]:
            self.show("FAIL", self.failures)
        elif len(self.errors) > before[1]:
            self.show("ERROR", self.errors)

    def printErrors(self):
        pass


class Runner:
    """Runs up to `workers` tests of a class at the same time, for scripts whose tests mostly wait. What a test prints comes
    when it ends, and a summary of all tests at the end."""

    def __init__(self, workers):
        self.workers, self.total, self.lock = workers, unittest.TestResult(), threading.Lock()

    def run(self, suite):
        for cls, tests in itertools.groupby(flat(suite), type):
            cls.setUpClass()
            try:
                with concurrent.futures.ThreadPoolExecutor(self.workers) as pool:
                    list(pool.map(self.run_one, tests))
            finally:
                cls.tearDownClass()
                cls.doClassCleanups()
        bad = [str(test) for test, _ in self.total.failures + self.total.errors]
        sys.stderr.write(f"{self.total.testsRun} tests, {len(bad)} failed{': ' if bad else ''}{', '.join(bad)}\n")
        return self.total

    def run_one(self, test):
        stream = io.StringIO()
        result = unittest.TextTestRunner(stream, verbosity=2, resultclass=ShownAtOnce).run(test)
        with self.lock:
            sys.stderr.write(stream.getvalue())
            sys.stderr.flush()
            self.total.testsRun += result.testsRun
            for kind in ("failures", "errors", "unexpectedSuccesses"):
                getattr(self.total, kind).extend(getattr(result, kind))


def flat(suite):
    """The single tests of a suite of suites."""
    return itertools.chain(*map(flat, suite)) if isinstance(suite, unittest.TestSuite) else [suite]


def main(workers=1):
    runner = unittest.TextTestRunner(verbosity=2, resultclass=ShownAtOnce) if workers == 1 else Runner(workers)
    unittest.main(testRunner=runner)
