// Typed access to one JSON object of a config.json. Every failure is a UserError that names the file and the
// key. A reader records which keys were asked for, so that refuse_unknown() finds all others.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/model_spec.h"

namespace argosy::model {

class ConfigReader {
  public:
    /// `prefix` is the object's own key and a dot; empty for the whole file.
    ConfigReader(const nlohmann::json& object, std::string where, std::string prefix = "")
        : object_(object), where_(std::move(where)), prefix_(std::move(prefix)) {}

    bool has(const char* key) const {
        read_.insert(key);
        return object_.contains(key) && !object_[key].is_null();
    }
    /// Whether the key is there, perhaps with the value null.
    bool mentions(const char* key) const { return object_.contains(key); }
    bool empty() const { return object_.empty(); }

    template <class T>
    T get(const char* key) const {
        if (!has(key)) throw UserError("{} has no \"{}\"", where_, key);
        if (!is<T>(object_[key])) refuse(key, fmt::format("which is not {}", kind<T>()));
        return object_[key].get<T>();
    }

    template <class T>
    T get(const char* key, T otherwise) const {
        return has(key) ? get<T>(key) : otherwise;
    }

    /// A whole number from 1 to `max`.
    int64_t size(const char* key, int64_t max) const {
        const auto value = get<int64_t>(key);
        if (value < 1 || value > max) refuse(key, fmt::format("which is not from 1 to {}", max));
        return value;
    }
    int64_t size(const char* key, int64_t max, int64_t otherwise) const {
        return has(key) ? size(key, max) : otherwise;
    }

    double above(double min, const char* key) const {
        const auto value = get<double>(key);
        if (value <= min) refuse(key, fmt::format("which is not above {}", min));
        return value;
    }
    double above(double min, const char* key, double otherwise) const {
        return has(key) ? above(min, key) : otherwise;
    }

    ConfigReader object(const char* key) const {
        if (!object_[key].is_object()) refuse(key, "which is not an object");
        return ConfigReader(object_[key], fmt::format("{}: {}", where_, key), fmt::format("{}.", key));
    }

    template <class T>
    void require(const char* key, const T& only) const {
        const T found = get<T>(key, only);
        if (found != only) refuse(key, fmt::format("but only {} is supported", nlohmann::json(only).dump()));
    }

    /// Throws unless the value is `only`, or the key is accepted. The key may be absent.
    template <class T>
    void require(const char* key, const T& only, const AcceptedKeys& accepted) const {
        if (get<T>(key, only) == only || accepted.has(key)) return;
        refuse(key, fmt::format("but only {} is supported; accept the key to go on as if it were so "
                                "(--accept-config-key {}, in a run's configuration model.accept_config_keys)",
                                nlohmann::json(only).dump(), key));
    }

    /// Throws unless every entry of the list is `only`, the one supported value, and unless the list has
    /// `count` entries if given. The list may be absent.
    void require_each(const char* key, const char* only, std::optional<int64_t> count = {}) const {
        if (!has(key)) return;
        for (const nlohmann::json& entry : object_[key]) {
            if (entry == only) continue;
            throw UserError("{}: \"{}\" has {}, but only \"{}\" is supported", where_, key, text_of(entry),
                            only);
        }
        if (const int64_t found = std::ssize(object_[key]); count && found != *count)
            throw UserError("{}: \"{}\" has {} entries, but must have {}, one for each layer", where_, key,
                            found, *count);
    }

    /// Throws if keys have a value, and were neither read, nor are words of `unused`, nor are accepted.
    void refuse_unknown(const std::string& unused, const AcceptedKeys& accepted) const {
        if (accepted.all) return;
        std::set<std::string> known(read_);
        std::istringstream words(unused);
        for (std::string word; words >> word;) known.insert(word);
        std::vector<std::string> unknown;
        for (const auto& [key, value] : object_.items()) {
            const std::string name = prefix_ + key;
            if (!value.is_null() && !known.contains(key) && !accepted.has(name))
                unknown.push_back(text_of(name));
        }
        if (unknown.empty()) return;
        throw UserError(
            "{} has keys that this program does not know and that may change the model: {}; accept each key "
            "that does not (--accept-config-key KEY, in a run's configuration model.accept_config_keys)",
            where_, fmt::join(unknown, ", "));
    }

    [[noreturn]] void refuse(const char* key, const std::string& why) const {
        throw UserError("{}: \"{}\" is {}, {}", where_, key, text_of(object_[key]), why);
    }
    const std::string& where() const { return where_; }

  private:
    template <class T>
    static bool is(const nlohmann::json& value) {
        return std::is_same_v<T, bool>      ? value.is_boolean()
               : std::is_same_v<T, int64_t> ? value.is_number_integer()
               : std::is_same_v<T, double>  ? value.is_number()
                                            : value.is_string();
    }

    template <class T>
    static const char* kind() {
        if (std::is_same_v<T, bool>) return "true or false";
        if (std::is_same_v<T, int64_t>) return "a whole number";
        return std::is_same_v<T, double> ? "a number" : "a string";
    }

    static std::string text_of(const nlohmann::json& value) {
        constexpr size_t kMaxBytes = 100;
        const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
        return text.size() > kMaxBytes ? text.substr(0, kMaxBytes) + "..." : text;
    }

    const nlohmann::json& object_;
    std::string where_, prefix_;
    mutable std::set<std::string> read_;
};

}  // namespace argosy::model
