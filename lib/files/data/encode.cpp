#include "data/encode.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/ordered_tasks.h"
#include "tokenizer/unicode.h"

namespace argosy::data {
namespace {

/// Encodes one batch.
class BatchEncoder {
  public:
    BatchEncoder(const EncodeOptions& options, const tokenizer::Tokenizer& tokenizer,
                 const DocumentBatch& batch)
        : options_(options), tokenizer_(tokenizer), batch_(batch) {}

    EncodedDocuments encode() {
        for (const std::string& error : batch_.unreadable) leave_out(error);
        Record record;
        for (size_t i = 0; i < batch_.size(); ++i) {
            if (!read(i, record)) continue;
            add(i, record);
        }
        return std::move(encoded_);
    }

  private:
    /// Returns whether the document is to be encoded.
    bool read(size_t i, Record& record) {
        if (batch_.kind == DocumentBatch::Kind::Text) {
            record.kind = RecordKind::Text;
            record.text = batch_.document(i);
            return true;
        }
        try {
            parse_record(batch_.document(i), batch_.source, options_.vocab_size, record,
                         options_.input.column);
            return true;
        } catch (const UserError&) {
            // Only an error needs the line's number, which may take a while to find.
            leave_out(error_of(i));
            return false;
        }
    }

    void leave_out(const std::string& error) {
        if (options_.on_error == OnError::Fail)
            throw UserError("{}; --on-error skip leaves such records out", error);
        encoded_.skipped.push_back(error);
    }

    /// An error for each document that is left out must not cost a read of the file up to it.
    std::string place_of(size_t i) const {
        const DocumentPlace place = batch_.place(i);
        return options_.on_error == OnError::Fail ? place.text() : place.quick_text();
    }

    std::string error_of(size_t i) const {
        Record record;
        try {
            parse_record(batch_.document(i), place_of(i), options_.vocab_size, record, options_.input.column);
        } catch (const UserError& error) {
            return error.what();
        }
        return "";
    }

    void add(size_t i, const Record& record) {
        if (!encoded_.kind) {
            encoded_.kind = record.kind;
            encoded_.first_place = batch_.place(i);
        }
        if (record.kind != *encoded_.kind) refuse_mixed_kinds(batch_.place(i), record.kind, *encoded_.kind);
        const size_t size = encoded_.tokens.size();
        try {
            append_record(record);
            encoded_.sizes.push_back(static_cast<int64_t>(encoded_.tokens.size() - size));
        } catch (const UserError& error) {  // a text that the tokenizer refuses
            encoded_.tokens.resize(size);
            if (!encoded_.loss_mask.empty()) encoded_.loss_mask.resize(size);
            leave_out(fmt::format("{}: {}", place_of(i), error.what()));
        }
    }

    void append_record(const Record& record) {
        if (record.kind == RecordKind::Text) {
            append_text(record.text);
        } else if (record.kind == RecordKind::Completion) {
            append_completion(record);
        } else if (record.kind == RecordKind::Messages) {
            append_messages(record);
        } else {
            append(record.tokens);
            encoded_.loss_mask.insert(encoded_.loss_mask.end(), record.loss_mask.begin(),
                                      record.loss_mask.end());
        }
    }

    void append_completion(const Record& record) {
        tokenizer::Ids prompt = tokenizer_.info().prefix;
        tokenizer_.encode(record.prompt, prompt);
        const auto begin = std::ssize(encoded_.tokens);
        append_text(record.prompt + record.completion);
        const auto text = std::span(encoded_.tokens).subspan(begin);
        const auto common = std::ranges::mismatch(prompt, text).in1 - prompt.begin();
        encoded_.loss_mask.resize(begin + common, 0);
        encoded_.loss_mask.resize(encoded_.tokens.size(), 1);
    }

    void append_messages(const Record& record) {
        if (options_.chat_template == nullptr) {
            throw UserError(
                "the tokenizer '{}' has no chat template, which {{\"messages\"}} records need: name the "
                "folder of a tokenizer with a chat_template.jinja, or with a chat_template in "
                "tokenizer_config.json",
                tokenizer_.info().name);
        }
        options_.chat_template->encode(record.messages, encoded_.tokens, encoded_.loss_mask);
    }

    /// Whether the tokenizer replaces a part of the text.
    bool is_repaired(const std::string& text) {
        if (tokenizer_.info().name == tokenizer::kBytes) return false;
        return tokenizer::repaired_utf8(text, repaired_).data() != text.data();
    }

    void append_text(const std::string& text) {
        const tokenizer::TokenizerInfo& info = tokenizer_.info();
        encoded_.num_repaired += is_repaired(text);
        append(info.prefix);
        tokenizer_.encode(text, encoded_.tokens);
        append(info.suffix);
        if (info.end_of_text) encoded_.tokens.push_back(*info.end_of_text);
    }

    void append(const std::vector<uint32_t>& tokens) {
        encoded_.tokens.insert(encoded_.tokens.end(), tokens.begin(), tokens.end());
    }

    const EncodeOptions& options_;
    const tokenizer::Tokenizer& tokenizer_;
    const DocumentBatch& batch_;
    EncodedDocuments encoded_;
    std::string repaired_;
};

}  // namespace

void encode_documents(std::span<const InputRange> ranges, const EncodeOptions& options,
                      const tokenizer::Tokenizer& tokenizer,
                      const std::function<void(const EncodedDocuments&)>& take,
                      const std::function<void(int64_t stored_bytes)>& read) {
    OrderedTasks<EncodedDocuments> tasks(options.num_threads);
    const auto take_all = [&] {
        while (tasks.size() > 0) take(tasks.take());
    };
    // Reads from an input; an error of an earlier record comes before the input's own.
    const auto reading = [&](auto work) {
        try {
            return work();
        } catch (const UserError&) {
            take_all();
            throw;
        }
    };
    int64_t earlier_bytes = 0;  // of the ranges before this one
    for (const InputRange& range : ranges) {
        const auto reader = reading([&] { return open_documents(range, options.input); });
        for (;;) {
            const auto batch = std::make_shared<DocumentBatch>();
            if (!reading([&] { return reader->next(*batch); })) break;
            tasks.add(
                [&options, &tokenizer, batch] { return BatchEncoder(options, tokenizer, *batch).encode(); });
            if (tasks.full()) take(tasks.take());
            read(earlier_bytes + reader->stored_bytes_read());
        }
        earlier_bytes += reader->stored_bytes_read();
    }
    take_all();
}

void refuse_mixed_kinds(const DocumentPlace& place, RecordKind kind, RecordKind before) {
    throw UserError("{}: a {} record after {} records; make a token file of each kind", place.text(),
                    name(kind), name(before));
}

}  // namespace argosy::data
