// Generates text: chooses token after token, and ends the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "interop/model_source.h"
#include "tokenizer/tokenizer.h"

namespace argosy::eval {

struct SamplingOptions {
    double temperature = 0;  // 0: the likeliest token, the first of equal ones
    double top_p = 1;        // draw from the fewest tokens that together have this probability
    uint64_t seed = 0;
};

/// Chooses the token number `index` of a text. The choice is a function of the arguments.
uint32_t choose_token(std::span<const float> logits, const SamplingOptions& options, uint64_t index);

struct GenerateOptions {
    int64_t max_new_tokens = 128;
    SamplingOptions sampling = {};
    std::vector<std::string> stop_texts = {};  // the text ends before the first of them
    tokenizer::Ids end_tokens = {};            // beside the tokenizer's end of text
};

/// The tokens that end a text by the model's files: eos_token_id, a number or a list, of
/// generation_config.json if there is that file, else of config.json. The rule is that of transformers.
tokenizer::Ids end_tokens(const interop::ModelSource& source);

/// The tokens of a prompt: the text after what the tokenizer's template puts before it. The prefix token (see
/// requests.h) if there is nothing.
tokenizer::Ids prompt_tokens(const tokenizer::Tokenizer& tokenizer, const std::string& text);

/// A text that is generated token after token, until an end of text or a stop text, which is left out, or
/// `max_new_tokens`. A stop text that is the name of a special token stands for that token too.
class Continuation {
  public:
    /// REQUIRES: the tokenizer outlives this object.
    Continuation(const tokenizer::Tokenizer& tokenizer, tokenizer::Ids prompt,
                 const GenerateOptions& options);

    bool finished() const { return finished_; }
    /// The tokens that the model has not seen: the prompt, later the newest token. REQUIRES: !finished().
    std::span<const uint32_t> unseen() const { return unseen_; }
    /// Chooses the token after unseen(), from its logits.
    void advance(std::span<const float> logits);
    int64_t num_tokens() const { return num_tokens_; }  // new ones
    /// U+FFFD stands for malformed UTF-8. REQUIRES: finished().
    const std::string& text() const { return text_; }

  private:
    void decode();

    const tokenizer::Tokenizer& tokenizer_;
    GenerateOptions options_;
    tokenizer::Ids end_tokens_, unseen_;
    tokenizer::Ids known_;  // the new ones, without those that the tokenizer does not have
    std::string text_;
    int64_t num_tokens_ = 0;
    bool finished_ = false;
};

}  // namespace argosy::eval
