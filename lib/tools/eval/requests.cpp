#include "eval/requests.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "checkpoint/hash.h"
#include "eval/text.h"

namespace argosy::eval {
namespace {

class Encoder {
  public:
    explicit Encoder(const tokenizer::Tokenizer& tokenizer)
        : tokenizer_(tokenizer), prefix_token_(prefix_token(tokenizer.info())) {}

    uint32_t prefix_token() const { return prefix_token_; }

    Tokens plain(std::string_view text) const {
        Tokens ids;
        tokenizer_.encode(text, ids);
        return ids;
    }

    Tokens with_template(std::string_view text) const {
        const Tokens ids = plain(text);
        if (!ids.empty() && ids[0] == prefix_token_) return ids;
        Tokens all = tokenizer_.info().prefix;
        all.insert(all.end(), ids.begin(), ids.end());
        all.insert(all.end(), tokenizer_.info().suffix.begin(), tokenizer_.info().suffix.end());
        return all;
    }

  private:
    static uint32_t prefix_token(const tokenizer::TokenizerInfo& info) {
        if (info.begin_of_text) return *info.begin_of_text;
        if (info.end_of_text) return *info.end_of_text;
        throw UserError(
            "the tokenizer {} names neither a begin nor an end of text, one of which must precede "
            "a text",
            info.name);
    }

