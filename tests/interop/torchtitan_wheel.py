"""TorchTitan's own adapters and models, of its wheels from PyPI: .deps/tests/torchtitan-VERSION. They are loaded without what a
trainer needs beside them: other packages, and the folders of TorchTitan that start a run, are stand-ins without behaviour."""
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

VERSIONS = {"v0.2": "0.2.2", "current": "0.3.0"}  # by the word of --dcp-names
WITHOUT_INIT = ("torchtitan", "torchtitan.models", "torchtitan.models.llama3", "torchtitan.models.qwen3")
STAND_INS = ("torchtitan.components", "torchtitan.distributed", "torchtitan.tools", "torchtitan.models.moe.kernels",
             "torch.nn.attention.flex_attention", "torch._functorch.partitioners", "torch.utils.flop_counter", "spmd_types", "tyro", "tokenizers", "einops", "datasets", "torchdata", "filelock", "networkx",
             "numpy")


def place(names):
    return Path(os.environ["ARGOSY_SOURCE"]) / ".deps" / "tests" / f"torchtitan-{VERSIONS[names]}"


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


def adapter(names, config):
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


def llama(config):
    """The model of version 0.2.2, without scaled frequencies. Its hidden size follows from a factor; this one gives 40 of 32."""
    assert (config["hidden_size"], config["intermediate_size"]) == (32, 40) and "rope_scaling" not in config
    arguments = importlib.import_module("torchtitan.models.llama3.model.args")
    return importlib.import_module("torchtitan.models.llama3.model.model").Transformer(arguments.TransformerModelArgs(
        dim=config["hidden_size"], n_layers=config["num_hidden_layers"], n_heads=config["num_attention_heads"],
        n_kv_heads=config["num_key_value_heads"], vocab_size=config["vocab_size"], norm_eps=config["rms_norm_eps"],
        rope_theta=config["rope_theta"], max_seq_len=config["max_position_embeddings"], multiple_of=8, ffn_dim_multiplier=0.45,
        rope_scaling_args=arguments.RoPEScalingArgs(scaling_factor=1.0)))
