// A model's weights in memory, offered as a checkpoint offers them; it records which tensors were read.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "model/model_spec.h"

namespace argosy::testing {

class MemorySource : public checkpoint::TensorSource {
  public:
    /// The initial weights of a run, rounded to `type`.
    MemorySource(const model::ModelSpec& spec, uint64_t seed, at::ScalarType type = at::kFloat);

    const std::vector<checkpoint::TensorInfo>& tensors() const override { return infos_; }
    void read(const checkpoint::TensorInfo& tensor, const layout::Slab& slab,
              std::span<std::byte> out) const override;
    const std::string& place() const override { return place_; }

    /// The values of a tensor (its name without "model/"), to be changed in place.
    at::Tensor& operator[](const std::string& parameter) { return values_.at("model/" + parameter); }

    /// Adds or replaces a tensor, by its whole name.
    void set(const std::string& name, const at::Tensor& values);
    void remove(const std::string& name);

    int64_t bytes_read() const { return bytes_read_; }
    int64_t num_bytes() const;

  private:
    void list();

    std::string place_ = "memory";
    std::map<std::string, at::Tensor> values_;
    std::vector<checkpoint::TensorInfo> infos_;
    mutable std::atomic<int64_t> bytes_read_ = 0;
};

}  // namespace argosy::testing
