// Where the parameters of a unit lie in one buffer: a slice for each, in the unit's order, its rows padded so
// that all shards have as many. The parameters of a join lie one behind the other, unless padding is between
// them; every other slice begins where products are fast.
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

    /// Of entry i in such a buffer, with its padding.
    at::Tensor padded(const at::Tensor& buffer, size_t i) const;
    /// Of every join that has no padding within.
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
