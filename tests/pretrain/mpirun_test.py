"""Signals to jobs/mpirun.sh during a run. Whenever the first signal comes, and however long a step takes, the run is
saved and the script returns 75. However the script ends, it leaves no rank behind."""
import os
import random
import re
import signal
import subprocess
import time

import run
import saved
from terminal import Terminal

FOREVER = {"training__steps": 1000000, "lr_scheduler__warmup_steps": 0, "optimizer__lr": 1e-4,
           "checkpoint__interval": 1000000}
LONG_STEP = {"training__seq_len": 2048, "training__local_batch_size": 8}  # more than a second on a core
STARTS = 4
START_SECONDS = 2
LEAVES_SECONDS = 10
SECOND_SIGNAL_SECONDS = 2.2  # seconds after the first signal; before two seconds a signal counts as a repetition

signal.signal(signal.SIGINT, signal.default_int_handler)  # the script must not inherit the ignored signal


class Arguments(run.PretrainTest):
    def test_mistakes_end_with_2_and_one_line(self):
        for words, part in (([], "the number of ranks or the command is missing"), ([2], "the command is missing"),
                            (["0", "true"], "the number of ranks, N, must be a whole number, at least 1, but is '0'"),
                            (["pretrain", "2"], "but is 'pretrain'"), (["--threads", "x", 2, "true"], "--threads must"),
                            (["--threads"], "--threads must"), ([2, "/none/pretrain"], "no program '/none/pretrain'")):
            with self.subTest(words):
                done = subprocess.run([run.MPIRUN, *map(str, words)], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
                self.assertIn(part, done.stderr)
                self.assertIn("usage: mpirun.sh [--threads T] N COMMAND", done.stderr)
        (self.folder / "own").write_text("")
        for word, part in (("own", "'own' is not in PATH; the file in this folder is ./own"), ("./own", "'./own' cannot be executed")):
            done = subprocess.run([run.MPIRUN, "1", word], capture_output=True, text=True, cwd=self.folder)
            self.assertEqual((done.returncode, done.stderr), (2, f"mpirun.sh: error: {part}\n"))
        done = subprocess.run([run.MPIRUN, "--help"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("usage: mpirun.sh", done.stdout)


class Asked(saved.SavedTest):
    """A run that gets a signal to save and stop."""

    def assert_saved(self, done, dump="run"):
        self.assert_code(done, 75)
        step = int(re.search(r"stopped by a signal after step (\d+) of \d+, which is saved: exit 75", done.stderr)[1])
        self.assertEqual((self.whole_steps(dump), len(self.numbers(dump))), ([step], step))
        self.assertNotRegex(done.stderr, "aborted|-----|Exit code")
        return step

    def stop(self, number, dump, num_ranks=1, after=2, **settings):
        job = self.start(num_ranks, *self.saving(dump, **FOREVER, **settings))
        self.wait_for_step(job, after, dump)
        run.send(job.mpirun.pid, number)
        return self.assert_saved(job.finish(), dump)

    def test_a_step_of_seconds_is_finished_and_saved(self):
        """A bare mpirun kills ranks after one second."""
        step = self.stop(signal.SIGTERM, "run", num_ranks=2, after=1, **LONG_STEP)
        again = self.train(2, **(FOREVER | LONG_STEP | {"training__steps": step}))
        self.assertRegex(again.stderr, f"resumed from .*: {step} steps are done")

    def test_every_signal_saves_the_run(self):
        run.at_once([lambda number=number: self.stop(number, number.name)
                     for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)], workers=2)

    def test_a_command_of_several_parts_is_saved(self):
        words = self.saving(**FOREVER)
        job = self.start(1, "-x", "NAME=1", run.PRETRAIN, *words, ":", "-n", 1, run.PRETRAIN, *words, program=())
        self.wait_for_step(job, 2, "run")
        run.send(job.mpirun.pid, signal.SIGTERM)
        self.assert_saved(job.finish())

    def test_the_end_of_its_terminal_saves_the_run(self):
        """Ctrl-C reaches the script's whole process group; so does the end of the terminal."""
        for dump, stop in (("interrupted", lambda terminal: terminal.press(b"\x03")), ("closed", Terminal.close)):
            terminal = Terminal([run.MPIRUN, 1, run.PRETRAIN, *self.saving(dump, **FOREVER)])
            self.addCleanup(terminal.end)
            terminal.wait_for(r"step +1/")
            stop(terminal)
            self.assertEqual(terminal.process.wait(run.LIMIT_SECONDS), 75, terminal.text)
            self.assertEqual(len(self.whole_steps(dump)), 1)

    def ask_at_the_start(self, number, dump, seconds):
        job = self.start(2, *self.saving(dump, **FOREVER))
        while not run.catches(job.mpirun.pid, signal.SIGTERM):
            self.assertLess(time.monotonic() - job.started, run.LIMIT_SECONDS, "the script was never ready")
            time.sleep(0.001)
        time.sleep(seconds)
        run.send(job.mpirun.pid, number)
        done = job.finish()
        self.assert_code(done, 75)
        if "nothing new to save" in done.stderr:
            self.assertIn("stopped by a signal before step 1 of", done.stderr)
        else:
            self.assert_saved(done, dump)

    def test_a_signal_at_any_moment_of_the_start_stops_the_run(self):
        seed = int.from_bytes(os.urandom(4), "little")
        print(f"seed {seed}", flush=True)
        chance = random.Random(seed)
        numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1]
        run.at_once([lambda dump=f"run{start}", number=numbers[start % 4], seconds=chance.uniform(0, START_SECONDS):
                     self.ask_at_the_start(number, dump, seconds) for start in range(STARTS)], workers=2)


class Ended(run.PretrainTest):
    """A run that ends without being saved."""

    def assert_gone(self, pids, since):
        while left := [pid for pid in pids if run.alive(pid)]:
            self.assertLess(time.monotonic() - since, LEAVES_SECONDS, f"processes {left} are left behind")
            time.sleep(0.05)

    def hangs(self):
        """A run with one rank stopped (SIGSTOP), and its ranks."""
        job = self.start(2, *self.small(**FOREVER))
        self.wait_for_step(job, 1)
        pids = job.rank_pids()
        self.assertEqual(sorted(pids), [0, 1])
        run.send(pids[1], signal.SIGSTOP)
        return job, pids.values()

    def test_a_second_signal_ends_the_run_at_once(self):
        job, pids = self.hangs()
        run.send(job.mpirun.pid, signal.SIGINT)
        time.sleep(SECOND_SIGNAL_SECONDS)
        self.assertIsNone(job.mpirun.poll())
        since = time.monotonic()
        run.send(job.mpirun.pid, signal.SIGINT)
        done = job.finish(limit=LEAVES_SECONDS)
        self.assertNotIn(done.code, (0, 75), done)
        self.assertFalse(done.hung, done)
        self.assert_gone(pids, since)

    def test_ranks_that_are_all_stopped_are_ended(self):
        """No rank is left whose watchdog would notice. A rank that goes on in time is left alone."""
        job = self.start(2, *self.small(**FOREVER), environment={"ARGOSY_STOPPED_SECONDS": "4"})
        self.wait_for_step(job, 1)
        pids = job.rank_pids().values()
        for number, seconds in ((signal.SIGSTOP, 2), (signal.SIGCONT, 4), (signal.SIGSTOP, 0)):
            for pid in pids:
                run.send(pid, number)
            time.sleep(seconds)
        self.assertIsNone(job.mpirun.poll(), "it ended early")
        done = job.finish(limit=30)
        self.assert_code(done, 76)
        self.assertIn("all ranks are stopped (SIGSTOP) for 4 s (ARGOSY_STOPPED_SECONDS): the run ends", done.stderr)
        self.assert_gone(pids, time.monotonic())

    def test_the_end_of_the_script_ends_the_run(self):
        job, pids = self.hangs()
        since = time.monotonic()
        job.mpirun.kill()
        job.finish()
        self.assert_gone(pids, since)


class AnyCommand(run.PretrainTest):
    def test_a_command_without_pretrain_ends_on_a_signal(self):
        for number, code in ((signal.SIGTERM, 1), (signal.SIGUSR1, 128 + signal.SIGUSR1)):
            job = self.start(1, "100", program=("sleep",))
            while not job.rank_pids() or not run.catches(job.mpirun.pid, signal.SIGUSR1):
                self.assertLess(time.monotonic() - job.started, run.LIMIT_SECONDS, "the rank never started")
                time.sleep(0.1)
            time.sleep(0.5)  # mpirun starts its rank
            run.send(job.mpirun.pid, number)
            self.assert_code(job.finish(limit=LEAVES_SECONDS), code)

    def test_of_mpiruns_messages_only_those_on_75_are_dropped(self):
        program = self.folder / "pretrain"
        for code in (1, 75):
            program.write_text(f"#!/bin/sh\nprintf 'a\\n--- b\\n\\nlive' >&2\nsleep 0.3\nexit {code}\n")
            program.chmod(0o755)
            done = subprocess.run([run.MPIRUN, "1", program], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=run.LIMIT_SECONDS)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertEqual(done.stderr[:13], "a\n--- b\n\nlive")
            self.assertEqual("Exit code:    1\n" in done.stderr, code == 1, done.stderr)
            self.assertEqual("has been aborted" in done.stderr, code == 1, done.stderr)
            if code == 75:
                self.assertEqual(done.stderr[13:], "")
        program.chmod(0o644)
        done = subprocess.run([run.MPIRUN, "1", "--mca", "no_such_thing", "1", "true"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = subprocess.run([run.MPIRUN, "1", "--no-such-option", run.PRETRAIN], capture_output=True, text=True)
        self.assertIn("--no-such-option", done.stderr)

    def test_standard_input_is_that_of_the_first_rank(self):
        program = self.folder / "pretrain"
        program.write_text("#!/bin/sh\ncat\n")
        program.chmod(0o755)
        done = subprocess.run([run.MPIRUN, "2", program], input="a line\n", capture_output=True, text=True,
                              timeout=run.LIMIT_SECONDS)
        self.assertEqual((done.returncode, done.stdout), (0, "a line\n"), done.stderr)


if __name__ == "__main__":
    run.main()
