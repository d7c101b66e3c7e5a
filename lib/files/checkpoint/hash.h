// XXH3-128: the checksum of everything in a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace argosy::checkpoint {

struct Hash {
    uint64_t high = 0, low = 0;
    bool operator==(const Hash&) const = default;
    std::string hex() const;  // 32 lower-case digits, the high half first
};
std::optional<Hash> parse_hash(std::string_view hex);

Hash hash_of(std::span<const std::byte> bytes);
Hash hash_of(std::string_view text);

/// Computes the hash of bytes that are added in pieces, in their order.
class Hasher {
  public:
    Hasher();
    Hasher(Hasher&&) noexcept;
    ~Hasher();
    void add(std::span<const std::byte> bytes);
    Hash value() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace argosy::checkpoint
