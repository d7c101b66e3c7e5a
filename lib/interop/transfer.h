// Plans the conversion of each tensor, and moves its bytes: read, check, convert, hand on, a few MiB at a
// time. No tensor is ever in memory as a whole.
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

/// Calls job(i, thread) once for each i below `num_jobs`, in ascending order, from `num_threads` threads.
/// After the first exception the other threads finish their current jobs; the exception is then thrown here.
void run_in_threads(size_t num_jobs, int num_threads,
                    const std::function<void(size_t i, size_t thread)>& job);

// Progress of a long transfer of bytes.

class Progress {
  public:
    /// `title` names the task, such as "converting".
    Progress(std::string title, int64_t total_bytes, const Environment& environment);

    /// Counts transferred bytes. Any thread.
    void add(int64_t num_bytes);

    /// Bytes added so far: "12.3 GB in 4.5 s, 2.73 GB/s".
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

/// Weights get the type `type`, if it is given; the optimizer's state keeps its own types. The pointers in
/// the result point into `source`.
std::vector<Transfer> plan_transfers(const ModelSource& source, Content content,
                                     std::optional<ElementType> type);

struct TransferOptions {
    int num_threads = 1;
    Progress* progress = nullptr;  // counts bytes of the source
    std::function<bool()> stopped =
        {};  // called before each slab is read; true ends the transfer with a RunError
};

/// Receives the next slab of a tensor, at most a few MiB of consecutive elements. Called from several
/// threads, for different tensors.
using Take = std::function<void(size_t transfer, const layout::Slab& slab, std::span<const std::byte> bytes)>;

/// Transfers all tensors completely. Returns warnings for people: elements that became infinite. UserError if
/// the source's bytes do not match their checks.
std::vector<std::string> run_transfers(const ModelSource& source, const std::vector<Transfer>& transfers,
                                       const TransferOptions& transfer_options, const Take& take);

/// Bytes of the source that the transfers read.
int64_t num_source_bytes(const std::vector<Transfer>& transfers);

}  // namespace argosy::interop
