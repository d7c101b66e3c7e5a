#include "data/tokenize.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/output.h"
#include "base/program.h"
#include "base/strict_json.h"
#include "data/token_writer.h"

namespace argosy::data {
namespace {

void check_inputs(const TokenizeOptions& options) {
    if (options.inputs.empty()) throw UserError("there are no input files");
    if (std::ranges::count_if(options.inputs, is_standard_stream) > 1)
        throw UserError("--input names stdin (-) twice; name it once");
    for (const auto& input : options.inputs) {
        std::error_code absent;
        if (!is_standard_stream(input) && !std::filesystem::exists(input, absent))
            throw UserError("cannot open {}: {}", input.string(), absent ? absent.message() : "No such file");
        if (std::filesystem::equivalent(input, options.output, absent))
            throw UserError("{} is both input and output", input.string());
    }
}

void check_options(const TokenizeOptions& options) {
    check_inputs(options);
    const int64_t vocab_size = options.vocab_size.value_or(kMaxVocabSize);
    if (vocab_size < 1 || vocab_size > kMaxVocabSize) {
        throw UserError("the vocabulary size is {}; it must be in 1 .. {}", vocab_size, kMaxVocabSize);
    }
    if (is_standard_stream(options.output))
        throw UserError("a token file is HDF5, which cannot be written to stdout (-); name a file");
}

/// The size of an input; 0 for stdin and other streams, whose size is not known.
int64_t stored_bytes(const std::filesystem::path& input) {
    std::error_code unknown;
    if (!std::filesystem::is_regular_file(input, unknown)) return 0;
    return static_cast<int64_t>(std::filesystem::file_size(input, unknown));
}

int64_t stored_bytes(const std::vector<InputRange>& ranges) {
    int64_t sum = 0;
    for (const InputRange& range : ranges) sum += std::min(range.end, stored_bytes(range.path)) - range.begin;
    return sum;
}

EncodeOptions encode_options(const TokenizeOptions& options) {
    return {.input = options.input,
            .vocab_size = options.vocab_size.value_or(kMaxVocabSize),
            .on_error = options.on_error,
            .num_threads = options.num_threads,
            .chat_template = options.chat_template};
}

/// Logs the first records of a piece that were left out; their number is in the result.
void warn_of_skipped(const std::vector<std::string>& errors, int64_t num_before) {
    constexpr int64_t kMaxShown = 10;
    const int64_t num_shown = std::clamp<int64_t>(kMaxShown - num_before, 0, std::ssize(errors));
    for (int64_t i = 0; i < num_shown; ++i) spdlog::warn("left out: {}", errors[i]);
}

}  // namespace

/// Adds documents to the token file and to the result.
class TokenizeJob::Builder {
  public:
    Builder(const TokenizeOptions& options, const tokenizer::Tokenizer& tokenizer)
        : options_(options),
          tokenizer_(tokenizer),
          writer_(options.output, options.vocab_size.value_or(kMaxVocabSize)) {}

    void add(const EncodedDocuments& documents) {
        num_skipped_ += std::ssize(documents.skipped);
        num_repaired_ += documents.num_repaired;
        if (!documents.kind) return;
        if (!kind_) set_kind(*documents.kind);
        if (*documents.kind != *kind_) refuse_mixed_kinds(documents.first_place, *documents.kind, *kind_);
        std::span<const uint32_t> rest = documents.tokens;
        std::span<const uint8_t> rest_of_mask = documents.loss_mask;
        for (const int64_t size : documents.sizes) {
            const int64_t mask_size = rest_of_mask.empty() ? 0 : size;
            writer_.append_document(rest.first(size), rest_of_mask.first(mask_size));
            rest = rest.subspan(size);
            rest_of_mask = rest_of_mask.subspan(mask_size);
        }
        for (const uint32_t token : documents.tokens) largest_ = std::max(largest_, token);
    }

    /// The kind of the documents so far.
    const std::optional<RecordKind>& kind() const { return kind_; }

    TokenizeResult commit() {
        if (!kind_) throw UserError("{} holds no records", options_.inputs.front().string());
        if (writer_.size() > 0 && writer_.counted_tokens() == 0) {
            throw UserError("none of the {} tokens counts as a target: each loss mask is zero throughout",
                            writer_.size());
        }
        const TokenInfo info = token_info();
        writer_.commit(info);
        return {.num_tokens = writer_.size(),
                .num_documents = writer_.num_documents(),
                .vocab_size = info.vocab_size,
                .counted_tokens = writer_.counted_tokens(),
                .num_skipped = num_skipped_,
                .num_repaired = num_repaired_};
    }

