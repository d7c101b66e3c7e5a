// Plans the conversion of each tensor and runs it: reads, checks and converts at most 2 MiB at a
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

#include "base/element_type.h"
#include "base/progress.h"
#include "checkpoint/tensor_source.h"
#include "interop/model_source.h"
#include "layout/slab.h"

namespace argosy::interop {

/// Progress of a long transfer of bytes.
class ByteProgress {
  public:
    /// `task` begins each line: "converting".
    ByteProgress(std::string task, int64_t total_bytes);

    /// Counts transferred bytes. Any thread may call add().
    void add(int64_t num_bytes);

    /// Describes the bytes added so far: "12.3 GB in 4.5 s, 2.73 GB/s".
    std::string summary() const;

  private:
    int64_t bytes_per_second() const;

    int64_t total_bytes_;
    std::atomic<int64_t> done_bytes_ = 0;
    std::mutex mutex_;
    Progress progress_;
};

/// "1.23 GB", in powers of 1000.
std::string bytes_text(int64_t num_bytes);

struct TensorConversion {
    const checkpoint::TensorInfo* from = nullptr;
    checkpoint::TensorInfo to;  // same name and shape
};

enum class Content { Everything, ModelOnly };

/// The conversions of all tensors, or of the weights alone. If `type` is given, weights are converted to
/// `type`; the optimizer's state and the biases of experts keep their types. The pointers in the result point
/// into `source`.
std::vector<TensorConversion> plan_conversions(const ModelSource& source, Content content,
                                               std::optional<ElementType> type);

struct StreamOptions {
    int num_threads = 1;
    ByteProgress* progress = nullptr;  // counts bytes of the source
    // Called before each slab is read; true ends the conversion with a RunError.
    std::function<bool()> stopped = {};
};

/// Receives the next slab of a tensor: at most 2 MiB of consecutive elements. Called from several threads,
/// for different tensors.
using Receiver =
    std::function<void(size_t conversion, const layout::Slab& slab, std::span<const std::byte> bytes)>;

/// The numbers of a tensor's elements that are NaN or infinite.
struct NotFinite {
    int64_t in_source = 0;
    int64_t too_large = 0;  // finite in the source, infinite after the conversion

    /// A line for people that names the tensor; empty if all elements are finite.
    std::string text(const TensorConversion& conversion) const;
};

/// Transfers all tensors completely. Returns what is not finite in each. UserError if the source's bytes do
/// not match their checks.
std::vector<NotFinite> run_conversions(const ModelSource& source,
                                       const std::vector<TensorConversion>& conversions,
                                       const StreamOptions& stream_options, const Receiver& receive);

/// Bytes of the source that the conversions read.
int64_t num_source_bytes(const std::vector<TensorConversion>& conversions);

/// Calls job(i, thread) once for each i below `num_jobs` from `num_threads` threads; jobs start in ascending
/// order. After an exception no job starts, running jobs finish, and run_in_threads() throws the first
/// exception.
void run_in_threads(size_t num_jobs, int num_threads,
                    const std::function<void(size_t i, size_t thread)>& job);

}  // namespace argosy::interop
