// Converts a model from one form to another, and compares the result with its source.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/element_type.h"
#include "checkpoint/checkpoint.h"
#include "interop/conversion.h"
#include "interop/model_source.h"
#include "interop/torchtitan_names.h"

namespace argosy::interop {

/// Settings that torch's optimizers save beside their states, for the next step of a run.
struct OptimizerSettings {
    double lr = 0, next_lr = 0;  // the largest rate of the schedule, and that of the next step
    double beta1 = 0, beta2 = 0, eps = 0;
    double momentum = 0;  // this line: of Muon
    bool nesterov = true;
    int64_t ns_steps = 0;
    std::string adjust_lr;  // torch's name
    struct OfParameter {
        double lr_factor = 1, weight_decay = 0;
        bool operator==(const OfParameter&) const = default;
    };
    std::map<std::string, OfParameter> parameters = {};  // all of the model's, by our names
};

struct ConvertOptions {
    Form to = Form::Sharded;
    Content content = Content::Everything;
    std::optional<ElementType> type = {};  // element type of the weights; none: as in the source
    int num_shards = 0;  // of a sharded checkpoint; 0: as in the source, or 1 if the source is not sharded
    int64_t max_file_bytes = 5'000'000'000;  // limit of a file of Hugging Face or torch, as in transformers
    TorchTitanNames names = TorchTitanNames::Current;  // of a distributed checkpoint
    std::optional<OptimizerSettings> optimizer = {};   // which a distributed checkpoint with states needs
};

/// Whether TorchTitan 0.2 has this tied model with a head of its own.
bool unties_head(const model::ModelSpec& spec);

/// Whether the source has states of an optimizer with the step that they belong to.
bool has_optimizer(const ModelSource& source);

/// UserError if TorchTitan has no model like the source's, which a distributed checkpoint then cannot hold.
void require_torchtitan_model(const ModelSource& source);

/// The tensors of the result. A Hugging Face folder holds only the model. REQUIRES:
/// require_torchtitan_model() if the result is a distributed checkpoint.
std::vector<TensorConversion> plan(const ModelSource& source, const ConvertOptions& options);

/// Writes the result at `partial`, where nothing exists yet. Returns the path of the result: `partial`
/// itself, or the folder of a step inside. The result is durable when convert() returns. UserError if the
/// source's bytes fail their checks. After an error the caller removes what is at `partial`.
std::filesystem::path convert(const ModelSource& source, const std::vector<TensorConversion>& conversions,
                              const ConvertOptions& options, const std::filesystem::path& partial,
                              const StreamOptions& stream_options);

// Reads the result of a conversion again and compares it with its source, element by element.

/// Returns one line for people for each difference, which names the tensor. The result must equal the
/// source's elements, converted as `conversions` requests, bit for bit, and the source's weights must be
/// finite. Also compares the checkpoint's description and assets, and verifies the result's checks. UserError
/// if the source's checks fail.
std::vector<std::string> differences(const ModelSource& source, const ModelSource& result,
                                     const std::vector<TensorConversion>& conversions,
                                     const StreamOptions& stream_options);

/// Verifies all checks of a checkpoint with `num_threads` threads and returns the faults.
std::vector<std::string> faults(const checkpoint::Checkpoint& checkpoint, int num_threads);

}  // namespace argosy::interop
