"""Checkpoints as TorchTitan writes them, by torch itself, under the names of four ages and on 1, 2 and 4 ranks. Ranks are
forks of this process, since torch loads slowly."""
import json
import os
import struct
import subprocess
import sys
import tempfile
import traceback
import unittest
import warnings
from pathlib import Path

sys.setdlopenflags(os.RTLD_LAZY)  # nothing calls the libraries of CUDA, which a machine without a GPU does not have
warnings.simplefilter("ignore")
try:
    import h5py
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.placement_types import _StridedShard
except (ImportError, OSError) as error:
    print(f"skipped: torch does not load ({error}); jobs/setup.sh --tests installs what it needs")
    sys.exit(77)

BIN, SOURCE = Path(os.environ["ARGOSY_BIN"]), Path(os.environ["ARGOSY_SOURCE"])
ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "PYTHONPATH")}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2,
         "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 4, "intermediate_size": 40, "rms_norm_eps": 1e-5,
         "rope_theta": 500000.0, "tie_word_embeddings": False, "max_position_embeddings": 64}
MOE = LLAMA | {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 4, "num_experts_per_tok": 2,
               "moe_intermediate_size": 12, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
               "router_aux_loss_coef": 0.001}


def run(*words, code=0):
    """Returns what the program says on stderr."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
    assert done.returncode == code, (words, done.returncode, done.stderr)
    return done.stderr


def convert(*words, code=0):
    return run(BIN / "convert-checkpoint", *words, code=code)


def read_safetensors(folder):
    data = (Path(folder) / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    types = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16}
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + at for at in entry["data_offsets"])
            tensors[name] = torch.frombuffer(bytearray(data[begin:end]), dtype=types[entry["dtype"]]).view(entry["shape"])
    return tensors


def assets(folder, config):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


# Weights under Hugging Face's names, and the same under TorchTitan's, by the formulas of TorchTitan's adapters and hooks.


def random_tensors(config, seed, dtype=torch.float32, scale=0.05):
    torch.manual_seed(seed)
    dim, q = config["hidden_size"], config["num_attention_heads"] * config["head_dim"]
    kv, hidden = config["num_key_value_heads"] * config["head_dim"], config["intermediate_size"]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], dim)}
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        shapes |= {name + "input_layernorm.weight": (dim,), name + "self_attn.q_proj.weight": (q, dim),
                   name + "self_attn.k_proj.weight": (kv, dim), name + "self_attn.v_proj.weight": (kv, dim),
                   name + "self_attn.o_proj.weight": (dim, q), name + "post_attention_layernorm.weight": (dim,)}
        if "num_experts" in config:
            width = config["moe_intermediate_size"]
            shapes |= {name + f"self_attn.{which}_norm.weight": (config["head_dim"],) for which in "qk"}
            shapes[name + "mlp.gate.weight"] = (config["num_experts"], dim)
            for expert in range(config["num_experts"]):
                of = name + f"mlp.experts.{expert}."
                shapes |= {of + "gate_proj.weight": (width, dim), of + "up_proj.weight": (width, dim),
                           of + "down_proj.weight": (dim, width)}
        else:
            shapes |= {name + "mlp.gate_proj.weight": (hidden, dim), name + "mlp.up_proj.weight": (hidden, dim),
                       name + "mlp.down_proj.weight": (dim, hidden)}
    shapes |= {"model.norm.weight": (dim,), "lm_head.weight": (config["vocab_size"], dim)}
    return {name: torch.randn(shape, dtype=dtype) * scale + (1 if len(shape) == 1 else 0) for name, shape in shapes.items()}


def in_pairs(matrix, heads):
    """_reverse_permute of TorchTitan's Llama3StateDictAdapter."""
    rows, columns = matrix.shape
    return matrix.view(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)


