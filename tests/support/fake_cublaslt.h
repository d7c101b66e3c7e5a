// A stand-in for cuBLASLt on machines without a GPU: the C functions that lib/cublas/with_cuda calls, done by
// plain loops over host memory, in the order of fake_gpus.h's streams. What the library refuses it refuses
// too: types that are not in its table, strides that are too small, pointers that are less aligned than was
// promised or no device's, missing biases and workspaces.
//
// It has several algorithms. Number i adds up a sum in i + 1 parts, so each rounds in its own way; the last
// one takes any alignment, the others want 16 bytes. Algorithm kRounding stands for those that add parts in
// the result's type: the heuristic names it first wherever it is not forbidden.
#pragma once

#include <cstddef>
#include <vector>

namespace argosy::testing {

constexpr int kRounding = 100;

/// What a test may change, and what it may look at.
struct FakeCublasLt {
    size_t version = 130100;
    /// Of each algorithm, in the heuristic's order: how long it takes by the devices' clock.
    std::vector<double> seconds = {0, 0, 0};
    /// Algorithms that the heuristic names and cublasLtMatmul does not do.
    std::vector<int> refused;
    /// Products are accepted, and that is all.
    bool idle = false;

    int num_questions = 0;  // to the heuristic
    std::vector<int> ran;   // algorithms, in the order in which they ended
};
FakeCublasLt& fake_cublaslt();

}  // namespace argosy::testing
