#include "eval/generate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace argosy::eval {
namespace {

/// In [0, 1), from 53 random bits.
double uniform(uint64_t seed, uint64_t index) {
    const std::array<uint32_t, 4> words =
        philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0},
               {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    const uint64_t bits = (uint64_t{words[0]} << 21) ^ (words[1] >> 11);
    return static_cast<double>(bits) / static_cast<double>(uint64_t{1} << 53);
}

/// The bytes of the character that begins the text: {size, whether it is whole}. A malformed sequence has the
/// size that one U+FFFD replaces; an empty text, or one that may become a character, has size 0.
struct Character {
    size_t size;
    bool whole;
};

/// The bytes of a character by its first byte; 0 if no character begins so.
size_t character_size(unsigned char lead) {
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead < 0xE0) return 2;
    if (lead >= 0xE0 && lead < 0xF0) return 3;
    return lead >= 0xF0 && lead < 0xF5 ? 4 : 0;
}

Character first_character(std::string_view text) {
    if (text.empty()) return {0, false};
    const auto lead = static_cast<unsigned char>(text[0]);
    const size_t size = character_size(lead);
    if (size == 0) return {1, false};
    for (size_t i = 1; i < size; ++i) {
        if (i == text.size()) return {0, false};
        // The second byte excludes long forms, surrogates and what lies above U+10FFFF.
        const unsigned char low = i > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        const unsigned char high = i > 1 ? 0xBF : lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        const auto byte = static_cast<unsigned char>(text[i]);
        if (byte < low || byte > high) return {i, false};
    }
    return {size, true};
}

constexpr const char* kReplacement = "\uFFFD";

}  // namespace

uint32_t choose_token(std::span<const float> logits, const SamplingOptions& options, uint64_t index) {
    if (options.temperature == 0) return std::ranges::max_element(logits) - logits.begin();
    // 1. the tokens, the likeliest first
    std::vector<uint32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater(), [&](uint32_t token) { return logits[token]; });
    // 2. their probabilities, not yet divided by the sum
    std::vector<double> weights;
    double sum = 0;
    for (const uint32_t token : order) {
        weights.push_back(
            std::exp((static_cast<double>(logits[token]) - logits[order[0]]) / options.temperature));
        sum += weights.back();
    }
    // 3. the fewest that have the probability top_p
    double kept = 0;
    size_t count = 0;
    while (count < weights.size() && (count == 0 || kept < options.top_p * sum)) kept += weights[count++];
    // 4. draw one of them
    double left = uniform(options.seed, index) * kept;
    size_t drawn = 0;
    while (drawn + 1 < count && left >= weights[drawn]) left -= weights[drawn++];
    return order[drawn];
}

std::string CharacterStream::push(std::string_view bytes) {
    pending_.append(bytes);
    std::string text;
    std::string_view rest = pending_;
    for (Character next = first_character(rest); next.size > 0; next = first_character(rest)) {
        text.append(next.whole ? rest.substr(0, next.size) : kReplacement);
        rest.remove_prefix(next.size);
    }
    pending_ = std::string(rest);
    return text;
}

std::string CharacterStream::finish() { return std::exchange(pending_, {}).empty() ? "" : kReplacement; }

tokenizer::Ids prompt_tokens(const tokenizer::Tokenizer& tokenizer, const std::string& text) {
    const tokenizer::TokenizerInfo& info = tokenizer.info();
    tokenizer::Ids plain;
    tokenizer.encode(text, plain);
    const bool has_begin = !plain.empty() && info.begin_of_text && plain[0] == *info.begin_of_text;
    tokenizer::Ids tokens = has_begin ? tokenizer::Ids{} : info.prefix;
    tokens.insert(tokens.end(), plain.begin(), plain.end());
    if (tokens.empty() && info.begin_of_text) tokens.push_back(*info.begin_of_text);
    if (tokens.empty() && info.end_of_text) tokens.push_back(*info.end_of_text);
    if (tokens.empty())
        throw UserError("the prompt is empty, and the tokenizer {} has no begin of text", info.name);
    return tokens;
}

int64_t generate(ResidentModel& model, const tokenizer::Tokenizer& tokenizer, const tokenizer::Ids& prompt,
                 const GenerateOptions& options, const std::function<void(const std::string& text)>& take) {
    model.clear();
    CharacterStream characters;
    tokenizer::Ids made;
    size_t num_taken = 0;  // bytes of the decoded text
    at::Tensor logits = model.append(prompt);
    while (std::ssize(made) < options.max_new_tokens) {
        const std::span<const float> values(logits.const_data_ptr<float>(), logits.numel());
        if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
            throw UserError(
                "the model's logits are not finite; its weights are not, or too large for --dtype");
        }
        const uint32_t token = choose_token(values, options.sampling, made.size());
        if (tokenizer.info().end_of_text && token == *tokenizer.info().end_of_text) break;
        made.push_back(token);
        if (token < tokenizer.info().vocab_size) {  // a model may have more ids, which stand for nothing
            // The whole text, because how a token reads may depend on the tokens before it.
            tokenizer::Ids known;
            std::ranges::copy_if(made, std::back_inserter(known),
                                 [&](uint32_t id) { return id < tokenizer.info().vocab_size; });
            const std::string text = tokenizer.decode(known);
            take(characters.push(std::string_view(text).substr(std::min(num_taken, text.size()))));
            num_taken = text.size();
        }
        if (std::ssize(made) < options.max_new_tokens) logits = model.append({&token, 1});
    }
    take(characters.finish());
    return std::ssize(made);
}

}  // namespace argosy::eval
