#include "eval/readers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>

#include "base/error.h"

namespace argosy::eval {
namespace {

Document read_text(const JsonField& record, int64_t) { return {.text = record["text"].string()}; }

Document read_tokens(const JsonField& record, int64_t vocab_size) {
    const JsonField list = record["tokens"];
    if (!list.value().is_array()) list.refuse(fmt::format("is {}, not a list of tokens", list.shown()));
    Document document;
    for (const nlohmann::ordered_json& token : list.value()) {
        if (!token.is_number_integer())
            throw UserError("{}: token {} is not an integer", list.file(), token.dump());
        if (token < 0 || token >= vocab_size) {
            throw UserError("{}: token {} lies outside 0 .. {}", list.file(), token.dump(), vocab_size - 1);
        }
        document.tokens.push_back(token.get<uint32_t>());
    }
    return document;
}

Document choices_after(const JsonField& record, const char* context) {
    std::vector<std::string> choices = texts_of(record["choices"]);
    const auto empty = std::ranges::find(choices, "");
    if (empty != choices.end()) {  // acc_norm divides by the length of a choice
        throw UserError("{}: choice {}, counted from 0, is empty", record.file(), empty - choices.begin());
    }
    const JsonField gold = record["gold"];
    return multiple_choice(gold, record[context].string(), std::move(choices), integer_of(gold));
}

Document read_choices(const JsonField& record, int64_t) { return choices_after(record, "query"); }

Document read_context_choices(const JsonField& record, int64_t) { return choices_after(record, "context"); }

Document read_continuation(const JsonField& record, int64_t) {
    const JsonField continuation = record["continuation"];
    if (continuation.string().empty()) continuation.refuse("leaves nothing to predict");
    return last_word(record["context"].string(), continuation.string());
}

/// The layouts that are recognised, for messages: {"text"}, {"tokens"}, ...
std::string own_layouts() {
    std::vector<std::string> layouts;
    for (const Reader& reader : readers()) {
        if (reader.keys.empty()) continue;
        layouts.push_back(fmt::format("{{\"{}\"}}", fmt::join(reader.keys, "\", \"")));
    }
    return fmt::format("{}", fmt::join(layouts, ", "));
}

}  // namespace

const std::vector<Reader>& readers() {
    static const std::vector<Reader> all = [] {
        std::vector<Reader> rows = {
            {"text",
             {"text"},
             OutputType::Rolling,
             {"word_perplexity", "byte_perplexity", "bits_per_byte", "token_perplexity"},
             read_text},
            {"tokens", {"tokens"}, OutputType::TokenIds, {"token_accuracy", "token_perplexity"}, read_tokens},
            {"choices",
             {"query", "choices", "gold"},
             OutputType::Choices,
             {"acc", "acc_norm", "acc_bytes"},
             read_choices},
            {"context_choices",
             {"context", "choices", "gold"},
             OutputType::Choices,
             {"acc", "acc_norm", "acc_bytes"},
             read_context_choices},
            {.name = "continuation",
             .keys = {"context", "continuation"},
             .type = OutputType::Continuation,
             .metrics = {"acc", "perplexity"},
             .read = read_continuation,
             .example_delimiter = ""},  // the answer begins with a space
        };
        std::ranges::move(public_readers(), std::back_inserter(rows));
        return rows;
    }();
    return all;
}

Document multiple_choice(const JsonField& field, std::string context, std::vector<std::string> choices,
                         int64_t gold) {
    if (gold < 0 || gold >= std::ssize(choices)) {
        field.refuse(fmt::format("names choice {}, counted from 0, of {}", gold, choices.size()));
    }
    Document document{.contexts = {context}, .choices = std::move(choices), .gold = gold};
    for (const std::string& choice : document.choices) document.continuations.push_back(' ' + choice);
    document.question = std::move(context);
    document.answer = document.choices[gold];
    return document;
}

Document last_word(const std::string& context, const std::string& word) {
    return {.contexts = {context}, .continuations = {' ' + word}, .question = context, .answer = ' ' + word};
}

const Reader* find_reader(const std::string& name) {
    const auto found = std::ranges::find(readers(), name, [](const Reader& reader) { return reader.name; });
    return found == readers().end() ? nullptr : &*found;
}

const Reader& recognise(const nlohmann::ordered_json& record, const std::string& place) {
    if (!record.is_object()) throw UserError("{}: the record is not a JSON object", place);
    std::vector<const Reader*> found;
    for (const Reader& reader : readers()) {
        const auto has = [&](const std::string& key) { return record.contains(key); };
        if (!reader.keys.empty() && std::ranges::all_of(reader.keys, has)) found.push_back(&reader);
    }
    if (found.size() == 1) return *found[0];
    throw UserError(
        "{}: the record has the keys of {} layouts; it must have those of one of {}, or --tasks must name a "
        "layout: READER=FILE (--help lists them)",
        place, found.empty() ? "none" : "several", own_layouts());
}

std::vector<std::string> texts_of(const JsonField& field) {
    std::vector<std::string> texts;
    for (const JsonField& entry : field.list()) texts.push_back(entry.string());
    if (texts.empty()) field.refuse("is an empty list");
    return texts;
}

int64_t integer_of(const JsonField& field) {
    using Limits = std::numeric_limits<int32_t>;
    if (!field.is_string()) return field.whole<int64_t>(Limits::min(), Limits::max());
    const std::string& text = field.string();
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) return number;
    field.refuse(fmt::format("is {}, not an integer", field.shown()));
}

}  // namespace argosy::eval
