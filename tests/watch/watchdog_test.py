"""The end of a job whose ranks wait for each other longer than the timeout, over stand-ins for GPUs:
watchdog_test.py PROGRAM."""
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["ARGOSY_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests" / "pretrain"))
import run  # noqa: E402

PROGRAM = pathlib.Path(sys.argv.pop(1))
WATCHDOG, FAILED = 76, 1
STAR, CHAIN = 128, 1  # ranks that connect to one
MAX_SECONDS = 90  # of a scenario, on a busy machine


class Watchdog(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.flight = pathlib.Path(scratch.name) / "run" / "flight"

    def run_ranks(self, scenario, ranks=3, fan_out=STAR, **environment):
        """(exit code, stderr)."""
        job = run.start_job(ranks, PROGRAM, scenario, self.flight, fan_out, environment=environment)
        code, _, text = run.end_of_job(job, MAX_SECONDS)
        self.assertIsNotNone(code, f"no end within {MAX_SECONDS} s\n{text}")
        return code, text

    def expect_end(self, scenario, *parts, **more):
        code, text = self.run_ranks(scenario, **more)
        self.assertEqual(code, WATCHDOG, text)
        for part in parts:
            self.assertIn(part, text)
        self.assertEqual(text.count("ranks: error on rank "), 1, text)
        return text

    def flight_files(self, *ranks):
        """The files of these ranks. A stopped rank may write another one when mpirun wakes it to end it."""
        files = {rank: json.loads((self.flight / f"rank-{rank}.json").read_text()) for rank in ranks}
        for rank, file in files.items():
            self.assertEqual((file["format"], file["version"], file["rank"], file["ranks"]), ("argosy flight", 1, rank, 3))
        return files

    def operation(self, file, group, number):
        """The operation in words, as messages name it."""
        groups = [index for index, one in enumerate(file["groups"]) if one["name"] == group]
        found = [one for one in file["operations"] if one["group"] in groups and one["number"] == number]
        self.assertEqual(len(found), 1, file)
        return f"{found[0]['kind']} of {found[0]['elements']} {found[0]['type']}"

    def test_an_absent_rank_is_named_with_the_operation_of_the_others(self):
        text = self.expect_end("absent", "ranks: error on rank 0 of 3: all-reduce over dp_shard (operation 3) of ranks "
                                         "0, 1, 2: no answer in 2 s; missing: rank 1. ",
                               "(comm.train_timeout_seconds sets the limit)")
        self.assertRegex(text, r"\. Rank 1 last reached all-reduce over dp_shard \(operation 2\), \S+ s ago")

    def test_a_failure_caused_by_the_end_of_the_job_is_not_reported(self):
        self.expect_end("broken", "; missing: rank 1. ")

    def test_a_stopped_rank_is_named(self):
        self.expect_end("stopped", "no answer in 2 s; missing: rank 2. ",
                        f". The last operations of the ranks are in {self.flight} (")
        for file in self.flight_files(0, 1).values():
            self.assertEqual(self.operation(file, "dp_shard", file["operations"][-1]["number"]), "all-reduce of 64 fp32")
            self.assertEqual([one["state"] for one in file["operations"][-4:]], 3 * ["ended"] + ["under way"])

    def test_a_stopped_rank_0_is_named_by_another_rank(self):
        self.expect_end("stopped-first", "ranks: error on rank 1 of 3: all-reduce over dp_shard (operation 3) of ranks ",
                        "; missing: rank 0")
        self.flight_files(1, 2)

    def test_a_second_silence_of_rank_0_is_in_the_files(self):
        self.expect_end("stopped-first-twice", "all-reduce over dp_shard (operation 4)", "; missing: rank 0. ")
        states = [one["state"] for one in self.flight_files(1)[1]["operations"] if one["kind"] == "all-reduce"]
        self.assertEqual(states, 4 * ["ended"] + ["under way"])

    def test_a_folder_that_cannot_be_written_is_named_and_delays_nothing(self):
        self.flight.parent.write_text("no folder")
        self.expect_end("stopped", "no answer in 2 s; missing: rank 2. ", "; rank 0 has no file: ", "Not a directory")
        self.expect_end("stopped-first", "; missing: rank 0. ", "; rank 1 has no file: ", "Not a directory")

    def test_a_disk_that_hangs_does_not_delay_the_end(self):
        """The threads that write the files of all ranks hang."""
        self.expect_end("stopped", "no answer in 2 s; missing: rank 2. ", "; rank 0 has not written its file yet",
                        ARGOSY_HANGPOINT="flight_half_written")
        self.assertEqual(list(self.flight.glob("*.json")), [])

    def test_only_one_rank_reports_even_if_its_exit_takes_long(self):
        self.expect_end("stopped-first-slowly", "ranks: error on rank 1 of 3: ", "; missing: rank 0")

    def test_the_end_of_a_chain_of_waiting_ranks_is_named(self):
        text = self.expect_end("through-others", "; missing: rank 2. ")
        self.assertIn("all-reduce over tp (operation 1)", text)

    def test_a_slow_rank_0_is_not_blamed(self):
        self.expect_end("slow-first", "ranks: error on rank 0 of 3: all-reduce over dp_shard", "; missing: rank 1. ")

    def test_a_rank_that_does_not_come_to_the_making_of_a_group_is_named(self):
        for scenario in ("group", "group-on-host"):
            with self.subTest(scenario):
                self.expect_end(scenario, "the making of group tp of ranks 0, 1, 2: no answer in 2 s; missing: rank 1. ",
                                "(comm.train_timeout_seconds sets the limit)")

    def test_a_watchdog_that_fails_starts_again(self):
        text = self.expect_end("restarted", "the reading of the meter", "no answer in 2 s; missing: rank 1. ")
        self.assertRegex(text, "the watchdog of rank [02] has failed and starts again: no memory")

    def test_a_rank_that_stops_before_it_leaves_mpi_is_named(self):
        with tempfile.TemporaryDirectory() as arrivals:
            code, text = self.run_ranks("stopped-at-the-end", ARGOSY_START_SECONDS="8", ARGOSY_ARRIVALS=arrivals)
        self.assertEqual(code, WATCHDOG, text)
        self.assertEqual(text.count("MPI_Finalize took more than 8 s (ARGOSY_START_SECONDS); missing: rank 1\n"), 1, text)

    def test_a_killed_rank_is_named_at_once(self):
        # With recovery enabled mpirun does not end the other ranks, and its own exit code is 0.
        _, text = self.run_ranks("killed", OMPI_MCA_orte_enable_recovery="1")
        self.assertEqual(text.count("a rank has ended without notice, or its node has failed; missing: rank 1. "), 1, text)

    def expect_error_of_one(self, scenario, rank=1, **more):
        code, text = self.run_ranks(scenario, **more)
        self.assertEqual(code, FAILED, text)
        self.assertIn(f"ranks: error on rank {rank} of 3: no paper in the printer", text)
        self.assertEqual(text.count("ranks: error on rank "), 1, text)
        self.assertNotIn("missing", text)

    def test_an_error_of_a_rank_is_not_reported_as_a_hang(self):
        self.expect_error_of_one("failed")

    def test_a_slow_exit_after_an_error_is_not_reported(self):
        self.expect_error_of_one("failed-slowly")

    def test_an_operation_after_the_error_of_another_rank_is_not_reported(self):
        self.expect_error_of_one("failed-and-noticed")

    def test_an_error_while_operations_are_compared_is_the_only_one(self):
        # The threads that write the files hang, so the comparison takes a second.
        self.expect_error_of_one("lost-and-failed", rank=2, ARGOSY_HANGPOINT="flight_half_written")

    def test_an_error_of_rank_0_while_it_compares_operations_is_the_only_one(self):
        self.expect_error_of_one("lost-and-failed-first", rank=0, ARGOSY_HANGPOINT="flight_half_written")

    def test_a_dropped_operation_does_not_keep_the_watchdog(self):
        self.expect_error_of_one("failed-over-host")

    def test_an_unresponsive_driver_does_not_keep_the_watchdog(self):
        self.expect_error_of_one("failed-blind")

    def test_an_error_is_reported_although_a_graph_keeps_nccl_from_ending(self):
        self.expect_error_of_one("failed-with-a-graph")

    def test_an_error_is_printed_before_a_destructor_waits(self):
        code, text = self.run_ranks("failed-and-stuck")
        self.assertEqual(code, WATCHDOG, text)
        self.assertEqual(text.count("ranks: error on rank 1 of 3: no paper in the printer"), 1, text)
        self.assertIn("; missing: rank 1. ", text)

    def test_a_rank_that_leaves_while_others_wait_is_missing(self):
        self.expect_end("left", "; missing: rank 1. ")

    def test_a_rank_between_others_and_rank_0_is_the_only_missing_one(self):
        self.expect_end("stopped-between", "; missing: rank 1. ", fan_out=CHAIN)

    def test_a_rank_is_asked_through_one_that_has_left(self):
        self.expect_end("left-and-absent", "; missing: rank 1, 2. ", fan_out=CHAIN)

    def test_a_killed_rank_between_others_and_rank_0_is_named_at_once(self):
        _, text = self.run_ranks("killed", fan_out=CHAIN, OMPI_MCA_orte_enable_recovery="1")
        self.assertIn("rank 0 of 3: a rank has ended without notice, or its node has failed; missing: rank 1. ", text)
        self.assertNotIn("missing: rank 2", text)

    def test_an_error_between_others_and_rank_0_is_the_only_one(self):
        self.expect_error_of_one("failed-slowly", fan_out=CHAIN)

    def test_a_rank_within_the_timeout_is_not_reported(self):
        code, text = self.run_ranks("slow")
        self.assertEqual(code, 0, text)
        self.assertIn("came through", text)
        self.assertNotIn("watchdog", text)

    def test_a_long_computation_before_an_operation_is_not_reported(self):
        code, text = self.run_ranks("behind")
        self.assertEqual(code, 0, text)

    def expect_difference(self, scenario, usual, strange):
        text = self.expect_end(scenario, "no answer in 2 s; ranks have submitted different operations: rank 1 submitted "
                                         f"{strange} as collective ", f", where rank 0, 2 submitted {usual}")
        number, group = re.search(r" as collective (\d+) over (\w+), where", text).groups()
        files = self.flight_files(0, 1, 2)
        self.assertEqual(len({file["hang"] for file in files.values()}), 1, files)
        for rank, file in files.items():
            self.assertEqual(self.operation(file, group, int(number)), strange if rank == 1 else usual)
            self.assertEqual(file["operations"][-1]["state"], "under way", file)

    def test_different_operations_are_named(self):
        self.expect_difference("different", "all-reduce of 64 fp32", "reduce-scatter of 192 fp32")

    def test_different_operations_over_mpi_are_named(self):
        self.expect_difference("different-over-mpi", "all-reduce of 64 fp32", "all-gather of 192 fp32")

    def test_different_operations_in_shared_memory_are_named(self):
        self.expect_difference("different-in-shared-memory", "all-reduce of 64 fp32", "all-gather of 192 fp32")

    def test_an_operation_that_mpi_refuses_is_named(self):
        code, text = self.run_ranks("different-sizes")
        self.assertEqual(code, FAILED, text)
        self.assertRegex(text, r"ranks: error on rank \d of 3: all-reduce over host \(operation 0\): .*MPI_ERR_TRUNCATE.*"
                               "The ranks have submitted different operations")

    def test_no_rank_is_missing_if_all_ranks_wait(self):
        text = self.expect_end("stalled", "all-reduce over dp_shard (operation 3)", "all ranks are waiting: ")
        self.assertNotIn("missing", text)

    def test_an_error_of_nccl_ends_the_job(self):
        self.expect_end("lost", "rank 1 reports: an operation of NCCL failed: remote process exited")

    def test_an_operation_of_a_graph_is_named(self):
        text = self.expect_end("graph", "ranks: error on rank 0 of 3: all-reduce over dp_shard (operation 2 of graph 2) "
                                        "of ranks 0, 1, 2: no answer in 2 s; missing: rank 1. ")
        self.assertRegex(text, r"\. Rank 1 last reached all-reduce over dp_shard \(operation 1 of graph 2\), \S+ s ago")
        for file in self.flight_files(0, 1, 2).values():
            states = [(one["kind"], one["state"]) for one in file["operations"] if one["state"] != "ended"]
            # Rank 1's kernel precedes the last operation, so that rank's launch is under way, too.
            self.assertEqual(states, 3 * [("all-reduce", "in a graph")] + [("the graph of a step", "under way")] +
                             3 * [("all-reduce", "in a graph")])

    def test_a_graph_may_take_longer_than_the_limit(self):
        code, text = self.run_ranks("long-graph")
        self.assertEqual(code, 0, text)
        self.assertIn("came through", text)

    def test_a_blocked_launching_call_is_late(self):
        self.expect_end("call", "the graph of a step over world (operation 0) of ranks 0, 1, 2: no answer in 2 s")


if __name__ == "__main__":
    run.main(workers=2)  # their ranks wait for a time limit, and mpirun for ranks
