"""A rank that hangs while it trains on a GPU, on stand-ins. usage: gpu_hang_test.py PRETRAIN_WITH_STAND_INS"""
import pathlib
import signal
import sys
import time

import run

GPU = pathlib.Path(sys.argv.pop())
WATCHDOG = 76


class Hang(run.PretrainTest):
    def stop_one(self, num_ranks, stopped, **settings):
        dump = f"stopped{stopped}of{num_ranks}{len(settings)}"
        job = self.start(num_ranks, *self.small(dump, training__steps=100000, comm__train_timeout_seconds=2, **settings),
                         program=(GPU,))
        metrics = self.folder / dump / "metrics.jsonl"
        # The second step is the first one that runs as a graph.
        while not metrics.exists() or metrics.read_text().count("\n") < 3:
            self.assertIsNone(job.mpirun.poll(), "the job ended early")
            self.assertLess(time.monotonic() - job.started, run.LIMIT_SECONDS, "it never began")
            time.sleep(0.02)
        run.send(job.rank_pids()[stopped], signal.SIGSTOP)
        done = job.finish()
        self.assert_code(done, WATCHDOG)
        self.assertEqual(done.stderr.count(": error on rank "), 1, done)
        self.assertRegex(done.stderr, r"(all-|reduce-|broadcast|send|receive)\S* over \w+ \(operation \d+( of graph \d+)?\)[^:]*: "
                                      f"no answer in 2 s.*; missing: rank {stopped}\\b")
        self.assertNotIn("different operations", done.stderr)
        self.assertTrue(list((self.folder / dump / "flight").glob("rank-*.json")))

    def test_a_rank_that_is_stopped_is_named(self):
        self.stop_one(3, 1, training__global_batch_size=6)

    def test_a_stopped_first_rank_is_named(self):
        self.stop_one(2, 0)

    def test_a_stopped_stage_of_a_pipeline_is_named(self):
        self.stop_one(2, 1, parallelism__pipeline_parallel_degree=2)

    def test_a_stopped_rank_is_named_by_a_neighbour_that_awaits_its_copy(self):
        self.stop_one(2, 1, parallelism__tensor_parallel_degree=2, parallelism__enable_async_tensor_parallel=True,
                      comm__gpu_path="nccl", comm__peer_copies=True)


if __name__ == "__main__":
    run.main(workers=3)  # ranks wait for the limit
