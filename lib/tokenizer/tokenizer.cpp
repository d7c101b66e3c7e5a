#include "tokenizer/tokenizer.h"

#include "base/error.h"

namespace argosy::tokenizer {
namespace {

/// Each byte of a text is a token.
class ByteTokenizer : public Tokenizer {
  public:
    ByteTokenizer() : Tokenizer({.name = kBytes, .vocab_size = kEndOfText + 1, .end_of_text = kEndOfText}) {}

    void encode(std::string_view text, Ids& ids) const override {
        const size_t size = ids.size();
        ids.resize(size + text.size());
        for (size_t i = 0; i < text.size(); ++i) ids[size + i] = static_cast<unsigned char>(text[i]);
    }

    std::string decode(std::span<const uint32_t> ids) const override {
        std::string text;
        for (const uint32_t id : ids) {
            if (id < kEndOfText) text.push_back(static_cast<char>(id));
        }
        return text;
    }

  private:
    static constexpr uint32_t kEndOfText = 256;
};

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& source, const std::string& end_of_text) {
    if (source != kBytes)
        throw UserError("the tokenizer is '{}'; the only tokenizer so far is '{}'", source, kBytes);
    if (!end_of_text.empty()) {
        throw UserError("the tokenizer '{}' has an end of text of its own; leave out '{}'", kBytes,
                        end_of_text);
    }
    return std::make_unique<ByteTokenizer>();
}

}  // namespace argosy::tokenizer
