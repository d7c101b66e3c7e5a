// Reads pickles of protocols 2 to 5 without executing them. Only the opcodes that data need are known, and
// only classes on a list; anything else is refused by its name.
//
// The reader trusts no byte. 1. Each opcode makes at most one value, so memory is at most a constant times
// the pickle's length. 2. Values in the memo are shared, never copied: an object has its arguments' tuple,
// and texts that become bytes, which are new, have together at most the pickle's length. 3. There is no
// recursion.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "pytorch/value.h"

namespace argosy::pytorch {

/// Whole names of classes and functions that a pickle may have: "torch.Size".
using KnownClasses = std::span<const std::string_view>;

/// The classes and functions of torch.save's files and of the metadata of distributed checkpoints, of
/// torch 1.6 to 2.11.
KnownClasses known_classes();

class Pickle {
  public:
    /// UserError for an opcode or a class that is neither in known_classes() nor in `more_classes`;
    /// DamageError for a pickle that does not hold. `place` begins the messages.
    Pickle(std::span<const std::byte> bytes, const std::string& place, KnownClasses more_classes = {});
    Pickle(Pickle&&) noexcept;
    Pickle& operator=(Pickle&&) noexcept;
    ~Pickle();

    Value root() const { return root_; }

    /// Bytes of the pickle up to its end: others may follow.
    size_t num_bytes() const { return num_bytes_; }

  private:
    friend class PickleReader;
    struct Store;

    std::unique_ptr<Store> store_;
    Value root_;
    size_t num_bytes_ = 0;
};

}  // namespace argosy::pytorch
