// A model wherever it comes from: whatever form lies at a path is found by looking, and read through one
// interface.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/file_writer.h"
#include "checkpoint/tensor_source.h"
#include "model/model_spec.h"

namespace argosy::interop {

enum class Form { Sharded, Full, HuggingFace };

/// As command lines spell it: sharded, full, hf.
const char* name(Form form);

struct ModelSource {
    Form form = Form::Sharded;
    std::filesystem::path path;  // what was found: a step's folder, a full file, a Hugging Face folder

    /// The weights are "model/<parameter>", each once and as the spec wants it; a checkpoint's may have
    /// "optimizer/..." too.
    std::unique_ptr<checkpoint::TensorSource> tensors;
    model::ModelSpec spec;
    std::string config_json;  // where the spec comes from, with what else it says

    std::optional<checkpoint::Description> description;  // of a checkpoint

    /// The same as `tensors` where that is a checkpoint, else null.
    const checkpoint::Checkpoint* checkpoint = nullptr;
};

/// PATH is a run's folder or its folder of checkpoints (the newest whole step), a step's folder, a full file,
/// or a Hugging Face folder. UserError, with what was looked for and what is there, for anything else, and
/// for weights that are not those of the model. Weights are not read but where a tied model's are there
/// twice.
ModelSource open_model(const std::filesystem::path& path);

/// Where the steps lie whose newest open_model takes: a run's folder of checkpoints. None where the path is
/// anything else.
std::optional<std::filesystem::path> folder_of_steps(const std::filesystem::path& path);

/// How the tensors of a checkpoint lie in its files, by name; of other forms nothing is known.
std::map<std::string, const checkpoint::StoredTensor*> stored_tensors(const ModelSource& source);

/// The tokenizer's files that lie with the model, whole.
std::vector<checkpoint::Asset> read_assets(const ModelSource& source);

/// Whether a file of this name goes along with a model.
bool is_asset(const std::string& name);

}  // namespace argosy::interop
