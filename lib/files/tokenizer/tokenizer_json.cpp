#include "tokenizer/tokenizer_json.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/strict_json.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/tokenizer_file.h"

namespace argosy::tokenizer {
namespace {

/// Bytes that valid UTF-8 does not contain need no token.
bool occurs_in_utf8(uint32_t byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

uint32_t id_in(const BpeVocabulary& vocabulary, std::string_view token, const JsonField& merge) {
    const auto found = vocabulary.find(token);
    if (found == vocabulary.end())
        merge.refuse("needs the token " + shown(token) + ", which is not in model.vocab");
    return found->second;
}

/// The tokens of a merge, which is "a b" or ["a", "b"].
std::pair<std::string_view, std::string_view> read_merge(const JsonField& merge) {
    if (merge.is_string()) {
        const std::string_view text = merge.string();
        const size_t space = text.find(' ');
        if (space == text.npos || text.find(' ', space + 1) != text.npos)
            merge.refuse("is " + shown(text) + ", not two tokens with a space between them");
        return {text.substr(0, space), text.substr(space + 1)};
    }
    const std::vector<JsonField> tokens = merge.list();
    if (tokens.size() != 2) merge.refuse("is a list, but not of two tokens");
    return {tokens[0].string(), tokens[1].string()};
}

void read_merges(const JsonField& merges, BpeModelFile& model) {
    std::string merged;
    for (const JsonField& merge : merges.list()) {
        const auto [left, right] = read_merge(merge);
        merged.assign(left).append(right);
        model.merges.push_back({.left = id_in(model.vocabulary, left, merge),
                                .right = id_in(model.vocabulary, right, merge),
                                .merged = id_in(model.vocabulary, merged, merge),
                                .rank = static_cast<uint32_t>(model.merges.size())});
    }
}

void find_byte_ids(const JsonField& vocab, BpeModelFile& model) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
        const auto found =
            model.vocabulary.find(characters_of_bytes(std::string(1, static_cast<char>(byte))));
        if (found != model.vocabulary.end()) {
            model.byte_ids[byte] = found->second;
        } else if (occurs_in_utf8(byte)) {
            vocab.refuse(fmt::format("has no token for the byte {:#04x}, so texts would lose it", byte));
        }
    }
}

/// Gives the added tokens the ids that the package gives them, which must be those of the file.
std::vector<AddedToken> read_added_tokens(const JsonField& list, const BpeVocabulary& vocabulary) {
    std::vector<AddedToken> tokens;
    if (list.is_null()) return tokens;
    std::set<std::string> contents;
    uint32_t next = static_cast<uint32_t>(vocabulary.size());
    for (const JsonField& entry : list.list()) {
        entry.allow_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
        const bool special = entry["special"].boolean(false);
        const AddedToken token = {.content = entry["content"].string(),
                                  .id = read_id(entry["id"]),
                                  .special = special,
                                  .single_word = entry["single_word"].boolean(false),
                                  .lstrip = entry["lstrip"].boolean(false),
                                  .rstrip = entry["rstrip"].boolean(false),
                                  .normalized = entry["normalized"].boolean(!special)};
        if (token.content.empty()) entry["content"].refuse("is empty");
        if (!contents.insert(token.content).second)
            entry["content"].refuse("is " + shown(token.content) + ", as in an earlier entry");
        const auto known = vocabulary.find(token.content);
        const uint32_t id = known == vocabulary.end() ? next : known->second;
        if (id != token.id)
            entry["id"].refuse(fmt::format("is {}, but the package `tokenizers` gives {} the id {}", token.id,
                                           shown(token.content), id));
        next = std::max(next, id + 1);
        tokens.push_back(token);
    }
    return tokens;
}

/// The text of each id. A token with a character that stands for no byte is its own text.
std::vector<std::string> decoded_texts(const BpeVocabulary& vocabulary, const std::vector<AddedToken>& added,
                                       const JsonField& vocab) {
    std::vector<const std::string*> tokens;
    const auto place = [&](uint32_t id) -> const std::string*& {
        if (id >= tokens.size()) tokens.resize(id + 1);
        return tokens[id];
    };
    const size_t kMaxGaps = vocabulary.size() + 1'000'000;
    for (const auto& [token, id] : vocabulary) {
        if (id > kMaxGaps)
            vocab.refuse(fmt::format("gives {} the id {}, beyond many unused ids", shown(token), id));
        if (place(id) != nullptr)
            vocab.refuse(fmt::format("gives {} and {} the same id {}", shown(*place(id)), shown(token), id));
        place(id) = &token;
    }
    for (const AddedToken& token : added) place(token.id) = &token.content;
    std::vector<std::string> texts;
    for (const std::string* token : tokens)
        texts.push_back(token == nullptr ? "" : bytes_of_characters(*token).value_or(*token));
    for (const AddedToken& token : added)
        if (token.special) texts[token.id].clear();
    return texts;
}

BpeVocabulary whole_pieces(const BpeVocabulary& vocabulary) {
    BpeVocabulary pieces;
    for (const auto& [token, id] : vocabulary)
        if (const auto bytes = bytes_of_characters(token)) pieces.emplace(*bytes, id);
    return pieces;
}

/// Finds a token that tokenizer_config.json or the command line names.
std::optional<uint32_t> find_token(const std::optional<std::string>& name, const BpeParts& parts,
                                   const BpeVocabulary& vocabulary, const JsonField& root) {
    if (!name) return std::nullopt;
    for (const AddedToken& token : parts.added_tokens)
        if (token.content == *name) return token.id;
    const auto found = vocabulary.find(*name);
    if (found == vocabulary.end())
        root.refuse("has no token " + shown(*name) +
                    ", which tokenizer_config.json or --end-of-text names; name another one");
    return found->second;
}

}  // namespace