def titan_weights(named, config, age, fused):
    """`named` under TorchTitan's names. `fused`: as the parameters are in memory since April 2026, not as they are saved since
    June; "qkv": without the override that fuses feed-forwards, too."""
    heads, groups, size = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    result = {"tok_embeddings.weight": named["model.embed_tokens.weight"], "norm.weight": named["model.norm.weight"],
              ("output.weight" if age in ("prefix", "v0.2.2") else "lm_head.weight"): named["lm_head.weight"]}
    for layer in range(config["num_hidden_layers"]):
        ours, of = f"layers.{layer}.", f"model.layers.{layer}."
        q, k, v = (named[of + f"self_attn.{which}_proj.weight"] for which in "qkv")
        if config["model_type"] == "llama":
            q, k = in_pairs(q, heads), in_pairs(k, groups)
        attention = ours + ("attention." if age in ("prefix", "v0.2.2") else "attention.qkv_linear.")
        if fused:
            parts = [q.reshape(groups, heads // groups, size, -1), k.reshape(groups, 1, size, -1), v.reshape(groups, 1, size, -1)]
            result[attention + "wqkv.weight"] = torch.cat(parts, dim=1).reshape(-1, q.shape[1])
        else:
            result |= {attention + "wq.weight": q, attention + "wk.weight": k, attention + "wv.weight": v}
        result |= {ours + "attention.wo.weight": named[of + "self_attn.o_proj.weight"],
                   ours + "attention_norm.weight": named[of + "input_layernorm.weight"],
                   ours + "ffn_norm.weight": named[of + "post_attention_layernorm.weight"]}
        if "num_experts" in config:
            result |= {ours + f"attention.{which}_norm.weight": named[of + f"self_attn.{which}_norm.weight"] for which in "qk"}
            result[ours + "moe.router.gate.weight"] = named[of + "mlp.gate.weight"]
            stacks = [torch.stack([named[of + f"mlp.experts.{expert}.{which}_proj.weight"]
                                   for expert in range(config["num_experts"])]) for which in ("gate", "up", "down")]
            experts = ours + ("moe.experts." if age == "v0.2.2" else "moe.routed_experts.inner_experts.")
            ends = ("w1", "w3", "w2") if age == "v0.2.2" else ("w1_EFD", "w3_EFD", "w2_EDF")
            if fused is True:
                result |= {experts + "w13": torch.stack(stacks[:2], dim=2), experts + ends[2]: stacks[2]}
            else:
                result |= {experts + end: stack for end, stack in zip(ends, stacks)}
        else:
            gate, up = named[of + "mlp.gate_proj.weight"], named[of + "mlp.up_proj.weight"]
            if fused is True:
                result[ours + "feed_forward.w13"] = torch.stack([gate, up], dim=1)
            else:
                result |= {ours + "feed_forward.w1.weight": gate, ours + "feed_forward.w3.weight": up}
            result[ours + "feed_forward.w2.weight"] = named[of + "mlp.down_proj.weight"]
    return result


def our_name(name):
    """Of Hugging Face's `name`; experts apart."""
    for theirs, ours in {"model.embed_tokens": "tok_embeddings", "model.norm": "norm", "model.layers": "layers", "lm_head": "output",
                         "self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
                         "self_attn.o_proj": "attention.wo", "self_attn": "attention", "input_layernorm": "attention_norm",
                         "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "feed_forward.w1",
                         "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2", "mlp.gate": "moe.router"}.items():
        name = name.replace(theirs, ours)
    return name


def ours(named, config):
    """`named` under the names and in the shapes of a checkpoint of this program."""
    result = {our_name(name): tensor for name, tensor in named.items() if ".experts." not in name}
    for layer in range(config["num_hidden_layers"] if "num_experts" in config else 0):
        for which, own in {"gate": "w1", "up": "w3", "down": "w2"}.items():
            parts = [named[f"model.layers.{layer}.mlp.experts.{expert}.{which}_proj.weight"]
                     for expert in range(config["num_experts"])]
            result[f"layers.{layer}.moe.experts.{own}.weight"] = torch.cat(parts)
    return result


AGES = ("prefix", "v0.2.2", "fused", "current")


def titan_state(weights, states, config, age, step, tokens, num_updates=None, fused=True):
    """The state dict that TorchTitan of that age saves. `states`: {"exp_avg": named, ...}. `fused`: the states since April 2026."""
    model = titan_weights(weights, config, age, fused=age == "fused")
    by_parameter = {}
    for state, named in states.items():
        for name, tensor in titan_weights(named, config, age, fused=age in ("fused", "current") and fused).items():
            by_parameter.setdefault(name, {})[state] = tensor
    optimizer = {}
    for name, tensors in by_parameter.items():
        if "exp_avg" in tensors:
            tensors["step"] = torch.tensor(float(num_updates or step))
        optimizer |= {f"state.{name}.{state}": tensor for state, tensor in tensors.items()}
        optimizer |= {f"param_groups.{name}.lr": 0.01, f"param_groups.{name}.betas": (0.9, 0.95)}
    scheduler = {"last_epoch": step} if age in ("fused", "current") else \
        {"last_epoch": step, "_step_count": step + 1, "base_lrs": [0.01], "_last_lr": [0.005], "lr_lambdas": [None]}
    rest = {"optimizer": optimizer, "lr_scheduler": scheduler, "train_state": {"step": step, "ntokens_seen": tokens},
            "dataloader": {"dp_rank_0": b"\x80\x04N.", "world_size": 1}}
    if age == "prefix":
        model["freqs_cis"] = torch.zeros(8, 2, dtype=torch.complex64)
        del rest["train_state"]["ntokens_seen"]
        return {"model": model} | rest
    return model | rest


def cut(tensor, name, mesh):
    """As FSDP2 cuts a parameter over the first axis of the mesh, and tensor parallelism over the second."""
    if mesh is None or not isinstance(tensor, torch.Tensor) or tensor.dim() == 0 or tensor.is_complex():
        return tensor
    if mesh.ndim == 1:
        return distribute_tensor(tensor, mesh, [Shard(0)])
    if tensor.dim() == 1:
        return distribute_tensor(tensor, mesh, [Shard(0), Replicate()])
    if any(part in name for part in (".wo.", ".w2", "router")):
        return distribute_tensor(tensor, mesh, [Shard(0), Shard(tensor.dim() - 1)])
    shards, parts = mesh.size(0), mesh.size(1)
    local = tensor.chunk(parts)[mesh.get_local_rank(1)].chunk(shards)[mesh.get_local_rank(0)].contiguous()
    return DTensor.from_local(local, mesh, [_StridedShard(0, split_factor=parts), Shard(0)], run_check=False, shape=tensor.shape,
                              stride=tensor.stride())


def cut_all(state, mesh, name=""):
    if isinstance(state, dict):
        return {key: cut_all(value, mesh, f"{name}.{key}") for key, value in state.items()}
    return cut(state, name + ".", mesh)


def on_ranks(num_ranks, work):
    """Forks ranks that call work(mesh); the mesh is None on one rank, [2] on two, [2, 2] on four."""
    with tempfile.NamedTemporaryFile() as store:
        pids = []
        for rank in range(num_ranks):
            pid = os.fork()
            if pid == 0:
                try:
                    torch.set_num_threads(1)
                    dist.init_process_group("gloo", init_method=f"file://{store.name}", rank=rank, world_size=num_ranks)
                    work({1: lambda: None, 2: lambda: init_device_mesh("cpu", (2,)),
                          4: lambda: init_device_mesh("cpu", (2, 2))}[num_ranks]())
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
            pids.append(pid)
        assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids)


def save(state, folder, num_ranks=1):
    on_ranks(num_ranks, lambda mesh: dcp.save(cut_all(state, mesh), checkpoint_id=str(folder)))


def stored(folder):
    """All that a checkpoint has: {key: tensor or object}."""
    listed = dcp.FileSystemReader(str(folder)).read_metadata().state_dict_metadata
    state = {key: torch.empty(of.size, dtype=of.properties.dtype) if hasattr(of, "size") else None for key, of in listed.items()}
    dcp.load(state, checkpoint_id=str(folder))
    return state


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def assert_equal(self, found, expected):
        self.assertEqual(set(found), set(expected))
        for name, tensor in expected.items():
            self.assertEqual((found[name].dtype, found[name].shape), (tensor.dtype, tensor.shape), name)
            self.assertTrue(torch.equal(found[name], tensor), name)

    def assert_stored(self, path, prefix, named, config):
        """The bytes of a full file's tensors."""
        data = path.read_bytes()
        with h5py.File(path) as file:
            for name, tensor in ours(named, config).items():
                stored = file[f"{prefix}/{name}"].id
                self.assertEqual(stored.shape, tuple(tensor.shape), name)
                begin = stored.get_offset()
                found = torch.frombuffer(bytearray(data[begin:begin + stored.get_storage_size()]), dtype=tensor.dtype)
                self.assertTrue(torch.equal(found.view(tensor.shape), tensor), f"{prefix}/{name}")

    def assert_full(self, path, weights, states, config):
        for prefix, named in {"model": weights, "optimizer/first": states["exp_avg"],
                              "optimizer/second": states["exp_avg_sq"]}.items():
            self.assert_stored(path, prefix, named, config)
