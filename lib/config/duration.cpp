#include "config/duration.h"

#include <fmt/format.h>

#include <charconv>

namespace argosy::config {
namespace {

struct Unit {
    char letter;
    int64_t seconds;
};
constexpr Unit kUnits[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};

// About three centuries: sums and products of such numbers stay far below the maximum of an int64_t.
constexpr int64_t kMaxSeconds = 9'999'999'999;

/// Takes the number at the start of `text`; none if there is none, or if it exceeds kMaxSeconds.
std::optional<int64_t> take_number(std::string_view& text) {
    if (text.empty() || text.front() == '-') return std::nullopt;
    int64_t number = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || number > kMaxSeconds) return std::nullopt;
    text.remove_prefix(rest - text.data());
    return number;
}

}  // namespace

std::optional<Duration> duration_from(std::string_view text) {
    Duration sum;
    const Unit* next = std::begin(kUnits);
    bool is_first = true;
    do {
        const auto number = take_number(text);
        if (!number) return std::nullopt;
        if (is_first && text.empty()) return Duration{*number};
        while (next != std::end(kUnits) && !text.starts_with(next->letter)) ++next;
        if (next == std::end(kUnits)) return std::nullopt;
        sum.seconds += *number * next++->seconds;
        text.remove_prefix(1);
        is_first = false;
    } while (!text.empty());
    return sum.seconds <= kMaxSeconds ? std::optional(sum) : std::nullopt;
}

std::string duration_text(Duration duration) {
    std::string text;
    for (const Unit& unit : kUnits) {
        const int64_t count = duration.seconds / unit.seconds;
        if (count > 0) text += fmt::format("{}{}", count, unit.letter);
        duration.seconds %= unit.seconds;
    }
    return text.empty() ? "0s" : text;
}

}  // namespace argosy::config