  private:
    void set_kind(RecordKind kind) {
        kind_ = kind;
        const tokenizer::TokenizerInfo& info = tokenizer_.info();
        if (is_tokens(kind) && info.name != tokenizer::kBytes) {
            spdlog::warn("the tokenizer '{}' has no effect: the records are {}", info.name, name(kind));
        }
        if (is_tokens(kind) || options_.vocab_size.value_or(info.vocab_size) == info.vocab_size) return;
        throw UserError(
            "the vocabulary size is {}, but the tokenizer '{}' has {}; --vocab-size applies to {} records",
            *options_.vocab_size, info.name, info.vocab_size, name(RecordKind::Tokens));
    }

    TokenInfo token_info() const {
        const tokenizer::TokenizerInfo& info = tokenizer_.info();
        if (is_tokens(*kind_)) {
            return {.vocab_size = options_.vocab_size.value_or(int64_t{largest_} + 1),
                    .end_of_text = kNoEndOfText,
                    .tokenizer = "none",
                    .tokenizer_digest = ""};
        }
        return {.vocab_size = info.vocab_size,
                .end_of_text = info.end_of_text && *kind_ != RecordKind::Messages ? int64_t{*info.end_of_text}
                                                                                  : kNoEndOfText,
                .tokenizer = info.name,
                .tokenizer_digest = info.digest};
    }

