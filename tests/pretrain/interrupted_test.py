"""Runs that are ended from outside while they save: by a signal, a full disk, or kill -9. The next start always resumes
from a whole step, and repeats the losses of the uninterrupted run."""
import os
import pathlib
import random
import re
import shutil
import signal
import time

import run
import saved

FAILPOINTS = pathlib.Path(os.environ["ARGOSY_FAILPOINTS"])
# (stage, number of ranks): two where ranks may be at different stages. checkpoint.killed kills at each place of a save.
STAGES = [("step_started", 2), ("shard_laid_out", 1), ("shard_half_written", 2), ("shard_finished", 2), ("manifest_written", 2),
          ("before_rename", 1), ("after_rename", 2), ("before_retention", 1)]
RANDOM_KILLS = 4
LONG = 60  # steps of a run that is killed several times
# A save slow enough for a signal to arrive within it, and fast enough for the test: some seconds in total.
SLOW = {"training__steps": 400, "lr_scheduler__total_steps": 400, "training__seq_len": 128}


class Signals(saved.SavedTest):
    def stop(self, number, rank, num_ranks, dump, after=5):
        job = self.start(num_ranks, *self.saving(dump, **SLOW, checkpoint__interval=1000))
        self.wait_for_step(job, after, dump)
        run.send(job.rank_pids()[rank], number)
        done = job.finish()
        self.assert_code(done, 75)
        step = int(re.search(r"stopped by a signal after step (\d+) of 400, which is saved: exit 75", done.stderr)[1])
        self.assertEqual(self.whole_steps(dump)[-1], step)
        self.assertEqual(len(self.numbers(dump)), step)
        lines = [line for line in done.stderr.splitlines() if " I " in line]
        self.assertIn(" stopped by a signal ", lines[-1], done)
        return step

    def test_a_run_that_is_stopped_twice_resumes_bit_for_bit(self):
        first = self.stop(signal.SIGTERM, 1, 2, "run")
        second = self.stop(signal.SIGUSR1, 0, 2, "run", after=first + 3)
        rest = {**SLOW, "training__steps": second + 5}
        run.at_once([lambda: self.train(2, "run", **rest), lambda: self.train(2, "whole", checkpoint__enable=False, **rest)],
                    workers=2)
        self.assertEqual(self.numbers("run", str), self.numbers("whole", str))

    def test_every_start_may_be_stopped(self):
        """Runs as in a chain of jobs; a run that is stopped before its first step also exits with 75 and loses nothing. Another
        run starts with the whole state and is stopped before its first step (or later, on a machine that stalls). It then has no
        step of its own, and the log says so."""
        before = self.stop(signal.SIGTERM, 0, 1, "run")
        job = self.start(1, *self.saving("run", **SLOW))
        self.stop_at_once(job)
        done = job.finish()
        self.assert_code(done, 75)
        last = self.whole_steps()[-1]
        self.assertGreaterEqual(last, before)
        self.numbers()

        job = self.start(1, *self.saving("other", **SLOW, checkpoint__initial_load_path=self.folder / "run",
                                         checkpoint__initial_load_model_only=False))
        self.stop_at_once(job)
        done = job.finish()
        self.assert_code(done, 75)
        if self.whole_steps("other"):
            self.assertIn(f"after step {self.whole_steps('other')[-1]} of 400, which is saved: exit 75", done.stderr)
        else:
            self.assertIn(f"before step {last + 1} of 400, the first of this start; there is nothing new to save: exit 75",
                          done.stderr)

    def stop_at_once(self, job):
        while not (pids := job.rank_pids()) or 0 not in pids or not run.catches(pids[0], signal.SIGTERM):
            self.assertIsNone(job.mpirun.poll(), "the job ended early")
            self.assertLess(time.monotonic() - job.started, run.LIMIT_SECONDS, "it never was ready for a signal")
            time.sleep(0.002)
        run.send(pids[0], signal.SIGTERM)

    def stop_near_the_end(self, step):
        """The run of 40 steps is either finished or to be requeued; in both cases its last step is on disk."""
        dump = f"end{step}"
        job = self.start(2, *self.saving(dump, training__steps=40, checkpoint__interval=1000))
        self.wait_for_step(job, step, dump)
        for pid in job.rank_pids().values():
            run.send(pid, signal.SIGTERM)
        done = job.finish()
        self.assertIn(done.code, (0, 75), done)
        last = len(self.numbers(dump))
        self.assertEqual(self.whole_steps(dump), [last])
        self.assertEqual(done.code, 0 if last == 40 else 75, done)
        self.assert_nothing_partial(dump)

    def test_a_signal_during_the_final_steps_loses_nothing(self):
        run.at_once([lambda step=step: self.stop_near_the_end(step) for step in (39, 40)], workers=2)

    def test_without_enable_a_signal_is_a_failure(self):
        job = self.start(1, *self.saving(**{**SLOW, "checkpoint__enable": False}))
        self.wait_for_step(job, 2)
        run.send(job.rank_pids()[0], signal.SIGUSR1)
        self.assert_one_error(job.finish(), 1, "stopped by a signal after step", "checkpoint.enable = true")


