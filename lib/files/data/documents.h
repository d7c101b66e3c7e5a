// Reads the documents of inputs in batches, which threads then parse and tokenize. An input is a file in one
// of the formats below, compressed or not (data/byte_source.h), or stdin.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace argosy::data {

/// Auto: by the name, without .gz, .zst, .bz2 or .xz: .txt is text, .parquet is Parquet, everything else
/// JSONL.
enum class InputFormat { Auto, Jsonl, Text, Parquet };

/// A document of a text file: the whole file with every byte of it, or a line that is not blank. A line ends
/// with "\n" or "\r\n".
enum class TextDocument { File, Line };

/// The part of an input whose documents begin in bytes begin .. end-1. Only a JSONL file that is not
/// compressed has parts.
struct InputRange {
    std::filesystem::path path;
    int64_t begin = 0, end = std::numeric_limits<int64_t>::max();
    bool operator==(const InputRange&) const = default;
};

/// A place where a document begins.
struct DocumentPlace {
    InputRange range;
    std::string source;       // the input in messages
    int64_t line_number = 0;  // counted from the beginning of the range
    int64_t offset = 0;       // of a line: its first byte in the input

    /// "file:line". May read the file up to the range, so it is for error messages.
    std::string text() const;
    /// The same, or within a range that does not begin the file, the document's first byte.
    std::string quick_text() const;
};

/// Consecutive documents of one input, as they are stored.
struct DocumentBatch {
    enum class Kind { JsonLine, Text };
    Kind kind = Kind::JsonLine;
    std::string bytes;                  // of all documents, without anything between them
    std::vector<size_t> ends;           // document i is bytes ends[i - 1] .. ends[i] - 1
    std::vector<int64_t> line_numbers;  // of each document, counted from the beginning of the range
    std::vector<int64_t> offsets;       // of each document's first byte in the input; only of lines
    InputRange range;
    std::string source;                   // the input in messages
    std::vector<std::string> unreadable;  // the error of each document that could not be read

    size_t size() const { return ends.size(); }
    std::string_view document(size_t i) const;
    DocumentPlace place(size_t i) const;
    void add(std::string_view document, int64_t line_number, int64_t offset = 0);
};

class DocumentReader {
  public:
    virtual ~DocumentReader() = default;

    /// Reads the next documents, about a megabyte. Returns false at the end of the input.
    virtual bool next(DocumentBatch& batch) = 0;

    /// Bytes of the input that were read so far, as they are stored.
    virtual int64_t stored_bytes_read() const = 0;
};

/// Throws UserError.
[[noreturn]] std::unique_ptr<DocumentReader> refuse_parquet(const InputRange& range,
                                                            const std::string& column);

struct InputOptions {
    InputFormat format = InputFormat::Auto;
    TextDocument text_document = TextDocument::File;
    /// Opens a Parquet file. This room does not know the library for it, because training reads no Parquet.
    std::function<std::unique_ptr<DocumentReader>(const InputRange&, const std::string& column)>
        open_parquet = refuse_parquet;
    std::string column = {};  // of Parquet files; the text_key of parse_record(). Empty: "text"
};

/// Throws UserError if the input cannot be opened.
std::unique_ptr<DocumentReader> open_documents(const InputRange& range, const InputOptions& options);

/// The files that inputs name: a folder stands for the files in it and below it whose names end as a known
/// format does, and a pattern of glob(7) for its matches; both are sorted by name. Throws UserError for a
/// folder or pattern without files.
std::vector<std::filesystem::path> expand_inputs(std::span<const std::filesystem::path> paths);

/// The path itself or, if nothing has that name, the matches of it as a pattern of glob(7), sorted by name.
/// Throws UserError if there are none.
std::vector<std::filesystem::path> matches_of(const std::filesystem::path& path);

/// Whether the documents of an input can be read in parts.
bool can_be_divided(const std::filesystem::path& path, const InputOptions& options);

}  // namespace argosy::data
