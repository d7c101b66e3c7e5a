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

namespace argosy::eval {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

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

/// The size of a decoded text without the end that another token may change. SentencePiece decodes each byte
/// of an incomplete character to U+FFFD, and there are at most three of them.
size_t settled_size(std::string_view text) {
    const size_t size = text.size();
    while (text.ends_with(kReplacement) && size - text.size() < 3 * kReplacement.size())
        text.remove_suffix(kReplacement.size());
    return text.size();
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

std::string CharacterStream::finish() {
    return std::string(std::exchange(pending_, {}).empty() ? "" : kReplacement);
}

StopTexts::StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) { std::erase(texts_, ""); }

size_t StopTexts::num_held() const {
    size_t held = 0;
    for (const std::string& text : texts_) {
        for (size_t size = std::min(text.size() - 1, pending_.size()); size > held; --size) {
            if (pending_.ends_with(std::string_view(text).substr(0, size))) held = size;
        }
    }
    return held;
}

std::string StopTexts::push(std::string_view text) {
    if (stopped_) return "";
    pending_.append(text);
    for (const std::string& stop : texts_) {
        const size_t begin = pending_.find(stop);
        if (begin == pending_.npos) continue;
        pending_.resize(begin);
        stopped_ = true;
    }
    if (stopped_) return std::exchange(pending_, {});
    std::string complete = pending_.substr(0, pending_.size() - num_held());
    pending_.erase(0, complete.size());
    return complete;
}

std::string StopTexts::finish() { return std::exchange(pending_, {}); }

Continuation::Continuation(const tokenizer::Tokenizer& tokenizer, tokenizer::Ids prompt,
                           const GenerateOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      end_tokens_(all_end_tokens(tokenizer, options)),
      unseen_(std::move(prompt)),
      text_(options.stop_texts) {}

/// The text that the token completes.
std::string Continuation::add(uint32_t token) {
    if (token >= tokenizer_.info().vocab_size) return "";
    // How a token reads may depend on the beginning of the text and on the character before it.
    constexpr size_t kMaxKnown = 64;
    if (known_.size() == kMaxKnown) {
        known_.erase(known_.begin(), known_.begin() + kMaxKnown / 2);
        num_taken_ = settled_size(tokenizer_.decode(known_));
    }
    known_.push_back(token);
    const std::string whole = tokenizer_.decode(known_);
    const size_t settled = std::max(num_taken_, settled_size(whole));
    const std::string piece = whole.substr(std::min(num_taken_, whole.size()), settled - num_taken_);
    num_taken_ = settled;
    held_ = whole.substr(std::min(settled, whole.size()));
    return text_.push(characters_.push(piece));
}

std::string Continuation::advance(std::span<const float> logits) {
    const uint32_t token = next_token(logits, options_.sampling, num_tokens_);
    std::string complete;
    finished_ = std::ranges::find(end_tokens_, token) != end_tokens_.end();
    if (!finished_) {
        ++num_tokens_;
        complete = add(token);
        unseen_ = {token};
        finished_ = num_tokens_ == options_.max_new_tokens || text_.stopped();
    }
    if (finished_) {
        complete += text_.push(characters_.push(held_) + characters_.finish());
        complete += text_.finish();
    }
    return complete;
}

}  // namespace argosy::eval
