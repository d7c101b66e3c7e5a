// The requests of a task: its documents as tokens, cut into the windows that the model scores. The rules are
// those of lm-evaluation-harness with a causal model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eval/document.h"
#include "eval/score.h"
#include "eval/windows.h"
#include "tokenizer/tokenizer.h"

namespace argosy::eval {

struct Requests {
    std::vector<Tokens> records;  // those of document i: [first_record[i], first_record[i + 1])
    std::vector<size_t> first_record = {0};
    std::vector<Window> windows;
    int64_t num_cut = 0;  // records of which the beginning is left out, because they are too long

    /// The scores of document i, of all records' scores.
    DocumentScores of_document(const std::vector<RecordScore>& scores, size_t i) const {
        return std::span(scores).subspan(first_record[i], first_record[i + 1] - first_record[i]);
    }
};

/// `max_length` is the maximum number of inputs of a window. OutputType::TokenIds needs no tokenizer and
/// allows max_length 0: the longest document. The rules for texts:
///   - A text is encoded with what the tokenizer's template puts around it, unless it begins with the
///     begin-of-text token already.
///   - The prefix token is the tokenizer's begin of text, else its end of text. It precedes each text of
///     Rolling, and is the context of a continuation without one.
///   - Whitespace at the end of a context moves to the continuation. The continuation's tokens are those of
///     context + continuation after as many tokens as the context alone has.
///   - What is too long loses tokens at its left.
/// Throws UserError, which names the document, for a continuation that is longer than max_length or has no
/// token.
Requests make_requests(std::span<const Document> documents, OutputType type,
                       const tokenizer::Tokenizer* tokenizer, int64_t max_length);

}  // namespace argosy::eval
