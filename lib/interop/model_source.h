// A model in any form: open_model detects the form at a path, and all forms are read through one interface.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/table.h"
#include "checkpoint/tensor_source.h"
#include "model/model_spec.h"

namespace argosy::interop {

enum class Form { Sharded, Full, HuggingFace };

/// The name on command lines: sharded, full, hf.
const char* name(Form form);

struct ModelSource {
    Form form = Form::Sharded;
    std::filesystem::path path;  // the detected step's folder, full file, or Hugging Face folder

    /// The weights are named "model/<parameter>", each occurs once and has the shape that the spec requires.
    /// A checkpoint may have "optimizer/..." tensors too.
    std::unique_ptr<checkpoint::TensorSource> tensors;
    model::ModelSpec spec;
    std::string config_json;  // the source of the spec, with all its other keys

    std::optional<checkpoint::Description> description;  // of a checkpoint

    /// Points to the object of `tensors` if that is a checkpoint, else null.
    const checkpoint::Checkpoint* checkpoint = nullptr;
};

/// `path` is a run's folder or its folder of checkpoints (the newest whole step is opened), a step's folder,
/// a full file, or a Hugging Face folder. UserError, listing what was expected and what exists, for anything
/// else, and for weights that do not belong to the model. Weights are read only where a tied model stores
/// them twice.
ModelSource open_model(const std::filesystem::path& path);

/// The run's folder of checkpoints, from which open_model opens the newest step. None if the path is anything
/// else.
std::optional<std::filesystem::path> folder_of_steps(const std::filesystem::path& path);

/// Reads the model's assets: the tokenizer's files, and for a checkpoint all that it stores.
std::vector<checkpoint::Asset> read_assets(const ModelSource& source);

/// Whether a file of this name is an asset of a Hugging Face model: a tokenizer file, generation_config.json.
bool is_asset(const std::string& name);

}  // namespace argosy::interop
