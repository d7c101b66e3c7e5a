"""make_folders.py [NAME ...]: records folders of Megatron: models of tests/reference in megatron-core's own classes, saved
by its own dist_checkpointing on several gloo ranks. README.md beside this file says what each has, and how this is run."""
import argparse
import contextlib
import dataclasses
import io
import json
import os
import pathlib
import pickle
import sys
import tarfile
import tempfile
import types

import h5py
import torch
from megatron.core import dist_checkpointing, parallel_state, tensor_parallel
from megatron.core.dist_checkpointing.mapping import ShardedObject
from megatron.core.dist_checkpointing.strategies import torch as strategies
from megatron.core.dist_checkpointing.strategies.filesystem_async import FileSystemWriterAsync
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.transformer.enums import AttnBackend
from megatron.core.transformer.transformer_config import TransformerConfig
from safetensors.torch import load_file

# megatron-core runs on CPUs, but names the GPU here and there: as the place of new tensors, in their type, to wait for it,
# and to draw random numbers, none of which this script uses.
torch.cuda.current_device = lambda: torch.device("cpu")
torch.cuda.synchronize = lambda *_: None
torch.cuda.stream = contextlib.nullcontext
torch.cuda.Stream = torch.cuda.Event = lambda *_, **__: types.SimpleNamespace(wait_stream=lambda _: None)
torch.cuda.current_stream = torch.cuda.Stream
torch.Tensor.cuda = lambda self, *_: self
tensor_parallel.get_cuda_rng_tracker = lambda: types.SimpleNamespace(fork=contextlib.nullcontext)


