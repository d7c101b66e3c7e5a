#include "interop/conversion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hash.h"
#include "h5/dataset.h"
#include "interop/element_conversion.h"
#include "interop/names.h"
#include "model/units.h"

namespace argosy::interop {
namespace {

using checkpoint::StoredSlab;
using checkpoint::TensorInfo;

// The maximum size of a slab in the wider of its two types. A slab of this size stays in the CPU's cache
// while it is read, checked and converted.
constexpr int64_t kSlabBytes = 2 << 20;

struct Buffers {
    std::vector<std::byte> in, out;
};

bool is_weight(const TensorInfo& tensor) { return tensor.name.starts_with(kModelPrefix); }

/// Returns the conversions' indices, largest tensor first, so that all threads end at about the same time.
std::vector<size_t> by_size(const std::vector<TensorConversion>& conversions) {
    std::vector<size_t> order(conversions.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater(),
                             [&](size_t i) { return conversions[i].from->num_bytes(); });
    return order;
}

/// Verifies the checks of one tensor while a conversion reads its bytes, so that nothing is read twice. One
/// thread adds the elements, from the first to the last.
class SlabChecks {
  public:
    /// UserError if the checks cannot be read. REQUIRES: `checkpoint` outlives this object, and `tensor` is
    /// one of its tensors().
    SlabChecks(const checkpoint::Checkpoint& checkpoint, const TensorInfo& tensor)
        : checkpoint_(checkpoint),
          tensor_(tensor),
          slabs_(checkpoint.slabs(tensor)),
          hashers_(slabs_.size()) {}

    /// Adds the next elements. REQUIRES: `slab` consists of consecutive elements.
    void add(const layout::Slab& slab, std::span<const std::byte> bytes) {
        const int64_t width = size_bytes(tensor_.type);
        for (size_t i = 0; i < hashers_.size(); ++i) {
            const layout::Slab& stored = slabs_[i].slab;
            const auto common = layout::intersection(stored, slab);
            if (!common) continue;
            layout::for_each_run(*common, stored, slab, [&](const layout::Run& run) {
                hashers_[i].add(bytes.subspan(run.in_b * width, run.length * width));
            });
        }
    }

    /// UserError, with file, tensor, expected and found check, if a slab's check differs. REQUIRES: all
    /// elements were added.
    void finish() const {
        for (size_t i = 0; i < hashers_.size(); ++i) {
            const StoredSlab& stored = slabs_[i];
            const checkpoint::Hash found = hashers_[i].value();
            if (found == stored.hash) continue;
            const std::string file = stored.file == StoredSlab::kThisFile
                                         ? ""
                                         : "/" + checkpoint_.manifest().files[stored.file].name;
            throw DamageError(
                "{}{}: tensor '{}' is damaged: its slab at [{}] of [{}] gives the check {}, and {} was "
                "expected",
                checkpoint_.place(), file, tensor_.name, fmt::join(stored.slab.offset, ", "),
                fmt::join(stored.slab.size, ", "), found.hex(), stored.hash.hex());
        }
    }

  private:
    const checkpoint::Checkpoint& checkpoint_;
    const TensorInfo& tensor_;
    std::vector<StoredSlab> slabs_;
    std::vector<checkpoint::Hasher> hashers_;  // one per slab
};

/// Reads, checks and converts one tensor.
class TensorReader {
  public:
    TensorReader(const ModelSource& source, const TensorConversion& conversion, Buffers& buffers)
        : source_(source), conversion_(conversion), buffers_(buffers) {
        if (source.checkpoint) checks_.emplace(*source.checkpoint, *conversion.from);
    }

    /// Reads the slab and returns its elements, converted to the target type, in memory that the next call
    /// overwrites.
    std::span<const std::byte> read(const layout::Slab& slab) {
        const TensorInfo &from = *conversion_.from, &to = conversion_.to;
        buffers_.in.resize(slab.num_elements() * size_bytes(from.type));
        source_.tensors->read(from, slab, buffers_.in);
        if (checks_) checks_->add(slab, buffers_.in);
        const int64_t in_source = num_not_finite(from.type, buffers_.in);
        not_finite_.in_source += in_source;
        if (from.type == to.type) return buffers_.in;
        buffers_.out.resize(slab.num_elements() * size_bytes(to.type));
        convert_elements(from.type, buffers_.in, to.type, buffers_.out);
        not_finite_.too_large += num_not_finite(to.type, buffers_.out) - in_source;
        return buffers_.out;
    }

    /// Checks the source's bytes.
    NotFinite finish() const {
        if (checks_) checks_->finish();
        return not_finite_;
    }

