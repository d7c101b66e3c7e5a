// Turns batches of documents into tokens, on threads. The results come in the order of the inputs, so they do
// not depend on the number of threads.
//
// A text becomes the tokenizer's prefix, the tokens of the text, the suffix and an end of text. A record of a
// prompt and a completion is tokenized as one text: the prompt and the completion with nothing between them.
// The prompt's tokens do not count as targets. They are the prefix and the first tokens that this text has in
// common with the tokens of the prompt alone. All later tokens count: those with a part of the completion in
// them, the suffix and the end of text.
//
// Messages become what the tokenizer's chat template makes of them, with nothing around it
// (tokenizer/chat_template.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/documents.h"
#include "data/records.h"
#include "tokenizer/tokenizer.h"

namespace argosy::data {

/// A record that cannot be read ends the program with its error, or is left out.
enum class OnError { Fail, Skip };

/// The tokens of consecutive documents of one input.
struct EncodedDocuments {
    std::vector<uint32_t> tokens;  // of all documents
    std::vector<uint8_t>
        loss_mask;               // for each token 1 if it counts as a target, else 0; only of kinds with one
    std::vector<int64_t> sizes;  // the number of tokens of each document
    std::optional<RecordKind> kind;    // of every document; none if there are no documents
    DocumentPlace first_place;         // of the first document
    std::vector<std::string> skipped;  // the error of each record that was left out
    int64_t num_repaired = 0;          // texts with malformed UTF-8, which their tokens have as U+FFFD
};

struct EncodeOptions {
    InputOptions input;
    int64_t vocab_size = 0;  // of {"tokens"} records
    OnError on_error = OnError::Fail;
    int num_threads = 1;
    const tokenizer::ChatTemplate* chat_template = nullptr;  // of {"messages"} records; null if there is none
};

/// Calls `take` with the tokens of all documents of the ranges, in order, and `read` with the number of
/// stored bytes that were read of the ranges so far, about once a megabyte. Both are called by this thread.
/// Throws UserError for the first record, in order, that cannot be read or that is of another kind than those
/// before it in its batch.
void encode_documents(std::span<const InputRange> ranges, const EncodeOptions& options,
                      const tokenizer::Tokenizer& tokenizer,
                      const std::function<void(const EncodedDocuments&)>& take,
                      const std::function<void(int64_t stored_bytes)>& read);

/// The error for a record of one kind after records of another.
[[noreturn]] void refuse_mixed_kinds(const DocumentPlace& place, RecordKind kind, RecordKind before);

}  // namespace argosy::data
