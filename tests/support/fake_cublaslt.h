// A stand-in for cuBLASLt on machines without a GPU: the C functions that lib/platform/cublas/with_cuda
// calls, as plain loops over host memory, in the order of fake_gpus.h's streams. It refuses the same
// arguments as the library: types that are not in its table, strides that are too small, pointers that are
// less aligned than promised or not of a device, missing biases and workspaces. It has several algorithms.
// Number i computes a sum in i + 1 parts, so each rounds in its own way; the last one accepts any alignment,
// the others need 16 bytes. Algorithm kRounding represents those that add parts in the result's type: the
// heuristic returns it first unless it is forbidden.
#pragma once

#include <cstddef>
#include <vector>

namespace argosy::testing {

constexpr int kRounding = 100;

/// Settings that a test may change, and counters that it may read.
struct FakeCublasLt {
    size_t version = 130100;  // ARGOSY_FAKE_CUBLAS_VERSION, or 130100 for 13.1.0
    int num_algorithms = 3;
    /// Algorithms that the heuristic returns and cublasLtMatmul refuses.
    std::vector<int> refused;
    /// The algorithm that needs C = D if it adds to C.
    int only_in_place = -1;
    /// The heuristic finds no algorithm for float8.
    bool lacks_float8 = false;
    /// The heuristic finds no algorithm for float8 unless the terms of sums are adjacent.
    bool lacks_other_orders = false;
    /// The algorithm that takes a millisecond more; ARGOSY_FAKE_CUBLAS_SLOW, or none.
    int slow = -1;
    /// Products are accepted but not computed.
    bool idle = false;

    int num_questions = 0;             // passed to the heuristic
    std::vector<int> ran;              // algorithms, in the order in which they ended
    int num_float8 = 0, num_fast = 0;  // of them: float8 products, and those with fast sums
    int max_multiprocessors = 0;       // of the last one
};
FakeCublasLt& fake_cublaslt();

}  // namespace argosy::testing
