#!/usr/bin/env python3
"""TorchTitan's own adapters, of its wheels from PyPI (.deps/tests/torchtitan-VERSION), convert between Hugging Face's weights and those
that convert-checkpoint writes. The wheels are loaded without what a trainer needs beside them: other packages, and the folders of
TorchTitan that start a run, are stand-ins without behaviour."""
import importlib
import importlib.abc
import importlib.machinery
import sys
import unittest
from types import SimpleNamespace
from unittest.mock import MagicMock

from titan import LLAMA, MOE, SOURCE, Case, assets, convert, on_ranks, random_tensors, stored, titan_weights, torch
from titan_model import Llama

VERSIONS = {"v0.2": "0.2.2", "current": "0.3.0"}  # by the word of --dcp-names
WITHOUT_INIT = ("torchtitan", "torchtitan.models", "torchtitan.models.llama3", "torchtitan.models.qwen3")
STAND_INS = ("torchtitan.components", "torchtitan.distributed", "torchtitan.tools", "torchtitan.models.moe.kernels",
             "torch.nn.attention.flex_attention", "torch._functorch.partitioners", "torch.utils.flop_counter", "spmd_types", "tyro",
             "tokenizers", "einops", "datasets", "torchdata", "filelock", "networkx", "numpy")


def place(names):
    return SOURCE / ".deps" / "tests" / f"torchtitan-{VERSIONS[names]}"


class Importer(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, root):
        self.root = root

    def find_spec(self, name, path=None, target=None):
        folder = self.root.joinpath(*name.split("."))
        if name in WITHOUT_INIT and folder.is_dir():
            spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
            spec.submodule_search_locations = [str(folder)]
            return spec
        is_stand_in = any(name == each or name.startswith(each + ".") for each in STAND_INS)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_stand_in else None

    def create_module(self, spec):
        if spec.submodule_search_locations:
            return None
        stand_in = MagicMock(name=spec.name)
        stand_in.__path__, stand_in.__spec__ = [], spec
        return stand_in

    def exec_module(self, module):
        pass


def load(names):
    """Call it once in a process."""
    sys.meta_path.insert(0, Importer(place(names)))
    sys.path.append(str(place(names)))


def adapter_of(names, config):
    """The StateDictAdapter of the model of a config.json; to_hf() and from_hf() are the conversions of the program's own scripts."""
    family = "llama3" if config["model_type"] == "llama" else "qwen3"
    middle = ".model" if names == "v0.2" else ""
    module = importlib.import_module(f"torchtitan.models.{family}{middle}.state_dict_adapter")
    heads = {"n_heads": config["num_attention_heads"], "n_kv_heads": config["num_key_value_heads"], "head_dim": config["head_dim"]}
    experts = SimpleNamespace(num_experts=config.get("num_experts"))
    layer = SimpleNamespace(attention=SimpleNamespace(rope=rotation(family) if names == "current" else None, **heads), moe=experts)
    arguments = SimpleNamespace(dim=config["hidden_size"], enable_weight_tying=config["tie_word_embeddings"], layers=[layer],
                                moe_args=experts, **heads)
    return getattr(module, family.capitalize() + "StateDictAdapter")(arguments, None)


def rotation(family):
    """Of which the adapters ask the kind alone."""
    kinds = importlib.import_module("torchtitan.models.common.rope")
    return (kinds.ComplexRoPE if family == "llama3" else kinds.CosSinRoPE).Config(dim=4, max_seq_len=64)


def llama_of_0_2(config):
    """The model of version 0.2.2, without scaled frequencies. Its hidden size follows from a factor; this one gives 40 of 32."""
    assert (config["hidden_size"], config["intermediate_size"]) == (32, 40) and "rope_scaling" not in config
    arguments = importlib.import_module("torchtitan.models.llama3.model.args")
    return importlib.import_module("torchtitan.models.llama3.model.model").Transformer(arguments.TransformerModelArgs(
        dim=config["hidden_size"], n_layers=config["num_hidden_layers"], n_heads=config["num_attention_heads"],
        n_kv_heads=config["num_key_value_heads"], vocab_size=config["vocab_size"], norm_eps=config["rms_norm_eps"],
        rope_theta=config["rope_theta"], max_seq_len=config["max_position_embeddings"], multiple_of=8, ffn_dim_multiplier=0.45,
        rope_scaling_args=arguments.RoPEScalingArgs(scaling_factor=1.0)))


class Adapters(Case):
    def test_adapters_of_two_versions(self):
        safetensors, models = importlib.import_module("safetensors.torch"), []
        for config in (LLAMA, MOE, LLAMA | {"tie_word_embeddings": True}):
            weights = random_tensors(config, 1)
            if config["tie_word_embeddings"]:
                del weights["lm_head.weight"]
            folder = assets(self.folder / f"{len(models)}.hf", config)
            safetensors.save_file(weights, folder / "model.safetensors")
            for names in VERSIONS:
                convert(folder, self.folder / f"{len(models)}.{names}", "--to", "dcp", "--dcp-names", names)
            models.append((config, weights))
        for names in VERSIONS:
            on_ranks(1, lambda mesh: self.compare_with_wheel(names, models))

    def compare_with_wheel(self, names, models):
        load(names)
        for number, (config, weights) in enumerate(models):
            self.compare_with_adapter(names, config, weights, stored(self.folder / f"{number}.{names}"))

    def compare_with_adapter(self, names, config, weights, found):
        adapter = adapter_of(names, config)
        if names == "v0.2" and config is LLAMA:
            model = llama_of_0_2(config).double()
            model.load_state_dict(found, strict=True)
            tokens = torch.randint(0, config["vocab_size"], (2, 17), generator=torch.Generator().manual_seed(1))
            plain = Llama(titan_weights({name: tensor.double() for name, tensor in weights.items()}, config, "current", fused=False), config)
            loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            self.assertLess(abs(loss.item() / plain.loss(tokens).item() - 1), 1e-6)
        found = {name: tensor for name, tensor in found.items() if "expert_bias" not in name}
        theirs, ours = adapter.from_hf(dict(weights)), adapter.to_hf(found)
        if config["tie_word_embeddings"]:  # which version 0.2.2 does not know of Llama
            head = found.pop("output.weight" if names == "v0.2" else "lm_head.weight")
            self.assertTrue(torch.equal(head, found["tok_embeddings.weight"]))
            theirs, ours = ({key: tensor for key, tensor in tensors.items() if key not in ("output.weight", "lm_head.weight")}
                            for tensors in (theirs, ours))
        self.assert_equal(theirs, found)
        self.assert_equal(ours, weights)


if __name__ == "__main__":
    missing = [str(place(names)) for names in VERSIONS if not place(names).is_dir()]
    if missing:
        print(f"skipped: {', '.join(missing)} are missing, which jobs/setup.sh --tests installs")
        sys.exit(77)
    unittest.main(verbosity=2)
