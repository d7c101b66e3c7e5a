// A document of a task: what a line of a task's file asks of the model, in the form that all tasks share.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eval/windows.h"

namespace argosy::eval {

/// What a task computes for a document, under the names of lm-evaluation-harness (`output_type`).
enum class OutputType {
    TokenIds,      // the log-likelihood of tokens after the first one; no counterpart in the harness
    Rolling,       // loglikelihood_rolling: that of a text
    Continuation,  // loglikelihood: that of a continuation after a context
    Choices,       // multiple_choice: that of several continuations
};

/// Whether the documents hold texts, which need a tokenizer.
inline bool has_texts(OutputType type) { return type != OutputType::TokenIds; }

struct Document {
    nlohmann::ordered_json record = {};  // as it was read
    std::string place = {};              // "file:line"

    Tokens tokens = {};     // of OutputType::TokenIds
    std::string text = {};  // of OutputType::Rolling

    /// Of the other types: each continuation begins with its delimiter. There is one context for all of
    /// them, or one for each.
    std::vector<std::string> contexts = {}, continuations = {};
    std::vector<std::string> choices = {};  // of OutputType::Choices: the texts whose lengths normalise
    int64_t gold = 0;                       // the index of the right choice

    /// The document as an example in the prompt of another one: `question`, a space, `answer`.
    std::string question = {}, answer = {};
    std::string description = {};  // begins the prompt, before the examples
};

}  // namespace argosy::eval
