#include "data/documents.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/output.h"
#include "data/byte_source.h"
#include "data/records.h"

namespace argosy::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBatchBytes = 1 << 20;

InputFormat format_of(std::filesystem::path path, const InputOptions& options) {
    if (options.format != InputFormat::Auto) return options.format;
    for (const std::string_view compressed : kCompressedNames)
        if (path.extension() == compressed) return format_of(path.replace_extension(), options);
    if (path.extension() == ".txt") return InputFormat::Text;
    return path.extension() == ".parquet" ? InputFormat::Parquet : InputFormat::Jsonl;
}

/// Whether a name in a folder is an input: it ends as a known format does, compressed or not.
bool is_input_name(fs::path name) {
    for (const std::string_view compressed : kCompressedNames)
        if (name.extension() == compressed) name.replace_extension();
    constexpr std::array kKnown = {".jsonl", ".json", ".txt", ".parquet"};
    return std::ranges::find(kKnown, name.extension()) != kKnown.end();
}

std::vector<fs::path> inputs_in(const fs::path& folder) {
    std::vector<fs::path> inputs;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
        if (!entry.is_directory() && is_input_name(entry.path().filename())) inputs.push_back(entry.path());
    std::ranges::sort(inputs);
    if (!inputs.empty()) return inputs;
    throw UserError(
        "the folder {} has no file that ends in .jsonl, .json, .txt or .parquet, also compressed "
        "(.gz, .zst, .bz2, .xz)",
        folder.string());
}

/// A text's line may end with "\r\n". In JSONL, "\r" is blank space.
std::string_view without_return(std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
}

/// Each line that is not blank is a document.
class LineDocuments : public DocumentReader {
  public:
    LineDocuments(const InputRange& range, DocumentBatch::Kind kind)
        : range_(range), kind_(kind), lines_(range.path) {
        if (range.begin == 0) return;
        // The first line of the range begins behind the line break at range.begin - 1 or later.
        lines_.source().seek(range.begin - 1);
        first_byte_ = range.begin - 1;
        std::string_view rest;
        lines_.next(rest);
        next_byte_ = first_byte_ + lines_.num_bytes();
    }

    bool next(DocumentBatch& batch) override {
        batch = {.kind = kind_, .range = range_, .source = lines_.source().name()};
        std::string_view line;
        while (batch.bytes.size() < kBatchBytes && first_byte_ + lines_.num_bytes() < range_.end &&
               lines_.next(line)) {
            ++line_number_;
            const int64_t offset = next_byte_;
            next_byte_ = first_byte_ + lines_.num_bytes();
            if (is_blank(line)) continue;
            batch.add(kind_ == DocumentBatch::Kind::Text ? without_return(line) : line, line_number_, offset);
        }
        return batch.size() > 0;
    }

    int64_t stored_bytes_read() const override { return lines_.source().stored_bytes_read(); }

  private:
    InputRange range_;
    DocumentBatch::Kind kind_;
    LineReader lines_;
    int64_t first_byte_ = 0;  // where `lines_` began to read
    int64_t next_byte_ = 0;   // where the next line begins
    int64_t line_number_ = 0;
};

/// The whole input is a document.
class WholeFile : public DocumentReader {
  public:
    explicit WholeFile(const InputRange& range) : range_(range), source_(range.path) {}

    bool next(DocumentBatch& batch) override {
        batch = {.kind = DocumentBatch::Kind::Text, .range = range_, .source = source_.name()};
        size_t size = 0, count = 0;
        do {
            if (batch.bytes.size() < size + kBatchBytes) batch.bytes.resize(2 * size + kBatchBytes);
            count = source_.read(std::span(batch.bytes).subspan(size));
            size += count;
        } while (count > 0);
        batch.bytes.resize(size);
        if (size == 0) return false;
        batch.ends = {size};
        batch.line_numbers = {1};
        batch.offsets = {0};
        return true;
    }

    int64_t stored_bytes_read() const override { return source_.stored_bytes_read(); }

  private:
    InputRange range_;
    ByteSource source_;
};

int64_t count_lines(const InputRange& range) {
    LineReader lines(range.path);
    std::string_view line;
    int64_t count = 0;
    while (lines.num_bytes() < range.begin && lines.next(line)) ++count;
    return count;
}

}  // namespace

std::string_view DocumentBatch::document(size_t i) const {
    const size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::string_view(bytes).substr(begin, ends[i] - begin);
}

std::string DocumentPlace::text() const {
    const int64_t lines_before = range.begin == 0 ? 0 : count_lines(range);
    return fmt::format("{}:{}", source, lines_before + line_number);
}

std::string DocumentPlace::quick_text() const {
    return range.begin == 0 ? text() : fmt::format("{}, the line from byte {} on", source, offset);
}

DocumentPlace DocumentBatch::place(size_t i) const { return {range, source, line_numbers[i], offsets[i]}; }

void DocumentBatch::add(std::string_view document, int64_t line_number, int64_t offset) {
    bytes += document;
    ends.push_back(bytes.size());
    line_numbers.push_back(line_number);
    offsets.push_back(offset);
}

std::unique_ptr<DocumentReader> open_documents(const InputRange& range, const InputOptions& options) {
    using enum DocumentBatch::Kind;
    const InputFormat format = format_of(range.path, options);
    if (format == InputFormat::Parquet)
        return options.open_parquet(range, options.column.empty() ? kTextKey : options.column);
    if (format == InputFormat::Jsonl) return std::make_unique<LineDocuments>(range, JsonLine);
    if (options.text_document == TextDocument::File) return std::make_unique<WholeFile>(range);
    return std::make_unique<LineDocuments>(range, Text);
}

std::unique_ptr<DocumentReader> refuse_parquet(const InputRange& range, const std::string& /*column*/) {
    throw UserError("{} is Parquet, which is not read here", range.path.string());
}

std::vector<fs::path> matches_of(const fs::path& path) {
    std::error_code unknown;
    if (fs::exists(path, unknown) || path.string().find_first_of("*?[") == std::string::npos) return {path};
    glob_t found{};
    const int status = glob(path.c_str(), 0, nullptr, &found);  // sorted
    std::vector<fs::path> files(found.gl_pathv, found.gl_pathv + (status == 0 ? found.gl_pathc : 0));
    globfree(&found);
    if (files.empty()) throw UserError("no file matches {}", path.string());
    return files;
}

std::vector<fs::path> expand_inputs(std::span<const fs::path> paths) {
    std::vector<fs::path> inputs;
    for (const fs::path& path : paths) {
        std::error_code unknown;
        const std::vector<fs::path> more =
            fs::is_directory(path, unknown) ? inputs_in(path) : matches_of(path);
        inputs.insert(inputs.end(), more.begin(), more.end());
    }
    return inputs;
}

bool can_be_divided(const std::filesystem::path& path, const InputOptions& options) {
    std::error_code unknown;
    return format_of(path, options) == InputFormat::Jsonl &&
           std::filesystem::is_regular_file(path, unknown) &&
           ByteSource(path).compression() == Compression::None;
}

}  // namespace argosy::data
