// Generates text: chooses token after token, and turns tokens into text as they come.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/resident_model.h"
#include "tokenizer/tokenizer.h"

namespace argosy::eval {

struct SamplingOptions {
    double temperature = 0;  // 0: the likeliest token, the first of equal ones
    double top_p = 1;        // draw from the fewest tokens that together have this probability
    uint64_t seed = 0;
};

/// Chooses the token number `index` of a text. The choice is a function of the arguments.
uint32_t choose_token(std::span<const float> logits, const SamplingOptions& options, uint64_t index);

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

struct GenerateOptions {
    int64_t max_new_tokens = 128;
    SamplingOptions sampling = {};
};

/// The tokens of a prompt: the text after what the tokenizer's template puts before it. The prefix token (see
/// requests.h) if there is nothing.
tokenizer::Ids prompt_tokens(const tokenizer::Tokenizer& tokenizer, const std::string& text);

/// Continues a prompt until an end of text, which is left out, or `max_new_tokens`. Passes each piece of text
/// to `take` when it is complete. Returns the number of tokens. REQUIRES: prompt and new tokens fit into
/// model.max_tokens().
int64_t generate(ResidentModel& model, const tokenizer::Tokenizer& tokenizer, const tokenizer::Ids& prompt,
                 const GenerateOptions& options, const std::function<void(const std::string& text)>& take);

}  // namespace argosy::eval