class OnCpu(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        result = function(*args, **kwargs)
        return result.replace("torch.", "torch.cuda.") if function is torch.Tensor.type and isinstance(result, str) else result


REFERENCE = pathlib.Path(__file__).resolve().parents[2] / "reference"
TOLERANCE = 2e-6  # of the largest logit: what float32 is off by in transformers, too (tests/reference/README.md)


def model_of(config, first_stage=None, norms_of_their_own=False):
    """This rank's part of a model of megatron-core. Its vocabulary is padded as Megatron-LM pads it."""
    tensor, pipeline = (parallel_state.get_tensor_model_parallel_world_size(),
                        parallel_state.get_pipeline_model_parallel_world_size())
    qwen2, qwen3 = (config["model_type"] == name for name in ("qwen2", "qwen3"))
    sizes = TransformerConfig(
        num_layers=config["num_hidden_layers"], hidden_size=config["hidden_size"],
        num_attention_heads=config["num_attention_heads"], num_query_groups=config["num_key_value_heads"],
        kv_channels=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
        ffn_hidden_size=config["intermediate_size"], normalization="RMSNorm", layernorm_epsilon=config["rms_norm_eps"],
        gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=False, add_qkv_bias=qwen2,
        qk_layernorm=qwen3, hidden_dropout=0, attention_dropout=0, use_cpu_initialization=True,
        tensor_model_parallel_size=tensor, pipeline_model_parallel_size=pipeline, pipeline_dtype=torch.float32,
        num_layers_in_first_pipeline_stage=first_stage,
        bias_activation_fusion=False, bias_dropout_fusion=False, masked_softmax_fusion=False, apply_rope_fusion=False,
        gradient_accumulation_fusion=False)
    multiple = 16 * tensor  # --make-vocab-size-divisible-by 16
    layers = get_gpt_layer_local_spec(qk_layernorm=qwen3, normalization="RMSNorm")
    if norms_of_their_own:
        layers.submodules.sharded_state_dict_keys_map = {}
    return GPTModel(sizes, layers, vocab_size=-(-config["vocab_size"] // multiple) * multiple, max_sequence_length=64,
                     pre_process=parallel_state.is_pipeline_first_stage(),
                     post_process=parallel_state.is_pipeline_last_stage(), parallel_output=True,
                     share_embeddings_and_output_weights=config["tie_word_embeddings"], position_embedding_type="rope",
                     rotary_base=config["rope_theta"])


def fill(model, config, weights):
    """Fills the parameters of this rank's part of the model. Padded rows of the vocabulary become 7."""
    rank, tensor = (parallel_state.get_tensor_model_parallel_rank(), parallel_state.get_tensor_model_parallel_world_size())
    groups = config["num_key_value_heads"]

    def rows(theirs):
        return theirs.chunk(tensor)[rank]

    def of(layer, name):
        return weights[f"model.layers.{layer}.{name}"]

    def grouped(layer, end):
        parts = [of(layer, f"self_attn.{name}_proj.{end}") for name in "qkv"]
        # [groups, (heads of a group + 2) * head_dim, ...]
        return torch.cat([part.unflatten(0, (groups, -1)) for part in parts], dim=1).flatten(0, 1)

    def padded(table):
        multiple = 16 * tensor
        size = -(-len(table) // multiple) * multiple
        return torch.cat([table, torch.full((size - len(table), table.shape[1]), 7.0)])

    def value(name):
        if name == "embedding.word_embeddings.weight":
            return rows(padded(weights["model.embed_tokens.weight"]))
        if name == "output_layer.weight":
            tied = config["tie_word_embeddings"]
            return rows(padded(weights["model.embed_tokens.weight" if tied else "lm_head.weight"]))
        if name == "decoder.final_layernorm.weight":
            return weights["model.norm.weight"]
        _, _, number, part = name.split(".", 3)
        layer = model.decoder.layers[int(number)].layer_number - 1
        if part.startswith("self_attention.linear_qkv."):
            return rows(grouped(layer, part.rsplit(".", 1)[1]))
        if part == "mlp.linear_fc1.weight":  # a rank holds rows of gate, then the same rows of up
            return torch.cat([rows(of(layer, f"mlp.{half}_proj.weight")) for half in ("gate", "up")])
        if part in ("self_attention.linear_proj.weight", "mlp.linear_fc2.weight"):
            theirs = of(layer, "self_attn.o_proj.weight" if "proj" in part else "mlp.down_proj.weight")
            return theirs.chunk(tensor, dim=1)[rank]
        return of(layer, {"input_layernorm.weight": "input_layernorm.weight",
                          "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
                          "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
                          "self_attention.k_layernorm.weight": "self_attn.k_norm.weight"}[part])

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            theirs = value(name)
            assert parameter.shape == theirs.shape, (name, parameter.shape, theirs.shape)
            parameter.copy_(theirs)


def largest_difference(model, case, vocab):
    """Of megatron-core's logits from those that transformers computed, relative to the largest."""
    with h5py.File(REFERENCE / f"{case}.h5") as file:
        tokens, expected = torch.from_numpy(file["tokens"][0]), torch.from_numpy(file["logits"][:])
    length = tokens.shape[1]
    hidden = torch.ones(length, length).triu(1).bool()[None, None]
    with torch.no_grad():
        logits = model(tokens, torch.arange(length).expand_as(tokens), hidden)[..., :vocab]
    return float((logits - expected).abs().max() / expected.abs().max())


@dataclasses.dataclass
class Recorded:
    case: str                # of tests/reference
    tensor: int = 1          # ranks that share a layer
    pipeline: int = 1        # stages
    first_stage: int = None  # its layers
    norms_of_their_own: bool = False  # not under Transformer Engine's names
    metadata: dict = dataclasses.field(default_factory=dict)  # what sharded_state_dict() is told
    optimizer: bool = False
    older_metadata: bool = False  # as of megatron-core 0.15 and torch 2.6
    common_state: bool = False  # an object in place of common.pt, as since July 2026


FOLDERS = {
    "llama": Recorded("llama_tied", pipeline=2, first_stage=3, common_state=True),
    "qwen2": Recorded("qwen2", tensor=2, pipeline=2, optimizer=True, older_metadata=True,
                      metadata={"distrib_optim_sharding_type": "fully_reshardable"}),
    "qwen3": Recorded("qwen3", tensor=2, norms_of_their_own=True, metadata={"singleton_local_shards": True}),
}
ITERATION = 3


def run_arguments(config):
    """As Megatron-LM saves its arguments: plain data, types and enums. Those that are of the model."""
    return argparse.Namespace(
        num_layers=config["num_hidden_layers"], hidden_size=config["hidden_size"],
        num_attention_heads=config["num_attention_heads"], num_query_groups=config["num_key_value_heads"],
        kv_channels=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
        normalization="RMSNorm", norm_epsilon=config["rms_norm_eps"], swiglu=True, position_embedding_type="rope",
        rotary_base=int(config["rope_theta"]), rotary_percent=1.0, rotary_interleaved=False, use_rope_scaling=False,
        make_vocab_size_divisible_by=16, params_dtype=torch.bfloat16, attention_backend=AttnBackend.auto)


def with_moments(model):
    """The model of data-parallel ranks, and its optimizer after a step that leaves the weights as they are. Only vectors
    are trained, so that the recorded folder stays small."""
    for parameter in model.parameters():
        parameter.requires_grad = parameter.dim() == 1
    model = DistributedDataParallel(model.config, DistributedDataParallelConfig(use_distributed_optimizer=True), model)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=0.0, weight_decay=0.0, use_distributed_optimizer=True, bf16=True,
                        params_dtype=torch.bfloat16), [model])
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.main_grad.fill_(1)
    optimizer.step()
    return model, optimizer


def finish_as_before(writer, metadata, results):
    """Writes .metadata as an instance of Megatron's own class, in which the plans of all ranks stay."""
    stored = {result.index: result.storage_data for results_of_rank in results for result in results_of_rank}
    older = strategies.MCoreMetadata()
    vars(older).update(vars(metadata) | {"storage_data": stored, "storage_meta": writer.storage_meta(),
                                         "mcore_data": {name: {} for name in metadata.state_dict_metadata}})
    assert older.all_local_plans
    (pathlib.Path(writer.path) / ".metadata").write_bytes(pickle.dumps(older))


def start_rank(rank, ranks, store, tensor, pipeline):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    parallel_state.initialize_model_parallel(tensor, pipeline)


def files_of(case):
    return json.loads((REFERENCE / case / "config.json").read_text()), load_file(REFERENCE / case / "model.safetensors")


def check_logits(rank, store):
    start_rank(rank, 1, store, 1, 1)
    for case in sorted({recorded.case for recorded in FOLDERS.values()}):
        config, weights = files_of(case)
        model = model_of(config)
        fill(model, config, weights)
        difference = largest_difference(model, case, config["vocab_size"])
        print(f"{case}: megatron-core's logits differ by {difference:.1e} of the largest", flush=True)
        assert difference < TOLERANCE


def save(rank, store, recorded, run):
    start_rank(rank, recorded.tensor * recorded.pipeline, store, recorded.tensor, recorded.pipeline)
    if recorded.older_metadata:
        FileSystemWriterAsync.finish = finish_as_before
    config, weights = files_of(recorded.case)
    with OnCpu():
        model = model_of(config, recorded.first_stage, recorded.norms_of_their_own)
        fill(model, config, weights)
        model.bfloat16()
        optimizer = None
        if recorded.optimizer:
            model, optimizer = with_moments(model)
        os.chdir(run)  # the folder's path is in .metadata
        state = {"args": run_arguments(config), "checkpoint_version": 3.0, "iteration": ITERATION}
        if recorded.common_state:
            state = {"common_state": ShardedObject("common_state", state, (1,), (0,), replica_id=rank)}
        state["model"] = model.sharded_state_dict(metadata=dict(recorded.metadata))
        if optimizer:
            state["optimizer"] = optimizer.sharded_state_dict(state["model"], metadata=dict(recorded.metadata))
        dist_checkpointing.save(state, f"iter_{ITERATION:07}", content_metadata=recorded.metadata)
    torch.distributed.barrier()
    if recorded.common_state and rank == 0:
        pathlib.Path(f"iter_{ITERATION:07}", "common.pt").unlink()


def archive(run, path):
    """A tar without times and owners."""
    with tarfile.open(path, "w:xz", preset=9) as tar:
        for file in sorted(run.rglob("*")):
            if file.is_file():
                info = tarfile.TarInfo(f"{path.name.split('.')[0]}/{file.relative_to(run)}")
                info.size = file.stat().st_size
                tar.addfile(info, io.BytesIO(file.read_bytes()))


def main():
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        torch.multiprocessing.spawn(check_logits, (scratch / "store",))
        for name in sys.argv[1:] or FOLDERS:
            recorded, run = FOLDERS[name], scratch / name
            (run / f"iter_{ITERATION:07}").mkdir(parents=True)
            (run / "latest_checkpointed_iteration.txt").write_text(str(ITERATION))
            torch.multiprocessing.spawn(save, (scratch / f"{name}.store", recorded, run),
                                        nprocs=recorded.tensor * recorded.pipeline)
            archive(run, pathlib.Path(__file__).parent / f"{name}.tar.xz")


if __name__ == "__main__":
    main()
