// Generates text: chooses token after token, turns tokens into text as they come, and ends the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
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

// A text that comes in pieces, on its way from tokens to the reader: CharacterStream completes its
// characters, StopTexts ends it.

/// Turns bytes that come in pieces into text: complete characters at once, and U+FFFD for each malformed
/// sequence, as Python's errors="replace" does.
class CharacterStream {
  public:
    /// Returns the characters that are complete.
    std::string push(std::string_view bytes);
    /// Returns what is left, as malformed.
    std::string finish();

  private:
    std::string pending_;  // the beginning of a character
};

/// Ends a text before the first of several stop texts. An end of the text that may begin a stop text is held
/// back until more has come. If stop texts overlap in the text, the result is that of cutting at each of them
/// in turn.
class StopTexts {
  public:
    /// Empty texts are left out.
    explicit StopTexts(std::vector<std::string> texts);

    /// Returns what certainly precedes a stop text.
    std::string push(std::string_view text);
    /// Returns what was held back.
    std::string finish();
    bool stopped() const { return stopped_; }

  private:
    /// The length of the longest end of `pending_` that begins a stop text.
    size_t num_held() const;

    std::vector<std::string> texts_;
    std::string pending_;
    bool stopped_ = false;
};

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
    /// Chooses the token after unseen(), from its logits. Returns the text that is complete now and can be no
    /// part of a stop text.
    std::string advance(std::span<const float> logits);
    int64_t num_tokens() const { return num_tokens_; }  // new ones

  private:
    std::string add(uint32_t token);

    const tokenizer::Tokenizer& tokenizer_;
    GenerateOptions options_;
    tokenizer::Ids end_tokens_, unseen_;
    CharacterStream characters_;
    StopTexts text_;
    tokenizer::Ids known_;  // the newest ones; without those that the tokenizer does not have
    size_t num_taken_ = 0;  // bytes of their text that advance() has passed on
    std::string held_;      // the end of their text, which the next token may change
    int64_t num_tokens_ = 0;
    bool finished_ = false;
};

}  // namespace argosy::eval
