// The converters of a run: which products cast their operands to eight bits.
#pragma once

#include "config/job_config.h"
#include "layout/mesh_shape.h"
#include "model/model_spec.h"
#include "parallel/product_casts.h"

namespace argosy::setup {

/// Throws UserError if a rank's tokens are no whole blocks.
parallel::ProductCasts product_casts(const config::JobConfig& config, int64_t rank_tokens);

/// Logs the recipe, the matrices whose products do not cast, and filters without effect.
void log_product_casts(const config::JobConfig& config, const model::ModelSpec& spec,
                       const layout::MeshShape& mesh);

}  // namespace argosy::setup
