#!/usr/bin/env python3
"""Torch writes checkpoints as TorchTitan does, under the names of four ages and on 1, 2 and 4 ranks; convert-checkpoint reads
them, and pretrain goes on from one as torch itself does. Files of Meta and of torch.save likewise. Ranks are forks of this
process, since torch loads slowly."""
import functools
import json
import math
import os
import shutil
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


def titan(named, config, age, fused):
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
    model = titan(weights, config, age, fused=age == "fused")
    by_parameter = {}
    for state, named in states.items():
        for name, tensor in titan(named, config, age, fused=age in ("fused", "current") and fused).items():
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
    """The inverse of titan() for its current names, split."""
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
    """The inverse of titan()'s fusion of wq, wk and wv."""
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


def last_steps_at_home(folder, config, age, tokens):
    """(step, losses, weights) of the steps after the one in `folder`, which torch loads as TorchTitan does: into parameters, an AdamW
    and a schedule that have other values, all of whose keys must be there."""
    module = torch.nn.Module()
    names = titan(random_tensors(config, 0, torch.float64), config, age, fused="qkv" if age == "current" else False)
    for name, tensor in names.items():
        place, (*parts, last) = module, name.split(".")
        for part in parts:
            if part not in dict(place.named_children()):
                place.add_module(part, torch.nn.Module())
            place = getattr(place, part)
        place.register_parameter(last, torch.nn.Parameter(torch.zeros_like(tensor)))
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
    model = Llama(titan(random_tensors(config, 5, torch.float64), config, "current", fused=False), config)
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


class TorchTitan(unittest.TestCase):
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
        state = titan_state(weights, {"momentum_buffer": momenta}, LLAMA, "current", step=4, tokens=1)
        others = {name for name in titan(weights, LLAMA, "current", fused=True)
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
        save(titan(random_tensors(config, 1, torch.bfloat16), config, "current", fused=False), self.folder / "dcp")
        said = convert(self.folder / "dcp", self.folder / "no", "--to", "hf", code=2)
        self.assertIn("those of llama3 debugmodel, do not show how its rotary frequencies are scaled", said)
        said = convert(self.folder / "dcp", self.folder / "hf", "--to", "hf", "--assets", assets(self.folder / "assets", config))
        self.assertIn("with the rotary base 500000 and frequencies that are not scaled", said)

    def test_what_a_folder_is(self):
        run_folder, given = self.folder / "run", assets(self.folder / "assets", LLAMA)
        weights = random_tensors(LLAMA, 1)
        save(titan(weights, LLAMA, "current", fused=False), run_folder / "checkpoint" / "step-9")
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
        whole = titan(weights, config, "v0.2.2", fused=False) | {"rope.freqs": torch.zeros(2)}
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
        whole, folder = titan(weights, config, "v0.2.2", fused=False), self.folder / "meta"
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
                          {name: tensor.bfloat16() for name, tensor in titan(weights, LLAMA, "current", fused=False).items()})
        said = convert(self.folder / "hf", self.folder / "weights", "--to", "dcp", "--dcp-names", "v0.2", "--force", "--verify")
        self.assertIn("checkpoint.initial_load_path", said)
        self.assert_equal(stored(self.folder / "weights"), titan(weights, LLAMA, "v0.2.2", fused=False))
        assets(self.folder / "hf", LLAMA | {"model_type": "mistral", "architectures": ["MistralForCausalLM"]})
        self.assertIn("TorchTitan has no model like this one (mistral)",
                      convert(self.folder / "hf", self.folder / "no", "--to", "dcp", code=2))
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
        # states that do not fit
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
        save(titan(saved[0], LLAMA, "current", fused=False), self.folder / "weights" / "step-3")
        load = ("--checkpoint.initial_load_path", self.folder / "weights")
        said = self.pretrain(1, "refused", *load, code=2)
        self.assertIn("the weights alone", said)
        self.assertIn("TorchTitan sets by default", said)
        self.pretrain(1, "begun", *load, "--checkpoint.initial_load_model_only", "true", "--training.steps", 1)
        first = json.loads((self.folder / "begun" / "metrics.jsonl").read_text().splitlines()[0])
        self.assertLess(abs(first["loss"] / losses[SAVED_STEP] - 1), 1e-9)


if __name__ == "__main__":
    unittest.main(verbosity=2)
