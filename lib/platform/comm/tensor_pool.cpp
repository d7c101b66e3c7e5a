#include "comm/tensor_pool.h"

#include <ATen/ops/from_blob.h>

#include <utility>

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

bool TensorPool::has_room(at::IntArrayRef shape, const at::TensorOptions& options) const {
    const int64_t bytes = bytes_of(shape, options);
    return free_.contains(bytes) || bytes <= rest_bytes_;
}

std::byte* TensorPool::take(int64_t bytes) {
    if (const auto found = free_.find(bytes); found != free_.end()) return free_.extract(found).mapped();
    if (bytes <= rest_bytes_) {
        rest_bytes_ -= bytes;
        return std::exchange(next_, next_ + bytes);
    }
    const bool is_large = bytes > kLargeBytes;
    const int64_t added_bytes = is_large ? bytes : kSegmentBytes;
    std::byte* const segment = add_segment(added_bytes);
    num_bytes_ += added_bytes;
    if (is_large) return segment;
    next_ = segment + bytes;
    rest_bytes_ = kSegmentBytes - bytes;
    return segment;
}

at::Tensor TensorPool::make(at::IntArrayRef shape, const at::TensorOptions& options) {
    const int64_t bytes = bytes_of(shape, options);
    std::byte* const part = take(bytes);
    const auto give_back = [self = shared_from_this(), part, bytes](void*) {
        self->free_.emplace(bytes, part);
    };
    return at::from_blob(part, shape, give_back, options, options.device());
}

}  // namespace argosy::comm
