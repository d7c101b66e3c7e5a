#include "tokenizer/json_field.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/strict_json.h"

namespace argosy::tokenizer {

using nlohmann::ordered_json;

void JsonField::refuse(const std::string& reason) const { throw UserError("{} {}", place(), reason); }

JsonField JsonField::operator[](const std::string& key) const {
    static const ordered_json null;
    const auto found = value_->is_object() ? value_->find(key) : value_->end();
    return {found == value_->end() ? null : *found, *file_, key_.empty() ? key : key_ + "." + key};
}

void JsonField::allow_only(std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, value] : members()) {
        if (std::ranges::find(keys, key) == keys.end()) (*this)[key].refuse("is a key that is not supported");
    }
}

const std::string& JsonField::only_key(std::initializer_list<std::string_view> keys) const {
    allow_only(keys);
    if (members().size() != 1) refuse(fmt::format("must have one of the keys {}", fmt::join(keys, ", ")));
    return members().begin()->first;
}

const std::string& JsonField::string() const {
    if (!value_->is_string()) refuse("is " + shown_value() + ", not a string");
    return value_->get_ref<const std::string&>();
}

bool JsonField::boolean(bool if_null) const {
    if (value_->is_null()) return if_null;
    if (!value_->is_boolean()) refuse("is " + shown_value() + ", not true or false");
    return value_->get<bool>();
}

uint32_t JsonField::id() const {
    constexpr uint64_t kMaxId = (uint64_t{1} << 31) - 1;
    if (!value_->is_number_unsigned() || value_->get<uint64_t>() > kMaxId)
        refuse("is " + shown_value() + ", not the id of a token");
    return value_->get<uint32_t>();
}

std::vector<JsonField> JsonField::list() const {
    if (!value_->is_array()) refuse("is " + shown_value() + ", not a list");
    std::vector<JsonField> fields;
    for (const ordered_json& value : *value_)
        fields.push_back({value, *file_, key_ + "[" + std::to_string(fields.size()) + "]"});
    return fields;
}

const ordered_json::object_t& JsonField::members() const {
    if (!value_->is_object()) refuse("is " + shown_value() + ", not an object");
    return value_->get_ref<const ordered_json::object_t&>();
}

std::string JsonField::shown_value() const {
    constexpr size_t kMaxBytes = 100;
    if (value_->is_structured() && !value_->empty()) return value_->is_array() ? "a list" : "an object";
    const std::string text = value_->dump(-1, ' ', true, ordered_json::error_handler_t::replace);
    return text.size() <= kMaxBytes ? text : text.substr(0, kMaxBytes) + "...";
}

}  // namespace argosy::tokenizer