    const tokenizer::Tokenizer& tokenizer_;
    uint32_t prefix_token_;
};

struct Pair {
    Tokens context, continuation;
};

Pair split(const Encoder& encoder, std::string_view context, std::string_view continuation) {
    const std::string_view kept = right_stripped(context);
    Pair pair{kept.empty() ? Tokens{} : encoder.with_template(kept), {}};
    if (pair.context.empty()) {
        pair.continuation = encoder.plain(std::string(context).append(continuation));
        const bool has_prefix = !pair.continuation.empty() && pair.continuation[0] == encoder.prefix_token();
        pair.context = {encoder.prefix_token()};
        if (has_prefix) pair.continuation.erase(pair.continuation.begin());
        return pair;
    }
    const Tokens whole = encoder.with_template(std::string(context).append(continuation));
    const size_t size = std::min(pair.context.size(), whole.size());
    pair.continuation.assign(whole.begin() + static_cast<int64_t>(size), whole.end());
    return pair;
}

/// Adds the record of a continuation after a context, and its window.
void add_pair(const Document& document, Pair pair, const LengthLimit& limit, Requests& requests) {
    const int64_t num_scored = std::ssize(pair.continuation);
    if (num_scored == 0) {
        throw UserError(
            "{}: a continuation adds no token to its context; the text between them becomes part "
            "of the context's last token",
            document.place);
    }
    if (num_scored > limit.num_inputs) {
        throw UserError("{}: a continuation has {} tokens, and a window has at most {} ({})", document.place,
                        num_scored, limit.num_inputs, limit.setting);
    }
    Tokens record = std::move(pair.context);
    record.insert(record.end(), pair.continuation.begin(), pair.continuation.end());
    const int64_t num_inputs = std::min(std::ssize(record) - 1, limit.num_inputs);
    const int64_t begin = std::ssize(record) - 1 - num_inputs;
    if (begin > 0) ++requests.num_cut;
    requests.windows.push_back({std::ssize(requests.records), begin, num_inputs, num_scored});
    requests.records.push_back(std::move(record));
}

/// Adds a record that is predicted from its second token on.
void add_sequence(Tokens record, int64_t max_length, Requests& requests) {
    if (record.size() >= 2) {
        const int64_t max_inputs = max_length > 0 ? max_length : std::ssize(record) - 1;
        append_windows(std::ssize(requests.records), std::ssize(record), max_inputs, requests.windows);
    }
    requests.records.push_back(std::move(record));
}

/// Adds a context, after which a text is generated.
void add_context(Tokens context, int64_t max_length, Requests& requests) {
    const int64_t num_cut = std::max<int64_t>(0, std::ssize(context) - max_length);
    if (num_cut > 0) ++requests.num_cut;
    context.erase(context.begin(), context.begin() + num_cut);
    requests.records.push_back(std::move(context));
}

void add_text(const Encoder& encoder, const Document& document, OutputType type, const LengthLimit& limit,
              Requests& requests) {
    if (type == OutputType::Rolling) {
        Tokens record = {encoder.prefix_token()};
        const Tokens ids = encoder.with_template(document.text);
        record.insert(record.end(), ids.begin(), ids.end());
        return add_sequence(std::move(record), limit.num_inputs, requests);
    }
    if (type == OutputType::Generation) {
        return add_context(encoder.with_template(document.contexts[0]), limit.num_inputs, requests);
    }
    for (size_t i = 0; i < document.continuations.size(); ++i) {
        const std::string& context = document.contexts[document.contexts.size() == 1 ? 0 : i];
        add_pair(document, split(encoder, context, document.continuations[i]), limit, requests);
    }
}

/// The room that new tokens leave in a sequence of at most `max_length` tokens.
int64_t max_context_tokens(const Task& task, int64_t max_length) {
    if (task.max_new_tokens < max_length) return max_length - task.max_new_tokens;
    throw UserError(
        "{}: a text of {} tokens is generated after each context, and a sequence has at most {} tokens "
        "(--max-length, else the model's max_position_embeddings); lower --max-new-tokens",
        task.file.path.string(), task.max_new_tokens, max_length);
}

void warn_of_long_windows(Work& work, int64_t max_context) {
    const bool generates = work.task.type() == OutputType::Generation;
    const int64_t num_inputs = generates ? longest_sequence(work) : longest(work.requests.windows);
    if (num_inputs <= max_context) return;
    work.warnings.push_back(
        fmt::format("{}: windows have up to {} tokens, and the model's max_position_embeddings is {}; "
                    "--max-length splits longer records",
                    work.task.file.path.string(), num_inputs, max_context));
}

void warn_of_left_out_parts(Work& work, const char* setting) {
    const Task& task = work.task;
    if (task.num_short > 0) {
        work.warnings.push_back(fmt::format(
            "{}: {} of {} records are left out, because they have fewer than two tokens and so predict none; "
            "the first is {}",
            task.file.name, task.num_short, task.num_records, task.first_short));
    }
    if (work.requests.num_cut > 0) {
        work.warnings.push_back(
            fmt::format("{}: {} of {} requests are longer than a window and lose their beginning ({})",
                        task.file.name, work.requests.num_cut, work.requests.records.size(), setting));
    }
}

}  // namespace

Requests make_requests(std::span<const Document> documents, OutputType type,
                       const tokenizer::Tokenizer* tokenizer, const LengthLimit& limit) {
    Requests requests;
    std::optional<Encoder> encoder;
    if (has_texts(type)) {
        ARGOSY_CHECK(tokenizer != nullptr && limit.num_inputs > 0, "texts need a tokenizer and a limit");
        encoder.emplace(*tokenizer);
    }
    for (const Document& document : documents) {
        if (encoder) {
            add_text(*encoder, document, type, limit, requests);
        } else {
            add_sequence(document.tokens, limit.num_inputs, requests);
        }
        requests.first_record.push_back(requests.records.size());
    }
    return requests;
}

std::unique_ptr<tokenizer::Tokenizer> open_tokenizer(const std::string& wanted,
                                                     const interop::ModelSource& source) {
    auto opened = wanted.empty() ? interop::open_tokenizer(source) : tokenizer::open_tokenizer(wanted);
    if (!opened) return nullptr;
    if (opened->info().vocab_size > source.spec.vocab_size) {
        throw UserError(
            "the tokenizer {} has {} ids, and the vocabulary of the model {} has {}; --tokenizer must "
            "name the model's own",
            opened->info().name, opened->info().vocab_size, source.path.string(), source.spec.vocab_size);
    }
    return opened;
}

std::string digest(const Work& work) {
    checkpoint::Hasher hasher;
    const auto add = [&](const auto& values) { hasher.add(std::as_bytes(std::span(values))); };
    for (const Document& document : work.task.documents) add(document.record.dump() + '\n');
    for (const Tokens& record : work.requests.records) {
        add(std::array{std::size(record)});
        add(record);
    }
    add(work.requests.windows);
    return hasher.value().hex();
}

int64_t longest_sequence(const Work& work) {
    int64_t num_tokens = 0;
    for (const Tokens& record : work.requests.records) num_tokens = std::max(num_tokens, std::ssize(record));
    return num_tokens + work.task.max_new_tokens;
}

Work make_work(Task task, const tokenizer::Tokenizer* tokenizer, const LengthLimit& limit,
               const interop::ModelSource& source) {
    const bool texts = has_texts(task.type());
    if (texts && tokenizer == nullptr) {
        throw UserError(
            "{} holds records of text, which need a tokenizer, and the model {} has none; name one with "
            "--tokenizer PATH|bytes",
            task.documents[0].place, source.path.string());
    }
    LengthLimit of_task = limit;
    if (texts && limit.num_inputs == 0) of_task.num_inputs = source.spec.max_context;
    if (task.type() == OutputType::Generation) {
        of_task = {max_context_tokens(task, of_task.num_inputs), "--max-length less --max-new-tokens"};
    }
    Requests requests = make_requests(task.documents, task.type(), tokenizer, of_task);
    Work work{std::move(task), std::move(requests)};
    warn_of_left_out_parts(work, of_task.setting);
    warn_of_long_windows(work, source.spec.max_context);
    return work;
}

}  // namespace argosy::eval
