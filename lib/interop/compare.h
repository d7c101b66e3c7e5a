// Reads the result of a conversion again and compares it with its source, element by element.
#pragma once

#include <string>
#include <vector>

#include "interop/model_source.h"
#include "interop/transfer.h"

namespace argosy::interop {

/// The differences, for people, each naming tensor, position, expected and found; empty if there are none.
/// The source's elements, converted as `transfers` requests, must equal the result bit for bit. The
/// checkpoint's description, its assets, and the result's own checks are compared too. UserError if the
/// source's own checks fail.
std::vector<std::string> differences(const ModelSource& source, const ModelSource& made,
                                     const std::vector<Transfer>& transfers,
                                     const TransferOptions& transfer_options);

/// The faults that a checkpoint's checks find. Compares all of them, read by several threads.
std::vector<std::string> faults(const checkpoint::Checkpoint& checkpoint, int num_threads);

}  // namespace argosy::interop
