#include "resume/shard_copy.h"

#include <ATen/ops/from_blob.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/slab_runs.h"
#include "gpu/device.h"
#include "setup/element_types.h"

namespace argosy::resume {
namespace {

constexpr int64_t kAlignmentBytes = 64;  // start of each part in the copy: a cache line

int64_t aligned(int64_t bytes) { return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes; }

}  // namespace

std::vector<ShardPart> shard_parts(std::span<const HeldTensor> tensors, const checkpoint::Plan& plan,
                                   int writer) {
    std::map<std::string_view, const HeldTensor*> by_name;
    for (const HeldTensor& held : tensors) by_name[held.info.name] = &held;
    std::vector<ShardPart> parts;
    for (checkpoint::Piece& piece : checkpoint::pieces_of(plan, writer)) {
        const auto found = by_name.find(piece.tensor.name);
        ARGOSY_CHECK(found != by_name.end(), "{} is on another rank", piece.tensor.name);
        const HeldTensor& held = *found->second;
        const layout::Slab& slab = piece.slab;
        ARGOSY_CHECK(held.rows.is_contiguous() && checkpoint::intersection(held.slab, slab) == slab &&
                         std::equal(slab.size.begin() + 1, slab.size.end(), held.slab.size.begin() + 1),
                     "{}: {} of {} are no rows of {} of {}", held.info.name, slab.offset, slab.size,
                     held.slab.offset, held.slab.size);
        const at::Tensor rows = held.rows.narrow(0, slab.offset[0] - held.slab.offset[0], slab.size[0]);
        parts.push_back({std::move(piece), rows});
    }
    return parts;
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

std::vector<std::span<const std::byte>> ShardCopy::copy(const std::vector<ShardPart>& parts) {
    int64_t num_bytes = 0;
    for (const ShardPart& part : parts) num_bytes += aligned(part.piece.num_bytes());
    make_room(num_bytes, !parts.empty() && gpu::holds(parts[0].rows));
    std::vector<std::span<const std::byte>> copies;
    std::byte* next = memory_;
    for (const ShardPart& part : parts) {
        const int64_t bytes = part.piece.num_bytes();
        at::from_blob(next, part.rows.sizes(), *setup::scalar_type(part.piece.tensor.type))
            .copy_(part.rows, /*non_blocking=*/true);
        copies.emplace_back(next, bytes);
        next += aligned(bytes);
    }
    gpu::synchronize();
    return copies;
}

}  // namespace argosy::resume
