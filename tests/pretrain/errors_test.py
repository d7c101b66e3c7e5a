"""Mistakes of the user: each ends soon with exit code 2 and one message with numbers and a remedy, on one rank, and one
of each kind on two."""
import json
import os
import unittest

import run

SOON_SECONDS = 10
MANY = (1, 2)  # for some mistakes of each kind that do not depend on the number of ranks: words, degrees, data
LLAMA = run.SOURCE / "tests" / "reference" / "llama"  # a config.json: 6 heads, 3 layers, vocabulary 131


class UsersMistakes(run.PretrainTest):
    def expect(self, parts, *jobs):
        """Each of the jobs (number of ranks, words) fails with one message that holds all `parts`."""
        # mpirun waits a second after its ranks have failed before it checks that they have exited.
        environment = {"OMPI_MCA_odls_base_sigkill_timeout": "0"}
        calls = [lambda job=job: self.run_ranks(job[0], *job[1], environment=environment) for job in jobs]
        for job, done in zip(jobs, run.at_once(calls)):
            with self.subTest(num_ranks=job[0]):
                self.assert_one_error(done, 2, *parts)
                self.assertLess(done.seconds, SOON_SECONDS, done)
                self.assertEqual(done.stdout, "")
        self.assertFalse((self.folder / "run").exists(), "a refused run leaves nothing behind")

    def expect_on(self, ranks, parts, **settings):
        self.expect(parts, *[(num_ranks, self.small(**settings)) for num_ranks in ranks])

    def test_unknown_key(self):
        self.expect_on(MANY, ["--training.seq_length", "did you mean --training.seq_len?"], training__seq_length=8)

    def test_unknown_key_in_a_file(self):
        (self.folder / "c.toml").write_text("[training]\nstepz = 8\n")
        self.expect(["unknown key training.stepz", "c.toml:2", "did you mean training.steps?"],
                    (1, ["--config", self.folder / "c.toml"]))

    def test_wrong_type(self):
        self.expect_on([1], ["training.steps", "an integer", "'many'"], training__steps="many")

    def test_out_of_range(self):
        self.expect_on([1], ["optimizer.beta2", "is 1.5", "< 1"], optimizer__beta2=1.5)

    def test_batch_beyond_all_integers(self):
        self.expect_on([1], ["local_batch_size", str(2**62), "<= 2147483647"], training__local_batch_size=2**62)

    def test_integer_beyond_64_bits(self):
        self.expect_on([1], ["training.steps", "between -2^63 and 2^63 - 1", str(10**30)], training__steps=10**30)

    def test_nan(self):
        self.expect_on([1], ["optimizer.lr", "is nan; it must be finite"], optimizer__lr="-nan")

    def test_dump_folder_that_cannot_be(self):
        (self.folder / "file").write_text("in the way")
        for dump, reason in (("file", "/file is a file"), ("file/run", "Not a directory"), ("/proc/run", "No such file")):
            self.expect([f"{self.folder / dump}/run.lock'", reason, "Set job.dump_folder"], (1, self.small(dump)))
        self.expect(["job.dump_folder is empty"], (1, self.small(job__dump_folder="")))

    def test_folders_in_the_place_of_files(self):
        for name, num_ranks in (("run.lock", 2), ("metrics.jsonl", 1)):  # only rank 0 opens the metrics
            (self.folder / "taken" / name).mkdir(parents=True)
            self.expect([f"taken/{name}'", "Is a directory", "Set job.dump_folder"], (num_ranks, self.small("taken")))
            (self.folder / "taken" / name).rmdir()

    def test_missing_config_file(self):
        missing = self.folder / "none.toml"
        self.expect([str(missing), "No such file"], (1, ["--config", missing]))

    def test_degrees_whose_product_is_not_the_number_of_ranks(self):
        self.expect_on(MANY, ["tp 3 takes a multiple of 3 ranks, but ", "start a multiple of 3"], parallelism__tensor_parallel_degree=3)
        self.expect_on([2], ["dp_shard 3 x tp 2 = 6 ranks, but the run has 2", "start 6 ranks"],
                       parallelism__data_parallel_shard_degree=3, parallelism__tensor_parallel_degree=2)

    def test_heads_that_the_tensor_axis_cannot_split(self):
        self.expect_on([4], ["tensor_parallel_degree = 4", "6 attention heads", "divisor of 6"],
                       model__hf_assets_path=LLAMA, training__dataset_path=self.tokens_below_128(),
                       parallelism__tensor_parallel_degree=4)

    def test_more_stages_than_layers(self):
        self.expect_on([4], ["3 layers", "4 pipeline stages", "lower parallelism.pipeline_parallel_degree"],
                       model__hf_assets_path=LLAMA, parallelism__pipeline_parallel_degree=4)

    def test_layers_per_stage(self):
        for layers, parts in {"4,2": ["adds up to 6 layers", "the model has 4"],
                              "2,1,1": ["[2, 1, 1] is for 3 stages", "is 2", "one number per stage"],
                              f"{2**32 + 1},3": [f"[{2**32 + 1}, 3]", "<= 2147483647"]}.items():
            self.expect_on([2], parts, parallelism__pipeline_parallel_degree=2,
                           parallelism__pipeline_parallel_layers_per_stage=layers)

    def test_pipeline_schedules(self):
        csv = self.folder / "own.csv"
        for text, parts in {"0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1": ["own.csv deadlocks", "rank 0 waits for the gradient",
                                                                  "rank 1 waits for the activation", "change the order"],
                            "0F0,0B0\n1F0,1X0": ["own.csv, row 2", "'1X0' is no action", "as in 2F0"]}.items():
            csv.write_text(text)  # tests/parallel has the other mistakes
            self.expect_on([2], parts, parallelism__pipeline_parallel_degree=2, training__local_batch_size=2,
                           parallelism__pipeline_parallel_schedule_csv=csv)
        csv.unlink()
        self.expect_on([2], ["schedule_csv", f"cannot open '{csv}'"], parallelism__pipeline_parallel_degree=2,
                       parallelism__pipeline_parallel_schedule_csv=csv)
        self.expect_on([2], ["Interleaved1F1B", "multiple of 2 microbatches", "a step has 3"],
                       parallelism__pipeline_parallel_degree=2, training__local_batch_size=3,
                       parallelism__pipeline_parallel_schedule="Interleaved1F1B")
        self.expect_on([2], ["1F1B runs one stage on each rank, not 4 stages on 2 ranks"],
                       parallelism__pipeline_parallel_degree=2, parallelism__pipeline_parallel_layers_per_stage="1,1,1,1")

    def test_global_batch(self):
        self.expect_on([1], ["global_batch_size = 5", "local_batch_size = 2"], training__global_batch_size=5)
        self.expect_on([2], ["global_batch_size = 6", "2 data-parallel ranks", "local_batch_size = 2", "change"],
                       training__global_batch_size=6)

    def test_tokens_that_an_axis_cannot_split(self):
        self.expect_on([2], ["training.seq_len = 30", "4 equal chunks", "context_parallel_degree = 2", "a multiple of 4"],
                       training__seq_len=30, parallelism__context_parallel_degree=2)
        self.expect_on([4], ["1 x 5 = 5 tokens", "none for some of the 4 ranks", "tensor_parallel_degree", "seq_len larger"],
                       training__seq_len=5, training__local_batch_size=1, parallelism__tensor_parallel_degree=4)

    def test_preset_against_config_json(self):
        self.expect_on([1], ["different models", f"{LLAMA}/config.json", "512", "131", "remove one of the two"],
                       model__flavor="debugmodel", model__hf_assets_path=LLAMA)

    def test_unknown_preset(self):
        self.expect_on([1], ['"llama3"', '"7B"', "llama3: debugmodel", "8B"], model__flavor="7B")

    def test_missing_folder_of_a_model(self):
        self.expect_on([1], [str(self.folder / "none"), "config.json"], model__hf_assets_path=self.folder / "none")

    def test_missing_dataset(self):
        missing = self.folder / "none.h5"
        self.expect_on(MANY, [str(missing)], training__dataset_path=missing)
        self.expect(["neither training.dataset_path nor data.mixture is set", "prepare-data"], (1, []))

    def test_dataset_that_is_not_a_token_file(self):
        other = run.SOURCE / "data" / "tiny.jsonl"
        self.expect_on([1], [str(other)], training__dataset_path=other)

    def test_dataset_of_a_larger_vocabulary(self):
        (self.folder / "t.jsonl").write_text(json.dumps({"tokens": list(range(600))}) + "\n")
        self.tokenize(self.folder / "t.jsonl", self.folder / "t.h5")
        self.expect_on([1], ["t.h5", "600", "512", "choose a model"], training__dataset_path=self.folder / "t.h5")

    def test_dataset_shorter_than_a_sample(self):
        self.expect_on([1], [str(self.tokens), str(run.NUM_TOKENS), "50001", "shorten"], training__seq_len=50000)

    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "this machine may have the GPUs that the job requests")
    def test_requested_gpus_that_no_rank_sees(self):
        """Such a job does not train on CPUs in silence, but a user may want that."""
        environment = {"SLURM_GPUS_ON_NODE": "8"}
        done = self.run_ranks(1, *self.small(), environment=environment)
        self.assert_one_error(done, 2, "SLURM_GPUS_ON_NODE=8", "no rank sees one", "ARGOSY_DEVICE=cpu")
        done = self.run_ranks(1, *self.small(), environment=environment | {"ARGOSY_DEVICE": "cpu"})
        self.assert_code(done, 0)
        done = self.run_ranks(1, *self.small(), environment={"ARGOSY_DEVICE": "gpu"})
        self.assert_one_error(done, 2, "ARGOSY_DEVICE=gpu: set it to cpu")

    def test_a_word_too_many(self):
        self.expect(["unexpected 'train'"], (1, ["train"]))


class OneRanksMistake(run.PretrainTest):
    """An error of one rank, such as a file that one node lacks, must not leave the others waiting for that rank."""

    def expect(self, bad_rank):
        good, bad = self.small(), self.small(training__dataset_path=self.folder / "none.h5")
        first, second = (bad, good) if bad_rank == 0 else (good, bad)
        done = self.run_ranks(1, *first, ":", "-n", 1, run.PRETRAIN, *second)
        self.assert_one_error(done, 2, "the ranks differ", f"none.h5; make it with prepare-data tokenize on rank {bad_rank}")
        self.assertLess(done.seconds, 2 * SOON_SECONDS, done)

    def test_an_error_of_either_rank_ends_the_job(self):
        run.at_once([lambda: self.expect(0), lambda: self.expect(1)])


if __name__ == "__main__":
    run.main()
