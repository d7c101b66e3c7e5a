#include "eval/generate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "base/strict_json.h"
#include "eval/task_result.h"
#include "tokenizer/unicode.h"

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

/// The value of eos_token_id.
tokenizer::Ids end_tokens_of(const std::string& text, const std::string& file) {
    constexpr uint64_t kMaxId = uint64_t{1} << 31;
    const nlohmann::ordered_json json = parse_json(text, file);
    const auto found = json.is_object() ? json.find("eos_token_id") : json.end();
    if (found == json.end() || found->is_null()) return {};
    const auto list = found->is_array() ? *found : nlohmann::ordered_json::array({*found});
    for (const nlohmann::ordered_json& id : list) {
        if (id.is_number_unsigned() && id.get<uint64_t>() < kMaxId) continue;
        throw UserError("{}: eos_token_id is {}, neither a token nor a list of tokens", file, found->dump());
    }
    return list.get<tokenizer::Ids>();
}

/// The tokens that end a text, all in all.
tokenizer::Ids all_end_tokens(const tokenizer::Tokenizer& tokenizer, const GenerateOptions& options) {
    tokenizer::Ids tokens = options.end_tokens;
    if (tokenizer.info().end_of_text) tokens.push_back(*tokenizer.info().end_of_text);
    for (const std::string& stop : options.stop_texts) {
        tokenizer::Ids ids;
        tokenizer.encode(stop, ids);
        if (ids.size() == 1 && tokenizer.decode(ids).empty()) tokens.push_back(ids[0]);
    }
    return tokens;
}

uint32_t next_token(std::span<const float> logits, const SamplingOptions& options, uint64_t index) {
    if (!std::ranges::all_of(logits, [](float value) { return std::isfinite(value); })) {
        throw NotFiniteError(
            "the model's logits are not finite; its weights are not, or too large for --dtype");
    }
    return choose_token(logits, options, index);
}

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

tokenizer::Ids end_tokens(const interop::ModelSource& source) {
    constexpr const char* kFile = "generation_config.json";
    for (const checkpoint::Asset& asset : interop::read_assets(source)) {
        if (asset.name == kFile) return end_tokens_of(asset.bytes, (source.path / kFile).string());
    }
    return end_tokens_of(source.config_json, "config.json of " + source.path.string());
}

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

Continuation::Continuation(const tokenizer::Tokenizer& tokenizer, tokenizer::Ids prompt,
                           const GenerateOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      end_tokens_(all_end_tokens(tokenizer, options)),
      unseen_(std::move(prompt)) {}

/// Sets the text of the tokens. A stop text ends it.
void Continuation::decode() {
    const std::string decoded = tokenizer_.decode(known_);
    std::string buffer;
    text_ = tokenizer::repaired_utf8(decoded, buffer);
    for (const std::string& stop : options_.stop_texts) {
        const size_t begin = stop.empty() ? text_.npos : text_.find(stop);
        if (begin == text_.npos) continue;
        text_.resize(begin);
        finished_ = true;
    }
}

void Continuation::advance(std::span<const float> logits) {
    const uint32_t token = next_token(logits, options_.sampling, num_tokens_);
    finished_ = std::ranges::find(end_tokens_, token) != end_tokens_.end();
    if (!finished_) {
        if (token < tokenizer_.info().vocab_size) known_.push_back(token);
        unseen_ = {token};
        finished_ = ++num_tokens_ == options_.max_new_tokens;
    }
    if (finished_ || !options_.stop_texts.empty()) decode();
}

}  // namespace argosy::eval
