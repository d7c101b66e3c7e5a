// Reads each step's samples for this rank on a thread, two steps ahead of training, and copies them to the
// GPU if there is one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <future>
#include <limits>
#include <optional>
#include <vector>

#include "comm/mesh.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "data/loader.h"
#include "layout/slab.h"
#include "train/step.h"

namespace argosy::train {

/// Sizes of a step's batch. The whole job has global_batch = data-parallel ranks x num_microbatches x
/// microbatch_size sequences of seq_len tokens.
struct BatchSizes {
    int64_t global_batch, microbatch_size, num_microbatches;
    int64_t seq_len;  // the loader's samples may be shorter
    layout::ContextBalance balance = layout::ContextBalance::HeadTail;
    int64_t global_tokens() const { return global_batch * seq_len; }
    int64_t samples_per_rank() const { return microbatch_size * num_microbatches; }
};

/// This rank's part of each whole sequence [..., seq_len] (its last dim), copied.
at::Tensor own_part(const at::Tensor& whole, layout::ContextBalance balance, const comm::Mesh& mesh);

/// Ranks of a context axis read the same samples, and each keeps its part of every sample.
///
/// Each step takes the next global_batch samples of the run. They are split into equal parts, and
/// data-parallel rank r takes part r. The all-reduce of the job's counted tokens runs while the previous step
/// computes, while a thread reads the samples of the step after.
///
/// Padding has targets that do not count: samples from `end_sample` on, and tokens after those of a sample.
class DataFeed {
  public:
    /// Feeds `num_steps` steps. The first step begins at position `first_sample` of the run. REQUIRES: loader
    /// and mesh outlive this object.
    DataFeed(const data::Loader& loader, comm::Mesh& mesh, const BatchSizes& sizes, int64_t first_sample,
             int64_t num_steps, int64_t end_sample = std::numeric_limits<int64_t>::max());

    /// COLLECTIVE over the data axes: returns the next step's batch. REQUIRES: fewer than num_steps calls so
    /// far.
    StepBatch next();

    /// COLLECTIVE over the data axes: reads the next step's batch, if there is one, while the GPU computes
    /// the work in its queue. Does nothing without a GPU, because next() has read that batch already.
    void read_meanwhile();

    /// Seconds for which the GPU was idle because the last read_meanwhile() was still reading; 0 without a
    /// GPU. REQUIRES: the GPU has finished all work in its queue.
    double seconds_gpu_waited() const;

    /// The numbers of all samples of the job in the step of `batch` (samples of the token file). Block r of
    /// samples_per_rank() of these samples is the part of data-parallel rank r.
    std::vector<int64_t> samples(const StepBatch& batch) const;

  private:
    /// The rows of the tensors of samples and batches; a column is a token. kPositions and kDocumentEnds are
    /// there only if they are needed.
    enum Row : int64_t { kTokens, kTargets, kPositions, kDocumentEnds };

    /// Pinned host memory for the batch that was read last, and the state of its copy to the GPU.
    struct ForGpu {
        explicit ForGpu(int64_t num_bytes) : pinned(num_bytes) {}
        cuda::PinnedMemory pinned;
        // Events on the compute stream: read_meanwhile() records `computed` before it reads the batch, and
        // `read` after that. The time between the two events is the time for which the GPU was idle.
        cuda::Event computed, read;
        cuda::Event copied{cuda::Timing::Off};  // `pinned` may be reused after this event
        bool timed = false;                     // whether the last read_meanwhile() recorded the events
    };
    void read_ahead();
    int context_degree() const { return mesh_.degree(layout::Axis::Context); }
    int64_t own_seq_len() const { return sizes_.seq_len / context_degree(); }
    int64_t num_tokens() const { return sizes_.samples_per_rank() * own_seq_len(); }
    /// Ranks of a context axis need the positions of their tokens even if a sequence is one document.
    bool gives_positions() const { return loader_.gives_positions() || context_degree() > 1; }
    static int64_t rows_up_to(Row last) { return last + 1; }
    /// The rows that the loader reads, and those of a batch before with_document_ends().
    int64_t num_read_rows() const { return rows_up_to(loader_.gives_positions() ? kPositions : kTargets); }
    int64_t num_rows() const { return rows_up_to(gives_positions() ? kPositions : kTargets); }
    /// Attention on a GPU needs the documents' offsets.
    bool gives_offsets() const { return for_gpu_ && gives_positions(); }
    at::Tensor with_document_ends(const at::Tensor& own);
    void make_room_for_documents(const at::Tensor& whole);
    /// This rank's parts of a sequence are equally long.
    std::vector<layout::Range> own_ranges() const {
        return layout::context_parts(sizes_.balance, sizes_.seq_len, context_degree(),
                                     mesh_.coordinate(layout::Axis::Context));
    }
    void start_reading();
    at::Tensor take_samples();
    at::Tensor on_device(const at::Tensor& in_memory);

    const data::Loader& loader_;
    comm::Mesh& mesh_;
    BatchSizes sizes_;
    int64_t next_sample_;  // position in the run of the sample that is read next
    int64_t num_steps_, num_read_ = 0;
    int64_t end_sample_;

    std::optional<ForGpu> for_gpu_;
    /// Never shrinks, and is the same on all ranks: a recorded graph is for one capacity, and its collectives
    /// belong to the graphs that all other ranks record at the same time.
    int64_t document_capacity_ = 1;
    /// The batch that next() returns. next() adds the documents' offsets, which need the ranks' capacity.
    StepBatch ahead_;
    std::vector<at::Tensor> ahead_document_ends_;  // of each microbatch of ahead_, if gives_offsets()
    at::Tensor job_tokens_;                        // ahead_.job_counted_tokens, once counting_ is done
    at::Tensor job_capacity_;  // the maximum of document_capacity_ over the ranks, once counting_ is done
    comm::Pending counting_;
    at::Tensor samples_;         // of the step after ahead_, while a thread reads them
    std::future<void> reading_;  // its destructor waits for that thread
};

}  // namespace argosy::train
