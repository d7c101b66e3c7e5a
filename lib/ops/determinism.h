// LibTorch's own switch for repeatable results.
#pragma once

namespace argosy::ops {

/// For the rest of the process: an operation that cannot repeat its bits throws, memory comes filled
/// (floating point with NaN) instead of with what lay there, and the number of threads stays what it is now,
/// which is returned: libraries otherwise take fewer for small work or on a busy machine, and sums are cut by
/// threads.
int make_deterministic();

}  // namespace argosy::ops
