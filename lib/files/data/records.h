// Reads records, which are JSONL, one per line, of these kinds:
//   {"text": string}
//   {"tokens": [integers]}
//   {"tokens": [integers], "loss_mask": [0 or 1 for each token: whether it counts as a target]}
//   {"prompt": string, "completion": string}: the tokens of the prompt do not count
//   {"messages": [{"role": string, "content": string}, ...]}: the tokens of assistants' turns count
// Other keys and blank lines are ignored. An error in a record names file and line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/chat_template.h"

namespace argosy::data {

enum class RecordKind { Text, Tokens, MaskedTokens, Completion, Messages };

/// Returns the name of a kind in messages: {"text"}.
const char* name(RecordKind kind);

/// Whether the records of a kind are token numbers, which no tokenizer makes.
inline bool is_tokens(RecordKind kind) {
    return kind == RecordKind::Tokens || kind == RecordKind::MaskedTokens;
}

/// Whether the records of a kind say which tokens count as targets.
inline bool has_loss_mask(RecordKind kind) {
    return kind == RecordKind::MaskedTokens || kind == RecordKind::Completion || kind == RecordKind::Messages;
}

struct Record {
    RecordKind kind = RecordKind::Text;
    std::string text;                // of a text record
    std::vector<uint32_t> tokens;    // of a record of tokens
    std::vector<uint8_t> loss_mask;  // of a MaskedTokens record
    std::string prompt, completion;  // of a Completion record
    std::vector<tokenizer::ChatMessage> messages;
};

inline constexpr const char* kTextKey = "text";

/// Reads a record from its line. `place` names the line in errors. Tokens must be in 0 .. vocab_size-1. A
/// `text_key` makes each record {text_key: string}, and all other keys are ignored. Python writes numbers that
/// JSON lacks, NaN, Infinity and -Infinity; they are read as null. Throws UserError for a bad record.
void parse_record(std::string_view line, std::string place, int64_t vocab_size, Record& record,
                  std::string_view text_key = {});

/// Whether a line has no record.
bool is_blank(std::string_view line);

}  // namespace argosy::data
