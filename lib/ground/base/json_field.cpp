#include "base/json_field.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/strict_json.h"

namespace argosy {

using nlohmann::ordered_json;

void JsonField::refuse(const std::string& reason) const { throw UserError("{} {}", place(), reason); }

void JsonField::refuse_type(const std::string& expected) const {
    if (is_null() && !key_.empty()) throw UserError("{} has no \"{}\"", *file_, key_);
    refuse(fmt::format("is {}, not {}", shown(), expected));
}

std::string JsonField::place() const {
    return key_.empty() ? *file_ + ": the file" : fmt::format("{}: \"{}\"", *file_, key_);
}

std::string JsonField::shown() const { return shown_value(*value_); }

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
    if (!value_->is_string()) refuse_type("a string");
    return value_->get_ref<const std::string&>();
}

bool JsonField::boolean(std::optional<bool> if_null) const {
    if (is_null() && if_null) return *if_null;
    if (!value_->is_boolean()) refuse_type("true or false");
    return value_->get<bool>();
}

double JsonField::number(std::optional<double> if_null) const {
    if (is_null() && if_null) return *if_null;
    if (!value_->is_number()) refuse_type("a number");
    return value_->get<double>();
}

std::vector<JsonField> JsonField::list() const {
    if (!value_->is_array()) refuse_type("a list");
    std::vector<JsonField> fields;
    for (const ordered_json& value : *value_)
        fields.push_back({value, *file_, key_ + "[" + std::to_string(fields.size()) + "]"});
    return fields;
}

const ordered_json::object_t& JsonField::members() const {
    if (!value_->is_object()) refuse_type("an object");
    return value_->get_ref<const ordered_json::object_t&>();
}

}  // namespace argosy
