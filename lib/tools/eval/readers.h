// Documents, which are what the lines of a task's file ask of the model, and the readers that make them.
// The layouts of a task's records, one row of a table each. Four are this program's own and are recognised by
// their keys. The others are the layouts in which public data sets are distributed; with them go the prompts
// and metrics of lm-evaluation-harness 0.4.13 for these data sets.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_field.h"
#include "eval/windows.h"

namespace argosy::eval {

/// The kind of a task's scores. The names in the comments are those of lm-evaluation-harness (`output_type`).
enum class OutputType {
    TokenIds,      // the log-likelihood of tokens after the first one; no counterpart in the harness
    Rolling,       // loglikelihood_rolling: that of a text
    Continuation,  // loglikelihood: that of a continuation after a context
    Choices,       // multiple_choice: that of several continuations
    Generation,    // generate_until: answers in generated texts
};

/// Whether the documents hold texts, which need a tokenizer.
inline bool has_texts(OutputType type) { return type != OutputType::TokenIds; }

struct Document {
    nlohmann::ordered_json record = {};  // as it was read
    std::string place = {};              // "file:line"

    Tokens tokens = {};     // of OutputType::TokenIds
    std::string text = {};  // of OutputType::Rolling
    std::string page = {};  // its form before cleaning, whose words and bytes count; empty: `text`

    /// The other types have contexts, and all but Generation continuations, each of which begins with its
    /// delimiter. There is one context for all of them, or one for each.
    std::vector<std::string> contexts = {}, continuations = {};
    std::vector<std::string> choices = {};  // of OutputType::Choices: the texts whose lengths normalise
    int64_t gold = 0;                       // the index of the right choice
    std::vector<bool> are_true = {};        // of each choice, where `acc` is the probability of the true ones

    /// The document as an example in the prompt of another one: `question`, Reader::example_delimiter,
    /// `answer`.
    std::string question = {}, answer = {};
    std::string description = {};  // begins the prompt, before the examples
};

/// How the examples of a prompt are chosen.
enum class FewshotSampler {
    Random,       // drawn anew for each document
    RandomOther,  // the same, but one more is drawn, and the document itself is left out
    First,        // the first ones, of those with the document's description
    None,         // the prompt has examples of its own and takes no others
};

/// A way to extract an answer from a text. A metric is computed for each filter of a task.
struct AnswerFilter {
    const char* name;
    std::string (*apply)(std::string_view text);
};

struct Reader {
    const char* name;               // as in --tasks NAME=FILE
    std::vector<std::string> keys;  // the keys by which a layout of this program is recognised; else empty
    OutputType type;
    std::vector<const char*> metrics;  // names of metrics.h
    Document (*read)(const JsonField& record, int64_t vocab_size);
    FewshotSampler sampler = FewshotSampler::Random;
    double version = 1;  // of the task in the harness

    // Only for OutputType::Generation:
    std::vector<std::string> stop_texts = {};  // `until`
    std::vector<AnswerFilter> filters = {};

    /// Between question and answer of an example: the harness's target_delimiter. For LAMBADA, whose answers
    /// begin with a space, the harness has two spaces there.
    const char* example_delimiter = " ";
};

const std::vector<Reader>& readers();

/// The part of readers() that reads public data sets.
std::vector<Reader> public_readers();

// The documents that readers make of a record. The harness's target_delimiter, a space, precedes each
// continuation.

/// A question whose choices follow one context. Refuses `gold`, which `field` says, if it is no choice.
Document multiple_choice(const JsonField& field, std::string context, std::vector<std::string> choices,
                         int64_t gold);

/// A context and the continuation to predict.
Document last_word(const std::string& context, const std::string& word);

/// A list of strings, one at least; and an integer, or a string of one. UserError for another value.
std::vector<std::string> texts_of(const JsonField& field);
int64_t integer_of(const JsonField& field);

/// Null if there is no reader of this name.
const Reader* find_reader(const std::string& name);

/// The reader whose keys the record has. Throws UserError if there is not exactly one.
const Reader& recognise(const nlohmann::ordered_json& record, const std::string& place);

}  // namespace argosy::eval
