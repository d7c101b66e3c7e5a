#include "preflight/sources.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>

namespace argosy::preflight {
namespace {

namespace fs = std::filesystem;

template <class Number>
std::optional<Number> leading(std::string_view text) {
    text = trimmed(text);
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() ? std::optional(number) : std::nullopt;
}

/// Order of names: the digits at the end by value, everything before them by characters.
bool counts_before(const std::string& left, const std::string& right) {
    const size_t left_digits = left.find_last_not_of("0123456789") + 1;
    const size_t right_digits = right.find_last_not_of("0123456789") + 1;
    if (left.substr(0, left_digits) != right.substr(0, right_digits)) return left < right;
    if (left.size() != right.size()) return left.size() < right.size();
    return left < right;
}

class Descriptor {
  public:
    /// Opens the file without blocking, even if the path names a device or a pipe.
    explicit Descriptor(const fs::path& path)
        : descriptor_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {}
    ~Descriptor() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    operator int() const { return descriptor_; }

  private:
    int descriptor_;
};

}  // namespace

std::optional<std::string> read_text(const fs::path& path, size_t most_bytes) {
    const Descriptor file(path);
    if (file < 0) return std::nullopt;
    // The kernel's own files have size 0, so they are read from their start.
    const off_t size = ::lseek(file, 0, SEEK_END);
    const off_t start = size > static_cast<off_t>(most_bytes) ? size - static_cast<off_t>(most_bytes) : 0;
    ::lseek(file, start, SEEK_SET);
    std::string text(most_bytes, '\0');
    size_t filled = 0;
    while (filled < most_bytes) {
        const ssize_t done = ::read(file, text.data() + filled, most_bytes - filled);
        // EPIPE: the kernel's log has overwritten the next record; the next read continues after it.
        if (done < 0 && (errno == EINTR || errno == EPIPE)) continue;
        if (done < 0 && filled == 0) return std::nullopt;
        if (done <= 0) break;
        filled += done;
    }
    text.resize(filled);
    return text;
}

std::string read_line(const fs::path& path) {
    constexpr size_t kMaxBytes = 4096;
    const std::string text = read_text(path, kMaxBytes).value_or("");
    return printable(trimmed(std::string_view(text).substr(0, text.find('\n'))));
}

std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    std::error_code ignored;
    fs::directory_iterator entry(folder, ignored);
    for (; entry != fs::directory_iterator(); entry.increment(ignored)) {
        names.push_back(entry->path().filename().string());
    }
    std::ranges::sort(names, counts_before);
    return names;
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kBlanks = " \t\r\n\f\v";
    const size_t start = std::min(text.find_first_not_of(kBlanks), text.size());
    return text.substr(start, text.find_last_not_of(kBlanks) + 1 - start);
}

std::string printable(std::string_view text) {
    std::string clean(text);
    std::ranges::replace_if(
        clean, [](unsigned char byte) { return byte < ' ' || byte == 0x7F; }, '?');
    return clean;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    if (trimmed(text).empty()) return parts;
    for (size_t start = 0; start <= text.size();) {
        const size_t end = std::min(text.find(separator, start), text.size());
        parts.push_back(trimmed(text.substr(start, end - start)));
        start = end + 1;
    }
    return parts;
}

std::optional<int64_t> leading_integer(std::string_view text) { return leading<int64_t>(text); }
std::optional<double> leading_number(std::string_view text) {
    const auto number = leading<double>(text);
    return number && std::isfinite(*number) ? number : std::nullopt;
}

std::vector<int> parse_cpu_list(std::string_view text) {
    constexpr int64_t kMaxCpus = 1 << 16;
    std::vector<int> cpus;
    for (const std::string_view part : split(text, ',')) {
        const size_t dash = part.find('-');
        const auto first = leading_integer(part.substr(0, dash));
        const auto last = dash == part.npos ? first : leading_integer(part.substr(dash + 1));
        if (!first || !last || *first < 0 || *last < *first || *last >= kMaxCpus) continue;
        for (int64_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
    }
    std::ranges::sort(cpus);
    const auto repeated = std::ranges::unique(cpus);
    cpus.erase(repeated.begin(), repeated.end());
    return cpus;
}

}  // namespace argosy::preflight
