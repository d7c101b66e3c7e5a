#!/usr/bin/env python3
"""Writes what torchao computes in eight bits: the casts of a matrix, and twenty steps of training for each recipe; see
README.md for what is in the file."""

import argparse
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import torch
import torchao
from torch import nn
from torchao.float8 import Float8LinearConfig
from torchao.float8.float8_linear import Float8Linear
from torchao.float8.float8_utils import tensor_to_scale, to_fp8_saturated
from torchao.float8.config import ScalingGranularity
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import to_mx
from transformers import LlamaConfig

from cases import Case, make_batches
from initialisation import bell
from make_reference import build_model, loss_and_logits, train_in_float

NAME = "float8"
RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")
SCALE_MODES = {"mxfp8_cublas": ScaleCalculationMode.FLOOR, "mxfp8_cublas_rceil": ScaleCalculationMode.RCEIL}
BLOCKWISE = "blockwise"
WIDE = dict(hidden_size=128, intermediate_size=256, num_key_value_heads=4, head_dim=32)  # 128 divides the sides of its matrices
TYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def bits(tensor):
    return tensor.contiguous().view(torch.uint8).numpy()


def matrix():
    """bf16: rows and columns of sizes that differ by powers of two, a row and a column of zeros, and outliers."""
    values = bell("float8", (64, 96), 1.0, seed=17)
    values *= np.exp2(np.arange(64) % 23 - 11, dtype=np.float32)[:, None] * np.exp2(np.arange(96) % 7 - 3, dtype=np.float32)
    values[5], values[:, 9] = 0, 0
    values[40, 50], values[41, 51] = 3e4, -3e-4
    return torch.from_numpy(values).to(torch.bfloat16)


def casts(x):
    results = {"casts/x": x.float().numpy()}
    for type_name, dtype in TYPES.items():
        for power in (False, True):
            for name, dim in (("matrix", None), ("line0", 0), ("line1", 1)):
                granularity = ScalingGranularity.TENSORWISE if dim is None else ScalingGranularity.AXISWISE
                scale = tensor_to_scale(x, dtype, scaling_granularity=granularity, axiswise_dim=dim,
                                        round_scales_to_power_of_2=power)
                key = f"casts/{name}/{type_name}/{'power' if power else 'any'}"
                results[key + "/values"] = bits(to_fp8_saturated(x.float() * scale, dtype))
                results[key + "/scale"] = scale.reciprocal().reshape(-1).numpy()
    for name, mode in SCALE_MODES.items():
        for dim in (0, 1):
            exponents, values = to_mx((x.t() if dim == 0 else x).contiguous(), torch.float8_e4m3fn, 32, mode)
            exponents, values = bits(exponents), bits(values)
            key = f"casts/{name}/{dim}"
            results[key + "/values"], results[key + "/scale"] = (values.T, exponents.T) if dim == 0 else (values, exponents)
    return results


class BlockProduct(torch.autograd.Function):
    """y = x W^T with all operands of the three products in blocks, and sums in fp32. Two functions return the numbers that a
    matrix in blocks stands for, which lie along the rows: `numbers`, and for weights `weight_numbers`."""

    @staticmethod
    def forward(context, x, weight, numbers, weight_numbers):
        context.save_for_backward(x, weight)
        context.numbers, context.weight_numbers = numbers, weight_numbers
        return numbers(x) @ weight_numbers(weight).t()

    @staticmethod
    def backward(context, dy):
        (x, weight), numbers = context.saved_tensors, context.numbers
        dx = numbers(dy) @ context.weight_numbers(weight.t()).t()
        return dx, numbers(dy.t()) @ numbers(x.t()).t(), None, None


def mx_numbers(mode):
    def numbers(matrix):
        exponents, values = to_mx(matrix.contiguous(), torch.float8_e4m3fn, 32, mode)
        scales = torch.exp2(exponents.view(torch.uint8).float() - 127)
        return (values.float().unflatten(1, (-1, 32)) * scales.unsqueeze(-1)).flatten(1)
    return numbers


