#include "tokenizer/bpe.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <queue>

namespace argosy::tokenizer {
namespace {

constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;  // 2^64 / the golden ratio
constexpr size_t kShortPiece = 48;                // bytes up to which a scan of all pairs beats a heap

/// The tokens of short pieces: one entry for each hash, and the newest piece has it.
class PieceCache {
  public:
    static constexpr size_t kMaxBytes = 24, kMaxTokens = 8;

    struct Entry {
        std::array<uint64_t, kMaxBytes / 8> piece{};  // padded with zeros
        uint8_t num_bytes = 0, num_tokens = 0;
        std::array<uint32_t, kMaxTokens> tokens{};
    };

    /// Returns this thread's cache for a model. Another model's tokens are dropped.
    static PieceCache& of_thread(uint64_t model) {
        thread_local PieceCache cache;
        if (cache.model_ != model) {
            cache.model_ = model;
            cache.entries_.assign(kNumEntries, {});
        }
        return cache;
    }

    /// Returns the entry of a piece. The piece is new if the entry has no tokens.
    Entry& find(std::string_view piece) {
        std::array<uint64_t, kMaxBytes / 8> padded{};
        std::memcpy(padded.data(), piece.data(), piece.size());
        uint64_t hash = piece.size();
        for (const uint64_t word : padded) hash = (std::rotl(hash, 23) ^ word) * kFactor;
        Entry& entry = entries_[hash >> (64 - kLogEntries)];
        uint64_t differences = entry.num_bytes ^ piece.size();
        for (size_t i = 0; i < padded.size(); ++i) differences |= entry.piece[i] ^ padded[i];
        if (differences != 0) {
            entry.piece = padded;
            entry.num_bytes = static_cast<uint8_t>(piece.size());
            entry.num_tokens = 0;
        }
        return entry;
    }

  private:
    static constexpr int kLogEntries = 15;
    static constexpr size_t kNumEntries = size_t{1} << kLogEntries;

    uint64_t model_ = 0;
    std::vector<Entry> entries_;
};

std::atomic<uint64_t> num_models = 0;

}  // namespace

Bpe::Bpe(const std::array<uint32_t, 256>& byte_ids, const std::vector<BpeMerge>& merges,
         BpeVocabulary whole_pieces)
    : byte_ids_(byte_ids), whole_pieces_(std::move(whole_pieces)), number_(++num_models) {
    const size_t size = std::bit_ceil(2 * merges.size() + 2);
    shift_ = 64 - std::countr_zero(size);
    pairs_.assign(size, {0, kNoRank, 0});
    for (const BpeMerge& merge : merges)
        const_cast<Pair&>(find(merge.left, merge.right)) = {uint64_t{merge.left} << 32 | merge.right,
                                                            merge.rank, merge.merged};
}

/// Returns the place of a pair, or the free place where it would be.
const Bpe::Pair& Bpe::find(uint32_t left, uint32_t right) const {
    const uint64_t key = uint64_t{left} << 32 | right;
    size_t place = ((key ^ key >> 29) * kFactor) >> shift_;
    while (pairs_[place].rank != kNoRank && pairs_[place].key != key)
        place = (place + 1) & (pairs_.size() - 1);
    return pairs_[place];
}

void Bpe::encode(std::string_view piece, Ids& ids) const {
    if (piece.size() <= 1) {
        if (!piece.empty()) encode_uncached(piece, ids);
        return;
    }
    if (piece.size() > PieceCache::kMaxBytes) return encode_uncached(piece, ids);
    PieceCache::Entry& entry = PieceCache::of_thread(number_).find(piece);
    if (entry.num_tokens != 0) {
        ids.insert(ids.end(), entry.tokens.begin(), entry.tokens.begin() + entry.num_tokens);
        return;
    }
    const size_t before = ids.size();
    encode_uncached(piece, ids);
    if (ids.size() - before > PieceCache::kMaxTokens) return;
    entry.num_tokens = static_cast<uint8_t>(ids.size() - before);
    std::copy(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end(), entry.tokens.begin());
}

void Bpe::encode_uncached(std::string_view piece, Ids& ids) const {
    if (!whole_pieces_.empty()) {
        if (const auto whole = whole_pieces_.find(piece); whole != whole_pieces_.end())
            return ids.push_back(whole->second);
    }
    if (piece.size() <= kShortPiece) return merge_short(piece, ids);
    merge_long(piece, ids);
}

void Bpe::merge_short(std::string_view piece, Ids& ids) const {
    std::array<uint32_t, kShortPiece> tokens;
    std::array<uint32_t, kShortPiece> ranks, results;  // of the pair that begins at each token
    size_t size = piece.size();
    for (size_t i = 0; i < size; ++i) tokens[i] = byte_ids_[static_cast<unsigned char>(piece[i])];
    const auto update = [&](size_t i) {
        const Pair& pair = find(tokens[i], tokens[i + 1]);
        ranks[i] = pair.rank;
        results[i] = pair.merged;
    };
    for (size_t i = 0; i + 1 < size; ++i) update(i);
    while (size > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < size; ++i)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == kNoRank) break;
        tokens[best] = results[best];
        --size;
        std::memmove(&tokens[best + 1], &tokens[best + 2], (size - best - 1) * sizeof tokens[0]);
        if (best + 1 < size) {
            std::memmove(&ranks[best], &ranks[best + 1], (size - best - 1) * sizeof ranks[0]);
            std::memmove(&results[best], &results[best + 1], (size - best - 1) * sizeof results[0]);
            update(best);
        }
        if (best > 0) update(best - 1);
    }
    ids.insert(ids.end(), tokens.begin(), tokens.begin() + size);
}

