#include "eval/text_stream.h"

#include <algorithm>
#include <utility>

namespace argosy::eval {
namespace {

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

}  // namespace argosy::eval
