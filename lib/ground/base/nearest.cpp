#include "base/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace argosy {
namespace {

constexpr std::string_view kUtf16 = "UTF-16 text, which `iconv -f UTF-16 -t UTF-8` converts";
constexpr std::string_view kPickle = "weights that PyTorch pickled (.pth, .pt, .bin)";

struct Mark {
    size_t at;
    std::string_view bytes, kind;
};
constexpr Mark kMarks[] = {
    {0, "\xff\xfe", kUtf16},
    {0, "\xfe\xff", kUtf16},
    {0, "GGUF\2", "a GGUF model"},
    {0, "GGUF\3", "a GGUF model"},
    {0, "PK\3\4", "a zip archive, or weights that PyTorch pickled (.pth, .pt, .bin)"},
    {0, "\x80\2", kPickle},
    {0, "\x80\4", kPickle},
    {0, "\x89HDF", "an HDF5 file"},
    {0, "PAR1\x15", "a Parquet file"},
    {0, "ARROW1", "an Arrow file"},
    {0, "\x93NUMPY", "a NumPy array"},
    {257, "ustar", "a tar archive"},
    {0, "7z\xbc\xaf", "a 7z archive"},
    {0, "\x1f\x8b", "compressed with gzip"},
    {0, "\x28\xb5\x2f\xfd", "compressed with Zstandard"},
    {0, "BZh", "compressed with bzip2"},
    {0,
     "\xfd"
     "7zXZ",
     "compressed with xz"},
    {0, "%PDF-", "a PDF document"},
};

/// A control character that texts do not have. They have white space, "\b", colours of a terminal (ESC) and
/// separators of records.
bool is_control(char byte) {
    return (byte >= 0 && byte < '\b') || (byte > '\r' && byte < '\x1b') || byte == '\x7f';
}

/// UTF-16 without a mark, mostly of ASCII characters: most bytes at even or at odd places are zero, and none
/// at the others.
std::string_view utf16_without_mark(std::string_view first) {
    constexpr size_t kMinPairs = 4;
    size_t zeros[2] = {};
    for (size_t i = 0; i < first.size(); ++i) zeros[i % 2] += first[i] == 0;
    const size_t num_pairs = first.size() / 2, num_zeros = zeros[0] + zeros[1];
    if (num_pairs < kMinPairs || num_zeros * 5 < num_pairs * 4 || (zeros[0] > 0 && zeros[1] > 0)) return "";
    return zeros[0] > 0 ? "UTF-16 text, which `iconv -f UTF-16BE -t UTF-8` converts"
                        : "UTF-16 text, which `iconv -f UTF-16LE -t UTF-8` converts";
}

/// The size of the header, 8 bytes with the low ones first, and the header, which is JSON.
bool is_safetensors(std::string_view first) {
    constexpr std::string_view kHighBytes("\0\0\0", 3);
    return first.size() > 9 && first.substr(5, 3) == kHighBytes && first.substr(8).starts_with("{\"");
}

std::pair<std::string_view, std::string_view> split(std::string_view key) {
    const std::size_t dot = key.rfind('.');  // a section's name may have dots
    if (dot == std::string_view::npos) return {"", key};
    return {key.substr(0, dot), key.substr(dot + 1)};
}

/// Compares names first; the section decides between equal distances.
std::pair<int, int> distance(std::string_view one, std::string_view other) {
    const auto [section, name] = split(one);
    const auto [other_section, other_name] = split(other);
    return {edit_distance(name, other_name), edit_distance(section, other_section)};
}

}  // namespace

int edit_distance(std::string_view one, std::string_view other) {
    // Each row has the distances from the letters of `one` seen so far to the first j letters of `other`.
    std::vector<int> before, last, row(other.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (std::size_t i = 0; i < one.size(); ++i) {
        before = std::exchange(last, row);
        row[0] = static_cast<int>(i) + 1;
        for (std::size_t j = 0; j < other.size(); ++j) {
            row[j + 1] = std::min({last[j] + (one[i] != other[j]), row[j] + 1, last[j + 1] + 1});
            const bool swapped = i > 0 && j > 0 && one[i] == other[j - 1] && one[i - 1] == other[j];
            if (swapped) row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
        }
    }
    return row.back();
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
    const auto best = std::ranges::min_element(candidates, [&](const auto& one, const auto& other) {
        return distance(word, one) < distance(word, other);
    });
    if (best == candidates.end()) return "";
    // A guess at a larger distance would be random. "seq_length" is three letters from "seq_len".
    const int limit = std::max<int>(1, static_cast<int>(split(word).second.size()) / 3);
    return distance(word, *best).first <= limit ? *best : "";
}

std::string kind_of_content(std::string_view first) {
    constexpr size_t kMaxBytes = 4096;
    first = first.substr(0, kMaxBytes);
    const std::string_view utf16 = utf16_without_mark(first);
    if (!utf16.empty()) return std::string(utf16);
    if (is_safetensors(first)) return "a safetensors file";
    // Text has few control characters. A tenth of random or compressed bytes are some.
    constexpr size_t kMinControls = 4, kMinShare = 20;
    const size_t num_controls = std::ranges::count_if(first, is_control);
    const bool is_binary = num_controls >= kMinControls && num_controls * kMinShare > first.size();
    const auto may_be_text = [](char byte) { return byte > 0 && !is_control(byte); };
    for (const Mark& mark : kMarks) {
        const bool is_found = first.size() > mark.at && first.substr(mark.at).starts_with(mark.bytes);
        if (is_found && (is_binary || !std::ranges::all_of(mark.bytes, may_be_text)))
            return std::string(mark.kind);
    }
    return is_binary ? "a binary file" : "";
}

}  // namespace argosy
