// Byte-pair encoding: a piece of text starts as one token for each byte, and the pair of neighbors with the
// lowest rank is merged, the leftmost first, until no pair has a rank.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace argosy::tokenizer {

struct BpeMerge {
    uint32_t left, right, merged;
    uint32_t rank;
};

/// Hash of strings that finds string views.
struct BpeHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using BpeVocabulary = std::unordered_map<std::string, uint32_t, BpeHash, std::equal_to<>>;

/// Immutable. Each thread keeps the tokens of frequent short pieces in a cache of fixed size.
class Bpe {
  public:
    /// `byte_ids` are the tokens of the 256 bytes. `whole_pieces`: pieces that are one token whatever the
    /// merges. If a pair occurs twice in `merges`, the last one counts.
    Bpe(const std::array<uint32_t, 256>& byte_ids, const std::vector<BpeMerge>& merges,
        BpeVocabulary whole_pieces);

    /// Appends the tokens of a piece. REQUIRES: less than 4 GiB.
    void encode(std::string_view piece, Ids& ids) const;

  private:
    static constexpr uint32_t kNoRank = UINT32_MAX;
    struct Pair {
        uint64_t key;  // left << 32 | right
        uint32_t rank, merged;
    };

    const Pair& find(uint32_t left, uint32_t right) const;
    void encode_uncached(std::string_view piece, Ids& ids) const;
    void merge_short(std::string_view piece, Ids& ids) const;
    void merge_long(std::string_view piece, Ids& ids) const;

    std::array<uint32_t, 256> byte_ids_;
    std::vector<Pair> pairs_;  // open addressing; kNoRank marks a free place
    int shift_;                // the hash is the upper bits of a product
    BpeVocabulary whole_pieces_;
    uint64_t number_;  // of this model among those of the process, for the caches
};

}  // namespace argosy::tokenizer
