// Plans the conversion of each tensor, and moves its bytes: read, check, convert, hand on, a few MiB at a
// time. No tensor is ever in memory as a whole.
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
    checkpoint::TensorInfo to;  // same name and shape
};

enum class Content { Everything, ModelOnly };

/// Weights get the type `type`, if it is given; the optimizer's state keeps its own types. The pointers in
/// the result point into `source`.
std::vector<Transfer> plan_transfers(const ModelSource& source, Content content,
                                     std::optional<h5::ElementType> type);

struct TransferOptions {
    int num_threads = 1;
    Progress* progress = nullptr;        // counts bytes of the source
    std::function<bool()> stopped = {};  // called before each block; true ends the transfer with a RunError
};

/// Receives the next elements of a tensor, at most a few MiB, and their position. Called from several
/// threads, for different tensors.
using Take =
    std::function<void(size_t transfer, const layout::Slab& block, std::span<const std::byte> bytes)>;

/// Transfers all tensors completely. Returns warnings for people: elements that became infinite. UserError if
/// the source's bytes do not match their checks.
std::vector<std::string> run_transfers(const ModelSource& source, const std::vector<Transfer>& transfers,
                                       const TransferOptions& transfer_options, const Take& take);

/// Bytes of the source that the transfers read.
int64_t num_source_bytes(const std::vector<Transfer>& transfers);

}  // namespace argosy::interop
