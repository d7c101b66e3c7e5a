"""A run of TorchTitan in plain torch: a Llama with its current names, steps that go on from its checkpoints, and what it would save."""
import functools

from titan import dcp, our_name, random_tensors, titan_weights, torch

import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict

STEPS, SAVED_STEP, BATCH, LENGTH = 6, 3, 4, 16  # of the run that goes on


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