BpeModelFile read_bpe_model(const JsonField& model) {
    if (!model["type"].is_null() && model["type"].string() != "BPE")
        model["type"].refuse("is " + model["type"].shown() + "; only BPE is supported");
    // A vocabulary that has every byte never needs unk_token, fuse_unk and byte_fallback.
    model.allow_only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                      "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    if (!model["unk_token"].is_null()) model["unk_token"].string();
    for (const char* key : {"fuse_unk", "byte_fallback"}) model[key].boolean(false);
    if (!model["dropout"].is_null()) model["dropout"].refuse("must be null");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
        if (!model[key].is_null() && !model[key].string().empty()) model[key].refuse("must be null or empty");
    BpeModelFile file;
    const JsonField vocab = model["vocab"];
    file.vocabulary.reserve(vocab.members().size());
    for (const auto& [token, id] : vocab.members()) {
        if (!id.is_number_unsigned()) vocab.refuse("gives " + shown(token) + " an id that is not a number");
        file.vocabulary.emplace(token, read_id(JsonField(id, vocab.file())));
    }
    file.ignore_merges = model["ignore_merges"].boolean(false);
    read_merges(model["merges"], file);
    find_byte_ids(vocab, file);
    return file;
}

std::unique_ptr<Tokenizer> read_tokenizer_json(const TokenizerFile& file,
                                               const nlohmann::ordered_json& json) {
    const std::string name = file.path.string();
    const JsonField root(json, name);
    root.allow_only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                     "post_processor", "decoder", "model"});
    if (!root["version"].is_null() && root["version"].string() != "1.0")
        root["version"].refuse("is " + root["version"].shown() + "; only 1.0 is known");
    for (const char* key : {"truncation", "padding"})
        if (!root[key].is_null()) root[key].refuse("must be null, because texts are encoded whole");

    BpeModelFile model = read_bpe_model(root["model"]);
    BpeParts parts;
    parts.normalize_to_nfc = read_normalizer(root["normalizer"]);
    parts.added_tokens = read_added_tokens(root["added_tokens"], model.vocabulary);
    parts.splits = read_pre_tokenizer(root["pre_tokenizer"]);
    check_decoder(root["decoder"]);
    parts.byte_ids = model.byte_ids;
    parts.merges = std::move(model.merges);
    if (model.ignore_merges) parts.whole_pieces = whole_pieces(model.vocabulary);
    parts.texts = decoded_texts(model.vocabulary, parts.added_tokens, root["model"]["vocab"]);

    parts.info.name = file.path.filename().string();
    parts.info.digest = file.digest;
    parts.info.warnings = file.warnings;
    parts.info.vocab_size = static_cast<int64_t>(parts.texts.size());
    parts.info.begin_of_text = find_token(file.begin_of_text, parts, model.vocabulary, root);
    parts.info.end_of_text = find_token(file.end_of_text, parts, model.vocabulary, root);
    for (const AddedToken& token : parts.added_tokens)
        if (token.special) parts.info.special_tokens.push_back(token);
    read_post_processor(root["post_processor"], parts.info.prefix, parts.info.suffix);
    for (const Ids* ids : {&parts.info.prefix, &parts.info.suffix})
        for (const uint32_t id : *ids)
            if (id >= parts.texts.size()) root["post_processor"].refuse("names an id that no token has");
    return make_bpe_tokenizer(std::move(parts));
}

}  // namespace argosy::tokenizer
