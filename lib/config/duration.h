// A duration in its text form: "90m", "11h30m", "2d", or seconds without a unit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace argosy::config {

struct Duration {
    int64_t seconds = 0;
    bool operator==(const Duration&) const = default;
};

/// Numbers with the units d, h, m and s, each at most once and in this order, without spaces; or one number
/// of seconds.
std::optional<Duration> duration_from(std::string_view text);

/// The shortest text that reads back as the same duration: "11h30m".
std::string duration_text(Duration duration);

}  // namespace argosy::config
