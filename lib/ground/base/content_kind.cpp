#include "base/content_kind.h"

#include <algorithm>

namespace argosy {
namespace {

constexpr std::string_view kPickle = "weights that PyTorch pickled (.pth, .pt, .bin)";

struct Mark {
    size_t at;
    std::string_view bytes, kind;
};
constexpr Mark kMarks[] = {
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

/// UTF-16 or UTF-32 with a mark of its order of bytes, which iconv removes.
std::string_view marked_text(std::string_view first) {
    using namespace std::string_view_literals;
    if (first.starts_with("\xff\xfe\0\0"sv) || first.starts_with("\0\0\xfe\xff"sv))
        return "UTF-32 text, which `iconv -f UTF-32 -t UTF-8` converts";
    if (first.starts_with("\xff\xfe") || first.starts_with("\xfe\xff"))
        return "UTF-16 text, which `iconv -f UTF-16 -t UTF-8` converts";
    return "";
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

}  // namespace

std::string kind_of_content(std::string_view first) {
    constexpr size_t kMaxBytes = 4096;
    first = first.substr(0, kMaxBytes);
    for (const std::string_view text : {marked_text(first), utf16_without_mark(first)}) {
        if (!text.empty()) return std::string(text);
    }
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
    return std::string(is_binary ? kBinaryFile : "");
}

}  // namespace argosy
