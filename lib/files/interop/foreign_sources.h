// Private to this room: models in the forms of other trainers. Their files describe the model in part, or not
// at all.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "interop/model_source.h"

namespace argosy::interop {

inline constexpr const char *kMetaParameters = "params.json", *kMetaWeights = "consolidated.00.pth", *kPickledWeights = "pytorch_model.bin",
                            *kPickledWeightsIndex = "pytorch_model.bin.index.json";

/// Whether something exists at the path and can be seen.
bool is_there(const std::filesystem::path& path);

/// Sets the model, and the folder of assets, that the options give. False if they give no model.
bool give_model(const OpenOptions& options, ModelSource& source);

/// A folder of torch.distributed.checkpoint that TorchTitan wrote, with the optimizer's states if it has
/// them. The model is the options', or the only preset whose weights have these names and shapes; a Llama is
/// the options', because its rotary frequencies do not show in shapes.
ModelSource open_distributed(const std::filesystem::path& folder, const OpenOptions& options);

/// The newest whole step among TorchTitan's folders step-N in `folder`; none if it has no such folders.
/// Warns, unless `quiet`, of newer ones that are not whole. UserError if none is.
std::optional<std::filesystem::path> newest_titan_step(const std::filesystem::path& folder, bool quiet);

/// UserError if `folder` is a save of TorchTitan that did not end.
void refuse_unfinished_titan_step(const std::filesystem::path& folder);

/// The iteration's folder that `folder` is, or the newest of a run's folder, if Megatron wrote it
/// (dist_checkpointing, torch_dist); none if it is of others. UserError for other formats of Megatron.
std::optional<std::filesystem::path> megatron_folder(const std::filesystem::path& folder);
/// The weights in an iteration's folder. The model is the options'; UserError if the arguments of the run,
/// which the folder may have, are those of another one.
ModelSource open_megatron(const std::filesystem::path& folder, const OpenOptions& options);

/// A folder of Meta's: params.json and consolidated.00.pth, or several such files, each with a part of every
/// matrix. The model is that of params.json; UserError if the options give another one.
ModelSource open_meta(const std::filesystem::path& folder, const OpenOptions& options);

/// The tensors of pytorch_model.bin, or of the files that pytorch_model.bin.index.json names.
std::unique_ptr<checkpoint::TensorSource> open_pickled_weights(const std::filesystem::path& folder);

}  // namespace argosy::interop
