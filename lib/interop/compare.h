// What was made, read again and held against what it was made of, element by element.
#pragma once

#include <string>
#include <vector>

#include "interop/model_source.h"
#include "interop/transfer.h"

namespace argosy::interop {

/// What differs, for people, each naming the tensor, where, expected and found; empty where all is as it
/// should be. The source's elements are compared as `transfers` wants them to be, bit for bit; and so are
/// what a checkpoint says of itself, the assets, and the checks of what was made. UserError where the
/// source's own checks fail.
std::vector<std::string> differences(const ModelSource& source, const ModelSource& made,
                                     const std::vector<Transfer>& transfers, const Pace& pace);

/// What is wrong with a checkpoint by its checks, all of them, read by several threads.
std::vector<std::string> faults(const checkpoint::Checkpoint& checkpoint, int num_threads);

}  // namespace argosy::interop
