// The tensors of several sources as one source.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"

namespace argosy::interop {

class JoinedSource : public checkpoint::TensorSource {
  public:
    /// `prefix` comes before the names of a member's tensors. UserError if two tensors then have one name.
    struct Member {
        std::string prefix;
        std::unique_ptr<checkpoint::TensorSource> source;
    };
    JoinedSource(std::vector<Member> members, std::string place);

    /// Member by member, in the order of each.
    const std::vector<checkpoint::TensorInfo>& tensors() const override { return tensors_; }
    void read(const checkpoint::TensorInfo& tensor, const layout::Slab& slab,
              std::span<std::byte> out) const override;
    const std::string& place() const override { return place_; }

  private:
    struct Location {
        const checkpoint::TensorSource* source;
        const checkpoint::TensorInfo* tensor;
    };
    std::vector<Member> members_;
    std::string place_;
    std::vector<checkpoint::TensorInfo> tensors_;
    std::map<std::string, Location> locations_;
};

}  // namespace argosy::interop
