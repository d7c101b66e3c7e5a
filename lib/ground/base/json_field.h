// A value of a JSON file with its key. The getters check its type and its range; each error is a UserError
// that names the file, the key and the value.
#pragma once

#include <concepts>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace argosy {

class JsonField {
  public:
    /// The value and the file's name outlive the field.
    JsonField(const nlohmann::ordered_json& value, const std::string& file) : JsonField(value, file, "") {}

    /// UserError: 'FILE: "KEY" REASON'.
    [[noreturn]] void refuse(const std::string& reason) const;

    const std::string& file() const { return *file_; }
    /// The keys from the file's outermost value to this one, with dots between them; empty for that value.
    const std::string& key() const { return key_; }
    /// 'FILE: "KEY"', with which messages begin.
    std::string place() const;
    const nlohmann::ordered_json& value() const { return *value_; }
    /// The value for a message (base/strict_json.h).
    std::string shown() const;

    /// Whether this is an object with the key, perhaps with the value null.
    bool contains(const std::string& key) const { return value_->contains(key); }
    /// The value of a key. The field is null if there is no such key.
    JsonField operator[](const std::string& key) const;
    /// UserError if this is no object, or has other keys.
    void allow_only(std::initializer_list<std::string_view> keys) const;
    /// The one key of this object. UserError if it is none of `keys`, or not the only one.
    const std::string& only_key(std::initializer_list<std::string_view> keys) const;

    bool is_null() const { return value_->is_null(); }
    bool is_object() const { return value_->is_object(); }
    bool is_string() const { return value_->is_string(); }

    // Each throws UserError if the value is of another type, or is null while `if_null` is not given.
    const std::string& string() const;
    bool boolean(std::optional<bool> if_null = {}) const;
    double number(std::optional<double> if_null = {}) const;
    /// A whole number from `min` to `max`.
    template <std::integral T>
    T whole(T min, T max, std::optional<T> if_null = {}) const {
        if (is_null() && if_null) return *if_null;
        const auto fits = [&](auto x) { return !std::cmp_less(x, min) && !std::cmp_greater(x, max); };
        // The JSON library reads integers from 0 on as unsigned, and those beyond 64 bits as floats.
        const bool found = value_->is_number_unsigned()
                               ? fits(value_->get<uint64_t>())
                               : value_->is_number_integer() && fits(value_->get<int64_t>());
        if (!found) refuse_type("a whole number from " + std::to_string(min) + " to " + std::to_string(max));
        return value_->get<T>();
    }
    std::vector<JsonField> list() const;
    const nlohmann::ordered_json::object_t& members() const;

  private:
    JsonField(const nlohmann::ordered_json& value, const std::string& file, std::string key)
        : value_(&value), file_(&file), key_(std::move(key)) {}
    [[noreturn]] void refuse_type(const std::string& expected) const;

    const nlohmann::ordered_json* value_;
    const std::string* file_;
    std::string key_;
};

}  // namespace argosy