  private:
    const ModelSource& source_;
    const TensorConversion& conversion_;
    Buffers& buffers_;
    NotFinite not_finite_;
    std::optional<SlabChecks> checks_;
};

}  // namespace

ByteProgress::ByteProgress(std::string task, int64_t total_bytes)
    : total_bytes_(total_bytes), progress_(std::move(task)) {}

void ByteProgress::add(int64_t num_bytes) {
    const int64_t done_bytes = done_bytes_ += num_bytes;
    // A thread that does not get the lock shows nothing; its bytes are counted already.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || !progress_.due()) return;
    const double share =
        total_bytes_ > 0 ? static_cast<double>(done_bytes) / static_cast<double>(total_bytes_) : 1;
    progress_.show(share, fmt::format("{} of {}  {}/s", bytes_text(done_bytes), bytes_text(total_bytes_),
                                      bytes_text(bytes_per_second())));
}

std::string ByteProgress::summary() const {
    return fmt::format("{} in {:.3g} s, {}/s", bytes_text(done_bytes_), progress_.seconds(),
                       bytes_text(bytes_per_second()));
}

int64_t ByteProgress::bytes_per_second() const {
    return static_cast<int64_t>(static_cast<double>(done_bytes_) / std::max(progress_.seconds(), 1e-9));
}

std::string bytes_text(int64_t num_bytes) {
    constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB", "TB"};
    auto value = static_cast<double>(num_bytes);
    int unit = 0;
    for (; unit < 4 && value >= 999.5; ++unit) value /= 1000;
    return unit == 0 ? fmt::format("{} bytes", num_bytes) : fmt::format("{:.3g} {}", value, kUnits[unit]);
}

std::vector<TensorConversion> plan_conversions(const ModelSource& source, Content content,
                                               std::optional<ElementType> type) {
    std::vector<TensorConversion> conversions;
    for (const TensorInfo& tensor : source.tensors->tensors()) {
        if (content == Content::ModelOnly && !is_weight(tensor)) continue;
        TensorConversion& conversion = conversions.emplace_back(&tensor, tensor);
        if (type && is_weight(tensor) && !model::is_router_bias(tensor.name)) conversion.to.type = *type;
    }
    return conversions;
}

std::string NotFinite::text(const TensorConversion& conversion) const {
    const TensorInfo& from = *conversion.from;
    std::vector<std::string> parts;
    if (in_source > 0) parts.push_back(fmt::format("{} are NaN or infinite", in_source));
    if (too_large > 0) {
        parts.push_back(
            fmt::format("{} are too large for {} and became infinite", too_large, conversion.to.type_name()));
    }
    if (parts.empty()) return "";
    return fmt::format("{}: of {} elements {}", from.name, from.num_elements(), fmt::join(parts, ", "));
}

std::vector<NotFinite> run_conversions(const ModelSource& source,
                                       const std::vector<TensorConversion>& conversions,
                                       const StreamOptions& stream_options, const Receiver& receive) {
    const std::vector<size_t> order = by_size(conversions);
    std::vector<Buffers> buffers(stream_options.num_threads);
    std::vector<NotFinite> not_finite(conversions.size());
    run_in_threads(order.size(), stream_options.num_threads, [&](size_t job, size_t thread) {
        const TensorConversion& conversion = conversions[order[job]];
        TensorReader reader(source, conversion, buffers[thread]);
        const int64_t from_bytes = size_bytes(conversion.from->type),
                      to_bytes = size_bytes(conversion.to.type);
        const int64_t max_elements = kSlabBytes / std::max(from_bytes, to_bytes);
        for (const layout::Slab& slab : layout::consecutive_slabs(conversion.from->shape, max_elements)) {
            if (stream_options.stopped && stream_options.stopped())
                throw RunError("stopped by a signal; no unfinished output is left");
            receive(order[job], slab, reader.read(slab));
            if (stream_options.progress) stream_options.progress->add(slab.num_elements() * from_bytes);
        }
        not_finite[order[job]] = reader.finish();
    });
    return not_finite;
}

int64_t num_source_bytes(const std::vector<TensorConversion>& conversions) {
    int64_t sum = 0;
    for (const TensorConversion& conversion : conversions) sum += conversion.from->num_bytes();
    return sum;
}

void run_in_threads(size_t num_jobs, int num_threads,
                    const std::function<void(size_t i, size_t thread)>& job) {
    std::atomic<size_t> next = 0;
    std::mutex mutex;
    std::exception_ptr failure;
    const auto work = [&](size_t thread) {
        for (size_t i = next++; i < num_jobs; i = next++) {
            try {
                job(i, thread);
            } catch (...) {
                next = num_jobs;
                const std::lock_guard lock(mutex);
                if (!failure) failure = std::current_exception();
            }
        }
    };
    {
        std::vector<std::jthread> others;
        for (int thread = 1; thread < num_threads; ++thread) others.emplace_back(work, thread);
        work(0);
    }
    if (failure) std::rethrow_exception(failure);
}

}  // namespace argosy::interop
