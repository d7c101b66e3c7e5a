// A saved step in the form that others read.
#pragma once

#include <filesystem>
#include <optional>

#include "config/choices.h"

namespace argosy::train {

/// UserError where something lies at `place` that is no Hugging Face folder as this program writes them, so
/// that writing one would delete what is somebody else's.
void require_replaceable(const std::filesystem::path& place);

/// Writes the weights of a step's folder as a Hugging Face folder at `place`, whole or not at all; one that
/// is there is replaced. `type`: of the weights, if not as they are. UserError where the step is not sound,
/// and as of require_replaceable.
void write_hugging_face(const std::filesystem::path& step, const std::filesystem::path& place,
                        std::optional<config::Precision> type);

}  // namespace argosy::train
