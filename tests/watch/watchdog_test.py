"""How a job on GPUs ends whose ranks wait for each other in vain, on stand-ins: watchdog_test.py PROGRAM."""
import os
import pathlib
import subprocess
import sys
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1))
SOURCE = pathlib.Path(os.environ["ARGOSY_SOURCE"])
WATCHDOG, FAILED = 76, 1
MOST_SECONDS = 40  # of a scenario, on a busy machine


class Watchdog(unittest.TestCase):
    def run_ranks(self, scenario, ranks=3, **environment):
        done = subprocess.run([SOURCE / "jobs/mpirun.sh", str(ranks), PROGRAM, scenario], capture_output=True, text=True,
                              timeout=MOST_SECONDS, stdin=subprocess.DEVNULL, env=os.environ | environment)
        return done.returncode, done.stderr

    def expect_end(self, scenario, *parts, speakers=1, **more):
        code, text = self.run_ranks(scenario, **more)
        self.assertEqual(code, WATCHDOG, text)
        for part in parts:
            self.assertIn(part, text)
        self.assertEqual(text.count("ranks: error on rank "), speakers, text)
        return text

    def test_a_rank_that_stays_away_is_named_with_what_the_others_wait_for(self):
        text = self.expect_end("absent", "ranks: error on rank 0 of 3: all-reduce over dp_shard (operation 3) of ranks "
                                         "0, 1, 2: no answer in 2 s; missing: rank 1. ",
                               "(comm.train_timeout_seconds sets the limit)")
        self.assertRegex(text, r"\. Rank 1 came to all-reduce over dp_shard \(operation 2\) \S+ s ago, and to nothing")

    def test_what_fails_because_the_job_ends_is_no_error(self):
        self.expect_end("broken", "; missing: rank 1. ")

    def test_a_rank_that_is_stopped_is_named(self):
        self.expect_end("stopped", "no answer in 2 s; missing: rank 2. ")

    def test_rank_0_is_named_by_another(self):
        self.expect_end("stopped-first", "ranks: error on rank 1 of 3: all-reduce over dp_shard (operation 3): no answer",
                        "; missing: rank 0")

    def test_one_alone_speaks_however_long_its_end_takes(self):
        self.expect_end("stopped-first-slowly", "ranks: error on rank 1 of 3: ", "; missing: rank 0")

    def test_who_others_wait_for_through_others_is_the_one(self):
        text = self.expect_end("through-others", "; missing: rank 2. ")
        self.assertIn("all-reduce over tp (operation 1)", text)

    def test_a_rank_that_is_killed_is_named_at_once(self):
        # mpirun would take the others down; told to go on without, it ends with 0 itself.
        _, text = self.run_ranks("killed", OMPI_MCA_orte_enable_recovery="1")
        self.assertEqual(text.count("a rank has ended without a word, or its node is gone; missing: rank 1. "), 1, text)

    def expect_error_of_one(self, scenario):
        code, text = self.run_ranks(scenario)
        self.assertEqual(code, FAILED, text)
        self.assertIn("ranks: error on rank 1 of 3: no paper in the printer", text)
        self.assertEqual(text.count("ranks: error on rank "), 1, text)
        self.assertNotIn("missing", text)

    def test_an_error_of_a_rank_is_no_hang(self):
        self.expect_error_of_one("failed")

    def test_nor_is_what_others_see_of_its_end(self):
        self.expect_error_of_one("failed-slowly")

    def test_nor_is_what_their_next_operation_meets(self):
        self.expect_error_of_one("failed-and-noticed")

    def test_nor_does_an_operation_that_is_dropped_keep_the_watchdog(self):
        self.expect_error_of_one("failed-over-host")

    def test_nor_does_a_driver_that_does_not_answer(self):
        self.expect_error_of_one("failed-blind")

    def test_who_leaves_while_others_wait_for_it_is_missing(self):
        self.expect_end("left", "; missing: rank 1. ")

    def test_a_rank_that_is_a_little_late_is_no_hang(self):
        code, text = self.run_ranks("slow")
        self.assertEqual(code, 0, text)
        self.assertIn("came through", text)
        self.assertNotIn("watchdog", text)

    def test_what_waits_for_a_rank_s_own_computation_is_no_hang(self):
        code, text = self.run_ranks("behind")
        self.assertEqual(code, 0, text)

    def test_different_operations_of_one_number_are_named(self):
        self.expect_end("different", "all ranks wait by now",
                        "Operation 3 over dp_shard is all-reduce of 64 elements on rank 0, and reduce-scatter of 192 elements "
                        "on rank 1")

    def test_nobody_is_missing_where_all_are_at_it(self):
        text = self.expect_end("stalled", "all-reduce over dp_shard (operation 3)", "all ranks wait by now")
        self.assertNotIn("missing", text)

    def test_an_error_of_nccl_ends_the_job(self):
        self.expect_end("lost", "seen on rank 1: an operation of NCCL failed: remote process exited")

    def test_what_others_wait_for_within_a_graph_is_named(self):
        text = self.expect_end("graph", "ranks: error on rank 0 of 3: all-reduce over dp_shard (operation 2 of graph 2) "
                                        "of ranks 0, 1, 2: no answer in 2 s; missing: rank 1. ")
        self.assertRegex(text, r"\. Rank 1 came to all-reduce over dp_shard \(operation 1 of graph 2\) \S+ s ago, and")

    def test_a_graph_may_take_longer_than_the_limit(self):
        code, text = self.run_ranks("long-graph")
        self.assertEqual(code, 0, text)
        self.assertIn("came through", text)

    def test_a_call_that_does_not_return_is_late(self):
        self.expect_end("call", "the graph of a step over world (operation 0) of ranks 0, 1, 2: no answer in 2 s")


if __name__ == "__main__":
    unittest.main(verbosity=2)
