"""Ranks that are started with different settings, programs or files end at once, with code 2 and one message that names
what differs, the values and the ranks. Paths to equal contents may differ."""
import json
import os
import shutil
import subprocess
import unittest

import run

SOON_SECONDS = 20
REFERENCE = run.SOURCE / "tests" / "reference" / "llama"


class Agreement(run.PretrainTest):
    def parts(self, first, second, num_ranks=2, environment=None):
        """Rank 0 to the last but one with the words `first`, the last one with the words `second`; each begins with the program."""
        names = [word for name, value in (environment or {}).items() for word in ("-x", f"{name}={value}")]
        return self.run_ranks(num_ranks - 1, *first[1:], ":", "-n", "1", *names, *second, program=(first[0],),
                              environment={"OMPI_MCA_odls_base_sigkill_timeout": "0"})

    def words(self, *more, program=run.PRETRAIN, **settings):
        return [program, *self.small(**settings), *more]

    def expect_refusal(self, cases):
        """Each case: what the message must hold, and the words of the two parts."""
        calls = [lambda case=case: self.parts(*case[1:]) for case in cases]
        for (parts, *_), done in zip(cases, run.at_once(calls)):
            with self.subTest(parts=parts):
                self.assert_one_error(done, 2, *parts)
                self.assertLess(done.seconds, SOON_SECONDS, done)
        self.assertFalse((self.folder / "run").exists(), "a refused run leaves nothing behind")

    def test_a_setting_that_differs_is_named(self):
        usual = self.words()
        self.expect_refusal([
            (["optimizer.lr: 0.01 on rank 0; 0.0001 on rank 1"], usual, self.words(optimizer__lr=1e-4)),
            (["debug.seed: 0 on rank 0, 1; 7 on rank 2"], usual, self.words(debug__seed=7), 3),
            (["training.seq_len: 32 on rank 0; 64 on rank 1", "training.steps: 4 on rank 0; 5 on rank 1"], usual,
             self.words(training__seq_len=64, training__steps=5)),
            (["parallelism.tensor_parallel_degree: 1 on rank 0; 2 on rank 1"], usual,
             self.words(parallelism__tensor_parallel_degree=2)),
            (["job.dump_folder: ", "other\" on rank 1"], self.words(checkpoint__enable=True),
             self.words(checkpoint__enable=True, job__dump_folder=self.folder / "other"))])

    def test_a_command_line_that_one_rank_refuses_or_that_asks_for_something_else(self):
        usual = self.words()
        self.expect_refusal([
            (["the command line: ", "asks for training on rank 0", "--training.stepz", "on rank 1"], usual, self.words("--training.stepz", "8")),
            (["asks for training on rank 0; asks for --plan on rank 1"], usual, self.words("--plan")),
            (["asks for training on rank 0, 1; asks for --help on rank 2"], usual, self.words("--help"), 3),
            (["asks for --print-config on rank 0; asks for training on rank 1"], self.words("--print-config"), usual)])

    def test_another_program(self):
        other = run.another_build(self, run.PRETRAIN)
        self.expect_refusal([(["executable: ", f"({run.PRETRAIN}", f"({other}", "on rank 1"], self.words(), self.words(program=other))])

    def model(self, name, **changes):
        """A folder with a model's configuration and a tokenizer."""
        folder = self.folder / name
        folder.mkdir()
        text = json.loads((REFERENCE / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(text | changes))
        return folder

    def test_other_contents_of_files(self):
        (self.folder / "less.jsonl").write_text("".join((run.SOURCE / "data" / "tiny.jsonl").read_text().splitlines(True)[:-3]))
        lines = (run.SOURCE / "data" / "tiny.jsonl").read_text().splitlines(True)
        (self.folder / "turned.jsonl").write_text("".join(reversed(lines)))
        for name in ("less", "turned"):  # the second has the same number of tokens
            self.tokenize(self.folder / f"{name}.jsonl", self.folder / f"{name}.h5")
        tokens, usual = self.tokens_below_128(), self.words()
        model, other = self.model("model"), self.model("other", rms_norm_eps=1e-3)
        with_tokenizer = self.model("with_tokenizer")
        (with_tokenizer / "tokenizer.json").write_text("{}")
        of = lambda folder: self.words(model__hf_assets_path=folder, training__dataset_path=tokens)
        self.expect_refusal([
            (["the training data: ", "less.h5) on rank 1"], usual, self.words(training__dataset_path=self.folder / "less.h5")),
            (["the training data: ", "turned.h5) on rank 2"], usual, self.words(training__dataset_path=self.folder / "turned.h5"), 3),
            (["the training data: ", "there is no file", "none.h5", "on rank 1", "Remedy: copy the file to all nodes"], usual,
             self.words(training__dataset_path=self.folder / "none.h5")),
            # The rank that refuses its file is rank 0, and all ranks but one refuse theirs.
            (["the training data: ", "none.h5; make it with prepare-data tokenize on rank 0", "Remedy: copy the file to all nodes"],
             self.words(training__dataset_path=self.folder / "none.h5"), usual),
            (["the training data: ", "none.h5; make it with prepare-data tokenize on rank 0, 1; ", "tiny.h5) on rank 2"],
             self.words(training__dataset_path=self.folder / "none.h5"), usual, 3),
            (["the validation data: ", "none.h5", "on rank 1", "Remedy: copy the file to all nodes"],
             self.words(validation__enable=True, validation__dataset_path=self.tokens),
             self.words(validation__enable=True, validation__dataset_path=self.folder / "none.h5")),
            (["the model's config.json: ", "other/config.json) on rank 1"], of(model), of(other)),
            (["the tokenizer in model.hf_assets_path: none", "with_tokenizer/tokenizer.json) on rank 1"], of(model), of(with_tokenizer)),
            (["the validation data: ", "less.h5) on rank 1"],
             self.words(validation__enable=True, validation__dataset_path=self.tokens),
             self.words(validation__enable=True, validation__dataset_path=self.folder / "less.h5"))])

    def test_an_error_of_rank_0_which_alone_looks_for_the_token_files_is_that_of_all_ranks(self):
        torn = self.folder / "torn.h5"
        torn.write_bytes(self.tokens.read_bytes()[:-1])
        (self.folder / "folder").mkdir()
        cases = (("none.h5", 2, "there is no file"), ("torn.h5", 3, "torn.h5 is truncated"), ("folder", 2, "holds no token file"))
        calls = [lambda name=name: self.run_ranks(3, *self.small(training__dataset_path=self.folder / name)) for name, *_ in cases]
        for (name, code, part), done in zip(cases, run.at_once(calls)):
            with self.subTest(name):
                self.assert_one_error(done, code, part)
                self.assertLess(done.seconds, SOON_SECONDS, done)

    def test_other_weights_under_the_same_path(self):
        """As on disks of nodes: a path that is relative names another run's checkpoint on each rank."""
        nodes = [self.folder / f"node{i}" for i in range(2)]
        for seed, node in enumerate(nodes):
            done = self.run_ranks(1, *self.small(training__steps=1, debug__seed=seed, checkpoint__enable=True,
                                                 job__dump_folder=node / "init"))
            self.assert_code(done, 0)
        new, resumed = (self.words(training__steps=2, checkpoint__enable=True, **more) for more in (
            {"checkpoint__initial_load_path": "init"}, {"job__dump_folder": "init"}))
        for words in new, resumed:
            with self.subTest(words=words):
                done = self.run_ranks(1, "-wdir", nodes[0], *words, ":", "-n", 1, "-x", "SLURMD_NODENAME=other",
                                      "-wdir", nodes[1], *words, program=())
                self.assert_one_error(done, 2, "rank 1 reads another checkpoint from init", "than rank 0", "copy the same files to all nodes")
        self.assertFalse((self.folder / "run" / "metrics.jsonl").exists())
        same = self.run_ranks(1, "-wdir", nodes[0], *new, ":", "-n", 1, "-wdir", nodes[0], *new, program=())
        self.assert_code(same, 0)
        for step, node in enumerate(nodes, start=1):  # another program saves on: each rank would find another newest step
            (node / "outputs").mkdir()
            subprocess.run([run.PRETRAIN.parent / "convert-checkpoint", node / "init", node / "outputs" / f"step-{step}", "--to", "hf"],
                           check=True, capture_output=True)
        words = self.words(training__steps=1, checkpoint__initial_load_path="outputs", job__dump_folder=self.folder / "third")
        done = self.run_ranks(1, "-wdir", nodes[0], *words, ":", "-n", 1, "-wdir", nodes[1], *words, program=())
        self.assert_one_error(done, 2, 'outputs/step-1" does not exist')

    def test_paths_to_equal_contents_and_kernels_of_another_processor_may_differ(self):
        copy = self.folder / "copy.h5"
        shutil.copy(self.tokens, copy)
        one = self.words()
        two = self.words(training__dataset_path=copy, job__dump_folder=self.folder / "of rank 1")
        done = self.parts(one, two, environment={"ARGOSY_CPU_KERNELS": "portable", "OMP_NUM_THREADS": "2"})
        self.assert_code(done, 0)
        said = [line for line in done.stderr.splitlines() if "processors of ranks differ" in line]
        self.assertEqual(len(said), 1, done)
        self.assertRegex(said[0], r"kernels: \w+ on rank 0; portable on rank 1")
        self.assertEqual(len(self.steps()), 4)

    def test_eval_and_the_preflight(self):
        environment = {"OMPI_MCA_odls_base_sigkill_timeout": "0"}
        evaluate = run.PRETRAIN.parent / "eval"
        done = self.run_ranks(1, "--model", "a", ":", "-n", "1", evaluate, "--model", "b", program=(evaluate,), environment=environment)
        self.assertEqual(done.code, 2, done)
        self.assertIn("the command line: --model a on rank 0; --model b on rank 1", done.stderr)
        (self.folder / "c.toml").write_text("")
        check, report = run.PRETRAIN.parent / "preflight", self.folder / "report.json"
        words = ["--config", self.folder / "c.toml", *self.small(), "--json", report, "--deadline", "0"]
        done = self.run_ranks(2, *words, ":", "-n", "1", check, *words, "--optimizer.lr", "1e-4", program=(check,), environment=environment)
        self.assertEqual(done.code, 3, done)
        found = [one for one in json.loads(report.read_text())["findings"] if one["check"] == "settings and inputs of the run"]
        self.assertEqual(len(found), 1, done)
        self.assertIn("optimizer.lr differs between ranks: 0.01 on 2 ranks; 0.0001 on rank 2", found[0]["what"])
        self.assertIn("rank 2", found[0]["where"])


if __name__ == "__main__":
    run.main()
