#!/usr/bin/env python3
"""convert-checkpoint reads the checkpoints that TorchTitan writes, and those of Meta and of torch.save."""
import json
import shutil
import unittest

from titan import (AGES, LLAMA, MOE, Case, assets, convert, cut_all, dcp, h5py, on_ranks, our_name, random_tensors, read_safetensors, save,
                   stored, titan_state, titan_weights, torch)
from titan_model import loaded_at_home


class TorchTitan(Case):
    def test_names_of_four_ages_on_three_numbers_of_ranks(self):
        weights = random_tensors(LLAMA, 1)
        states = {"exp_avg": random_tensors(LLAMA, 2), "exp_avg_sq": random_tensors(LLAMA, 3)}
        given = assets(self.folder / "assets", LLAMA)
        state = {age: titan_state(weights, states, LLAMA, age, step=12, tokens=3400) for age in AGES}
        for num_ranks in (1, 2, 4):
            on_ranks(num_ranks, lambda mesh: [dcp.save(cut_all(state[age], mesh), checkpoint_id=str(self.folder / f"{age}.{num_ranks}"))
                                              for age in AGES])
            for age in AGES:
                with self.subTest(age=age, num_ranks=num_ranks):
                    source, out = self.folder / f"{age}.{num_ranks}", self.folder / f"{age}.{num_ranks}.hf"
                    convert(source, out, "--to", "hf", "--verify", "--assets", given)
                    self.assert_equal(read_safetensors(out), weights)
        for age in AGES:
            with self.subTest(age=age):
                convert(self.folder / f"{age}.4", self.folder / f"{age}.h5", "--to", "full", "--verify", "--assets", given)
                self.assert_full(self.folder / f"{age}.h5", weights, states, LLAMA)

    def test_experts(self):
        weights = random_tensors(MOE, 1)
        states = {"exp_avg": random_tensors(MOE, 2, torch.bfloat16), "exp_avg_sq": random_tensors(MOE, 3, torch.bfloat16)}
        given = assets(self.folder / "assets", MOE)
        for age, bias in (("v0.2.2", "expert_bias"), ("current", "expert_bias_E")):
            state = titan_state(weights, states, MOE, age, step=3, tokens=7)
            state |= {f"layers.{layer}.moe.{bias}": torch.full((4,), 0.25 * layer) for layer in range(2)}
            save(state, self.folder / age, num_ranks=2 if age == "current" else 1)
            convert(self.folder / age, self.folder / f"{age}.h5", "--to", "full", "--assets", given)
            self.assert_full(self.folder / f"{age}.h5", weights, states, MOE)
            with h5py.File(self.folder / f"{age}.h5") as file:
                self.assertEqual(file["model/layers.1.moe.router.bias"][:].tolist(), [0.25] * 4)
        said = convert(self.folder / "current", self.folder / "no", "--to", "hf", "--assets", given, code=2)
        self.assertIn("load_balance_coeff of TorchTitan", said)

    def test_momenta_of_muon(self):
        weights, momenta = random_tensors(LLAMA, 1), random_tensors(LLAMA, 2)
        is_matrix = {name: "proj" in name for name in weights}
        state = titan_state(weights, {"momentum_buffer": momenta}, LLAMA, "current", step=4, tokens=1, fused="qkv")
        others = {name for name in titan_weights(weights, LLAMA, "current", fused=True)
                  if "norm" in name or "embeddings" in name or "lm_head" in name}
        for name in others:
            moment = state["optimizer"].pop(f"state.{name}.momentum_buffer")
            state["optimizer"] |= {f"state.{name}.exp_avg": moment, f"state.{name}.exp_avg_sq": moment * moment,
                                   f"state.{name}.step": torch.tensor(4.0)}
        save(state, self.folder / "muon")
        convert(self.folder / "muon", self.folder / "muon.h5", "--to", "full", "--assets", assets(self.folder / "assets", LLAMA))
        with h5py.File(self.folder / "muon.h5") as file:
            for name, tensor in momenta.items():
                found = file[f"optimizer/{'momentum' if is_matrix[name] else 'first'}/{our_name(name)}"][:]
                self.assertTrue(torch.equal(torch.from_numpy(found), tensor), name)
        # and back, where torch's Muon and AdamW load them
        (self.folder / "run.toml").write_text('[optimizer]\nname = "Muon"\nlr = 0.25\nmuon_momentum = 0.875\nweight_decay = 0.5\n'
                                              "[lr_scheduler]\nwarmup_steps = 0\ndecay_ratio = 0.0\n")
        convert(self.folder / "muon.h5", self.folder / "back", "--to", "dcp", "--config", self.folder / "run.toml", "--verify")
        tensors = [{key: value for key, value in stored(self.folder / name).items() if isinstance(value, torch.Tensor)}
                   for name in ("muon", "back")]
        self.assert_equal(tensors[1], tensors[0])
        module, optimizers = loaded_at_home(self.folder / "back", LLAMA)
        expected = titan_weights(momenta, LLAMA, "current", fused="qkv")
        for number, optimizer in enumerate(optimizers):
            for group in optimizer.param_groups:
                self.assertEqual((group["lr"], group["weight_decay"]), (0.25, 0.5 if number == 0 else group["weight_decay"]))
                self.assertEqual(group.get("momentum", 0.875), 0.875)
            for name, parameter in module.named_parameters():
                state = optimizer.state.get(parameter)
                if state is not None:
                    self.assertTrue(torch.equal(state["exp_avg" if number else "momentum_buffer"], expected.pop(name)), name)
        self.assertEqual(expected, {})

    def test_a_tied_model(self):
        config = LLAMA | {"tie_word_embeddings": True}
        weights = random_tensors(config, 1)
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
        state = titan_state(weights, {"exp_avg": weights, "exp_avg_sq": weights}, config, "current", step=1, tokens=1)
        state["optimizer"] = {key: value for key, value in state["optimizer"].items() if "lm_head" not in key}
        save(state, self.folder / "dcp")
        given = assets(self.folder / "assets", config)
        convert(self.folder / "dcp", self.folder / "hf", "--to", "hf", "--verify", "--assets", given)
        del weights["lm_head.weight"]
        self.assert_equal(read_safetensors(self.folder / "hf"), weights)
        state["lm_head.weight"] = state["lm_head.weight"] + 1
        save(state, self.folder / "other")
        said = convert(self.folder / "other", self.folder / "no", "--to", "hf", "--assets", given, code=2)
        self.assertIn("lm_head.weight differs from tok_embeddings.weight", said)

    def test_a_llama_is_not_known_by_its_shapes(self):
        config = LLAMA | {"vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
                          "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 352}  # the preset debugmodel
        save(titan_weights(random_tensors(config, 1, torch.bfloat16), config, "current", fused=False), self.folder / "dcp")
        said = convert(self.folder / "dcp", self.folder / "no", "--to", "hf", code=2)
        self.assertIn("those of llama3 debugmodel, do not show how its rotary frequencies are scaled", said)
        said = convert(self.folder / "dcp", self.folder / "hf", "--to", "hf", "--assets", assets(self.folder / "assets", config))
        self.assertIn("with the rotary base 500000 and frequencies that are not scaled", said)

    def test_what_a_folder_is(self):
        run_folder, given = self.folder / "run", assets(self.folder / "assets", LLAMA)
        weights = random_tensors(LLAMA, 1)
        save(titan_weights(weights, LLAMA, "current", fused=False), run_folder / "checkpoint" / "step-9")
        said = convert(run_folder, self.folder / "no", "--to", "hf", code=2)
        self.assertIn("does not say its model, and no preset has its tensors", said)
        unfinished = run_folder / "checkpoint" / "step-100"
        shutil.copytree(run_folder / "checkpoint" / "step-9", unfinished)
        (unfinished / ".metadata").unlink()
        said = convert(run_folder, self.folder / "hf", "--to", "hf", "--assets", given)
        self.assertIn("step-100 is passed over: it has neither .metadata", said)
        self.assert_equal(read_safetensors(self.folder / "hf"), weights)
        self.assertIn("its save did not end", convert(unfinished, self.folder / "no", "--to", "hf", "--assets", given, code=2))
        replica = run_folder / "checkpoint" / "ft-replicat-0"
        save({"dataloader": {"dp_rank_0": b"", "world_size": 1}}, replica / "step-9")
        self.assertIn("one replica", convert(replica, self.folder / "no", "--to", "hf", "--assets", given, code=2))
        # last_save_in_hf: safetensors without config.json, and its pieces beside them
        last = run_folder / "checkpoint" / "step-200"
        (last / "sharded").mkdir(parents=True)
        self.assertIn("last_save_in_hf", convert(last, self.folder / "no", "--to", "hf", "--assets", given, code=2))
        shutil.copy(self.folder / "hf" / "model.safetensors", last)
        self.assertIn("last_save_in_hf", convert(last, self.folder / "no", "--to", "hf", code=2))
        convert(run_folder, self.folder / "again", "--to", "hf", "--assets", given)
        self.assert_equal(read_safetensors(self.folder / "again"), weights)

    def test_faults_are_listed_once(self):
        weights, given = random_tensors(LLAMA, 1), assets(self.folder / "assets", LLAMA)
        state = titan_state(weights, {"exp_avg": weights, "exp_avg_sq": weights}, LLAMA, "current", step=1, tokens=1)
        bad = {key: value for key, value in state.items() if key != "layers.1.attention.wo.weight"} | {"more": torch.zeros(2)}
        save(bad, self.folder / "bad")
        said = convert(self.folder / "bad", self.folder / "no", "--to", "hf", "--assets", given, code=2)
        self.assertIn("layers.1.attention.wo.weight is missing", said)
        self.assertIn('"more" is not a tensor of the model', said)
        del state["optimizer"]["state.norm.weight.exp_avg"]
        save(state, self.folder / "part")
        said = convert(self.folder / "part", self.folder / "part.h5", "--to", "full", "--assets", given)
        self.assertEqual(said.count("optimizer.state.norm.weight.exp_avg is missing"), 1)
        del state["train_state"]
        save(state, self.folder / "no_step")
        said = convert(self.folder / "no_step", self.folder / "no_step.h5", "--to", "full", "--assets", given)
        self.assertIn("left out, because there is no step of the run", said)
        latent = {"layers.0.attention.wkv_a.weight": torch.zeros(2, 2)}
        save(latent, self.folder / "latent")
        self.assertIn("DeepSeek-V3", convert(self.folder / "latent", self.folder / "no", "--to", "hf", "--assets", given, code=2))

    def test_files_of_meta_and_of_torch_save(self):
        config = LLAMA | {"rope_theta": 10000.0, "max_position_embeddings": 4096}
        weights = random_tensors(config, 1)
        whole = titan_weights(weights, config, "v0.2.2", fused=False) | {"rope.freqs": torch.zeros(2)}
        parameters = {"dim": 32, "n_layers": 2, "n_heads": 8, "n_kv_heads": 4, "norm_eps": 1e-5, "multiple_of": 8, "vocab_size": -1}
        for num_parts, by_columns in ((1, True), (2, True), (2, False), (8, True)):
            folder = self.folder / f"meta.{num_parts}.{by_columns}"
            folder.mkdir()
            (folder / "params.json").write_text(json.dumps(parameters))
            for part in range(num_parts):
                pieces = {}
                for name, tensor in whole.items():
                    columns = ".wo." in name or ".w2." in name or (name == "tok_embeddings.weight" and by_columns)
                    count, number = num_parts, part
                    if ".wk." in name or ".wv." in name:  # neighbours have the same head
                        count, number = min(num_parts, 4), part * min(num_parts, 4) // num_parts
                    pieces[name] = tensor if tensor.dim() == 1 else tensor.chunk(count, int(columns))[number].clone()
                torch.save(pieces, folder / f"consolidated.{part:02}.pth")
            convert(folder, self.folder / "out", "--to", "hf", "--verify")
            self.assert_equal(read_safetensors(self.folder / "out"), weights)
            config_out = json.loads((self.folder / "out" / "config.json").read_text())
            self.assertEqual({key: config_out[key] for key in config}, config)
            shutil.rmtree(self.folder / "out")
        given = assets(self.folder / "given", config)
        convert(folder, self.folder / "given.hf", "--to", "hf", "--assets", given)
        assets(given, config | {"rope_theta": 500000.0})
        said = convert(folder, self.folder / "no", "--to", "hf", "--assets", given, code=2)
        self.assertIn("params.json says another model than the one that is given: rope_theta: 10000 against 500000", said)
        pickled = assets(self.folder / "pickled", LLAMA)
        torch.save(weights | {"more": torch.zeros(2, dtype=torch.int16)}, pickled / "pytorch_model.bin")
        self.assertIn('not of the model: "more" (torch.int16)', convert(pickled, self.folder / "no", "--to", "hf", code=2))
        torch.save(weights, pickled / "pytorch_model.bin")
        convert(pickled, self.folder / "one", "--to", "hf", "--verify")
        self.assert_equal(read_safetensors(self.folder / "one"), weights)
        (pickled / "pytorch_model.bin").unlink()
        names = sorted(weights)
        files = {name: f"pytorch_model-{1 + (i > 5):05}-of-00002.bin" for i, name in enumerate(names)}
        for file in set(files.values()):
            torch.save({name: weights[name] for name in names if files[name] == file}, pickled / file)
        (pickled / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
        convert(pickled, self.folder / "two", "--to", "hf", "--verify")
        self.assert_equal(read_safetensors(self.folder / "two"), weights)

    def test_tied_files_of_meta_in_parts(self):
        config = LLAMA | {"tie_word_embeddings": True}
        weights = random_tensors(config, 1)
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
        whole, folder = titan_weights(weights, config, "v0.2.2", fused=False), self.folder / "meta"
        given = assets(self.folder / "given", config)
        folder.mkdir()
        parameters = {"dim": 32, "n_layers": 2, "n_heads": 8, "n_kv_heads": 4, "norm_eps": 1e-5, "rope_theta": 500000.0}
        (folder / "params.json").write_text(json.dumps(parameters))
        for spoiled, code in ((0, 0), (1, 2)):
            for part in range(2):
                pieces = {name: tensor if tensor.dim() == 1 else
                          tensor.chunk(2, int(".wo." in name or ".w2." in name))[part].clone() for name, tensor in whole.items()}
                pieces["output.weight"] += spoiled * part
                torch.save(pieces, folder / f"consolidated.{part:02}.pth")
            said = convert(folder, self.folder / f"hf{spoiled}", "--to", "hf", "--assets", given, code=code)
        self.assertIn("consolidated.01.pth/output.weight differs from consolidated.01.pth/tok_embeddings.weight", said)
        del weights["lm_head.weight"]
        self.assert_equal(read_safetensors(self.folder / "hf0"), weights)


if __name__ == "__main__":
    unittest.main(verbosity=2)