    const TokenizeOptions& options_;
    const tokenizer::Tokenizer& tokenizer_;
    TokenWriter writer_;
    std::optional<RecordKind> kind_;
    uint32_t largest_ = 0;
    int64_t num_skipped_ = 0, num_repaired_ = 0;
};

TokenizeJob::TokenizeJob(const TokenizeOptions& options, const tokenizer::Tokenizer& tokenizer)
    : options_(options),
      tokenizer_(tokenizer),
      pieces_((check_options(options), plan_pieces())),
      parts_(std::filesystem::path(options.output) += ".parts", plan_text()) {
    if (pieces_.size() > 1) refuse_streams();
}

TokenizeJob::~TokenizeJob() = default;

/// A stream can be read once, and only by the process that has it.
void TokenizeJob::refuse_streams() const {
    for (const auto& input : options_.inputs) {
        std::error_code unknown;
        if (std::filesystem::is_regular_file(input, unknown)) continue;
        throw UserError(
            "{} is not a file, so it cannot be one of several pieces; make a file of it, or raise "
            "--piece-megabytes above the size of all inputs",
            input.string());
    }
}

/// Inputs are joined to pieces, and divided where that is possible, so that a piece has about piece_bytes.
std::vector<TokenizeJob::Piece> TokenizeJob::plan_pieces() const {
    std::vector<Piece> pieces(1);
    int64_t room = options_.piece_bytes;
    const auto add = [&](const InputRange& range, int64_t num_bytes) {
        if (num_bytes > room && !pieces.back().empty()) {
            pieces.emplace_back();
            room = options_.piece_bytes;
        }
        pieces.back().push_back(range);
        room -= num_bytes;
    };
    for (const auto& input : options_.inputs) {
        const int64_t size = stored_bytes(input);
        if (size <= options_.piece_bytes || !can_be_divided(input, options_.input)) {
            add({.path = input}, size);
            continue;
        }
        for (int64_t begin = 0; begin < size; begin += options_.piece_bytes) {
            const int64_t end = std::min(size, begin + options_.piece_bytes);
            add({.path = input, .begin = begin, .end = end}, end - begin);
        }
    }
    return pieces;
}

/// Everything on which the parts depend.
std::string TokenizeJob::plan_text() const {
    nlohmann::ordered_json inputs = nlohmann::ordered_json::array();
    for (const auto& input : options_.inputs) {
        std::error_code unknown;
        const auto changed = std::filesystem::last_write_time(input, unknown).time_since_epoch().count();
        inputs.push_back({input.string(), stored_bytes(input), unknown ? 0 : changed});
    }
    const tokenizer::TokenizerInfo& info = tokenizer_.info();
    const nlohmann::ordered_json plan = {
        {"format", "argosy parts of a token file"},
        {"written_by", version()},
        {"inputs", inputs},
        {"piece_bytes", options_.piece_bytes},
        {"input_format", static_cast<int>(options_.input.format)},
        {"text_document", static_cast<int>(options_.input.text_document)},
        {"column", options_.input.column},
        {"vocab_size", options_.vocab_size.value_or(0)},
        {"tokenizer", {info.name, info.digest, info.prefix, info.suffix}},
        {"chat_template", options_.chat_template ? options_.chat_template->digest() : ""},
        {"end_of_text", info.end_of_text ? nlohmann::ordered_json(*info.end_of_text) : nullptr},
    };
    return json_text(plan, 1) + "\n";
}

void TokenizeJob::begin() {
    builder_ = std::make_unique<Builder>(options_, tokenizer_);
    if (pieces_.size() > 1) parts_.open();
}

void TokenizeJob::make_parts(int process, int num_processes) {
    if (pieces_.size() == 1) return;  // finish() writes its tokens to the token file itself
    std::vector<int64_t> own;
    int64_t bytes_to_read = 0, bytes_read = 0;
    for (int64_t piece = process; piece < std::ssize(pieces_); piece += num_processes) {
        if (parts_.has(piece)) {
            refuse_if_skipped(parts_.part_path(piece));
            continue;
        }
        own.push_back(piece);
        bytes_to_read += stored_bytes(pieces_[piece]);
    }
    for (const int64_t piece : own) {
        PartWriter part(parts_.part_path(piece));
        encode(pieces_[piece], bytes_read, bytes_to_read,
               [&](const EncodedDocuments& documents) { part.add(documents); });
        part.commit();
        bytes_read += stored_bytes(pieces_[piece]);
    }
}

TokenizeResult TokenizeJob::finish() {
    if (pieces_.size() == 1) {
        encode(pieces_.front(), 0, stored_bytes(pieces_.front()),
               [&](const EncodedDocuments& documents) { builder_->add(documents); });
        return builder_->commit();
    }
    for (int64_t piece = 0; piece < std::ssize(pieces_); ++piece) {
        const std::filesystem::path part = parts_.part_path(piece);
        read_part(part, [&](const EncodedDocuments& documents) {
            if (builder_->kind() && documents.kind && documents.kind != builder_->kind())
                refuse_mixed_piece(pieces_[piece], *builder_->kind());
            builder_->add(documents);
        });
        show_progress(piece, std::ssize(pieces_), 0, "joining");
    }
    const TokenizeResult result = builder_->commit();
    parts_.remove();
    return result;
}

/// For a part of an earlier run.
void TokenizeJob::refuse_if_skipped(const std::filesystem::path& part) const {
    const int64_t num_skipped = options_.on_error == OnError::Fail ? num_skipped_in(part) : 0;
    if (num_skipped == 0) return;
    throw UserError(
        "{} is of an earlier run with --on-error skip and left out {} of its records; say so again, or "
        "remove its folder",
        part.string(), num_skipped);
}

/// Parts do not say where their documents come from, so the piece's first documents are encoded again.
void TokenizeJob::refuse_mixed_piece(const Piece& piece, RecordKind before) const {
    encode(piece, 0, stored_bytes(piece), [&](const EncodedDocuments& documents) {
        if (documents.kind) refuse_mixed_kinds(documents.first_place, *documents.kind, before);
    });
    throw UserError("the input {} has changed since its tokens were made", piece.front().path.string());
}

void TokenizeJob::encode(const Piece& piece, int64_t bytes_before, int64_t bytes_to_read,
                         const std::function<void(const EncodedDocuments&)>& take) const {
    int64_t num_skipped = 0;
    encode_documents(
        piece, encode_options(options_), tokenizer_,
        [&](const EncodedDocuments& documents) {
            warn_of_skipped(documents.skipped, num_skipped);
            num_skipped += std::ssize(documents.skipped);
            take(documents);
        },
        [&](int64_t stored_bytes) {
            show_progress(bytes_before + stored_bytes, bytes_to_read, bytes_before + stored_bytes,
                          "tokenizing");
        });
}

void TokenizeJob::show_progress(int64_t done, int64_t all, int64_t num_bytes, const char* what) const {
    if (!options_.progress) return;
    options_.progress(all > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(all)) : 0,
                      num_bytes, what);
}

}  // namespace argosy::data
