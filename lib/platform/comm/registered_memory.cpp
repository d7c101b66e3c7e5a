#include "comm/registered_memory.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "gpu/device.h"

namespace argosy::comm {
namespace {

constexpr int64_t kSegmentBytes = int64_t{64} << 20;
constexpr int64_t kLargeBytes = kSegmentBytes / 4;  // above, a tensor has a segment of its own
constexpr int64_t kAlignment = 512;                 // LibTorch's own

int64_t bytes_of(at::IntArrayRef shape, const at::TensorOptions& options) {
    const int64_t bytes = c10::multiply_integers(shape) * static_cast<int64_t>(options.dtype().itemsize());
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

bool RegisteredSegments::has_room(at::IntArrayRef shape, const at::TensorOptions& options) const {
    const int64_t bytes = bytes_of(shape, options);
    return free_.contains(bytes) || bytes <= rest_bytes_;
}

std::byte* RegisteredSegments::take(int64_t bytes) {
    if (const auto found = free_.find(bytes); found != free_.end()) return free_.extract(found).mapped();
    if (bytes <= rest_bytes_) {
        rest_bytes_ -= bytes;
        return std::exchange(next_, next_ + bytes);
    }
    if (cuda::StreamView(gpu::current_stream()).is_captured())
        throw RunError("internal error: {} bytes are registered while a graph is recorded", bytes);
    const bool is_large = bytes > kLargeBytes;
    const nccl::RegisteredMemory& segment =
        segments_.emplace_back(lane_->communicator, is_large ? bytes : kSegmentBytes);
    num_bytes_ += segment.num_bytes();
    if (segment.registered() && lane_->copy_engines) lane_->channels = 0;
    if (is_large) return segment.data();
    next_ = segment.data() + bytes;
    rest_bytes_ = kSegmentBytes - bytes;
    return segment.data();
}

at::Tensor RegisteredSegments::make(at::IntArrayRef shape, const at::TensorOptions& options) {
    const int64_t bytes = bytes_of(shape, options);
    std::byte* const part = take(bytes);
    const auto give_back = [self = shared_from_this(), part, bytes](void*) {
        self->free_.emplace(bytes, part);
    };
    return at::from_blob(part, shape, give_back, options);
}

bool RegisteredSegments::registered() const {
    return std::ranges::all_of(segments_, &nccl::RegisteredMemory::registered);
}

}  // namespace argosy::comm
