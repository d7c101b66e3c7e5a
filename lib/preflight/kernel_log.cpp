#include "preflight/kernel_log.h"

#include <algorithm>
#include <limits>

namespace argosy::preflight {
namespace {

constexpr size_t kMaxLogBytes = 16 << 20;

/// The third number before the semicolon counts microseconds since boot.
std::optional<double> age_hours(std::string_view line, std::optional<double> uptime_seconds) {
    const size_t head = line.find(';');
    if (!uptime_seconds || head == line.npos) return std::nullopt;
    const std::vector<std::string_view> parts = split(line.substr(0, head), ',');
    const auto microseconds = parts.size() < 3 ? std::nullopt : leading_integer(parts[2]);
    if (!microseconds) return std::nullopt;
    return std::max(0.0, *uptime_seconds - static_cast<double>(*microseconds) * 1e-6) / 3600;
}

/// "NVRM: Xid (PCI:0000:3b:00): 79, pid=..., GPU has fallen off the bus."
std::optional<Xid> xid_in(std::string_view line) {
    constexpr std::string_view kMark = "NVRM: Xid (", kAddress = "PCI:", kEnd = "): ";
    const size_t mark = line.find(kMark);
    if (mark == line.npos) return std::nullopt;
    std::string_view rest = line.substr(mark + kMark.size());
    const size_t end = rest.find(kEnd);
    if (end == rest.npos) return std::nullopt;
    const auto code = leading_integer(rest.substr(end + kEnd.size()));
    if (!code || *code < 1 || *code > std::numeric_limits<int>::max()) return std::nullopt;
    std::string_view address = rest.substr(0, end);
    if (address.starts_with(kAddress)) address.remove_prefix(kAddress.size());
    return Xid{.bus_id = printable(address), .code = static_cast<int>(*code)};
}

}  // namespace

std::vector<Xid> xids_in(std::string_view log, std::optional<double> uptime_seconds) {
    std::vector<Xid> xids;
    for (const std::string_view line : split(log, '\n')) {
        std::optional<Xid> xid = xid_in(line);
        if (!xid) continue;
        xid->age_hours = age_hours(line, uptime_seconds);
        std::erase_if(xids, [&](const Xid& earlier) {
            return earlier.bus_id == xid->bus_id && earlier.code == xid->code;
        });
        xids.push_back(std::move(*xid));
    }
    return xids;
}

std::vector<Xid> read_xids(const Sources& sources) {
    for (const char* log : {"dev/kmsg", "var/log/kern.log", "var/log/messages", "var/log/syslog"}) {
        const auto text = read_text(sources.root / log, kMaxLogBytes);
        if (text && !text->empty())
            return xids_in(*text, leading_number(read_line(sources.root / "proc/uptime")));
    }
    return {};
}

}  // namespace argosy::preflight
