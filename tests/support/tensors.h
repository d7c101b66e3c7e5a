// Random tensors, the same in every run, and comparisons that say by how much two tensors differ.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace argosy::testing {

/// Where a suite's tensors lie: in the processor's memory (place_cpu.cpp), or on a GPU in a suite that names
/// module test_gpu_place before test_oracle.
c10::Device place();
at::TensorOptions placed(at::ScalarType type);

class RandomTensors {
  public:
    explicit RandomTensors(uint32_t seed) : engine_(seed) {}

    /// Normal numbers of deviation `scale`, rounded to `type`.
    at::Tensor normal(at::IntArrayRef shape, at::ScalarType type, double scale = 1);
    /// Whole numbers in [low, high).
    at::Tensor integers(at::IntArrayRef shape, int64_t low, int64_t high);

  private:
    std::mt19937 engine_;
};

/// Comparisons take tensors from anywhere.
///
/// Largest difference against the largest element of `expected`: what accumulates over a sum is an error of
/// the sum's size, not of each element's own.
::testing::AssertionResult close(const at::Tensor& actual, const at::Tensor& expected, double tolerance);

/// The same bits, shape and type.
::testing::AssertionResult identical(const at::Tensor& actual, const at::Tensor& expected);

}  // namespace argosy::testing
