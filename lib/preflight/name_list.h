// The lists of interfaces and adapters that variables hold.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace argosy::preflight {

/// NCCL's spelling: "mlx5_0:1,mlx5" names what begins so; "^" before the list excludes instead, "=" wants
/// whole names, and ":1" one port. MPI's and UCX's lists want whole names.
class NameList {
  public:
    enum class Syntax { Nccl, WholeNames };
    NameList(std::string_view text, Syntax syntax);

    struct Entry {
        std::string name;
        int port = -1;  // any
    };
    const std::vector<Entry>& entries() const { return entries_; }
    bool excludes() const { return excludes_; }

    /// Whether the entry means this one; `port` is -1 for what has none.
    bool matches(const Entry& entry, std::string_view name, int port = -1) const;

    /// Whether the list as a whole chooses this one. An empty list chooses all.
    bool chooses(std::string_view name, int port = -1) const;

  private:
    std::vector<Entry> entries_;
    bool excludes_ = false, whole_names_ = false;
};

}  // namespace argosy::preflight
