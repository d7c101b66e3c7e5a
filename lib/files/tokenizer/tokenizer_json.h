// The parts of Hugging Face's tokenizer.json. Only the sources tokenizer_json*.cpp use this header. Whatever
// is not supported is refused with its key.
#pragma once

#include "base/json_field.h"
#include "tokenizer/bpe_tokenizer.h"

namespace argosy::tokenizer {

/// The tokens of `model.vocab`, and what is made of `model.merges`.
struct BpeModelFile {
    BpeVocabulary vocabulary;  // the tokens as they stand in the file
    std::vector<BpeMerge> merges;
    std::array<uint32_t, 256> byte_ids{};
    bool ignore_merges = false;
};

BpeModelFile read_bpe_model(const JsonField& model);
bool read_normalizer(const JsonField& normalizer);  // whether texts are normalized to NFC
std::vector<Split> read_pre_tokenizer(const JsonField& pre_tokenizer);
void check_decoder(const JsonField& decoder);

/// Adds what the template puts around a text to `prefix` and `suffix`.
void read_post_processor(const JsonField& post_processor, Ids& prefix, Ids& suffix);

}  // namespace argosy::tokenizer
