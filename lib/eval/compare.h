// Whether two checkpoints of a model compute the same: one unit of one side resident at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "checkpoint/tensor_source.h"
#include "model/model_spec.h"

namespace argosy::eval {

struct Side {
    const checkpoint::TensorSource& tensors;
    const model::ModelSpec& spec;
};

struct LogitsComparison {
    /// The copy holds every weight as the original does, or in a type without loss: then logits must be equal
    /// bit for bit. Else it is narrower, and the largest difference may be `bound` of the largest logit.
    bool same_weights = true;
    double bound = 0;

    bool equal = false;  // bit for bit
    std::string
        first_different;  // the unit (model::unit_names) after which the two first differed; empty: none
    int64_t num_positions = 0;
    double largest_difference = 0, largest_logit = 0;
    double divergence = 0;  // Kullback-Leibler, of the copy from the original, mean over positions, nats

    bool passed() const;
    /// One line for people.
    std::string text() const;
};

/// Runs the same few sequences of tokens, which depend on the vocabulary's size alone, through both in fp32,
/// and compares logits of their last positions. UserError where the two are not of the same model or hold
/// other parameters. `progress` is called after each unit with the share that is done.
LogitsComparison compare_logits(const Side& original, const Side& copy,
                                const std::function<void(double share)>& progress = {});

}  // namespace argosy::eval
