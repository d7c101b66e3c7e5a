// The numbers that a checkpoint keeps of a run in addition to the tensors, and their JSON form (FORMAT.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "optim/loss_scale.h"
#include "train/position.h"
#include "train/update_guard.h"

namespace argosy::resume {

struct Scalars {
    train::Position position;
    int64_t seq_len = 0;  // tokens of a sample, the unit of position.samples
    uint64_t seed = 0;
    int64_t num_updates = 0;  // AdamW's updates: the steps without the skipped ones
    std::optional<optim::LossScale::State> loss_scale;
    train::UpdateGuard::State guard;
    bool operator==(const Scalars&) const = default;
};

std::string to_json(const Scalars& scalars);

/// UserError, naming `place`, for a text that to_json did not write.
Scalars parse_scalars(const std::string& text, const std::string& place);

}  // namespace argosy::resume
