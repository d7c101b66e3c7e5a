// Opens a model in any form. open_model() detects the form at a path, and ModelSource is the interface to all
// forms.
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
#include "tokenizer/tokenizer.h"

namespace argosy::interop {

/// Distributed: a folder of torch.distributed.checkpoint. Meta: a folder of Meta's files of Llama.
enum class Form { Sharded, Full, HuggingFace, Distributed, Meta };

/// The name in messages and on command lines: sharded, full, hf, dcp, meta.
const char* name(Form form);

struct ModelSource {
    Form form = Form::Sharded;
    std::filesystem::path path;  // the detected step's folder, full file, or folder of another program

    /// The folder with the tokenizer's files, unless a checkpoint has them; may be empty.
    std::filesystem::path assets = {};

    /// Each weight occurs once, has the name "model/<parameter>" and the shape that `spec` requires. A
    /// checkpoint, also of another program, may have "optimizer/..." tensors too.
    std::unique_ptr<checkpoint::TensorSource> tensors;
    model::ModelSpec spec;
    std::string config_json;  // Hugging Face's config.json, which `spec` is parsed from

    std::optional<checkpoint::Description> description;  // only of a checkpoint of this program or another

    /// Why no optimizer's states are read from a checkpoint of another program that may have them; else
    /// empty.
    std::string weights_alone = {};

    /// Points to the object of `tensors` if that is a checkpoint, else null.
    const checkpoint::Checkpoint* checkpoint = nullptr;
};

struct OpenOptions {
    /// Keys of a config.json. Every key that a checkpoint has was accepted when it was written.
    model::AcceptedKeys accepted = {};
    /// A Hugging Face folder whose config.json and tokenizer are those of a model whose own files lack them.
    std::filesystem::path assets = {};
    /// The model, in place of config.json's.
    std::optional<model::ModelSpec> spec = {};
    /// Another rank opens the same files: this one logs no warnings of what is in them, and reads nothing only
    /// to check it.
    bool checked = false;
    /// manifest_of() and ModelSource::weights_alone of that rank, for a folder of
    /// torch.distributed.checkpoint; else empty.
    std::string metadata = {}, weights_alone = {};
    /// Does not say which newer steps are passed over.
    bool quiet = false;
};

/// Opens the model at `path`: a step's folder, a full file, a Hugging Face folder, a folder of
/// torch.distributed.checkpoint or of Meta, or the newest whole step of a run's folder or of a folder of
/// checkpoints. UserError for anything else, with what was expected and what exists, and for weights that do
/// not belong to the model. Reads weights only to compare the two copies that a tied model may store.
ModelSource open_model(const std::filesystem::path& path, const OpenOptions& options = {});

/// The list of the tensors, so that other ranks need not read it: a step's manifest as JSON, or the bytes of
/// .metadata (torch.distributed.checkpoint). Empty for the other forms.
std::string manifest_of(const ModelSource& source);

/// The step that another rank has opened with open_model(): `path` is its ModelSource::path, and `manifest`
/// its manifest_of(). Opens no file.
ModelSource open_known_step(const std::filesystem::path& path, const std::string& manifest);

/// The folder of checkpoints at `path`, or inside a run's folder at `path`, from which open_model() opens the
/// newest step. Empty if `path` is anything else.
std::optional<std::filesystem::path> folder_of_steps(const std::filesystem::path& path);

/// Reads the assets of a Hugging Face folder, in a fixed order. None if there is no such folder. UserError if
/// one is a link to a missing file.
std::vector<checkpoint::Asset> assets_in(const std::filesystem::path& folder);

/// Reads the model's assets: all that a checkpoint stores, or assets_in() its folder.
std::vector<checkpoint::Asset> read_assets(const ModelSource& source);

/// The tokenizer whose files the model has. Null if it has none.
std::unique_ptr<tokenizer::Tokenizer> open_tokenizer(const ModelSource& source);

/// Whether a file of this name is an asset of a Hugging Face model, such as a tokenizer's file or
/// generation_config.json.
bool is_asset(const std::string& name);

}  // namespace argosy::interop
