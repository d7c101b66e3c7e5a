#include "comm/registered_memory.h"

#include <algorithm>

#include "base/error.h"
#include "gpu/device.h"

namespace argosy::comm {

std::byte* RegisteredSegments::add_segment(int64_t num_bytes) {
    if (cuda::StreamView(gpu::current_stream()).is_captured())
        throw RunError("internal error: {} bytes are registered while a graph is recorded", num_bytes);
    const nccl::RegisteredMemory& segment = segments_.emplace_back(*lane_->communicator, num_bytes);
    if (segment.registered() && lane_->copy_engines) lane_->channels = 0;
    return segment.data();
}

bool RegisteredSegments::registered() const {
    return std::ranges::all_of(segments_, &nccl::RegisteredMemory::registered);
}

}  // namespace argosy::comm
