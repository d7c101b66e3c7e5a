// A hash of numbers (FNV-1a, a step for each number), equal on all machines. For keys that ranks compare.
#pragma once

#include <cstdint>

namespace argosy {

class Fnv {
  public:
    void add(int64_t value) { hash_ = (hash_ ^ static_cast<uint64_t>(value)) * 0x100000001b3; }
    uint64_t hash() const { return hash_; }

  private:
    uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace argosy
