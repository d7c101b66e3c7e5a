#!/usr/bin/env python3
"""A run of TorchTitan goes on with pretrain as torch itself does, and goes home: convert-checkpoint writes what TorchTitan loads."""
import json
import shutil
import unittest

from titan import (BIN, LLAMA, MOE, SOURCE, Case, DTensor, assets, convert, cut_all, dcp, on_ranks, random_tensors, read_safetensors, run,
                   save, stored, titan_state, titan_weights, torch)
from titan_model import BATCH, LENGTH, SAVED_STEP, STEPS, last_steps_at_home, train


class TorchTitanRun(Case):
    def test_there_and_back(self):
        (self.folder / "run.toml").write_text("[optimizer]\nlr = 0.01\n[lr_scheduler]\nwarmup_steps = 0\ndecay_ratio = 0.0\n")
        home = ("--to", "dcp", "--config", self.folder / "run.toml", "--verify", "--max-shard-size", "20kB")
        tied = LLAMA | {"tie_word_embeddings": True}
        for number, (config, age) in enumerate(((LLAMA, "current"), (LLAMA, "v0.2.2"), (MOE, "current"), (MOE, "v0.2.2"), (tied, "current"))):
            with self.subTest(model=config["model_type"], age=age, tied=config["tie_word_embeddings"]):
                there, here, back = (self.folder / f"{number}.{name}" for name in ("dcp", "h5", "back"))
                dtype = torch.bfloat16 if config is MOE else torch.float32
                weights = random_tensors(config, 1)
                states = {"exp_avg": random_tensors(config, 2, dtype), "exp_avg_sq": random_tensors(config, 3, dtype)}
                if config is tied:
                    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
                state = titan_state(weights, states, config, age, step=12, tokens=3400, num_updates=11, fused="qkv")
                if config is tied:
                    state["optimizer"] = {key: value for key, value in state["optimizer"].items() if "lm_head" not in key}
                bias = "expert_bias_E" if age == "current" else "expert_bias"
                if config is MOE:
                    state |= {f"layers.{layer}.moe.{bias}": torch.full((4,), 0.25 * layer) for layer in range(2)}
                save(state, there, num_ranks=2)
                convert(there, here, "--to", "full", "--assets", assets(self.folder / "assets", config))
                names = "v0.2" if age == "v0.2.2" else "current"
                said = convert(here, back, "--dcp-names", names, *home)
                self.assertIn("checkpoint.exclude_from_loading", said)
                self.assertGreater(len(list(back.glob("*.distcp"))), 2)
                expected, found = stored(there), stored(back)
                for key, value in expected.items():
                    if isinstance(value, torch.Tensor):
                        self.assertEqual((found[key].dtype, found[key].shape), (value.dtype, value.shape), key)
                        self.assertTrue(torch.equal(found[key], value), key)
                    elif not any(other in key for other in ("dataloader", "_last_lr", "ntokens_seen")):
                        self.assertEqual(found[key], value, key)
                tensors = {key for key, value in found.items() if isinstance(value, torch.Tensor)}
                self.assertEqual(tensors, {key for key, value in expected.items() if isinstance(value, torch.Tensor)})
                flat = {key: value for key, value in expected.items() if isinstance(value, torch.Tensor)}
                if number in (0, 3):
                    on_ranks(2, lambda mesh: self.load_shards(back, flat, mesh))
                convert(back, self.folder / "again.h5", "--to", "full", "--force", "--assets", self.folder / "assets")
                self.assert_full(self.folder / "again.h5",
                                 {name: tensor for name, tensor in weights.items() if config is not tied or "lm_head" not in name},
                                 {state: {name: tensor for name, tensor in named.items() if config is not tied or "lm_head" not in name}
                                  for state, named in states.items()}, config)

    def load_shards(self, folder, expected, mesh):
        """Torch loads the folder into shards of this rank."""
        shards = cut_all({key: torch.zeros_like(tensor) for key, tensor in expected.items()}, mesh)
        dcp.load(shards, checkpoint_id=str(folder))
        for key, tensor in shards.items():
            whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            self.assertTrue(torch.equal(whole, expected[key]), key)

    def test_what_cannot_go_home(self):
        given, weights = assets(self.folder / "assets", LLAMA), random_tensors(LLAMA, 1)
        save(titan_state(weights, {"exp_avg": weights, "exp_avg_sq": weights}, LLAMA, "current", 1, 1), self.folder / "dcp")
        start = ("--assets", given, "--to")
        convert(self.folder / "dcp", self.folder / "hf", *start, "hf")
        said = convert(self.folder / "dcp", self.folder / "no", *start, "dcp", code=2)
        self.assertIn("does not say the learning rate", said)
        for more in (("hf", "--dcp-names", "v0.2"), ("full", "--config", "run.toml"), ("dcp", "--model-only", "--config", "run.toml")):
            convert(self.folder / "dcp", self.folder / "no", *start, *more, code=2)
        convert(self.folder / "dcp", self.folder / "weights", *start, "dcp", "--model-only", "--dtype", "bf16", "--verify")
        self.assert_equal(stored(self.folder / "weights"),
                          {name: tensor.bfloat16() for name, tensor in titan_weights(weights, LLAMA, "current", fused=False).items()})
        said = convert(self.folder / "hf", self.folder / "weights", "--to", "dcp", "--dcp-names", "v0.2", "--force", "--verify")
        self.assertIn("checkpoint.initial_load_path", said)
        self.assert_equal(stored(self.folder / "weights"), titan_weights(weights, LLAMA, "v0.2.2", fused=False))
        (self.folder / "hf").rename(self.folder / "hf.back")
        shutil.copytree(self.folder / "hf.back", self.folder / "hf")
        assets(self.folder / "hf", LLAMA | {"model_type": "mistral", "architectures": ["MistralForCausalLM"]})
        self.assertIn("TorchTitan has no model like this one (mistral)",
                      convert(self.folder / "hf", self.folder / "no", "--to", "dcp", code=2))
        # names that TorchTitan takes for steps
        steps, home = self.folder / "checkpoint", ("--to", "dcp", "--model-only")
        steps.mkdir()
        for name, code in (("step-9", 2), ("new-step-1", 2), ("step-0", 0), ("again", 0)):
            said = convert(self.folder / "hf.back", steps / name, *home, code=code)
            self.assertEqual("would take" in said, code == 2, said)
        convert(self.folder / "hf.back", steps / "step-0", *home, "--force")
        (steps / "step-7").mkdir()
        said = convert(self.folder / "hf.back", steps / "step-0", *home, "--force", code=2)
        self.assertIn("lies beside the steps of a run, such as step-7", said)
        # an optimizer that the version, or the run, does not have
        (self.folder / "muon.toml").write_text('[optimizer]\nname = "Muon"\n')
        said = convert(self.folder / "dcp", self.folder / "no", *start, "dcp", "--config", self.folder / "muon.toml", code=2)
        self.assertIn("has the states of AdamW, but the configuration is of a run with Muon", said)
        tied = LLAMA | {"tie_word_embeddings": True}
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
        state = titan_state(weights, {"exp_avg": weights, "exp_avg_sq": weights}, tied, "current", 1, 1)
        state["optimizer"] = {key: value for key, value in state["optimizer"].items() if "lm_head" not in key}
        save(state, self.folder / "tied")
        (self.folder / "run.toml").write_text("[optimizer]\nlr = 0.01\n")
        words = (self.folder / "tied", self.folder / "tied.back", "--assets", assets(given, tied), "--to", "dcp", "--dcp-names", "v0.2")
        said = convert(*words, "--config", self.folder / "run.toml", code=2)
        self.assertIn("TorchTitan 0.2 has no Llama whose head is the embedding table", said)
        self.assertIn("trains the head of a Llama apart", convert(*words, "--model-only"))
        self.assertEqual(list(self.folder.glob("no*")), [])

    def assert_goes_home(self, source, expected_step, losses, weights, tokens, *more):
        for age, names in (("current", "current"), ("v0.2.2", "v0.2")):
            convert(source, self.folder / f"{age}.home", "--to", "dcp", "--dcp-names", names, "--verify", *more)
            step, found_losses, found = last_steps_at_home(self.folder / f"{age}.home", LLAMA, age, tokens)
            self.assertEqual(step, expected_step)
            for loss, expected in zip(found_losses, losses[step:], strict=True):
                self.assertLess(abs(loss / expected - 1), 1e-9)
            for name, tensor in found.items():
                self.assertLess((tensor - weights[name]).abs().max() / weights[name].abs().max(), 1e-9, name)

    def test_a_run_goes_home(self):
        tokens = torch.randint(0, 96, (STEPS * BATCH * LENGTH + 1,), generator=torch.Generator().manual_seed(9)).tolist()
        losses, weights, saved = train(LLAMA, tokens)
        save(titan_state(*saved, LLAMA, "current", SAVED_STEP, tokens=SAVED_STEP * BATCH * LENGTH), self.folder / "dcp")
        convert(self.folder / "dcp", self.folder / "ours", "--to", "sharded", "--assets", assets(self.folder / "assets", LLAMA))
        (self.folder / "run.toml").write_text(
            f"[training]\nsteps = {STEPS}\n[optimizer]\nlr = 0.01\ndecay_all_parameters = true\n[lr_scheduler]\nwarmup_steps = 2\n")
        self.assert_goes_home(self.folder / "ours", SAVED_STEP, losses, weights, tokens, "--config", self.folder / "run.toml")

    # A run that goes on

    def pretrain(self, num_ranks, dump, *more, code=0):
        words = {"training.dataset_path": self.folder / "tokens.h5", "job.dump_folder": self.folder / dump,
                 "model.hf_assets_path": self.folder / "assets", "training.seq_len": LENGTH, "training.shuffle": "false",
                 "training.local_batch_size": BATCH // num_ranks, "training.dtype": "float64", "training.steps": STEPS,
                 "training.mixed_precision_param": "float64", "training.mixed_precision_reduce": "float64",
                 "optimizer.lr": 0.01, "optimizer.beta1": 0.9, "optimizer.beta2": 0.95, "optimizer.eps": 1e-8,
                 "optimizer.weight_decay": 0.1, "optimizer.decay_all_parameters": "true", "lr_scheduler.warmup_steps": 2,
                 "lr_scheduler.total_steps": STEPS, "checkpoint.enable": "true", "checkpoint.interval": 100,
                 "checkpoint.initial_load_model_only": "false", "training.first_sample": SAVED_STEP * BATCH}
        flat = [part for key, value in words.items() for part in ("--" + key, value)]
        return run(SOURCE / "jobs" / "mpirun.sh", num_ranks, BIN / "pretrain", *flat, *more, code=code)

    def test_a_run_goes_on_as_torch_does(self):
        generator = torch.Generator().manual_seed(9)
        tokens = torch.randint(0, 96, (STEPS * BATCH * LENGTH + 1,), generator=generator).tolist()
        (self.folder / "tokens.jsonl").write_text(json.dumps({"tokens": tokens}) + "\n")
        run(BIN / "prepare-data", "tokenize", "--input", self.folder / "tokens.jsonl", "--output", self.folder / "tokens.h5")
        assets(self.folder / "assets", LLAMA)
        losses, weights, saved = train(LLAMA, tokens)
        for age, num_ranks, steps in (("current", 2, (STEPS,)), ("v0.2.2", 1, (STEPS - 1, STEPS))):
            state = titan_state(*saved, LLAMA, age, SAVED_STEP, tokens=SAVED_STEP * BATCH * LENGTH // 2)  # of one rank
            folder = self.folder / f"{age}.run" / "checkpoint" / f"step-{SAVED_STEP}"
            save(state, folder, num_ranks=2)
            start = folder.parent.parent
            if age == "v0.2.2":
                start = self.folder / "start"
                convert(folder, start, "--to", "sharded", "--shards", 2, "--assets", self.folder / "assets")
            load = ("--checkpoint.initial_load_path", start)
            said = ""
            for last in steps:  # the second one resumes, and its own place in the data counts
                said += self.pretrain(num_ranks, age, *load, "--training.steps", last)
            self.assertIn(f"the run goes on at step {SAVED_STEP + 1} with sample {SAVED_STEP * BATCH}", said)
            self.assertIn(f"with {SAVED_STEP * BATCH} samples of {SAVED_STEP * BATCH * LENGTH} tokens in all", said)
            found = [json.loads(line) for line in (self.folder / age / "metrics.jsonl").read_text().splitlines()]
            self.assertEqual([line["step"] for line in found], list(range(SAVED_STEP + 1, STEPS + 1)))
            for line in found:
                self.assertLess(abs(line["loss"] / losses[line["step"] - 1] - 1), 1e-9)
            convert(self.folder / age, self.folder / f"{age}.hf", "--to", "hf")
            for name, tensor in read_safetensors(self.folder / f"{age}.hf").items():
                self.assertLess((tensor - weights[name]).abs().max() / weights[name].abs().max(), 1e-9, name)
        # states that do not fit: rank 0 alone reads the numbers of updates, and all ranks leave the states out
        state["optimizer"]["state.norm.weight.step"] += 1
        save(state, self.folder / "frozen" / "step-3")
        load = ("--checkpoint.initial_load_path", self.folder / "frozen", "--checkpoint.initial_load_model_only")
        self.assertIn("that of another parameter", self.pretrain(2, "refused", *load, "false", code=2))
        said = self.pretrain(2, "frozen.run", *load, "true", "--training.steps", 1)
        self.assertEqual(said.count("states are left out"), 1, said)
        state["optimizer"]["state.norm.weight.step"] -= 1
        del state["optimizer"]["state.norm.weight.exp_avg"]
        save(state, self.folder / "part" / "step-3")
        load = ("--checkpoint.initial_load_path", self.folder / "part")
        said = self.pretrain(2, "refused", *load, code=2)
        self.assertIn("they do not fit the model: optimizer.state.norm.weight.exp_avg is missing", said)
        said = self.pretrain(2, "again", *load, "--checkpoint.exclude_from_loading", "optimizer", "--training.steps", SAVED_STEP + 1)
        self.assertEqual(said.count("the optimizer's states are left out"), 1, said)
        self.assertEqual(json.loads((self.folder / "again" / "metrics.jsonl").read_text().splitlines()[0])["step"], SAVED_STEP + 1)

        # and goes home, before its last step
        ours = self.folder / "v0.2.2" / "checkpoint" / f"step-{STEPS - 1:08}"
        self.assert_goes_home(ours, STEPS - 1, losses, weights, tokens)
        # weights alone, and a step that has them alone
        save(titan_weights(saved[0], LLAMA, "current", fused=False), self.folder / "weights" / "step-3")
        load = ("--checkpoint.initial_load_path", self.folder / "weights")
        said = self.pretrain(1, "refused", *load, code=2)
        self.assertIn("the weights alone", said)
        self.assertIn("TorchTitan sets by default", said)
        self.pretrain(1, "begun", *load, "--checkpoint.initial_load_model_only", "true", "--training.steps", 1)
        first = json.loads((self.folder / "begun" / "metrics.jsonl").read_text().splitlines()[0])
        self.assertLess(abs(first["loss"] / losses[SAVED_STEP] - 1), 1e-9)


if __name__ == "__main__":
    unittest.main(verbosity=2)
