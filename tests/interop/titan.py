"""Checkpoints as TorchTitan writes them, by torch itself, under the names of four ages and on 1, 2 and 4 ranks, and a run of
TorchTitan in plain torch. Ranks are forks of this process, since torch loads slowly."""
import functools
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
    import torch.nn.functional as F
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict
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
STEPS, SAVED_STEP, BATCH, LENGTH = 6, 3, 4, 16  # of the run that goes on


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


class Llama:
    """A Llama in plain torch, with TorchTitan's current names and Meta's rotary pairs."""

    def __init__(self, weights, config):
        self.config = config
        self.weights = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}

    def norm(self, x, name):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return x * scale * self.weights[name]

    def loss(self, tokens):
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        size, heads, groups = (self.config[key] for key in ("head_dim", "num_attention_heads", "num_key_value_heads"))
        frequencies = self.config["rope_theta"] ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angles = torch.outer(torch.arange(inputs.shape[1], dtype=torch.float64), frequencies)
        turns = torch.polar(torch.ones_like(angles), angles)[None, :, None]

        def rotated(x, count):
            pairs = torch.view_as_complex(x.view(*x.shape[:2], count, size // 2, 2))
            return torch.view_as_real(pairs * turns).flatten(3)

        x = self.weights["tok_embeddings.weight"][inputs]
        for layer in range(self.config["num_hidden_layers"]):
            of = f"layers.{layer}."
            h = self.norm(x, of + "attention_norm.weight")
            q, k, v = (h @ self.weights[of + f"attention.qkv_linear.w{which}.weight"].T for which in "qkv")
            q, k, v = rotated(q, heads), rotated(k, groups), v.view(*v.shape[:2], groups, size)
            k, v = (t.repeat_interleave(heads // groups, dim=2) for t in (k, v))
            out = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
            x = x + out.transpose(1, 2).flatten(2) @ self.weights[of + "attention.wo.weight"].T
            h = self.norm(x, of + "ffn_norm.weight")
            gate, up = (h @ self.weights[of + f"feed_forward.w{i}.weight"].T for i in (1, 3))
            x = x + (F.silu(gate) * up) @ self.weights[of + "feed_forward.w2.weight"].T
        logits = self.norm(x, "norm.weight") @ self.weights["lm_head.weight"].T
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def from_titan(named, config):
    """The inverse of titan_weights() for its current names, split."""
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    back = {titan_name(name): name for name in random_tensors(config, 0)}
    result = {}
    for key, tensor in named.items():
        if ".wq." in key or ".wk." in key:
            count = heads if ".wq." in key else groups
            rows, columns = tensor.shape
            tensor = tensor.view(count, rows // count // 2, 2, columns).transpose(1, 2).reshape(rows, columns)
        result[back[key]] = tensor
    return result


def titan_name(name):
    return our_name(name).replace("attention.w", "attention.qkv_linear.w").replace("qkv_linear.wo", "wo").replace("output", "lm_head")


def split(named, config):
    """The inverse of titan_weights()'s fusion of wq, wk and wv."""
    heads, groups, size = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    result = {}
    for name, tensor in named.items():
        if not name.endswith("wqkv.weight"):
            result[name] = tensor
            continue
        parts = tensor.view(groups, heads // groups + 2, size, -1)
        for which, part in {"q": parts[:, :-2], "k": parts[:, -2], "v": parts[:, -1]}.items():
            result[name.replace("wqkv", "w" + which)] = part.reshape(-1, tensor.shape[1])
    return result


def rate(step):
    """TorchTitan's schedule: 2 steps of warm-up, then a linear decay with a virtual last step."""
    return (step + 1) / 2 if step < 2 else 1.0 if step < 3 else 1 - (step + 1 - 3) / (STEPS - 2)


def update(model, parameters, optimizer, tokens, step):
    """The loss of the step with samples of that number."""
    samples = [tokens[i * LENGTH:(i + 1) * LENGTH + 1] for i in range(step * BATCH, (step + 1) * BATCH)]
    loss = model.loss(torch.tensor(samples))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    return loss.item()


def module_of(tensors):
    """A module whose parameters have these names and shapes, and are zero."""
    module = torch.nn.Module()
    for name, tensor in tensors.items():
        place, (*parts, last) = module, name.split(".")
        for part in parts:
            if part not in dict(place.named_children()):
                place.add_module(part, torch.nn.Module())
            place = getattr(place, part)
        place.register_parameter(last, torch.nn.Parameter(torch.zeros_like(tensor)))
    return module


def loaded_at_home(folder, config):
    """A module with the current names, and the Muon of its layers' matrices and the AdamW of its other parameters that torch has
    loaded from `folder`."""
    module = module_of(titan_weights(random_tensors(config, 0), config, "current", fused="qkv"))
    matrices = {name for name, parameter in module.named_parameters() if parameter.dim() == 2 and name.startswith("layers.")}
    optimizers = [torch.optim.Muon([parameter for name, parameter in module.named_parameters() if name in matrices], lr=9.0),
                  torch.optim.AdamW([parameter for name, parameter in module.named_parameters() if name not in matrices], lr=9.0)]
    flat = StateDictOptions(flatten_optimizer_state_dict=True)
    state = {"optimizer": get_optimizer_state_dict(module, optimizers, options=flat)}
    dcp.load(state, checkpoint_id=str(folder))
    set_optimizer_state_dict(module, optimizers, state["optimizer"], options=flat)
    return module, optimizers


def last_steps_at_home(folder, config, age, tokens):
    """(step, losses, weights) of the steps after the one in `folder`, which torch loads as TorchTitan does: into parameters, an AdamW
    and a schedule that have other values, all of whose keys must be there."""
    fused = "qkv" if age == "current" else False
    module = module_of(titan_weights(random_tensors(config, 0, torch.float64), config, age, fused=fused))
    rates = {"lr": 0.01} if age == "current" else {"lr": 9.0}  # since June 2026 the checkpoint has the rate of the next step alone
    optimizer = torch.optim.AdamW(module.parameters(), betas=(0.5, 0.6), eps=1.0, weight_decay=9.0, fused=True, foreach=False, **rates)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, functools.partial(rate))
    flat = StateDictOptions(flatten_optimizer_state_dict=True)
    state = {name: tensor.detach().clone() for name, tensor in split(dict(module.named_parameters()), config).items()}
    state |= {"optimizer": get_optimizer_state_dict(module, optimizer, options=flat), "train_state": {"step": 0, "ntokens_seen": 0},
              "lr_scheduler": {"last_epoch": 0} if age == "current" else schedule.state_dict()}
    dcp.load(state, checkpoint_id=str(folder))
    set_optimizer_state_dict(module, optimizer, state["optimizer"], options=flat)
    if age == "current":
        schedule.last_epoch = state["lr_scheduler"]["last_epoch"]
    else:
        schedule.load_state_dict(state["lr_scheduler"])
    with torch.no_grad():
        for name, parameter in split(dict(module.named_parameters()), config).items():
            if name in dict(module.named_parameters()):
                parameter.copy_(state[name])
        for name, parameter in module.named_parameters():
            if name.endswith("wqkv.weight"):
                q, k, v = (state[name.replace("wqkv", "w" + which)] for which in "qkv")
                groups, columns = config["num_key_value_heads"], parameter.shape[1]
                fused = torch.cat([part.view(groups, -1, config["head_dim"], columns) for part in (q, k, v)], dim=1)
                parameter.copy_(fused.view(-1, columns))
    model = Llama({}, config)
    current = lambda: {titan_name(name) if age == "v0.2.2" else name: tensor
                       for name, tensor in split(dict(module.named_parameters()), config).items()}
    model.weights = current()
    step = state["train_state"]["step"]
    assert state["train_state"]["ntokens_seen"] == 0
    losses = []
    for number in range(step, STEPS):
        losses.append(update(model, list(module.parameters()), optimizer, tokens, number))
        schedule.step()
        model.weights = current()
    return step, losses, from_titan({name: tensor.detach() for name, tensor in current().items()}, config)


def stored(folder):
    """All that a checkpoint has: {key: tensor or object}."""
    listed = dcp.FileSystemReader(str(folder)).read_metadata().state_dict_metadata
    state = {key: torch.empty(of.size, dtype=of.properties.dtype) if hasattr(of, "size") else None for key, of in listed.items()}
    dcp.load(state, checkpoint_id=str(folder))
    return state


def train(config, tokens):
    """(losses, weights, what TorchTitan would save after SAVED_STEP) of STEPS steps in plain torch."""
    model = Llama(titan_weights(random_tensors(config, 5, torch.float64), config, "current", fused=False), config)
    parameters = list(model.weights.values())
    optimizer = torch.optim.AdamW(parameters, lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    losses, saved = [], None
    for step in range(STEPS):
        losses.append(update(model, parameters, optimizer, tokens, step))
        schedule.step()
        if step + 1 == SAVED_STEP:
            weights = from_titan({name: tensor.detach().clone() for name, tensor in model.weights.items()}, config)
            states = {state: from_titan({name: optimizer.state[tensor][state].clone() for name, tensor in model.weights.items()},
                                        config) for state in ("exp_avg", "exp_avg_sq")}
            saved = weights, states
    return losses, from_titan({name: tensor.detach() for name, tensor in model.weights.items()}, config), saved


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