class FullDisk(saved.SavedTest):
    def test_a_writer_that_fails_ends_the_run_and_loses_nothing(self):
        """A limit on file sizes replaces the full disk: the manifest and the shards of two ranks are below it, the
        shard of one rank is above. Only pretrain itself keeps the signal (SIGXFSZ) from ending the process."""
        self.train(2, training__steps=4)
        self.train(1, "whole", checkpoint__enable=False, training__global_batch_size=4)
        limit = 6000  # KiB: two ranks write 5 MiB each, one 10 MiB
        limited = ("bash", "-c", f"ulimit -f {limit}; exec {run.PRETRAIN} \"$@\"", "bash")
        done = self.run_ranks(1, *self.saving(training__global_batch_size=4, comm__shared_memory=False),
                              program=limited)
        self.assert_one_error(done, 1, "the checkpoint of step 6 was not written: rank 0: ", "step-00000006.partial",
                              "File too large", "Earlier checkpoints are unchanged")
        self.assert_goes_on_from_step_4()


class HungDisk(saved.SavedTest):
    def test_a_hanging_writer_does_not_delay_an_error(self):
        """The writer threads of both ranks hang in the second save, and then one rank does not answer: the other rank's
        error comes after its time limit and the ten seconds that it gives its own thread."""
        job = self.start(2, *self.saving(comm__train_timeout_seconds=8), program=(FAILPOINTS,),
                         environment={"ARGOSY_HANGPOINT": "shard_half_written:2"})
        shard = self.folder_of() / "step-00000004.partial" / "shard-00000-of-00002.h5"
        while not shard.exists():
            self.assertIsNone(job.mpirun.poll(), "the job ended early")
            self.assertLess(time.monotonic() - job.started, run.LIMIT_SECONDS, "the save never began")
            time.sleep(0.02)
        run.send(job.rank_pids()[1], signal.SIGSTOP)
        done = job.finish()
        self.assert_code(done, 76)
        self.assertIn("did not end within 10 s; the process exits without waiting longer", done.stderr)
        self.assertIn("no answer in 8 s", done.errors[0])
        self.assertEqual(self.whole_steps(), [2])

    def test_a_disk_that_hangs_when_the_run_ends_is_named(self):
        job = self.start(2, *self.saving(training__steps=4, comm__storage_timeout_seconds=3), program=(FAILPOINTS,),
                         environment={"ARGOSY_HANGPOINT": "shard_half_written:2"})
        done = job.finish()
        self.assert_code(done, 76)
        self.assertRegex(done.stderr, r"error on rank \d of 2: reading or writing in the run's folder has moved no byte for 3 s "
                                      r"\(comm.storage_timeout_seconds\); the file system hangs on ")
        self.assertEqual(self.whole_steps(), [2])


class HungFile(saved.SavedTest):
    """Rank 0 hangs in the write of a line of metrics.jsonl while the other ranks wait for it."""

    def hang(self, environment, **settings):
        return self.run_ranks(2, *self.saving(comm__train_timeout_seconds=2, **settings), program=(FAILPOINTS,),
                              environment={"ARGOSY_HANGPOINT": "line_appended:3"} | environment)

    def test_a_stall_that_is_longer_than_the_limit_of_other_waits_ends_no_run(self):
        done = self.hang({"ARGOSY_HANG_SECONDS": "4"}, training__steps=4)
        self.assert_code(done, 0)
        self.assertGreater(done.seconds, 4)

    def test_a_file_system_that_never_answers_is_named_and_no_rank(self):
        done = self.hang({}, comm__storage_timeout_seconds=4)
        self.assert_code(done, 76)
        self.assertRegex(done.stderr, r"error on rank 0 of 2: waiting for the file system: rank 0 "
                                      r"\(writing '\S*/metrics.jsonl' for \d+ s\)")
        self.assertIn("(comm.storage_timeout_seconds sets the limit)", done.stderr)
        self.assertNotIn("missing", done.stderr)  # jobs/shell/requeue.sh excludes the nodes of missing ranks
        self.assertEqual(done.stderr.count(": error on rank "), 1, done)


