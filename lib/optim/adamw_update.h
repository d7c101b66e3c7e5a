// One update of one parameter, with the factors that are the same for all parameters already computed.
#pragma once

#include <cstdint>
#include <span>

#include "optim/adamw.h"

namespace argosy::optim {

struct Update {
    uint64_t number;  // number of the update, from 1
    double gradient_factor;
    double decay_factor;  // 1 - lr * weight decay
    double step_size;     // lr / (1 - beta1^number)
    double root_factor;   // 1 / sqrt(1 - beta2^number)
    double beta1, beta2, eps;
    uint64_t seed;
};

struct ItemUpdate {
    const AdamW::Item& item;
    const AdamW::Moments& moments;
    Update update;
};

/// Computes the updates with Argosy's kernels: the same bits as plain_update. On a GPU the kernels are queued
/// on the current stream.
void own_update(std::span<const ItemUpdate> updates);

/// The definition of the update, as a composition of LibTorch's operations.
void plain_update(const ItemUpdate& update);

}  // namespace argosy::optim
