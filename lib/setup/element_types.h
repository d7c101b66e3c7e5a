// Element types of weights and optimizer states: conversion between the enums of the configuration, of
// LibTorch and of files.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "config/choices.h"
#include "h5/dataset.h"

namespace argosy::setup {

at::ScalarType scalar_type(config::Precision precision);

/// REQUIRES: fp64, fp32, bf16 or fp16.
h5::ElementType element_type(at::ScalarType type);

/// Empty for a type that no weight or state can have.
std::optional<at::ScalarType> scalar_type(h5::ElementType type);

}  // namespace argosy::setup
