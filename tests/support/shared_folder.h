// A temporary folder for a test of several ranks: rank 0 makes and removes it, and the other ranks get its
// path.
#pragma once

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "scratch_folder.h"

namespace argosy::testing {

class SharedFolder {
  public:
    /// COLLECTIVE. The destructor is COLLECTIVE too, so no rank uses the folder when it is removed.
    explicit SharedFolder(comm::Communicator& group) : group_(group) {
        if (group.rank() == 0) folder_.emplace();
        path_ = told(group, folder_ ? (*folder_ / "").string() : "");
    }
    ~SharedFolder() { told(group_, ""); }
    SharedFolder(const SharedFolder&) = delete;

    std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

  private:
    /// Returns rank 0's value on every rank. No rank returns before all have called it, so it is a barrier
    /// too.
    static std::string told(comm::Communicator& group, const std::string& text) {
        constexpr int64_t kMost = 4096;
        const at::Tensor letters = at::zeros({kMost}, at::kLong);
        if (group.rank() == 0) std::copy(text.begin(), text.end(), letters.mutable_data_ptr<int64_t>());
        group.run({.kind = comm::OpKind::AllReduce, .out = letters, .in = letters});
        std::string result;
        for (int64_t i = 0; i < kMost && letters.const_data_ptr<int64_t>()[i] != 0; ++i) {
            result += static_cast<char>(letters.const_data_ptr<int64_t>()[i]);
        }
        return result;
    }

    comm::Communicator& group_;
    std::optional<ScratchFolder> folder_;
    std::filesystem::path path_;
};

}  // namespace argosy::testing
