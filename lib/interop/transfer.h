// Plans the conversion of each tensor and transfers the bytes: reads, checks and converts at most 2 MiB at a
// time and passes them on. A large tensor is never in memory as a whole.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/progress.h"
#include "checkpoint/table.h"
#include "checkpoint/tensor_source.h"
#include "h5/dataset.h"
#include "interop/model_source.h"
#include "layout/slab.h"

namespace argosy::interop {

// Runs independent jobs in a few threads.

/// Calls job(i, thread) once for each i below `num_jobs` from `num_threads` threads; jobs start in ascending
/// order. After an exception no job starts, running jobs finish, and run_in_threads() throws the first
/// exception.
void run_in_threads(size_t num_jobs, int num_threads,
                    const std::function<void(size_t i, size_t thread)>& job);

// Progress of a long transfer of bytes.

class Progress {
  public:
    /// `title` names the task, such as "converting".
    Progress(std::string title, int64_t total_bytes, const Environment& environment);

    /// Counts transferred bytes. Any thread may call add().
    void add(int64_t num_bytes);

    /// Describes the bytes added so far: "12.3 GB in 4.5 s, 2.73 GB/s".
    std::string summary() const;

  private:
    int64_t bytes_per_second() const;

    int64_t total_bytes_;
    std::atomic<int64_t> done_bytes_ = 0;
    std::mutex mutex_;
    argosy::Progress shown_;
};

/// "1.23 GB", in powers of 1000.
std::string bytes_text(int64_t num_bytes);

struct Transfer {
    const checkpoint::TensorInfo* from = nullptr;
    checkpoint::TensorInfo to;  // same name and shape
};

enum class Content { Everything, ModelOnly };

/// The transfers of all tensors, or of the weights alone. If `type` is given, weights are converted to
/// `type`; the optimizer's state keeps its types. The pointers in the result point into `source`.
std::vector<Transfer> plan_transfers(const ModelSource& source, Content content,
                                     std::optional<ElementType> type);

struct TransferOptions {
    int num_threads = 1;
    Progress* progress = nullptr;  // counts bytes of the source
    // Called before each slab is read; true ends the transfer with a RunError.
    std::function<bool()> stopped = {};
};

/// Receives the next slab of a tensor: at most 2 MiB of consecutive elements. Called from several threads,
/// for different tensors.
using Take = std::function<void(size_t transfer, const layout::Slab& slab, std::span<const std::byte> bytes)>;

/// Transfers all tensors completely. Returns warnings for people about elements that became infinite.
/// UserError if the source's bytes do not match their checks.
std::vector<std::string> run_transfers(const ModelSource& source, const std::vector<Transfer>& transfers,
                                       const TransferOptions& transfer_options, const Take& take);

/// Bytes of the source that the transfers read.
int64_t num_source_bytes(const std::vector<Transfer>& transfers);

}  // namespace argosy::interop
