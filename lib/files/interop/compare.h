// Compares the logits of two checkpoints of a model; only one unit of one model is in memory at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "model/model_spec.h"

namespace argosy::interop {

struct ComparedModel {
    const checkpoint::TensorSource& tensors;
    const model::ModelSpec& spec;
};

struct LogitsComparison {
    /// Whether the copy's results equal, bit for bit, the results of the original with its weights rounded to
    /// the copy's types. If the copy's types can hold all of the original's values, rounding changes nothing.
    bool equal() const { return first_different.empty(); }
    /// The first unit (model::unit_names) whose results differ; empty: none.
    std::string first_different;

    /// The cost of narrower types, compared with the unrounded original. `bound` is the allowed ratio of
    /// largest_difference to largest_logit; 0 if no type is narrower.
    double bound = 0;
    double largest_difference = 0, largest_logit = 0;
    int64_t num_positions = 0;

    bool passed() const;
    /// One line for people.
    std::string text() const;
};

/// Runs the same few sequences of tokens through both models in fp32, and compares the logits of their last
/// positions. The sequences depend only on the vocabulary's size. Throws UserError if the two are
/// different models or have different parameters. `progress` is called after each unit with the finished
/// share, 0 to 1.
LogitsComparison compare_logits(const ComparedModel& original, const ComparedModel& copy,
                                const std::function<void(double share)>& progress = {});

}  // namespace argosy::interop
