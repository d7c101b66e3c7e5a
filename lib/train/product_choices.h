// What compile.search_algorithms found for a rank's matrix products on its GPU, kept in the run's folder: a
// run that starts again computes with the same algorithms, so bit for bit as before, and times nothing twice.
// A file for each rank, since ranks of a pipeline have other products and all of them time for themselves.
#pragma once

#include <filesystem>
#include <string>

#include "comm/communicator.h"
#include "config/job_config.h"
#include "ops/tensor_thread.h"

namespace argosy::train {

class ProductChoices {
  public:
    /// Takes up what this rank's file says; throws UserError for one that says nothing. Does nothing, now and
    /// later, where nothing is searched. REQUIRES: tensors outlives it.
    ProductChoices(const config::JobConfig& config, const comm::Communicator& world,
                   ops::TensorThread& tensors);

    /// Writes the file anew where products have come that it does not have: after a step, and before its
    /// checkpoint.
    void keep();

  private:
    ops::TensorThread& tensors_;
    std::filesystem::path file_;  // empty: nothing is searched
    std::string kept_;
    int num_kept_ = 0;  // problems that had come by then
};

}  // namespace argosy::train
