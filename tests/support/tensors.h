// Random tensors, the same in every run, and comparisons that say by how much two tensors differ.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace argosy::testing {

/// Where a suite's tensors are: in host memory (place_cpu.cpp), or on a GPU in a suite that names room
/// test_gpu_place before test_oracle.
c10::Device place();
at::TensorOptions placed(at::ScalarType type);

class RandomTensors {
  public:
    explicit RandomTensors(uint32_t seed) : engine_(seed) {}

    /// Normally distributed numbers with standard deviation `scale`, rounded to `type`.
    at::Tensor normal(at::IntArrayRef shape, at::ScalarType type, double scale = 1);
    /// Integers in [low, high).
    at::Tensor integers(at::IntArrayRef shape, int64_t low, int64_t high);

  private:
    std::mt19937 engine_;
};

/// Comparisons accept tensors on any device.
/// Largest difference relative to the largest element of `expected`: an error that accumulates over a sum is
/// relative to the sum, not to each element.
::testing::AssertionResult close(const at::Tensor& actual, const at::Tensor& expected, double tolerance);

/// The same bits, shape and type.
::testing::AssertionResult identical(const at::Tensor& actual, const at::Tensor& expected);

}  // namespace argosy::testing
