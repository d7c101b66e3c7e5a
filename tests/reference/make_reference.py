#!/usr/bin/env python3
"""Writes the results that Argosy's trainer is tested against; see README.md for what is in them."""

import argparse
from pathlib import Path

import h5py
import numpy as np
import torch
import torch.nn.functional as F
import transformers
from torch.overrides import TorchFunctionMode

from cases import IGNORED, all_cases, argosy_parts, make_batches
from initialisation import initial_weight
from random_cases import random_cases

LEARNING_RATE, BETAS, EPSILON, WEIGHT_DECAY, MAX_NORM = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0


class DoubleThroughout(TorchFunctionMode):
    """Replaces float by double wherever the code asks for float: transformers computes norms, softmax and rotary tables
    in float32 even in a model of doubles."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.float:
            return args[0].double()
        return function(*map(widen, args), **{key: widen(value) for key, value in (kwargs or {}).items()})


def widen(argument):
    return torch.float64 if argument is torch.float32 else argument


def build_model(case, dtype):
    config = case.config
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").to(dtype)
    with torch.no_grad():
        for name, parts in argosy_parameters(model).items():
            views = [parameter[rows] for parameter, rows in parts]
            shape = (sum(len(view) for view in views), *views[0].shape[1:])
            weight = initial_weight(name, shape, config.hidden_size, config.tie_word_embeddings, case.seed,
                                    norms_add_one=config.model_type.startswith("gemma"))
            for view, values in zip(views, torch.from_numpy(weight).split([len(view) for view in views])):
                view.copy_(values)
    return model


def argosy_parameters(model):
    """Argosy's parameters, each as the rows of transformers' that are its own rows, in order."""
    has_post_norms = any("post_feedforward_layernorm" in name for name, _ in model.named_parameters())
    found = {}
    for name, parameter in model.named_parameters():
        for own, rows in argosy_parts(name, model.config, has_post_norms):
            found.setdefault(own, []).append((parameter, rows))
    return found


def loss_and_logits(model, tokens, targets):
    """The loss is the sum over the valid targets divided by their number."""
    logits = model(input_ids=torch.from_numpy(tokens), use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(targets).flatten(), ignore_index=IGNORED), logits


def compute_gradients(model, loss):
    """Experts that no token chose have no gradient in transformers, and then AdamW would not decay them; here it is 0."""
    loss.backward()
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


@torch.no_grad()
def slope(element, loss_of, delta):
    """The central difference of fourth order."""
    value, difference = element.item(), 0
    for steps, factor in ((-2, 1), (-1, -8), (1, 8), (2, -1)):
        element.fill_(value + steps * delta)
        difference += factor * loss_of() / (12 * delta)
    element.fill_(value)
    return difference


def check_gradients(model, tokens, targets):
    """Compares the largest gradient of every parameter with a difference of losses; ends the program if they differ. A short
    step finds steep gradients, a long one small ones, which rounding hides."""
    def loss_of():
        return loss_and_logits(model, tokens, targets)[0].item()

    for name, parameter in model.named_parameters():
        index = parameter.grad.abs().argmax()
        element, gradient = parameter.detach().view(-1)[index], parameter.grad.view(-1)[index].item()
        differences = [slope(element, loss_of, delta) for delta in (1e-4, 1e-5)]
        if min(abs(difference - gradient) for difference in differences) > 1e-6 * abs(gradient) + 1e-10:
            raise SystemExit(f"{name}: gradient {gradient}, but finite differences {differences}")


def first_step_in_double(case, tokens, targets, checks):
    results = {}
    with DoubleThroughout():
        model = build_model(case, torch.float64)
        for name, parts in argosy_parameters(model).items():
            weight = torch.cat([parameter.detach()[rows] for parameter, rows in parts]).numpy()
            results[f"init_probe/{name}"] = np.array([weight.sum(), np.abs(weight).sum(), *weight.flat[:4]])
        loss, logits = loss_and_logits(model, tokens, targets)
        compute_gradients(model, loss)
        if checks:
            check_gradients(model, tokens, targets)
    results.update(loss0=np.array([loss.item()]), logits=logits.detach().numpy().astype(np.float32))
    for name, parts in argosy_parameters(model).items():
        results[f"grad/{name}"] = torch.cat([parameter.grad[rows] for parameter, rows in parts]).numpy().astype(np.float32)
    return results


def train(model, tokens, targets):
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": WEIGHT_DECAY},
         {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}],
        lr=LEARNING_RATE, betas=BETAS, eps=EPSILON)
    losses, norms = [], []
    for step_tokens, step_targets in zip(tokens, targets):
        optimizer.zero_grad()
        loss, _ = loss_and_logits(model, step_tokens, step_targets)
        compute_gradients(model, loss)
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, MAX_NORM).item())
        losses.append(loss.item())
        optimizer.step()
    return np.array(losses), np.array(norms)


def train_in_float(model, tokens, targets):
    losses, norms = train(model, tokens, targets)
    return {"losses": losses, "grad_norms": norms}


def train_in_double(case, tokens, targets):
    with DoubleThroughout():
        losses, norms = train(build_model(case, torch.float64), tokens, targets)
    return {"losses_in_double": losses, "grad_norms_in_double": norms}


def write_case(case, folder, checks=True):
    tokens, targets = make_batches(case)
    model = build_model(case, torch.float32)
    model.save_pretrained(folder / case.name)  # before the training
    results = {"seed": np.array([case.seed]), "tokens": tokens, "targets": targets,
               **first_step_in_double(case, tokens[0], targets[0], checks), **train_in_float(model, tokens, targets),
               **train_in_double(case, tokens[:8], targets[:8])}
    with h5py.File(folder / f"{case.name}.h5", "w", libver="earliest") as file:
        file.attrs.update(torch=str(torch.__version__), transformers=transformers.__version__)
        for name, value in results.items():
            file.create_dataset(name, data=value)
    print(f"{case.name}: loss {results['losses'][0]:.4f} -> {results['losses'][-1]:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="folder to write (default: here)")
    parser.add_argument("--random", type=int, metavar="COUNT", help="write so many random models instead of the cases")
    parser.add_argument("--seed", type=int, default=0, help="of the random models")
    options = parser.parse_args()
    torch.set_num_threads(1)  # sums in a fixed order, so that a second run writes the same bytes
    torch.use_deterministic_algorithms(True)
    options.output.mkdir(parents=True, exist_ok=True)
    for case in random_cases(options.random, options.seed) if options.random else all_cases():
        write_case(case, options.output, checks=not options.random)


if __name__ == "__main__":
    main()