def numbers_128(rows):
    """Blocks of `rows` x 128 numbers in E4M3, with the smallest powers of two as scales with which none exceeds 448."""
    def numbers(matrix):
        blocks = matrix.reshape(matrix.shape[0] // rows, rows, matrix.shape[1] // 128, 128).double()
        fraction, exponent = torch.frexp(blocks.abs().amax((1, 3), keepdim=True) / 448)
        scales = torch.exp2((exponent - (fraction == 0.5).int()).double())
        return ((blocks / scales).float().to(torch.float8_e4m3fn).double() * scales).float().reshape(matrix.shape)
    return numbers


class BlockLinear(nn.Linear):
    numbers = None  # those of BlockProduct

    def forward(self, x):
        return BlockProduct.apply(x.flatten(0, -2), self.weight, *self.numbers).unflatten(0, x.shape[:-1])


class Part(nn.Module):
    """Some outputs of a linear layer that others share; the first part computes all of them."""

    def __init__(self, shared, begin, size):
        super().__init__()
        self.shared, self.begin, self.size = shared, begin, size

    def forward(self, x):
        if self.begin == 0:
            self.shared[1] = self.shared[0](x)
        return self.shared[1].narrow(-1, self.begin, self.size)


def joined(layers, convert):
    """Parts of one layer with the rows of all `layers`: Argosy computes them in one product, with one scale for all."""
    whole = nn.Linear(layers[0].in_features, sum(layer.out_features for layer in layers), bias=False)
    whole.weight = nn.Parameter(torch.cat([layer.weight.detach() for layer in layers]))
    whole = convert(whole)
    shared, begin, parts = [whole, None], 0, []
    for layer in layers:
        parts.append(Part(shared, begin, layer.out_features))
        begin += layer.out_features
    return parts, whole


def convert_model(model, convert, head):
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        (attention.q_proj, attention.k_proj, attention.v_proj), attention.qkv = joined(
            [attention.q_proj, attention.k_proj, attention.v_proj], convert)
        (mlp.gate_proj, mlp.up_proj), mlp.gate_up = joined([mlp.gate_proj, mlp.up_proj], convert)
        attention.o_proj, mlp.down_proj = convert(attention.o_proj), convert(mlp.down_proj)
    if head:
        model.lm_head = convert(model.lm_head)
    return model


def float8_converter(recipe):
    settings = vars(Float8LinearConfig.from_recipe_name(recipe)) | {"emulate": True}
    config = Float8LinearConfig(**settings)
    return lambda layer: Float8Linear.from_float(layer, config=config)


def block_converter(*numbers):
    def convert(layer):
        converted = BlockLinear(layer.in_features, layer.out_features, bias=False)
        converted.weight, converted.numbers = layer.weight, numbers
        return converted
    return convert


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="folder to write (default: here)")
    folder = parser.parse_args().output
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    case = Case(NAME, sequence=32, seed=23, config=LlamaConfig(
        vocab_size=128, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=96, max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=False))
    case.config.save_pretrained(folder / NAME)
    tokens, targets = make_batches(case)
    results = {"seed": np.array([case.seed]), "tokens": tokens, "targets": targets, **casts(matrix())}
    converters = {None: lambda layer: layer, **{recipe: float8_converter(recipe) for recipe in RECIPES},
                  **{recipe: block_converter(mx_numbers(mode), mx_numbers(mode)) for recipe, mode in SCALE_MODES.items()},
                  BLOCKWISE: block_converter(numbers_128(1), numbers_128(128))}
    wide_config = LlamaConfig(**{**case.config.to_dict(), **WIDE})
    for recipe, convert in converters.items():
        own_case = replace(case, config=wide_config) if recipe == BLOCKWISE else case
        model = convert_model(build_model(own_case, torch.float32), convert, head=recipe not in SCALE_MODES)
        loss, _ = loss_and_logits(model, tokens[0], targets[0])
        loss.backward()
        for name, parameter in (("layers.0.attention.wo", model.model.layers[0].self_attn.o_proj.weight),
                                ("layers.1.feed_forward.w2", model.model.layers[1].mlp.down_proj.weight)):
            results[f"{recipe or 'float32'}/grad/{name}"] = parameter.grad.numpy().copy()
        steps = train_in_float(model, tokens, targets)
        results.update({f"{recipe or 'float32'}/{name}": value for name, value in steps.items()})
        print(f"{recipe}: loss {steps['losses'][0]:.5f} -> {steps['losses'][-1]:.5f}")
    with h5py.File(folder / f"{NAME}.h5", "w", libver="earliest") as file:
        file.attrs.update(torch=str(torch.__version__), torchao=torchao.__version__)
        for name, value in results.items():
            file.create_dataset(name, data=value)


if __name__ == "__main__":
    main()
