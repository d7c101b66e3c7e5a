#include "comm/registered_memory.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "gpu/device.h"

namespace argosy::comm {
namespace {

constexpr int64_t kSegmentBytes = int64_t{64} << 20;
constexpr int64_t kAlignment = 512;  // LibTorch's own

int64_t rounded_up(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

std::byte* RegisteredSegments::take(int64_t bytes) {
    if (const auto found = free_.find(bytes); found != free_.end()) return free_.extract(found).mapped();
    if (bytes <= rest_bytes_) {
        rest_bytes_ -= bytes;
        return std::exchange(next_, next_ + bytes);
    }
    if (cuda::StreamView(gpu::current_stream()).is_captured())
        throw RunError("internal error: {} bytes are registered while a graph is recorded", bytes);
    std::byte* const begin =
        segments_.emplace_back(lane_->communicator, std::max(bytes, kSegmentBytes)).data();
    if (bytes < kSegmentBytes) {
        next_ = begin + bytes;
        rest_bytes_ = kSegmentBytes - bytes;
    }
    return begin;
}

at::Tensor RegisteredSegments::make(at::IntArrayRef shape, const at::TensorOptions& options) {
    const auto element_bytes = static_cast<int64_t>(options.dtype().itemsize());
    const int64_t bytes = rounded_up(c10::multiply_integers(shape) * element_bytes);
    std::byte* const part = take(bytes);
    const auto give_back = [self = shared_from_this(), part, bytes](void*) {
        self->free_.emplace(bytes, part);
    };
    return at::from_blob(part, shape, give_back, options);
}

int64_t RegisteredSegments::num_bytes() const {
    int64_t sum = 0;
    for (const nccl::RegisteredMemory& segment : segments_) sum += segment.num_bytes();
    return sum;
}

bool RegisteredSegments::registered() const {
    return std::ranges::all_of(segments_, &nccl::RegisteredMemory::registered);
}

}  // namespace argosy::comm
