// A value of a JSON file with its keys, for messages that name the file and the key.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace argosy::tokenizer {

class JsonField {
  public:
    /// The value and the file's name outlive the field.
    JsonField(const nlohmann::ordered_json& value, const std::string& file) : JsonField(value, file, "") {}

    /// UserError: "FILE: KEY REASON".
    [[noreturn]] void refuse(const std::string& reason) const;

    const std::string& file() const { return *file_; }
    /// "FILE: KEY", with which messages begin.
    std::string place() const { return *file_ + ": " + (key_.empty() ? "the file" : key_); }

    /// The value of a key. The field is null if there is no such key.
    JsonField operator[](const std::string& key) const;
    /// UserError if this is no object, or has other keys.
    void allow_only(std::initializer_list<std::string_view> keys) const;
    /// The one key of this object. UserError if it is none of `keys`, or not the only one.
    const std::string& only_key(std::initializer_list<std::string_view> keys) const;

    bool is_null() const { return value_->is_null(); }
    bool is_object() const { return value_->is_object(); }
    bool is_string() const { return value_->is_string(); }

    // Each throws UserError if the value is of another type.
    const std::string& string() const;
    bool boolean(bool if_null) const;
    uint32_t id() const;
    std::vector<JsonField> list() const;
    const nlohmann::ordered_json::object_t& members() const;

    /// The value as it stands in the file, cut if it is long.
    std::string shown_value() const;

  private:
    JsonField(const nlohmann::ordered_json& value, const std::string& file, std::string key)
        : value_(&value), file_(&file), key_(std::move(key)) {}

    const nlohmann::ordered_json* value_;
    const std::string* file_;
    std::string key_;
};

}  // namespace argosy::tokenizer
