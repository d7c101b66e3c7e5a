#!/usr/bin/env python3
"""Writes muon.h5: twelve updates of torch.optim.Muon, in its own types and with its bfloat16 widened to fp64."""
import inspect
from pathlib import Path

import h5py
import numpy
import torch
from torch.optim import _muon

STEPS = 12
SHAPES = {"wide": (6, 20), "tall": (24, 7), "square": (9, 9), "row": (1, 8)}
VARIANTS = {
    "usual": {"adjust_lr_fn": "match_rms_adamw"},
    "original": {"adjust_lr_fn": "original", "nesterov": False, "momentum": 0.8, "ns_steps": 3},
}
RATE, DECAY = 0.02, 0.1


def widen():
    """The Newton-Schulz steps in the type of the gradient."""
    source = inspect.getsource(_muon._zeropower_via_newtonschulz)
    assert source.count(".bfloat16()") == 1
    exec(source.replace("grad.bfloat16()", "grad.clone()"), vars(_muon))


def train(start, gradients, type, options):
    weights = torch.nn.Parameter(torch.tensor(start, dtype=type))
    muon = torch.optim.Muon([weights], lr=RATE, weight_decay=DECAY, **options)
    steps = []
    for gradient in gradients:
        weights.grad = torch.tensor(gradient, dtype=type)
        muon.step()
        steps.append(weights.detach().double().numpy().copy())
    return numpy.stack(steps), muon.state[weights]["momentum_buffer"].double().numpy()


def main():
    torch.set_num_threads(1)
    random = numpy.random.default_rng(48)
    drawn = {shape: (random.standard_normal(size), random.standard_normal((STEPS, *size)))
             for shape, size in SHAPES.items()}
    with h5py.File(Path(__file__).parent / "muon.h5", "w", libver=("earliest", "v108")) as file:
        def write(name, values):
            file.create_dataset(name, data=values)

        for shape, (start, gradients) in drawn.items():
            write(f"{shape}/start", start)
            write(f"{shape}/gradients", gradients)
        for type in (torch.float32, torch.float64):
            if type == torch.float64:
                widen()
            for variant, options in VARIANTS.items():
                for shape, (start, gradients) in drawn.items():
                    weights, momentum = train(start, gradients, type, options)
                    name = f"{shape}/{variant}/{str(type).removeprefix('torch.')}"
                    write(f"{name}/weights", weights)
                    write(f"{name}/momentum", momentum)


if __name__ == "__main__":
    main()
