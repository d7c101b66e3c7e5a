#include "data/tokenize.h"

#include <algorithm>

#include "base/error.h"
#include "base/output.h"
#include "data/records.h"
#include "data/statistics.h"
#include "data/token_writer.h"

namespace argosy::data {
namespace {

void check_options(const TokenizeOptions& options) {
    if (options.inputs.empty()) throw UserError("there are no input files");
    const int64_t vocab_size = options.vocab_size.value_or(kMaxVocabSize);
    if (vocab_size < 1 || vocab_size > kMaxVocabSize) {
        throw UserError("the vocabulary size is {}; it must be in 1 .. {}", vocab_size, kMaxVocabSize);
    }
    if (is_standard_stream(options.output))
        throw UserError("a token file is HDF5, which cannot be written to stdout (-); name a file");
    if (std::ranges::count_if(options.inputs, is_standard_stream) > 1)
        throw UserError("--input names stdin (-) twice; name it once");
    for (const auto& input : options.inputs) {
        std::error_code absent;
        if (std::filesystem::equivalent(input, options.output, absent)) {
            throw UserError("{} is both input and output", input.string());
        }
    }
}

/// Adds records to the token file and to the result. The first record creates the writer, because its kind
/// determines the vocabulary.
class TokenFileBuilder {
  public:
    TokenFileBuilder(const TokenizeOptions& options, const tokenizer::Tokenizer& tokenizer)
        : options_(options), tokenizer_(tokenizer) {}

    void add(Record& record, const RecordReader& reader) {
        if (!writer_) start(record.kind);
        if (record.kind != kind_) {
            throw UserError("{}: a {} record after {} records; make a token file of each kind",
                            reader.place(), name(record.kind), name(kind_));
        }
        if (kind_ == RecordKind::Text) encode(record);
        for (const uint32_t token : record.tokens) largest_ = std::max(largest_, token);
        writer_->append_document(record.tokens);
        statistics_.add(record.tokens);
    }

    TokenizeResult commit() {
        if (!writer_) throw UserError("{} holds no records", options_.inputs.front().string());
        const TokenInfo info = token_info();
        writer_->commit(info);
        return {.num_tokens = writer_->size(),
                .num_documents = writer_->num_documents(),
                .vocab_size = info.vocab_size,
                .unigram_entropy = statistics_.unigram_entropy(),
                .bigram_entropy = statistics_.bigram_entropy(),
                .bigram_tokens = statistics_.bigram_tokens()};
    }

  private:
    void start(RecordKind kind) {
        kind_ = kind;
        const tokenizer::TokenizerInfo& info = tokenizer_.info();
        if (kind == RecordKind::Text && options_.vocab_size.value_or(info.vocab_size) != info.vocab_size) {
            throw UserError(
                "the vocabulary size is {}, but the tokenizer '{}' has {}; --vocab-size applies to {} "
                "records",
                *options_.vocab_size, info.name, info.vocab_size, name(RecordKind::Tokens));
        }
        const int64_t default_size = kind == RecordKind::Text ? info.vocab_size : kMaxVocabSize;
        writer_.emplace(options_.output, options_.vocab_size.value_or(default_size));
    }

    /// Replaces the record's tokens by those of its text.
    void encode(Record& record) const {
        const tokenizer::TokenizerInfo& info = tokenizer_.info();
        record.tokens = info.prefix;
        tokenizer_.encode(record.text, record.tokens);
        record.tokens.insert(record.tokens.end(), info.suffix.begin(), info.suffix.end());
        if (info.end_of_text) record.tokens.push_back(*info.end_of_text);
    }

    TokenInfo token_info() const {
        if (kind_ == RecordKind::Text) {
            const tokenizer::TokenizerInfo& info = tokenizer_.info();
            return {.vocab_size = info.vocab_size,
                    .end_of_text = info.end_of_text ? int64_t{*info.end_of_text} : kNoEndOfText,
                    .tokenizer = info.name,
                    .tokenizer_digest = info.digest};
        }
        return {.vocab_size = options_.vocab_size.value_or(int64_t{largest_} + 1),
                .end_of_text = kNoEndOfText,
                .tokenizer = "none",
                .tokenizer_digest = ""};
    }

    const TokenizeOptions& options_;
    const tokenizer::Tokenizer& tokenizer_;
    RecordKind kind_ = RecordKind::Text;
    std::optional<TokenWriter> writer_;
    StreamStatistics statistics_;
    uint32_t largest_ = 0;
};

}  // namespace

TokenizeResult tokenize(const TokenizeOptions& options, const tokenizer::Tokenizer& tokenizer) {
    check_options(options);
    TokenFileBuilder builder(options, tokenizer);
    for (const auto& input : options.inputs) {
        RecordReader reader(input, options.vocab_size.value_or(kMaxVocabSize));
        Record record;
        while (reader.next(record)) builder.add(record, reader);
    }
    return builder.commit();
}

}  // namespace argosy::data
