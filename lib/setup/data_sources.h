// The data of a run: the token files that the configuration names, checked against the model.
#pragma once

#include <optional>

#include "config/job_config.h"
#include "data/loader.h"
#include "model/model_spec.h"
#include "train/validation.h"

namespace argosy::setup {

/// The samples of training.dataset_path or data.mixture. Throws UserError if neither is set, if the
/// vocabulary of the tokens is larger than the model's, if they were made with another tokenizer than that in
/// model.hf_assets_path, if a folder with a tokenizer alone has a larger vocabulary than the model, and as
/// data::Loader does.
data::Loader training_data(const config::JobConfig& config, const model::ModelSpec& spec);

/// COLLECTIVE. Validation with the samples of validation.dataset_path, in their order and with the same
/// checks; none unless validation.enable is set. Throws UserError if the training data say another tokenizer.
/// REQUIRES: `options` are those of the trainer; trainer and
/// mesh outlive the result.
std::optional<train::Validation> make_validation(const config::JobConfig& config,
                                                 const data::Loader& training,
                                                 const train::TrainerOptions& options,
                                                 train::Trainer& trainer, comm::Mesh& mesh);

}  // namespace argosy::setup
