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
    /// The copy computes, bit for bit, what the original does once its weights are rounded to the copy's
    /// types. Where the copy's types hold all values of the original's, rounding does nothing.
    bool equal() const { return first_different.empty(); }
    std::string
        first_different;  // the unit (model::unit_names) whose results are the first that differ; empty: none

    /// What narrower types cost, against the original as it is: `bound` is how much of the largest logit the
    /// largest difference may be, 0 where nothing is narrower.
    double bound = 0;
    double largest_difference = 0, largest_logit = 0;
    double divergence = 0;  // Kullback-Leibler, of the copy from the original, mean over positions, nats
    int64_t num_positions = 0;

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
