#include "resume/shard_copy.h"

#include <ATen/ops/from_blob.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "gpu/device.h"
#include "gpu/element_type.h"

namespace argosy::resume {
namespace {

constexpr int64_t kAlignmentBytes = 64;  // alignment of each slab in the copy: a cache line

}  // namespace

std::vector<HeldSlab> written_slabs(std::span<const HeldSlab> held, const checkpoint::SavePlan& plan,
                                    int writer) {
    std::map<std::string_view, const HeldSlab*> by_name;
    for (const HeldSlab& each : held) by_name[each.tensor.name] = &each;
    std::vector<HeldSlab> slabs;
    for (checkpoint::TensorSlab& written : checkpoint::slabs_of(plan, writer)) {
        const auto found = by_name.find(written.tensor.name);
        ARGOSY_CHECK(found != by_name.end(), "{} is on another rank", written.tensor.name);
        const layout::Slab &own = found->second->slab, &slab = written.slab;
        const at::Tensor& elements = found->second->elements;
        ARGOSY_CHECK(elements.is_contiguous() && layout::intersection(own, slab) == slab &&
                         std::equal(slab.size.begin() + 1, slab.size.end(), own.size.begin() + 1),
                     "{}: {} of {} are no rows of {} of {}", written.tensor.name, slab.offset, slab.size,
                     own.offset, own.size);
        const at::Tensor rows = elements.narrow(0, slab.offset[0] - own.offset[0], slab.size[0]);
        slabs.push_back({std::move(written), rows});
    }
    return slabs;
}

// A GPU copies many times faster to pinned memory than to pageable memory.
void ShardCopy::make_room(int64_t num_bytes, bool from_gpu) {
    if (num_bytes <= num_bytes_) return;
    num_bytes_ = 0;  // stays 0 if the allocation throws
    pinned_.reset();
    pageable_.reset();
    if (from_gpu) {
        try {
            memory_ = pinned_.emplace(num_bytes).data();
        } catch (const RunError& error) {
            spdlog::warn("checkpoints are copied from the GPU slowly: {}", error.what());
        }
    }
    if (!pinned_) {
        pageable_ = std::make_unique_for_overwrite<std::byte[]>(num_bytes);
        memory_ = pageable_.get();
    }
    num_bytes_ = num_bytes;
}

std::vector<std::span<const std::byte>> ShardCopy::copy(const std::vector<HeldSlab>& slabs) {
    int64_t num_bytes = 0;
    for (const HeldSlab& slab : slabs) num_bytes += round_up(slab.num_bytes(), kAlignmentBytes);
    make_room(num_bytes, !slabs.empty() && gpu::holds(slabs[0].elements));
    std::vector<std::span<const std::byte>> copies;
    std::byte* next = memory_;
    for (const HeldSlab& slab : slabs) {
        const int64_t bytes = slab.num_bytes();
        at::from_blob(next, slab.elements.sizes(), *gpu::scalar_type(slab.tensor.type))
            .copy_(slab.elements, /*non_blocking=*/true);
        copies.emplace_back(next, bytes);
        next += round_up(bytes, kAlignmentBytes);
    }
    gpu::synchronize();
    return copies;
}

}  // namespace argosy::resume
