// A checkpoint viewed in other types: each tensor is rounded to nearest, ties to even, while it is read.
#pragma once

#include <vector>

#include "checkpoint/tensor_source.h"

namespace argosy::eval {

class RoundedSource : public checkpoint::TensorSource {
  public:
    /// Holds the tensors of `values` that `types` has too, in the types of `types`. REQUIRES: both outlive
    /// this object; for each tensor the two types are equal or both floating.
    RoundedSource(const checkpoint::TensorSource& values, const checkpoint::TensorSource& types);

    const std::vector<checkpoint::TensorInfo>& tensors() const override { return tensors_; }
    void read(const checkpoint::TensorInfo& tensor, const layout::Slab& slab,
              std::span<std::byte> out) const override;
    const std::string& place() const override { return values_.place(); }

  private:
    const checkpoint::TensorSource& values_;
    std::vector<checkpoint::TensorInfo> tensors_;
};

}  // namespace argosy::eval
