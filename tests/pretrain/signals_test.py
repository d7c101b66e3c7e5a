"""Runs that end early: stopped, killed, stuck, or diverged. Each leaves no rank behind, prints one message with the
reason, and has its exit code."""
import json
import math
import re
import signal
import time

import run

FOREVER = {"training__steps": 1000000, "lr_scheduler__warmup_steps": 0, "optimizer__lr": 1e-4}
LEAVES_SECONDS = 30


class Signals(run.PretrainTest):
    def trains(self, num_ranks, dump="run", **settings):
        """A long run that has finished its second step, and the processes of its ranks."""
        job = self.start(num_ranks, *self.small(dump, **FOREVER, **settings))
        self.wait_for_step(job, 2, dump)
        pids = job.rank_pids()
        self.assertEqual(sorted(pids), list(range(num_ranks)))
        return job, pids

    def finish(self, job, pids):
        """The result of the job: it ended soon, and every rank has exited."""
        since = time.monotonic()
        done = job.finish(limit=3 * LEAVES_SECONDS)
        self.assertFalse(done.hung, done)
        while left := [pid for pid in pids.values() if run.alive(pid)]:
            self.assertLess(time.monotonic() - since, LEAVES_SECONDS, f"processes {left} are left behind; {done}")
            time.sleep(0.05)
        self.assertLess(time.monotonic() - since, LEAVES_SECONDS, done)
        return done

    def assert_stopped_after_a_step(self, done, dump="run"):
        self.assert_one_error(done, 1, "stopped by a signal after step", f"of {FOREVER['training__steps']}")
        step = int(re.search(r"after step (\d+)", done.errors[0])[1])
        self.assertEqual([line["step"] for line in self.steps(dump)], list(range(1, step + 1)))

    def stop_one_rank(self, num_ranks, rank):
        job, pids = self.trains(num_ranks, f"run{num_ranks}")
        run.send(pids[rank], signal.SIGTERM)
        self.assert_stopped_after_a_step(self.finish(job, pids), f"run{num_ranks}")

    def test_sigterm_of_one_rank_ends_all_after_the_step(self):
        run.at_once([lambda: self.stop_one_rank(1, 0), lambda: self.stop_one_rank(2, 1),
                     lambda: self.stop_one_rank(4, 2)])

    def test_a_killed_rank_takes_the_job_down(self):
        job, pids = self.trains(4)
        run.send(pids[2], signal.SIGKILL)
        done = self.finish(job, pids)
        self.assertNotEqual(done.code, 0, done)
        self.assertRegex(done.stderr, r"process rank 2 .* signal 9")  # mpirun says so

    def stuck_rank(self, num_ranks, rank, dump, **settings):
        job, pids = self.trains(num_ranks, dump, comm__train_timeout_seconds=3, **settings)
        run.send(pids[rank], signal.SIGSTOP)
        done = self.finish(job, pids)
        self.assert_code(done, 76)
        self.assertEqual(len(done.errors), 1, done)
        self.assertRegex(done.errors[0], rf"error on rank [^{rank}] of {num_ranks}: "
                                         r"(all-gather|reduce-scatter|all-reduce|send|receive) over "
                                         r"(dp_shard|dp_replicate|tp|pp|world|control).*: no answer in 3 s; "
                                         rf"missing: rank {rank}\. ")
        self.assertNotIn("different operations", done.stderr)
        files = [json.loads(path.read_text()) for path in (self.folder / dump / "flight").glob("rank-*.json")]
        writers, others = {file["rank"] for file in files}, set(range(num_ranks)) - {rank}
        if rank == 0:  # another rank reports alone, and waits only a moment for the files of the others
            self.assertTrue(writers & others, done)
        else:  # mpirun wakes the stopped rank to end it; that rank may then write its file
            self.assertLessEqual(others, writers, done)
        for file in files:
            self.assertGreater(len(file["operations"]), 10)
            self.assertIn("under way", [operation["state"] for operation in file["operations"]])

    def test_a_stuck_rank_is_named(self):
        """The stopped rank wakes up when mpirun ends it, and does not report a timeout of its own."""
        mesh = {"parallelism__pipeline_parallel_degree": 2, "training__local_batch_size": 4}
        run.at_once([lambda: self.stuck_rank(2, 1, "shared"),
                     lambda: self.stuck_rank(2, 0, "mpi", comm__shared_memory=False),
                     lambda: self.stuck_rank(4, 0, "pp", comm__shared_memory=False, **mesh)])

    def stuck_at_start(self, num_ranks, rank, seconds, dump):
        """Stops a rank some time after the start: while MPI starts, groups are made, or the run's state is loaded."""
        job = self.start(num_ranks, *self.small(dump, training__steps=100000, comm__init_timeout_seconds=4,
                                                comm__train_timeout_seconds=4), environment={"ARGOSY_START_SECONDS": "4"})
        while len(pids := job.rank_pids()) < num_ranks:
            time.sleep(0.01)
        time.sleep(seconds)
        run.send(pids[rank], signal.SIGSTOP)
        done = self.finish(job, pids)
        self.assert_code(done, 76)
        self.assertEqual(done.stderr.count("missing: rank"), 1, done)
        self.assertIn(f"missing: rank {rank}", done.stderr)

    def test_a_rank_that_is_stuck_at_start_is_named(self):
        run.at_once([lambda: self.stuck_at_start(2, 1, 0, "first"), lambda: self.stuck_at_start(3, 2, 0.15, "init"),
                     lambda: self.stuck_at_start(3, 0, 0.4, "groups"), lambda: self.stuck_at_start(2, 1, 0.8, "run")])

    def test_a_suspended_job_does_not_time_out(self):
        """SIGSTOP and SIGCONT, as when Slurm suspends and resumes a job."""
        job, pids = self.trains(2, comm__train_timeout_seconds=2)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in pids.values():
                run.send(pid, number)
            time.sleep(3)
        self.wait_for_step(job, len(self.steps()) + 2)
        run.send(pids[0], signal.SIGTERM)
        self.assert_stopped_after_a_step(self.finish(job, pids))


