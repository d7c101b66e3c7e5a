// The options of a training step by the configuration: optimizers with their groups of parameters, limits of
// gradients and attention scores, and the balance of experts.
#pragma once

#include "config/job_config.h"
#include "model/model_spec.h"
#include "train/step.h"

namespace argosy::setup {

/// Throws UserError if the keys of the optimizer, of QK-clip or of experts do not fit the model.
train::StepOptions step_options(const config::JobConfig& config, const model::ModelSpec& spec);

}  // namespace argosy::setup
