#include "preflight/finding.h"

#include <algorithm>

#include "preflight/sources.h"

namespace argosy::preflight {
namespace {

/// MPI's lists may contain address ranges such as "10.0.0.0/8", which are not names of interfaces.
bool is_address(std::string_view part) { return part.find('/') != part.npos; }

}  // namespace

const char* name(Severity severity) {
    constexpr const char* kNames[] = {"PASS", "WARN", "FAIL"};
    return kNames[static_cast<int>(severity)];
}

Severity worst_severity(const std::vector<Finding>& findings) {
    Severity worst = Severity::Pass;
    for (const Finding& finding : findings) worst = std::max(worst, finding.severity);
    return worst;
}

NameList::NameList(std::string_view text, Syntax syntax) : whole_names_(syntax == Syntax::WholeNames) {
    text = trimmed(text);
    const auto take = [&](char mark) {
        const bool there = syntax == Syntax::Nccl && text.starts_with(mark);
        if (there) text.remove_prefix(1);
        return there;
    };
    excludes_ = take('^');
    if (take('=')) whole_names_ = true;
    for (const std::string_view part : split(text, ',')) {
        if (part.empty() || is_address(part)) continue;
        const size_t colon = part.find(':');
        const auto port = colon == part.npos ? std::nullopt : leading_integer(part.substr(colon + 1));
        entries_.push_back({std::string(part.substr(0, colon)), static_cast<int>(port.value_or(-1))});
    }
}

bool NameList::matches(const Entry& entry, std::string_view name, int port) const {
    const bool named = whole_names_ ? name == entry.name : name.starts_with(entry.name);
    return named && (entry.port == -1 || port == -1 || entry.port == port);
}

bool NameList::chooses(std::string_view name, int port) const {
    const bool listed =
        std::ranges::any_of(entries_, [&](const Entry& entry) { return matches(entry, name, port); });
    return entries_.empty() || listed != excludes_;
}

}  // namespace argosy::preflight
