"""The keys of [checkpoint]: which steps are saved, kept, found and loaded; and that damaged steps are skipped."""
import json
import os
import re
import shutil
import subprocess

import run
import saved
from saved import TOTAL


def stored_types(step_folder, prefix):
    return {tensor["type"] for tensor in saved.manifest(step_folder)["tensors"] if tensor["name"].startswith(prefix)}


class Saving(saved.SavedTest):
    def test_newest_steps_and_milestones_are_kept(self):
        self.train(1, checkpoint__interval=1, checkpoint__keep_latest_k=2, checkpoint__keep_every=5)
        self.assertEqual(self.whole_steps(), [5, 10, 11, 12])
        self.assert_nothing_partial()

    def test_every_step_is_kept_on_request_and_the_first_is_saved(self):
        self.train(1, checkpoint__interval=4, checkpoint__keep_latest_k=0, training__steps=10,
                   checkpoint__enable_first_step_checkpoint=True, checkpoint__folder="elsewhere/steps",
                   checkpoint__async_mode="disabled")
        names = sorted(path.name for path in (self.folder / "run/elsewhere/steps").iterdir())
        self.assertEqual(names, [f"step-{step:08}" for step in (1, 4, 8, 10)])

    def test_the_stall_is_reported_with_its_step(self):
        done = self.train(2, checkpoint__interval=5)
        self.assertRegex(done.stderr, r"checkpoints take up to 0\.00\d+ GiB of host memory on a rank, 0\.0\d+ GiB on all")
        stalls = [step["checkpoint_stall_ms"] for step in self.steps()]
        self.assertEqual(stalls, [step["time_ms"]["checkpoint"] for step in self.steps()])
        self.assertGreater(min(stalls[4], stalls[9]), 0.1)
        self.assertLess(min(stalls[0:4]), 0.1)  # others may have been slowed by a busy machine
        self.assertRegex(done.stderr, r"step 5 is saved in \S+ after \d+\.\d s; training waited \d+\.\d+ s")
        self.assertRegex(done.stderr, rf"step {TOTAL} is saved in \S+ after \d+\.\d s; training had ended, and the program waited \d+\.\d+ s")

    def test_without_enable_nothing_is_saved_or_loaded_and_load_only_saves_nothing(self):
        done = self.train(1, checkpoint__enable=False)
        self.assertFalse(self.folder_of().exists())
        self.assertIn("checkpoint.interval has no effect: checkpoint.enable is false", done.stderr)
        self.train(1, training__steps=4)
        metrics = (self.folder / "run/metrics.jsonl").read_text()
        done = self.run_ranks(1, *self.saving(checkpoint__enable=False))
        self.assert_one_error(done, 2, f"{self.folder_of()} has steps up to 4 of an earlier run", "checkpoint.enable = true",
                              "job.dump_folder")
        self.assertEqual((self.folder / "run/metrics.jsonl").read_text(), metrics)
        done = self.train(1, checkpoint__load_only=True)
        self.assertIn("4 steps are done", done.stderr)
        self.assertIn("checkpoint.load_only saves nothing", done.stderr)
        self.assertEqual(self.whole_steps(), [2, 4])
        self.numbers()

    def test_a_run_that_reaches_its_time_limit_is_saved(self):
        self.run_to_time_limit()
        self.run_to_time_limit()  # and the next process resumes there

    def run_to_time_limit(self):
        done = self.train(2, training__steps=100000, training__max_time="2s", checkpoint__interval=100000,
                          lr_scheduler__total_steps=100000)
        self.assertIn("s remain of training.max_time = 2s", done.stderr)
        self.assertEqual(self.whole_steps()[-1], len(self.numbers()))


