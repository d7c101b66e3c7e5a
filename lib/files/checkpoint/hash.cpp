#include "checkpoint/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "base/error.h"

namespace argosy::checkpoint {
namespace {

constexpr size_t kDigits = 16;  // hexadecimal digits of each half

Hash from_foreign(const XXH128_hash_t& hash) { return {.high = hash.high64, .low = hash.low64}; }

std::optional<uint64_t> parse_half(std::string_view hex) {
    uint64_t value = 0;
    for (const char c : hex) {
        const bool digit = c >= '0' && c <= '9';
        if (!digit && (c < 'a' || c > 'f')) return std::nullopt;
        value = value << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
    }
    return value;
}

}  // namespace

std::string Hash::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

std::optional<Hash> parse_hash(std::string_view hex) {
    if (hex.size() != 2 * kDigits) return std::nullopt;
    const auto high = parse_half(hex.substr(0, kDigits)), low = parse_half(hex.substr(kDigits));
    if (!high || !low) return std::nullopt;
    return Hash{.high = *high, .low = *low};
}

Hash hash_of(std::span<const std::byte> bytes) {
    return from_foreign(XXH3_128bits(bytes.data(), bytes.size()));
}

Hash hash_of(std::string_view text) { return hash_of(std::as_bytes(std::span(text))); }

struct Hasher::State {
    XXH3_state_t* foreign = XXH3_createState();
    State() { ARGOSY_CHECK(foreign && XXH3_128bits_reset(foreign) == XXH_OK); }
    ~State() { XXH3_freeState(foreign); }
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;

void Hasher::add(std::span<const std::byte> bytes) {
    ARGOSY_CHECK(XXH3_128bits_update(state_->foreign, bytes.data(), bytes.size()) == XXH_OK);
}

Hash Hasher::value() const { return from_foreign(XXH3_128bits_digest(state_->foreign)); }

}  // namespace argosy::checkpoint
