#include <sentencepiece_processor.h>

#include <algorithm>

#include "base/error.h"
#include "base/strict_json.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/unicode.h"

namespace argosy::tokenizer {
namespace {

using sentencepiece::SentencePieceProcessor;

void check_status(const sentencepiece::util::Status& status, const std::string& what) {
    if (!status.ok()) throw UserError("{}: SentencePiece says: {}", what, status.ToString());
}

class SentencePieceTokenizer : public Tokenizer {
  public:
    SentencePieceTokenizer(TokenizerInfo info, std::unique_ptr<SentencePieceProcessor> processor)
        : Tokenizer(std::move(info)),
          processor_(std::move(processor)),
          puts_space_(ids_of("a").size() > 1 || processor_->IdToPiece(ids_of("a").front()) != "a"),
          names_(names_found_in_text()) {}

    void encode(std::string_view text, Ids& ids) const override {
        const std::vector<int> pieces = ids_of(text);
        ids.insert(ids.end(), pieces.begin(), pieces.end());
    }

    /// The library puts a space before each text if the model says so. After a special token that is the
    /// text's own first space, as mistral-common encodes it. Tokens that the library finds in any text are
    /// cut in two here. Text behind a cut gets no space: it is encoded behind the token, whose ids go.
    void encode_plain(std::string_view text, Ids& ids) const override {
        if (puts_space_ && text.starts_with(' ')) text.remove_prefix(1);
        std::vector<AddedTokenSearch::Part> parts;
        names_.split(text, parts);
        size_t begin = 0;
        const AddedToken* cut_token = nullptr;
        for (const auto& part : parts) {
            if (part.token == nullptr) continue;
            const size_t cut = part.text.data() - text.data() + utf8_size(part.text[0]);
            encode_behind(cut_token, text.substr(begin, cut - begin), ids);
            cut_token = part.token;
            begin = cut;
        }
        if (begin < text.size()) encode_behind(cut_token, text.substr(begin), ids);
    }

    std::string decode(std::span<const uint32_t> ids) const override {
        std::string text;
        check_status(processor_->Decode(std::vector<int>(ids.begin(), ids.end()), &text), info().name);
        return text;
    }

  private:
    /// Appends the ids that a text has behind a token that the library finds; null if it begins a text.
    void encode_behind(const AddedToken* token, std::string_view text, Ids& ids) const {
        if (token == nullptr) return encode(text, ids);
        const std::vector<int> pieces = ids_of(token->content + std::string(text));
        const auto found = std::ranges::find(pieces, static_cast<int>(token->id));
        if (found == pieces.end()) return encode(text, ids);  // within a longer token
        ids.insert(ids.end(), found + 1, pieces.end());
    }

    std::vector<int> ids_of(std::string_view text) const {
        std::string repaired;
        std::vector<int> pieces;
        check_status(processor_->Encode(repaired_utf8(text, repaired), &pieces), info().name);
        return pieces;
    }

    /// The special tokens that are user-defined pieces of the model: the library never cuts them.
    AddedTokenSearch names_found_in_text() const {
        std::vector<AddedToken> names;
        for (const AddedToken& token : info().special_tokens)
            if (std::ranges::count(ids_of(token.content), static_cast<int>(token.id)) > 0)
                names.push_back(token);
        return AddedTokenSearch(std::move(names));
    }

    const std::unique_ptr<SentencePieceProcessor> processor_;
    const bool puts_space_;  // before each text
    const AddedTokenSearch names_;
};

/// The library finds several cuts of a text only for unigram models.
bool is_unigram(const SentencePieceProcessor& processor) {
    std::vector<std::vector<int>> cuts;
    return processor.NBestEncode("a", 1, &cuts).ok();
}

constexpr const char* kUnigramWarning =
    " is a SentencePiece unigram model: where two cuts of a text have equal scores, SentencePiece 0.1.97 to "
    "0.2.1 chooses by the rounding of their sums, and 0.2.2 and newer the cut with the longer last piece, so "
    "the ids of some texts depend on the library's version. Train and serve with ids of one version";

/// The special tokens of tokenizer_config.json, and the model's own, which it finds in no text.
std::vector<AddedToken> special_tokens_of(const SentencePieceProcessor& processor,
                                          const TokenizerFile& file) {
    std::vector<AddedToken> tokens = file.special_tokens;
    for (int id = 0; id < processor.GetPieceSize(); ++id) {
        if (!processor.IsControl(id) && !processor.IsUnknown(id)) continue;
        tokens.push_back({.content = processor.IdToPiece(id),
                          .id = static_cast<uint32_t>(id),
                          .special = true,
                          .normalized = false});
    }
    return tokens;
}

/// The id of a token that is named, else of the model's own; none if the model has none (-1).
std::optional<uint32_t> find_piece(const SentencePieceProcessor& processor,
                                   const std::optional<std::string>& name, int own, const std::string& file) {
    if (!name) return own < 0 ? std::nullopt : std::optional<uint32_t>(own);
    const int id = processor.PieceToId(*name);
    if (processor.IdToPiece(id) != *name)
        throw UserError("{} has no token {}, which tokenizer_config.json or --end-of-text names", file,
                        shown(*name));
    return id;
}

}  // namespace

std::unique_ptr<Tokenizer> read_sentence_piece(const TokenizerFile& file) {
    const std::string name = file.path.string();
    auto processor = std::make_unique<SentencePieceProcessor>();
    check_status(processor->LoadFromSerializedProto(file.content), name);
    TokenizerInfo info = {
        .name = file.path.filename().string(),
        .digest = file.digest,
        .vocab_size = processor->GetPieceSize(),
        .prefix = {},
        .suffix = {},
        .begin_of_text = find_piece(*processor, file.begin_of_text, processor->bos_id(), name),
        .end_of_text = find_piece(*processor, file.end_of_text, processor->eos_id(), name),
        .special_tokens = special_tokens_of(*processor, file),
        .warnings = file.warnings};
    if (is_unigram(*processor)) info.warnings.push_back(name + kUnigramWarning);
    if (file.add_begin_of_text && info.begin_of_text) info.prefix.push_back(*info.begin_of_text);
    if (file.add_end_of_text && info.end_of_text) info.suffix.push_back(*info.end_of_text);
    return std::make_unique<SentencePieceTokenizer>(std::move(info), std::move(processor));
}

}  // namespace argosy::tokenizer