class LastSave(saved.SavedTest):
    def test_weights_alone_in_another_type(self):
        self.train(1, checkpoint__last_save_model_only=True, checkpoint__export_dtype="bfloat16")
        last, before = self.step_folder(TOTAL), self.step_folder(TOTAL - 2)
        self.assertEqual((saved.manifest(last)["model_only"], saved.manifest(before)["model_only"]), (True, False))
        self.assertEqual((stored_types(last, "model/"), stored_types(last, "optimizer/")), ({"bf16"}, set()))
        self.assertEqual((stored_types(before, "model/"), stored_types(before, "optimizer/")), ({"f32"}, {"f32"}))

        done = self.train(1, checkpoint__last_save_model_only=True)
        self.assertIn(f"done after step {TOTAL}", done.stderr)
        longer = self.saving(training__steps=TOTAL + 2)
        self.assert_one_error(self.run_ranks(1, *longer), 2, f"step {TOTAL} was saved as the last one",
                              "checkpoint.load_step", "checkpoint.exclude_from_loading = optimizer")
        self.assert_code(self.run_ranks(1, *longer, "--checkpoint.exclude_from_loading", "optimizer"), 0)
        self.assertEqual(self.whole_steps()[-1], TOTAL + 2)

    def test_hugging_faces_folder_gives_the_same_weights(self):
        self.train(2, checkpoint__last_save_in_hf=True)
        folder = self.folder_of() / f"step-{TOTAL:08}-hf"
        self.assertIn("config.json", [path.name for path in folder.iterdir()])
        self.assertEqual(len(list(folder.glob("*.safetensors"))), 1)
        self.assertEqual(self.whole_steps()[-1], TOTAL)
        begun = []
        for dump, path, more in (("ours", self.step_folder(TOTAL), {}), ("run_folder", self.folder / "run", {}),
                                 ("theirs", folder, {"checkpoint__initial_load_in_hf": True})):
            done = self.train(1, dump, checkpoint__enable=False, training__steps=2,
                              checkpoint__initial_load_path=path, **more)
            self.assertRegex(done.stderr, r"began with the weights of .* [0-9.]+ s for [0-9.]+ [kMG]?B on this rank")
            self.assertNotIn("are not loaded", done.stderr)
            begun.append(self.numbers(dump, str))
        self.assertEqual(begun[0], begun[1])
        self.assertEqual(begun[0], begun[2])
        done = self.run_ranks(2, *self.small("fresh", training__steps=1, model__hf_assets_path=folder))
        self.assert_code(done, 0)
        self.assertEqual(done.stderr.count(f"the weights in {folder} (model.hf_assets_path) are not loaded"), 1, done)
        self.assertIn("checkpoint.initial_load_in_hf = true loads them", done.stderr)
        self.assertLess(float(begun[0][0][0]), self.steps("fresh")[0]["loss"] - 1, "these weights have learned something")

    def test_a_folder_that_is_not_an_export_is_never_replaced(self):
        """The error comes before any training; an empty folder is replaced, and an export of a finished run does not change."""
        folder = self.folder_of() / "step-00000004-hf"
        notes = folder / "notes.txt"
        hf = {"checkpoint__last_save_in_hf": True, "training__steps": 4}
        folder.mkdir(parents=True)
        notes.write_text("mine")
        done = self.run_ranks(1, *self.saving(**hf))
        self.assert_one_error(done, 2, str(folder), "checkpoint.last_save_in_hf", "'notes.txt'", "move it elsewhere")
        self.assertEqual(self.names(), [folder.name])
        self.assertEqual(notes.read_text(), "mine")
        notes.unlink()
        self.train(1, **hf)
        self.assertGreater((folder / "model.safetensors").stat().st_size, 100000)
        shutil.rmtree(folder)
        self.train(1, **hf, checkpoint__export_dtype="float16")  # a finished run makes it later too
        config = json.loads((folder / "config.json").read_text())
        self.assertEqual((config["torch_dtype"], config["max_position_embeddings"]), ("float16", 32))
        notes.write_text("mine")
        self.train(1, **hf)
        self.assertEqual(notes.read_text(), "mine")

    def test_a_folder_with_a_tokenizer_alone(self):
        """The run checks and saves the tokenizer, so that eval and a converted model need none."""
        assets, texts = self.folder / "assets", run.SOURCE / "data" / "tiny.jsonl"
        assets.mkdir()
        subprocess.run([run.PREPARE_DATA, "train-tokenizer", "--input", texts, "--vocab-size", "300", "--output",
                        assets / "tokenizer.json"], check=True, capture_output=True)
        tokens = self.folder / "bpe.h5"
        self.tokenize(texts, tokens, "--tokenizer", assets)
        settings = {"model__hf_assets_path": assets, "model__name": "llama3", "model__flavor": "debugmodel"}
        self.train(1, training__dataset_path=tokens, training__steps=2, **settings)
        names = sorted(asset["name"] for asset in saved.manifest(self.step_folder(2))["assets"])
        self.assertEqual(names, ["tokenizer.json", "tokenizer_config.json"])
        exported = self.folder / "hf"
        subprocess.run([run.PRETRAIN.parent / "convert-checkpoint", self.folder_of(), exported, "--to", "hf"], check=True,
                       capture_output=True)
        self.assertEqual((exported / "tokenizer.json").read_bytes(), (assets / "tokenizer.json").read_bytes())
        task, output, results = self.folder / "task.jsonl", self.folder / "results.json", []
        task.write_text('{"text": "the story of a catapult"}\n')
        for model in (self.folder_of(), exported):
            subprocess.run([run.PRETRAIN.parent / "eval", "--model", model, "--tasks", task, "--output", output],
                           check=True, capture_output=True)
            results.append(json.loads(output.read_text())["results"])
        self.assertEqual(results[0], results[1])
        other = run.words(settings | {"validation__enable": True, "validation__dataset_path": self.tokens})
        done = self.run_ranks(1, *self.small("other", training__dataset_path=tokens), *other)
        self.assert_one_error(done, 2, "tiny.h5 was made with another tokenizer (bytes)", "tokenizer.json")

    def test_the_tokenizers_files_are_exported(self):
        assets = self.folder / "assets"
        assets.mkdir()
        config = json.loads((run.SOURCE / "tests/reference/llama/config.json").read_text())
        (assets / "config.json").write_text(json.dumps(config | {"use_qk_norm": False}))
        (assets / "tokenizer.json").write_text('{"a": "tokenizer"}')
        (assets / "notes.txt").write_text("none of it")
        self.train(1, training__dataset_path=self.tokens_below_128(), model__hf_assets_path=assets,
                   model__accept_config_keys="use_qk_norm", training__steps=2, checkpoint__last_save_in_hf=True)
        self.assertEqual([asset["name"] for asset in saved.manifest(self.step_folder(2))["assets"]], ["tokenizer.json"])
        exported = self.folder_of() / "step-00000002-hf"
        self.assertEqual((exported / "tokenizer.json").read_text(), '{"a": "tokenizer"}')
        self.assertEqual(json.loads((exported / "config.json").read_text())["max_position_embeddings"], 384)


