// Binds a line of the field table to a member of JobConfig. Only fields.cpp includes this header. The
// member's type determines the key's type and, for an enumeration, its choices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/schema.h"

namespace argosy::config {

/// T without std::optional, and whether T is optional.
template <class T>
struct Bare {
    using Type = T;
    static constexpr bool kOptional = false;
};
template <class T>
struct Bare<std::optional<T>> {
    using Type = T;
    static constexpr bool kOptional = true;
};

/// Says whether T is a list of an enumeration's values, and of which enumeration.
template <class T>
struct ChoicesIn {
    static constexpr bool kAny = false;
};
template <class T>
requires std::is_enum_v<T>
struct ChoicesIn<std::vector<T>> {
    using Choice = T;
    static constexpr bool kAny = true;
};

// The structs of lists of tables, and their rows.

inline Row row_of(const MixtureSource& source) { return {{"path", source.path}, {"weight", source.weight}}; }
inline void read(const Row& row, MixtureSource& source) {
    source.path = std::get<std::string>(row.at("path"));
    if (row.contains("weight")) source.weight = std::get<double>(row.at("weight"));
}
inline Row row_of(const ParameterGroup& group) {
    Row row = {{"part", group.part}, {"lr_factor", group.lr_factor}};
    if (group.weight_decay) row["weight_decay"] = *group.weight_decay;
    return row;
}
inline void read(const Row& row, ParameterGroup& group) {
    group.part = std::get<std::string>(row.at("part"));
    if (row.contains("lr_factor")) group.lr_factor = std::get<double>(row.at("lr_factor"));
    if (row.contains("weight_decay")) group.weight_decay = std::get<double>(row.at("weight_decay"));
}
template <class T>
constexpr bool kIsTables =
    std::is_same_v<T, std::vector<MixtureSource>> || std::is_same_v<T, std::vector<ParameterGroup>>;

template <class T>
constexpr ValueType type_of() {
    if constexpr (std::is_same_v<T, bool>)
        return ValueType::Boolean;
    else if constexpr (std::is_same_v<T, Switch>)
        return ValueType::Switch;
    else if constexpr (std::is_same_v<T, int> || std::is_same_v<T, int64_t>)
        return ValueType::Integer;
    else if constexpr (std::is_same_v<T, double>)
        return ValueType::Number;
    else if constexpr (std::is_same_v<T, std::string>)
        return ValueType::String;
    else if constexpr (std::is_same_v<T, Duration>)
        return ValueType::Duration;
    else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
        return ValueType::IntegerList;
    else if constexpr (ChoicesIn<T>::kAny || std::is_same_v<T, std::vector<std::string>>)
        return ValueType::ChoiceList;
    else if constexpr (std::is_same_v<T, std::vector<MixtureSource>>)
        return ValueType::Mixture;
    else if constexpr (std::is_same_v<T, std::vector<ParameterGroup>>)
        return ValueType::ParameterGroups;
    else {
        static_assert(std::is_enum_v<T>, "no key can have this type");
        return ValueType::Choice;
    }
}

template <class T>
Value value_of(const T& member) {
    if constexpr (Bare<T>::kOptional)
        return member ? value_of(*member) : Value();
    else if constexpr (std::is_same_v<T, Switch>)
        return member == Switch::Auto ? Value(std::string(name_of(member))) : Value(member == Switch::On);
    else if constexpr (std::is_enum_v<T>)
        return std::string(name_of(member));
    else if constexpr (ChoicesIn<T>::kAny) {
        std::vector<std::string> names;
        for (const auto choice : member) names.emplace_back(name_of(choice));
        return names;
    } else if constexpr (kIsTables<T>) {
        std::vector<Row> rows;
        for (const auto& each : member) rows.push_back(row_of(each));
        return rows;
    } else if constexpr (std::is_same_v<T, int>)
        return int64_t{member};
    else
        return member;
}

template <class Choice>
Choice choice_called(const std::string& name) {
    constexpr auto names = names_of(Choice{});
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i] == name) return static_cast<Choice>(i);
    }
    ARGOSY_CHECK(false, "no choice is called '{}'", name);
    return {};
}

template <class T>
T member_from(const Value& value) {
    if constexpr (std::is_same_v<T, Switch>) {
        const bool* on = std::get_if<bool>(&value);
        if (on) return *on ? Switch::On : Switch::Off;
    }
    if constexpr (std::is_enum_v<T>)
        return choice_called<T>(std::get<std::string>(value));
    else if constexpr (ChoicesIn<T>::kAny) {
        T choices;
        for (const std::string& name : std::get<std::vector<std::string>>(value)) {
            choices.push_back(choice_called<typename ChoicesIn<T>::Choice>(name));
        }
        return choices;
    } else if constexpr (kIsTables<T>) {
        T tables;
        for (const Row& row : std::get<std::vector<Row>>(value)) read(row, tables.emplace_back());
        return tables;
    } else if constexpr (std::is_same_v<T, int>)
        return static_cast<int>(std::get<int64_t>(value));
    else
        return std::get<T>(value);
}

template <class Choice>
Limits among_names_of(Limits limits) {
    constexpr auto names = names_of(Choice{});
    if (limits.choices.empty()) limits.choices.assign(names.begin(), names.end());
    return limits;
}

/// The limits of a key, narrowed to the values that its member's type can hold.
template <class T>
Limits limits_for(Limits limits) {
    if constexpr (std::is_same_v<T, int>) {
        limits.range.max = std::min<double>(limits.range.max, std::numeric_limits<int>::max());
    }
    if constexpr (std::is_enum_v<T>) limits = among_names_of<T>(std::move(limits));
    if constexpr (ChoicesIn<T>::kAny)
        limits = among_names_of<typename ChoicesIn<T>::Choice>(std::move(limits));
    return limits;
}

/// Limits a key to some values of its enumeration.
template <class Choice>
Limits among(std::initializer_list<Choice> choices) {
    Limits limits;
    for (const Choice choice : choices) limits.choices.emplace_back(name_of(choice));
    return limits;
}

/// A key of the section struct S. section() makes a Field of it, for the member of JobConfig that holds S.
template <class S>
struct SectionKey {
    Field field;
    std::function<Value(const S&)> get;
    std::function<void(S&, const Value&)> set;
};

/// REQUIRES: the member is optional exactly if `when_unset` is not empty.
template <class S, class T>
SectionKey<S> key(const char* name, T S::*member, Limits limits, const char* meaning,
                  const char* when_unset = "") {
    using Type = typename Bare<T>::Type;
    ARGOSY_CHECK(Bare<T>::kOptional == (*when_unset != '\0'), "key {}", name);
    return {.field = {.key = {},
                      .name = name,
                      .type = type_of<Type>(),
                      .limits = limits_for<Type>(std::move(limits)),
                      .meaning = meaning,
                      .when_unset = when_unset,
                      .get = {},
                      .set = {}},
            .get = [member](const S& section) { return value_of(section.*member); },
            .set = [member](S& section, const Value& value) { section.*member = member_from<Type>(value); }};
}

template <class S>
Section section(const char* name, S JobConfig::*part, const char* meaning, std::vector<SectionKey<S>> keys) {
    Section section{name, meaning, {}};
    for (auto& [field, get, set] : keys) {
        field.key = section.name + "." + field.name;
        field.get = [part, get = std::move(get)](const JobConfig& config) { return get(config.*part); };
        field.set = [part, set = std::move(set)](JobConfig& config, const Value& value) {
            set(config.*part, value);
        };
        section.fields.push_back(std::move(field));
    }
    return section;
}

}  // namespace argosy::config
