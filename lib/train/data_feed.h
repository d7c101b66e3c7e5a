// Brings each step's samples to the ranks that train on them, one step ahead.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "cuda/memory.h"
#include "cuda/stream.h"
#include "data/loader.h"
#include "mesh/mesh.h"
#include "train/setup.h"
#include "train/step.h"

namespace argosy::train {

/// A step trains on the global_batch samples of the run that follow those of the step before; data-parallel
/// rank r on the r-th equal part of them, whatever the mesh. How many tokens count in the whole job is summed
/// while the step before computes.
class DataFeed {
  public:
    /// Of `num_steps` steps, the first of which begins with the run's sample `first_sample`. REQUIRES: loader
    /// and mesh outlive it.
    DataFeed(const data::Loader& loader, mesh::Mesh& mesh, const BatchSizes& sizes, int64_t first_sample,
             int64_t num_steps);

    /// COLLECTIVE over the data axes: the next step's batch, of num_steps.
    StepBatch next();

    /// COLLECTIVE over the data axes: reads the batch of the step after, if there is one, while the GPU
    /// computes what it was given. Where there is no GPU, next() did that already.
    void read_meanwhile();

    /// How long the GPU had nothing to do until that was read. REQUIRES: the GPU has done all that it was
    /// given.
    double seconds_gpu_waited() const;

    /// The samples of the whole job that the batch is this rank's part of, as the token file counts them: of
    /// data-parallel rank r the r-th sizes.samples_per_rank().
    std::vector<int64_t> samples(const StepBatch& batch) const;

  private:
    /// What is read last, until the GPU has it.
    struct ForGpu {
        explicit ForGpu(int64_t num_bytes) : pinned(num_bytes) {}
        cuda::PinnedMemory pinned;
        cuda::Event computed, read;  // on the stream: what was given to it before, and since
        cuda::Event copied{cuda::Timing::Off};
        bool waits = false;  // whether the first two are of the last step
    };
    void read_ahead();
    int64_t num_tokens() const { return sizes_.samples_per_rank() * loader_.seq_len(); }
    /// [2, num_tokens]: tokens and targets.
    at::Tensor place_to_read();
    at::Tensor on_device(const at::Tensor& read);

    const data::Loader& loader_;
    mesh::Mesh& mesh_;
    BatchSizes sizes_;
    int64_t next_sample_;  // of the run: what is read next
    int64_t num_steps_, num_read_ = 0;

    std::optional<ForGpu> for_gpu_;
    StepBatch ahead_;
    at::Tensor job_tokens_;  // of ahead_, once counting_ is done
    comm::Pending counting_;
};

}  // namespace argosy::train
