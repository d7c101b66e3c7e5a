#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

namespace argosy::tokenizer {
namespace {

/// The begin of the character that ends at `end`.
size_t character_before(std::string_view text, size_t end) {
    do --end;
    while (continues_utf8(text[end]));
    return end;
}

// Shared by all searches, since a table takes a millisecond to make.
const CodeTable& neighbors() {
    static const CodeTable table(token_neighbor_set());
    return table;
}
const CodeTable& spaces() {
    static const CodeTable table(space_set());
    return table;
}

}  // namespace

AddedTokenSearch::AddedTokenSearch(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), nodes_(1), may_begin_(256) {
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

const AddedToken* AddedTokenSearch::longest_at(std::string_view text, size_t begin,
                                               const std::vector<bool>* may_have_token) const {
    int32_t longest = -1;
    uint32_t node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
        if (may_have_token != nullptr && !(*may_have_token)[i]) break;
        node = child_of(node, text[i]);
        if (node == 0) break;
        if (nodes_[node].token >= 0) longest = nodes_[node].token;
    }
    return longest < 0 ? nullptr : &tokens_[longest];
}

bool AddedTokenSearch::is_beside_word(std::string_view text, size_t begin, size_t end) const {
    return (begin != 0 && neighbors().contains_at(text.data() + character_before(text, begin))) ||
           (end != text.size() && neighbors().contains_at(text.data() + end));
}

/// A match that is no single word hides shorter tokens at its place, and the white space
/// that a token includes is searched for further tokens.
void AddedTokenSearch::split(std::string_view text, std::vector<Part>& parts,
                             const std::vector<bool>* may_have_token) const {
    parts.clear();
    size_t done = 0;
    for (size_t at = 0; at < text.size() && !tokens_.empty();) {
        if (!may_begin_[static_cast<unsigned char>(text[at])]) {
            ++at;
            continue;
        }
        const AddedToken* token = longest_at(text, at, may_have_token);
        if (token == nullptr) {
            ++at;
            continue;
        }
        size_t begin = at, end = at + token->content.size();
        at = end;
        if (token->single_word && is_beside_word(text, begin, end)) continue;
        if (token->lstrip) {
            begin = std::max(begin, done);
            while (begin > done && spaces().contains_at(text.data() + character_before(text, begin)))
                begin = character_before(text, begin);
        }
        if (token->rstrip) end = spaces().skip(text.data() + end, text.data() + text.size()) - text.data();
        if (begin >= end) continue;  // white space that the token before includes
        if (done < begin) parts.push_back({text.substr(done, begin - done), nullptr});
        parts.push_back({text.substr(begin, end - begin), token});
        done = end;
    }
    if (done < text.size()) parts.push_back({text.substr(done), nullptr});
}

}  // namespace argosy::tokenizer
