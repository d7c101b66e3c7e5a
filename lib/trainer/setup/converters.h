// The converters of a run: which products cast their operands to eight bits.
#pragma once

#include <string>
#include <vector>

#include "config/job_config.h"
#include "cublas/matmul.h"
#include "layout/mesh_shape.h"
#include "parallel/product_casts.h"
#include "train/trainer.h"

namespace argosy::setup {

/// How products cast their operands, for the run's records: "float8 tensorwise", "mxfp8_cublas". Empty: none
/// does.
std::string product_casts_name(const config::JobConfig& config, const train::TrainerOptions& options,
                               const layout::MeshShape& mesh);

/// Throws UserError if a rank's tokens are no whole blocks.
parallel::ProductCasts product_casts(const config::JobConfig& config, int64_t rank_tokens);

/// Throws UserError if the config's recipe casts no matrix of the model. If auto_filter_small_kn is why, the
/// user has left it to the program: log_product_casts() warns.
void check_product_casts(const config::JobConfig& config, const train::TrainerOptions& options,
                         const layout::MeshShape& mesh);

/// Logs the recipe, which of its products the device computes in float8 and which are emulated, and why, the
/// matrices whose products do not cast, and filters without effect.
void log_product_casts(const config::JobConfig& config, const train::TrainerOptions& options,
                       const layout::MeshShape& mesh, const cublas::Target& target);

/// The log's text about the products of this recipe: "outputs, input gradients in float8; weight gradients
/// emulated in bf16, because ...". A matrix has the sizes of a rank's part, [out, in]; a rank has
/// `num_tokens` in a microbatch.
std::string ways_of_products(const ops::Recipe& recipe, const std::vector<std::vector<int64_t>>& matrices,
                             at::ScalarType compute, int64_t num_tokens, const cublas::Target& target);

}  // namespace argosy::setup