/// A linked list of tokens, and a heap of the ranks of pairs with their places. An entry of the heap is out
/// of date if the pair at its place has another rank by now.
void Bpe::merge_long(std::string_view piece, Ids& ids) const {
    constexpr uint32_t kEnd = UINT32_MAX;
    struct Symbol {
        uint32_t token, before, next;
        bool merged = false;  // into the symbol before it
    };
    const auto size = static_cast<uint32_t>(piece.size());
    std::vector<Symbol> symbols(size);
    std::vector<uint64_t> entries;  // rank << 32 | place
    for (uint32_t i = 0; i < size; ++i)
        symbols[i] = {byte_ids_[static_cast<unsigned char>(piece[i])], i - 1, i + 1 < size ? i + 1 : kEnd};
    const auto pair_at = [&](uint32_t i) -> const Pair* {
        if (i == kEnd || symbols[i].merged || symbols[i].next == kEnd) return nullptr;
        const Pair& pair = find(symbols[i].token, symbols[symbols[i].next].token);
        return pair.rank == kNoRank ? nullptr : &pair;
    };
    const auto entry_of = [](const Pair& pair, uint32_t i) { return uint64_t{pair.rank} << 32 | i; };
    for (uint32_t i = 0; i < size; ++i)
        if (const Pair* pair = pair_at(i)) entries.push_back(entry_of(*pair, i));
    std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap({}, std::move(entries));
    while (!heap.empty()) {
        const uint64_t entry = heap.top();
        heap.pop();
        const auto place = static_cast<uint32_t>(entry);
        const Pair* pair = pair_at(place);
        if (pair == nullptr || pair->rank != entry >> 32) continue;
        Symbol& symbol = symbols[place];
        symbol.token = pair->merged;
        symbols[symbol.next].merged = true;
        symbol.next = symbols[symbol.next].next;
        if (symbol.next != kEnd) symbols[symbol.next].before = place;
        for (const uint32_t i : {symbol.before, place})
            if (const Pair* next = pair_at(i)) heap.push(entry_of(*next, i));
    }
    for (uint32_t i = 0; i != kEnd; i = symbols[i].next) ids.push_back(symbols[i].token);
}

}  // namespace argosy::tokenizer
