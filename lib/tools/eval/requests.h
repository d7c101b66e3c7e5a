// The requests of a task: its documents as tokens, cut into the windows that the model scores. The rules are
// those of lm-evaluation-harness with a causal model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/readers.h"
#include "eval/score.h"
#include "eval/task_file.h"
#include "eval/windows.h"
#include "interop/model_source.h"
#include "tokenizer/tokenizer.h"

namespace argosy::eval {

struct Requests {
    std::vector<Tokens> records;  // those of document i: [first_record[i], first_record[i + 1])
    std::vector<size_t> first_record = {0};
    std::vector<Window> windows;  // none for OutputType::Generation, whose records are contexts
    int64_t num_cut = 0;          // records of which the beginning is left out, because they are too long

    /// The scores of document i, of all records' scores.
    DocumentScores of_document(const std::vector<RecordScore>& scores, size_t i) const {
        return std::span(scores).subspan(first_record[i], first_record[i + 1] - first_record[i]);
    }
};

/// The maximum number of inputs of a window, or of a context of OutputType::Generation, and the setting that
/// says so, for messages.
struct LengthLimit {
    LengthLimit(int64_t number, const char* name = "--max-length") : num_inputs(number), setting(name) {}
    int64_t num_inputs;
    const char* setting;
};

/// OutputType::TokenIds needs no tokenizer and allows a limit of 0: the longest document. The rules for
/// texts:
///   - A text is encoded with what the tokenizer's template puts around it, unless it begins with the
///     begin-of-text token already.
///   - The prefix token is the tokenizer's begin of text, else its end of text. The token precedes each text
///   of
///     Rolling, and is the context of a continuation without one.
///   - Whitespace at the end of a context moves to the continuation. The continuation's tokens are those of
///     context + continuation after as many tokens as the context alone has.
///   - What is too long loses tokens at its left.
/// Throws UserError, which names the document, for a continuation that is longer than the limit or has no
/// token.
Requests make_requests(std::span<const Document> documents, OutputType type,
                       const tokenizer::Tokenizer* tokenizer, const LengthLimit& limit);

/// The tokenizer `wanted`, or if that is empty, the one in the model's folder or checkpoint; null if there is
/// none. Throws UserError if it has more ids than the model.
std::unique_ptr<tokenizer::Tokenizer> open_tokenizer(const std::string& wanted,
                                                     const interop::ModelSource& source);

/// A task with the requests that the model answers.
struct Work {
    Task task;
    Requests requests;
    std::vector<std::string> warnings = {};  // of records that are left out, cut or too long
};

/// A digest of the records, and of what the model is asked, in hex.
std::string digest(const Work& work);

/// The maximum number of tokens in a context of OutputType::Generation and the new text after it.
int64_t longest_sequence(const Work& work);

/// The requests of a task. A limit of 0: the model's max_position_embeddings; no limit for records of
/// tokens. A context of OutputType::Generation leaves room for the new tokens. Throws as make_requests()
/// does, and UserError if the task needs a tokenizer and there is none. The caller logs the warnings, once
/// for all ranks.
Work make_work(Task task, const tokenizer::Tokenizer* tokenizer, const LengthLimit& limit,
               const interop::ModelSource& source);

}  // namespace argosy::eval
