// What a conversion makes of each tensor, and the way of its bytes: read, checked, converted, handed on, a
// few MiB at a time. No tensor is ever in memory as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/table.h"
#include "checkpoint/tensor_source.h"
#include "h5/element_type.h"
#include "interop/model_source.h"
#include "interop/progress.h"

namespace argosy::interop {

struct Transfer {
    const checkpoint::TensorInfo* from = nullptr;
    const checkpoint::StoredTensor* stored = nullptr;  // of a checkpoint: with the checks of its bytes
    checkpoint::TensorInfo to;                         // same name and shape
};

enum class Content { Everything, ModelOnly };

/// Weights are to be of `type`, where it is given; the optimizer's state keeps its own. Pointers are into
/// `source`.
std::vector<Transfer> plan_transfers(const ModelSource& source, Content content,
                                     std::optional<h5::ElementType> type);

struct Pace {
    int num_threads = 1;
    Progress* progress = nullptr;        // in bytes of the source
    std::function<bool()> stopped = {};  // asked before each block; true ends the transfer with a RunError
};

/// Takes the next elements of a tensor, at most a few MiB, and which they are. Called from several threads,
/// for different tensors.
using Take =
    std::function<void(size_t transfer, const layout::Slab& block, std::span<const std::byte> bytes)>;

/// The whole of all tensors. Returns what people should know of the outcome: elements that became infinite.
/// UserError where the source's checks do not fit its bytes.
std::vector<std::string> run_transfers(const ModelSource& source, const std::vector<Transfer>& transfers,
                                       const Pace& pace, const Take& take);

/// Bytes of the source that it will read.
int64_t num_source_bytes(const std::vector<Transfer>& transfers);

}  // namespace argosy::interop
