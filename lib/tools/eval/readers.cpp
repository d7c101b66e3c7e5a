#include "eval/readers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/error.h"
#include "base/strict_json.h"

namespace argosy::eval {
namespace {

Document read_text(const Fields& fields, int64_t) { return {.text = fields.text("text")}; }

Document read_tokens(const Fields& fields, int64_t vocab_size) {
    return {.tokens = fields.tokens("tokens", vocab_size)};
}

Document choices_after(const Fields& fields, const char* context) {
    std::vector<std::string> choices = fields.texts("choices");
    const auto empty = std::ranges::find(choices, "");
    if (empty != choices.end()) {  // acc_norm divides by the length of a choice
        fields.refuse("", fmt::format("choice {}, counted from 0, is empty", empty - choices.begin()));
    }
    return multiple_choice(fields, fields.text(context), std::move(choices), fields.integer("gold"), "gold");
}

Document read_choices(const Fields& fields, int64_t) { return choices_after(fields, "query"); }

Document read_context_choices(const Fields& fields, int64_t) { return choices_after(fields, "context"); }

Document read_continuation(const Fields& fields, int64_t) {
    if (fields.text("continuation").empty()) fields.refuse("continuation", "leaves nothing to predict");
    return last_word(fields.text("context"), fields.text("continuation"));
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

Document multiple_choice(const Fields& fields, std::string context, std::vector<std::string> choices,
                         int64_t gold, const std::string& gold_key) {
    if (gold < 0 || gold >= std::ssize(choices)) {
        fields.refuse(gold_key, fmt::format("names choice {}, counted from 0, of {}", gold, choices.size()));
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

Fields::Fields(const nlohmann::ordered_json& object, const std::string& place)
    : object_(object), place_(place) {
    if (!object.is_object()) throw UserError("{}: the record is not a JSON object", place);
}

void Fields::refuse(const std::string& key, const std::string& why) const {
    throw UserError("{}: {}{}", place_, key.empty() ? "" : shown(key) + " ", why);
}

const nlohmann::ordered_json& Fields::value(const std::string& key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) refuse("", "the record has no key " + shown(key));
    return *found;
}

const std::string& Fields::text(const std::string& key) const {
    const nlohmann::ordered_json& found = value(key);
    if (!found.is_string()) refuse(key, "is not a string, but " + shown(found.dump()));
    return found.get_ref<const std::string&>();
}

bool Fields::boolean(const std::string& key) const {
    const nlohmann::ordered_json& found = value(key);
    if (!found.is_boolean()) refuse(key, "is not true or false, but " + shown(found.dump()));
    return found.get<bool>();
}

int64_t Fields::integer(const std::string& key) const {
    const nlohmann::ordered_json& found = value(key);
    if (found.is_number_integer()) return found.get<int64_t>();
    int64_t number = 0;
    if (found.is_string()) {
        const auto& text = found.get_ref<const std::string&>();
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
        if (error == std::errc() && end == text.data() + text.size()) return number;
    }
    refuse(key, "is not an integer, but " + shown(found.dump()));
}

std::vector<std::string> Fields::texts(const std::string& key) const {
    const nlohmann::ordered_json& found = value(key);
    const bool fits = found.is_array() && !found.empty() &&
                      std::ranges::all_of(found, [](const auto& entry) { return entry.is_string(); });
    if (!fits) refuse(key, "is not a list of strings, but " + shown(found.dump()));
    return found.get<std::vector<std::string>>();
}

Tokens Fields::tokens(const std::string& key, int64_t vocab_size) const {
    const nlohmann::ordered_json& found = value(key);
    if (!found.is_array()) refuse(key, "is not an array of integers, but " + shown(found.dump()));
    Tokens tokens;
    for (const nlohmann::ordered_json& token : found) {
        if (!token.is_number_integer()) refuse("", fmt::format("token {} is not an integer", token.dump()));
        if (token < 0 || token >= vocab_size) {
            refuse("", fmt::format("token {} lies outside 0 .. {}", token.dump(), vocab_size - 1));
        }
        tokens.push_back(token.get<uint32_t>());
    }
    return tokens;
}

std::vector<int64_t> Fields::integers(const std::string& key) const {
    const nlohmann::ordered_json& found = value(key);
    const bool fits = found.is_array() &&
                      std::ranges::all_of(found, [](const auto& entry) { return entry.is_number_integer(); });
    if (!fits) refuse(key, "is not a list of integers, but " + shown(found.dump()));
    return found.get<std::vector<int64_t>>();
}

std::vector<Fields> Fields::objects(const std::string& key) const {
    const nlohmann::ordered_json& found = value(key);
    if (!found.is_array()) refuse(key, "is not a list, but " + shown(found.dump()));
    std::vector<Fields> list;
    for (const nlohmann::ordered_json& entry : found) list.emplace_back(entry, place_);
    return list;
}

Fields Fields::object(const std::string& key) const {
    const nlohmann::ordered_json& found = value(key);
    if (!found.is_object()) refuse(key, "is not an object, but " + shown(found.dump()));
    return {found, place_};
}

}  // namespace argosy::eval
