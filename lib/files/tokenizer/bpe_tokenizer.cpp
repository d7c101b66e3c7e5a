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

/// The characters that are white space for Python's str.isspace().
CodeTable python_spaces() {
    CodeSet spaces = space_set();
    spaces.add(CodeSet({{0x1C, 0x1F}}));
    return CodeTable(spaces);
}

/// Calls `take` for each part of a text, divided as BpeParts::divides_runs says.
template <class Take>
void divide_runs(std::string_view text, const Take& take) {
    constexpr size_t kMaxTextCharacters = 400'000, kMaxRunCharacters = 25'000;
    if (text.size() <= kMaxRunCharacters) return take(text);
    static const CodeTable spaces = python_spaces();
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
          raw_tokens_(tokens_of(parts, false)),
          normalized_tokens_(tokens_of(parts, true)),
          normalize_to_nfc_(parts.normalize_to_nfc),
          divides_runs_(parts.divides_runs),
          splits_(std::move(parts.splits)),
          bpe_(parts.byte_ids, parts.merges, std::move(parts.whole_pieces)),
          texts_(std::move(parts.texts)) {}

    void encode(std::string_view text, Ids& ids) const override {
        if (text.size() >= UINT32_MAX / 3)
            throw UserError("a text of {} bytes is too long for a tokenizer; divide it", text.size());
        std::string repaired, normalized;
        std::vector<AddedTokenSearch::Part> parts, inner_parts;
        raw_tokens_.split(repaired_utf8(text, repaired), parts);
        for (const auto& part : parts) {
            if (part.token != nullptr) {
                ids.push_back(part.token->id);
                continue;
            }
            normalized_tokens_.split(normalize_to_nfc_ ? to_nfc(part.text, normalized) : part.text,
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

    std::string decode(std::span<const uint32_t> ids) const override {
        std::string text;
        for (const uint32_t id : ids) text += texts_.at(id);
        return text;
    }

  private:
    static AddedTokenSearch tokens_of(const BpeParts& parts, bool normalized) {
        std::vector<AddedToken> tokens;
        std::string buffer;
        for (AddedToken token : parts.added_tokens) {
            if (token.normalized != normalized) continue;
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

    const AddedTokenSearch raw_tokens_, normalized_tokens_;
    const bool normalize_to_nfc_, divides_runs_;
    const std::vector<Split> splits_;
    const Bpe bpe_;
    const std::vector<std::string> texts_;
};

/// The begin of the character that ends at `end`.
size_t character_before(std::string_view text, size_t end) {
    do --end;
    while (continues_utf8(text[end]));
    return end;
}

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts) {
    return std::make_unique<BpeTokenizer>(std::move(parts));
}

AddedTokenSearch::AddedTokenSearch(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)),
      nodes_(1),
      may_begin_(256),
      words_(token_neighbor_set()),
      spaces_(space_set()) {
    for (size_t i = 0; i < tokens_.size(); ++i) {
        uint32_t node = 0;
        for (const char byte : tokens_[i].content) {
            uint32_t child = child_of(node, byte);
            if (child == 0) {
                child = static_cast<uint32_t>(nodes_.size());
                nodes_[node].children.push_back({byte, child});
                nodes_.emplace_back();
            }
            node = child;
        }
        if (node != 0 && nodes_[node].token < 0) nodes_[node].token = static_cast<int32_t>(i);
    }
    for (const Child& child : nodes_[0].children) may_begin_[static_cast<unsigned char>(child.byte)] = true;
}

uint32_t AddedTokenSearch::child_of(uint32_t node, char byte) const {
    for (const Child& child : nodes_[node].children)
        if (child.byte == byte) return child.node;
    return 0;
}

const AddedToken* AddedTokenSearch::longest_at(std::string_view text, size_t begin) const {
    int32_t longest = -1;
    uint32_t node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
        node = child_of(node, text[i]);
        if (node == 0) break;
        if (nodes_[node].token >= 0) longest = nodes_[node].token;
    }
    return longest < 0 ? nullptr : &tokens_[longest];
}

bool AddedTokenSearch::is_beside_word(std::string_view text, size_t begin, size_t end) const {
    return (begin != 0 && words_.contains_at(text.data() + character_before(text, begin))) ||
           (end != text.size() && words_.contains_at(text.data() + end));
}

/// A match that is no single word hides shorter tokens at its place, and the white space
/// that a token includes is searched for further tokens.
void AddedTokenSearch::split(std::string_view text, std::vector<Part>& parts) const {
    parts.clear();
    size_t done = 0;
    for (size_t at = 0; at < text.size() && !tokens_.empty();) {
        if (!may_begin_[static_cast<unsigned char>(text[at])]) {
            ++at;
            continue;
        }
        const AddedToken* token = longest_at(text, at);
        if (token == nullptr) {
            ++at;
            continue;
        }
        size_t begin = at, end = at + token->content.size();
        at = end;
        if (token->single_word && is_beside_word(text, begin, end)) continue;
        if (token->lstrip) {
            begin = std::max(begin, done);
            while (begin > done && spaces_.contains_at(text.data() + character_before(text, begin)))
                begin = character_before(text, begin);
        }
        if (token->rstrip) end = spaces_.skip(text.data() + end, text.data() + text.size()) - text.data();
        if (begin >= end) continue;  // white space that the token before includes
        if (done < begin) parts.push_back({text.substr(done, begin - done), nullptr});
        parts.push_back({text.substr(begin, end - begin), token});
        done = end;
    }
    if (done < text.size()) parts.push_back({text.substr(done), nullptr});
}

}  // namespace argosy::tokenizer