class Killed(saved.SavedTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.expected = {}

    def uninterrupted(self, num_ranks, **settings):
        if num_ranks not in self.expected:
            self.train(num_ranks, "whole", checkpoint__enable=False, **settings)
            self.expected[num_ranks] = self.numbers("whole", str)
            shutil.rmtree(self.folder / "whole")
        return self.expected[num_ranks]

    def kill_at(self, stage, num_ranks, mode="async"):
        """The kill comes in the second save, of step 4; the first save is whole."""
        dump = f"{stage}{num_ranks}{mode}"
        done = self.run_ranks(num_ranks, *self.saving(dump, checkpoint__keep_latest_k=2, checkpoint__async_mode=mode),
                              environment={"ARGOSY_FAILPOINT": f"{stage}:2"}, program=(FAILPOINTS,))
        self.assertNotEqual(done.code, 0, f"{stage} was never reached: {done}")
        left = self.whole_steps(dump)
        done = self.train(num_ranks, dump, checkpoint__keep_latest_k=2)
        self.assertIn(f"{left[-1]} steps are done", done.stderr)
        self.assertNotIn("is not intact", done.stderr)
        self.assertEqual(self.numbers(dump, str), self.expected[num_ranks])
        self.assertEqual(self.names(dump), ["step-00000010", "step-00000012"])
        return left

    def test_a_kill_at_every_stage_of_a_save_loses_no_whole_step(self):
        for num_ranks in (1, 2):
            self.uninterrupted(num_ranks)
        left = run.at_once([lambda stage=stage, ranks=ranks: self.kill_at(stage, ranks) for stage, ranks in STAGES], workers=2)
        self.assertEqual(left, 6 * [[2]] + 2 * [[2, 4]])

    def test_a_whole_step_has_its_line_of_metrics(self):
        """Training also waits for the save; otherwise the resumed run would lack a line of metrics."""
        self.uninterrupted(1)
        left = [self.kill_at(stage, 1, "disabled") for stage in ("before_rename", "after_rename")]
        self.assertEqual(left, [[2], [2, 4]])

    def test_kills_at_random_times_lose_no_whole_step(self):
        length = {"training__steps": LONG, "lr_scheduler__total_steps": LONG, "checkpoint__interval": 3,
                  "checkpoint__keep_latest_k": 3}
        self.train(2, "whole", **{**length, "checkpoint__enable": False})
        seed = int.from_bytes(os.urandom(4), "little")
        chance = random.Random(seed)
        for kill in range(RANDOM_KILLS):
            job = self.start(2, *self.saving(**length))
            path = self.folder / "run" / "metrics.jsonl"
            lines = path.read_text().count("\n") if path.exists() else 0
            try:
                # The kill comes some milliseconds after the run's first step: anywhere in a step or a save.
                while job.mpirun.poll() is None and (not path.exists() or path.read_text().count("\n") == lines):
                    lines = min(lines, path.read_text().count("\n")) if path.exists() else 0
                    self.assertLess(time.monotonic() - job.started, run.LIMIT_SECONDS, f"kill {kill}: no step came")
                    time.sleep(0.001)
                time.sleep(chance.uniform(0, 0.15))
                for pid in job.rank_pids().values():
                    run.send(pid, signal.SIGKILL)
            finally:
                done = job.finish()
            self.assertNotIn("is not intact", done.stderr, f"seed {seed}, kill {kill}")
        done = self.train(2, **length)
        self.assertNotIn("is not intact", done.stderr, f"seed {seed}")
        self.assertEqual(self.numbers("run", str), self.numbers("whole", str), f"seed {seed}")
        self.assert_nothing_partial()


if __name__ == "__main__":
    run.main()
