// Keeps the cuBLASLt algorithms that compile.search_algorithms found for a rank's matrix products in a file
// of the run's folder. A restarted run uses the same algorithms, so it computes bit for bit as before and
// times no product twice. Each rank has its own file, because pipeline stages have different products and
// each rank does its own timing.
#pragma once

#include <filesystem>
#include <string>

#include "comm/communicator.h"
#include "config/job_config.h"
#include "ops/ops_context.h"

namespace argosy::setup {

class ProductChoices {
  public:
    /// Loads this rank's file if it exists. Throws UserError if the file is invalid. If the run does not
    /// search for algorithms, neither the constructor nor keep() does anything. REQUIRES: `tensors` outlives
    /// this object.
    ProductChoices(const config::JobConfig& config, const comm::Communicator& world,
                   ops::OpsContext& tensors);

    /// Rewrites the file if the step had new products. Call after each step, before the step's checkpoint.
    void keep();

  private:
    ops::OpsContext& tensors_;
    std::filesystem::path file_;  // empty: the run does not search
    std::string kept_;            // content of the file
    int num_kept_ = 0;            // number of products at the last keep()
};

}  // namespace argosy::setup
