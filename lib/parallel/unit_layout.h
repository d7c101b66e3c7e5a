// The layout of a unit's parameters in one buffer. Each parameter has a slice, in the unit's order, with its
// rows padded so that all shards have equally many. The slices of a join (model::Join) are adjacent, so that
// one view covers them, unless padding is between them. Every other slice begins at an aligned element,
// because matrix products are faster on aligned memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "model/parameter.h"

namespace argosy::parallel {

class UnitLayout {
  public:
    /// A parameter as a layer computes with it, without padding.
    struct Entry {
        model::Role role;
        std::vector<int64_t> shape;
    };
    UnitLayout(const std::vector<Entry>& entries, int num_shards);

    int64_t num_elements() const { return num_elements_; }

    /// The view of entry i in `buffer`, with its padding.
    at::Tensor padded(const at::Tensor& buffer, size_t i) const;
    /// The views of every join in `buffer`; undefined for a join with padding between its parameters.
    model::Joined joined(const at::Tensor& buffer) const;

  private:
    struct Slice {
        int64_t begin, num_elements;
        std::vector<int64_t> shape;
    };
    model::ByKey<model::Join, model::kNumJoins, std::optional<Slice>> joined_;
    std::vector<Slice> slices_;
    int64_t num_elements_ = 0;
};

}  // namespace argosy::parallel