class Loading(saved.SavedTest):
    """Each test has a copy of a run with the steps 2, 4 and 6, and of the whole run, which saved nothing."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.of_class().train(2, training__steps=6)
        cls.of_class().train(2, "whole", checkpoint__enable=False)

    def setUp(self):
        super().setUp()
        for dump in ("run", "whole"):
            shutil.copytree(self.shared / dump, self.folder / dump)

    def test_damaged_steps_are_skipped_with_a_warning(self):
        for name, break_it in {
                "flipped": lambda dump: self.flip(6, "shard-00001-of-00002.h5", dump),
                "missing": lambda dump: (self.step_folder(6, dump) / "shard-00000-of-00002.h5").unlink(),
                "cut": lambda dump: self.cut(6, "shard-00001-of-00002.h5", dump),
                "manifest": lambda dump: self.flip(6, "checkpoint.h5", dump, at=100),
                "foreign": lambda dump: shutil.copy(self.step_folder(4, dump) / "shard-00000-of-00002.h5",
                                                    self.step_folder(6, dump))}.items():
            with self.subTest(name):
                shutil.copytree(self.folder / "run", self.folder / name)
                break_it(name)
                done = self.train(2, name)
                self.assertRegex(done.stderr, r"E \[0\] \S*/step-00000006 is not intact")
                self.assertIn("4 steps are done", done.stderr)
                self.assertEqual(self.numbers(name), self.numbers("whole"))

    def cut(self, step, file, dump):
        path = self.step_folder(step, dump) / file
        path.write_bytes(path.read_bytes()[:-1000])

    def test_a_run_without_an_intact_step_does_not_start_afresh(self):
        for step in (2, 4, 6):
            self.flip(step, "shard-00000-of-00002.h5")
        done = self.run_ranks(1, *self.saving())
        self.assert_one_error(done, 2, "none of the 3 steps in", "is intact", "shard-00000-of-00002.h5",
                              "to start afresh, remove them", "convert-checkpoint --model-only")
        self.assertEqual(self.whole_steps(), [2, 4, 6])
        # Moments are damaged. The message names the way to keep the weights.
        subprocess.run([run.PRETRAIN.parent / "convert-checkpoint", self.step_folder(6), self.folder / "weights.h5", "--to", "full",
                        "--model-only"], check=True, capture_output=True)
        done = self.train(1, "saved", checkpoint__initial_load_path=self.folder / "weights.h5", training__steps=2)
        self.assertIn("began with the weights of", done.stderr)

    def test_without_verifying_a_damaged_manifest_is_still_skipped(self):
        self.flip(6, "checkpoint.h5", at=100)
        done = self.train(1, checkpoint__verify_on_load=False)
        self.assertIn("step-00000006 is not intact", done.stderr)
        self.assertIn("4 steps are done", done.stderr)

    def test_without_verifying_missing_and_cut_files_are_skipped_too(self):
        """Missing and foreign files are found on any mesh; damaged bytes if a rank reads a whole slab, as on the mesh that
        saved it."""
        for name, ranks, break_it in (
                ("missing", 1, lambda dump: (self.step_folder(6, dump) / "shard-00000-of-00002.h5").unlink()),
                ("cut", 1, lambda dump: self.cut(6, "shard-00001-of-00002.h5", dump)),
                ("flipped", 2, lambda dump: self.flip(6, "shard-00001-of-00002.h5", dump))):
            with self.subTest(name):
                shutil.copytree(self.folder / "run", self.folder / name)
                break_it(name)
                done = self.train(ranks, name, checkpoint__verify_on_load=False)
                self.assertRegex(done.stderr, r"step-00000006 is not intact")
                self.assertIn("4 steps are done", done.stderr)
                if ranks == 2:
                    self.assertEqual(self.numbers(name), self.numbers("whole"))

    def test_a_run_starts_from_the_newest_intact_step_of_another(self):
        elsewhere = {"checkpoint__initial_load_path": self.folder / "run", "training__steps": 8}
        self.flip(6, "shard-00001-of-00002.h5")
        for path in (self.folder / "run", self.folder_of()):
            done = self.train(1, f"by_{path.name}", **{**elsewhere, "checkpoint__initial_load_path": path},
                              checkpoint__initial_load_model_only=False)
            self.assertRegex(done.stderr, r"E \S*/step-00000006 is not intact")
            self.assertIn("4 steps are done", done.stderr)
        done = self.run_ranks(1, *self.saving("named", checkpoint__initial_load_path=self.step_folder(6)))
        self.assert_one_error(done, 3, "shard-00001-of-00002.h5")
        for step in (2, 4):
            self.flip(step, "shard-00000-of-00002.h5")
        done = self.run_ranks(1, *self.saving("none", **elsewhere))
        self.assert_one_error(done, 2, "none of the 3 steps in", "is intact", "checkpoint.initial_load_path")

    def test_load_step_selects_the_step(self):
        done = self.train(1, checkpoint__load_step=2, training__steps=5)
        self.assertIn("2 steps are done", done.stderr)
        self.assertEqual(self.names(), ["step-00000002", "step-00000004", "step-00000005", "step-00000006.aside"])
        self.assertIn("step 6 is set aside as", done.stderr)
        self.assertEqual(len(self.numbers()), 5)
        self.train(1, training__steps=6)  # as far again: steps set aside are removed
        self.assertEqual(self.names(), ["step-00000002", "step-00000004", "step-00000005", "step-00000006"])
        self.assert_one_error(self.run_ranks(1, *self.saving(checkpoint__load_step=3)), 2,
                              "checkpoint.load_step = 3 is not in", "the steps there are 6, 5, 4, 2")
        self.flip(4, "shard-00000-of-00001.h5")
        self.assert_one_error(self.run_ranks(1, *self.saving(checkpoint__load_step=4)), 2, "step 4 in", "is not intact",
                              "choose another")

    def test_another_model_is_refused(self):
        other = self.saving(model__flavor="256x6x16")
        self.assert_one_error(self.run_ranks(1, *other), 2, "step-00000006 is of another model", "dim: 128 against 256")

    def test_another_type_is_converted_with_a_notice(self):
        done = self.train(1, training__dtype="bfloat16", training__mixed_precision_param="bfloat16",
                          optimizer__state_dtype="bfloat16")
        self.assertEqual(len(re.findall("model: f32 becomes bf16, optimizer: f32 becomes bf16", done.stderr)), 1, done)
        done = self.train(1, training__steps=TOTAL + 2)
        self.assertIn("model: bf16 becomes f32", done.stderr)

    def test_parts_excluded_from_loading_start_anew(self):
        for part, position in (("optimizer", (8, 32, 1024, 2)), ("dataloader", (8, 8, 1024, 8)),
                               ("train_state", (2, 32, 256, 8))):
            with self.subTest(part):
                shutil.copytree(self.folder / "run", self.folder / part)
                self.train(1, part, training__steps=position[0], training__global_batch_size=4,
                           checkpoint__exclude_from_loading=part)
                state = self.state(position[0], part)
                self.assertEqual((state["step"], state["samples"], state["tokens"], state["updates"]), position)

    def test_another_run_continues_from_the_whole_state(self):
        """The run loads the whole state and saves to another folder; it then resumes from its own steps."""
        elsewhere = {"checkpoint__initial_load_path": self.folder / "run", "checkpoint__initial_load_model_only": False}
        self.train(2, "other", training__steps=8, **elsewhere)
        self.assertEqual(self.whole_steps("other"), [8])
        done = self.train(2, "other", **elsewhere)
        self.assertIn("is not loaded: the run has steps of its own", done.stderr)
        self.assertEqual([step["loss"] for step in self.steps("other")],
                         [step["loss"] for step in self.steps("whole")[6:]])

    def test_hugging_faces_models_of_features_that_are_not_supported(self):
        folder = self.folder / "theirs"
        shutil.copytree(run.SOURCE / "tests/reference/llama", folder)
        config = json.loads((folder / "config.json").read_text())
        scaling = {"rope_type": "dynamic", "factor": 4.0}  # all others: tests/model, convert-checkpoint, eval
        (folder / "config.json").write_text(json.dumps(config | {"rope_scaling": scaling}))
        done = self.run_ranks(1, *self.small("new", checkpoint__initial_load_path=folder, checkpoint__initial_load_in_hf=True))
        self.assert_one_error(done, 2, str(folder / "config.json"), "rope_scaling", "supported")
        (folder / "config.json").write_text(json.dumps(config | {"use_qk_norm": False}))
        for accepted, parts in (("[]", ["use_qk_norm", "model.accept_config_keys"]),
                                ("use_qk_norm", ["another model than the one that is trained"])):
            done = self.run_ranks(1, *self.small("new", checkpoint__initial_load_path=folder,
                                                 model__accept_config_keys=accepted))
            self.assert_one_error(done, 2, *parts)

    def test_truncated_weights_to_start_from(self):
        folder = self.folder / "theirs"
        shutil.copytree(run.SOURCE / "tests/reference/llama", folder)
        weights = folder / "model.safetensors"
        for size in (weights.stat().st_size - 1, 0):
            os.truncate(weights, size)
            done = self.run_ranks(1, *self.small("new", checkpoint__initial_load_path=folder))
            self.assert_one_error(done, 3, f"{weights} is truncated")

    def test_paths_without_a_model_are_refused(self):
        for path, parts, more in (
                (self.folder / "none", ["none"], {}),
                (self.folder, [str(self.folder)], {}),
                (self.step_folder(6), ["initial_load_in_hf is set", "is not a Hugging Face folder"],
                 {"checkpoint__initial_load_in_hf": True})):
            done = self.run_ranks(1, *self.small("new", checkpoint__initial_load_path=path, **more))
            self.assert_one_error(done, 2, *parts)


if __name__ == "__main__":
    run.main()
