#include "tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace argosy::tokenizer {
namespace {

/// Calls `take` for each piece of a text.
template <class Take>
void cut(const Split& split, std::string_view text, const Take& take) {
    if (!split.pattern) return take(text);
    PatternSearch search(*split.pattern, text);
    std::string_view match;
    using Behavior = Split::Behavior;
    if (split.behavior == Behavior::Isolated) {
        const char* done = text.data();
        while (search.next(match)) {
            if (match.data() != done) take({done, match.data()});
            take(match);
            done = match.data() + match.size();
        }
        const char* end = text.data() + text.size();
        if (done != end) take({done, end});
        return;
    }
    // `held` is a piece to which the next one may be merged.
    std::string_view held;
    bool held_matches = false;
    const auto flush = [&] {
        if (!held.empty()) take(held);
        held = {};
    };
    const auto add = [&](std::string_view part, bool matches) {
        if (part.empty()) return;
        if (split.behavior == Behavior::Removed) {
            if (!matches) take(part);
            return;
        }
        const bool merges =
            !held.empty() && ((split.behavior == Behavior::MergedWithPrevious && matches && !held_matches) ||
                              (split.behavior == Behavior::MergedWithNext && !matches && held_matches) ||
                              (split.behavior == Behavior::Contiguous && matches == held_matches));
        if (!merges) flush();
        held = merges ? std::string_view(held.data(), held.size() + part.size()) : part;
        held_matches = matches;
    };
    const char* done = text.data();
    while (search.next(match)) {
        add({done, match.data()}, split.invert);
        add(match, !split.invert);
        done = match.data() + match.size();
    }
    add({done, text.data() + text.size()}, split.invert);
    flush();
}

/// Calls `take` for each part of a text, divided as BpeParts::divides_runs says.
template <class Take>
void divide_runs(std::string_view text, const Take& take) {
    constexpr size_t kMaxTextCharacters = 400'000, kMaxRunCharacters = 25'000;
    if (text.size() <= kMaxRunCharacters) return take(text);
    static const CodeTable spaces(python_space_set());
    const char *begin = text.data(), *end = begin + text.size();
    size_t num_characters = 0, run = 0;
    bool is_space = false;
    for (const char* at = begin; at != end; at += utf8_size(*at)) {
        const bool was_space = std::exchange(is_space, spaces.contains_at(at));
        if (is_space != was_space) run = 0;
        const bool is_full = num_characters == kMaxTextCharacters;
        if (is_full || run == kMaxRunCharacters) {
            take({begin, at});
            begin = at;
            run = 0;
        }
        num_characters = is_full ? 1 : num_characters + 1;
        ++run;
    }
    take({begin, end});
}

class BpeTokenizer : public Tokenizer {
  public:
    explicit BpeTokenizer(BpeParts parts)
        : Tokenizer(std::move(parts.info)),
          raw_tokens_(tokens_of(parts, false, true)),
          normalized_tokens_(tokens_of(parts, true, true)),
          plain_raw_tokens_(tokens_of(parts, false, false)),
          plain_normalized_tokens_(tokens_of(parts, true, false)),
          normalize_to_nfc_(parts.normalize_to_nfc),
          divides_runs_(parts.divides_runs),
          splits_(std::move(parts.splits)),
          bpe_(parts.byte_ids, parts.merges, std::move(parts.whole_pieces)),
          texts_(std::move(parts.texts)) {}

    void encode(std::string_view text, Ids& ids) const override {
        encode_with(raw_tokens_, normalized_tokens_, text, ids);
    }

    void encode_plain(std::string_view text, Ids& ids) const override {
        encode_with(plain_raw_tokens_, plain_normalized_tokens_, text, ids);
    }

    std::string decode(std::span<const uint32_t> ids) const override {
        std::string text;
        for (const uint32_t id : ids) text += texts_.at(id);
        return text;
    }

  private:
    void encode_with(const AddedTokenSearch& raw_tokens, const AddedTokenSearch& normalized_tokens,
                     std::string_view text, Ids& ids) const {
        if (text.size() >= UINT32_MAX / 3)
            throw UserError("a text of {} bytes is too long for a tokenizer; divide it", text.size());
        std::string repaired, normalized;
        std::vector<AddedTokenSearch::Part> parts, inner_parts;
        raw_tokens.split(repaired_utf8(text, repaired), parts);
        for (const auto& part : parts) {
            if (part.token != nullptr) {
                ids.push_back(part.token->id);
                continue;
            }
            normalized_tokens.split(normalize_to_nfc_ ? to_nfc(part.text, normalized) : part.text,
                                    inner_parts);
            for (const auto& inner : inner_parts) {
                if (inner.token != nullptr) {
                    ids.push_back(inner.token->id);
                } else if (divides_runs_) {
                    divide_runs(inner.text, [&](std::string_view run) { encode_piece(run, 0, ids); });
                } else {
                    encode_piece(inner.text, 0, ids);
                }
            }
        }
    }

    static AddedTokenSearch tokens_of(const BpeParts& parts, bool normalized, bool with_special) {
        std::vector<AddedToken> tokens;
        std::string buffer;
        for (AddedToken token : parts.added_tokens) {
            if (token.normalized != normalized || (token.special && !with_special)) continue;
            if (normalized && parts.normalize_to_nfc) token.content = to_nfc(token.content, buffer);
            tokens.push_back(std::move(token));
        }
        // A special token is found before another one that is equal in NFC.
        std::ranges::stable_partition(tokens, &AddedToken::special);
        return AddedTokenSearch(std::move(tokens));
    }

    /// Applies the splits from `first` on to a piece, then the model.
    void encode_piece(std::string_view piece, size_t first, Ids& ids) const {
        if (first == splits_.size()) return bpe_.encode(piece, ids);
        const Split& split = splits_[first];
        const auto encode_part = [&](std::string_view part) { encode_piece(part, first + 1, ids); };
        if (split.add_prefix_space && !piece.starts_with(' '))
            return cut(split, " " + std::string(piece), encode_part);
        cut(split, piece, encode_part);
    }

    const AddedTokenSearch raw_tokens_, normalized_tokens_, plain_raw_tokens_, plain_normalized_tokens_;
    const bool normalize_to_nfc_, divides_runs_;
    const std::vector<Split> splits_;
    const Bpe bpe_;
    const std::vector<std::string> texts_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts) {
    return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace argosy::tokenizer