class NonFinite(run.PretrainTest):
    """After one absurd update nothing is finite: at 1e30 only the gradients are infinite, since norms rescale the
    activations; at 1e38 the loss is too."""

    def diverge(self, num_ranks, number_type, lr):
        dump = f"{number_type}_{num_ranks}_{lr}"
        done = self.run_ranks(num_ranks, *self.small(
            dump, optimizer__lr=lr, lr_scheduler__warmup_steps=0, training__steps=50,
            training__max_nonfinite_steps=3, training__mixed_precision_param=number_type))
        self.assert_one_error(done, 1, "step 4:", "update 3 in a row", "training.max_nonfinite_steps",
                              "Lower optimizer.lr")
        steps = self.steps(dump)
        self.assert_skipped(steps)
        self.assertEqual([step["loss"] is None for step in steps[1:]], 3 * [lr == 1e38])

    def assert_skipped(self, steps):
        self.assertEqual([step["step"] for step in steps], [1, 2, 3, 4])
        self.assertEqual([step["finite"] for step in steps], [True, False, False, False])
        self.assertEqual([step["skipped_updates"] for step in steps], [0, 1, 2, 3])
        for step in steps:
            numbers = [step["loss"], step["grad_norm"]]
            self.assertEqual(step["finite"], None not in numbers, step)
            self.assertTrue(all(number is None or math.isfinite(number) for number in numbers), step)

    def test_a_diverged_run_stops(self):
        run.at_once([lambda: self.diverge(1, "float32", 1e30), lambda: self.diverge(1, "bfloat16", 1e38),
                     lambda: self.diverge(2, "bfloat16", 1e30), lambda: self.diverge(2, "float32", 1e38)])


if __name__ == "__main__":
    run.main()
