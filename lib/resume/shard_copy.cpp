#include "resume/shard_copy.h"

#include <ATen/ops/from_blob.h>

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "gpu/device.h"
#include "setup/element_types.h"

namespace argosy::resume {
namespace {

constexpr int64_t kAlignmentBytes = 64;  // start of each part in the copy: a cache line

int64_t aligned(int64_t bytes) { return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes; }

/// The rows of its box that this rank writes.
layout::Range own_rows(const HeldTensor& held, int64_t box_bytes) {
    const auto& [index, count] = held.share;
    const int64_t num_rows = held.slab.size[0];
    if (box_bytes / count >= kMinPartBytes) return layout::chunk(num_rows, count, index);
    const bool writes = static_cast<int>(name_key(held.info.name) % static_cast<uint64_t>(count)) == index;
    return {0, writes ? num_rows : 0};
}

}  // namespace

std::vector<ShardPart> shard_parts(std::span<const HeldTensor> tensors, std::optional<h5::ElementType> type) {
    std::vector<ShardPart> parts;
    for (const HeldTensor& held : tensors) {
        ARGOSY_CHECK(held.rows.is_contiguous(), "{}", held.info.name);
        ShardPart part{.piece = {held.info, held.slab}, .rows = held.rows};
        if (type) part.piece.tensor.type = *type;
        const layout::Range rows = own_rows(held, part.piece.num_bytes());
        part.piece.slab.offset[0] += rows.begin;
        part.piece.slab.size[0] = rows.size;
        part.rows = held.rows.narrow(0, rows.begin, rows.size);
        if (part.rows.numel() > 0) parts.push_back(std::move(part));
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
