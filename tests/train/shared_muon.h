// Muon for so few matrices that the ranks of a tensor group share them: w1 of the first layer, which is tall,
// and w2 of the last one, which is wide. AdamW takes the others.
#pragma once

#include <string>

#include "train/muon.h"
#include "train/tiny_run.h"

namespace argosy::testing {

/// Layers so wide that sharing shortens an update also where four ranks share two matrices. With an odd `dim`
/// two and four ranks divide neither side of a matrix.
inline model::ModelSpec widened(const std::string& family, int64_t dim) {
    model::ModelSpec spec = tiny_spec(family);
    spec.dim = dim;
    spec.hidden_dim = 6101;
    return spec;
}

inline train::OptimizerChoice shared_muon(const train::MuonOptions& options = {}) {
    train::OptimizerChoice choice = train::muon(options);
    choice.takes = [](const layout::ParamSpec& spec) {
        return spec.name == "layers.0.feed_forward.w1.weight" ||
               spec.name == "layers.4.feed_forward.w2.weight";
    };
    return choice;
}

}  // namespace argosy::testing
