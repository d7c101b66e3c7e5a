// A temporary folder for a test of several ranks: rank 0 makes and removes it, and the other ranks get its
// path.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "comm/values.h"
#include "scratch_folder.h"

namespace argosy::testing {

class SharedFolder {
  public:
    /// COLLECTIVE. The destructor is COLLECTIVE too, so no rank uses the folder when it is removed.
    explicit SharedFolder(comm::Communicator& group) : group_(group) {
        if (group.rank() == 0) folder_.emplace();
        path_ = comm::broadcast_text(group, folder_ ? (*folder_ / "").string() : "");
    }
    ~SharedFolder() { comm::maximum(group_, 0); }  // a barrier
    SharedFolder(const SharedFolder&) = delete;

    std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

  private:
    comm::Communicator& group_;
    std::optional<ScratchFolder> folder_;
    std::filesystem::path path_;
};

}  // namespace argosy::testing
