#include "pytorch/value.h"

#include <fmt/format.h>

#include <ranges>

#include "base/strict_json.h"

namespace argosy::pytorch {
std::optional<bool> Value::boolean() const {
    return kind_ == Kind::Bool ? std::optional(integer_ != 0) : std::nullopt;
}

std::optional<int64_t> Value::integer() const {
    return kind_ == Kind::Int ? std::optional(integer_) : std::nullopt;
}

std::optional<double> Value::number() const {
    if (kind_ == Kind::Int) return static_cast<double>(integer_);
    return kind_ == Kind::Float ? std::optional(real_) : std::nullopt;
}

const std::string* Value::text() const { return kind_ == Kind::Text ? text_ : nullptr; }

const std::string* Value::bytes() const { return kind_ == Kind::Bytes ? text_ : nullptr; }

std::span<const Value> Value::items() const {
    if (kind_ != Kind::List && kind_ != Kind::Tuple) return {};
    return container_->items;
}

std::optional<std::vector<int64_t>> Value::sizes() const {
    constexpr size_t kMaxDims = 32;
    if (items().size() > kMaxDims) return std::nullopt;
    std::vector<int64_t> found;
    for (const Value& item : items()) {
        if (item.kind_ != Kind::Int || item.integer_ < 0) return std::nullopt;
        found.push_back(item.integer_);
    }
    return kind_ == Kind::Tuple ? std::optional(found) : std::nullopt;
}

std::span<const Value::Entry> Value::entries() const {
    if (kind_ != Kind::Dict) return {};
    return container_->entries;
}

const Value* Value::find(std::string_view key) const {
    if (kind_ == Kind::Object && container_->state.kind_ == Kind::Dict) return container_->state.find(key);
    for (const Entry& entry : entries() | std::views::reverse) {
        const std::string* text = entry.key.text();
        if (text && *text == key) return &entry.value;
    }
    return nullptr;
}

std::string_view Value::class_name() const {
    if (kind_ == Kind::Object) return container_->subject.class_name();
    return kind_ == Kind::Class ? std::string_view(*text_) : std::string_view();
}

std::span<const Value> Value::arguments() const {
    if (kind_ != Kind::Object) return {};
    return container_->items.front().items();
}

Value Value::state() const {
    return kind_ == Kind::Object || kind_ == Kind::Dict ? container_->state : Value();
}

Value Value::persistent_id() const { return kind_ == Kind::PersistentId ? container_->subject : Value(); }

std::string Value::shown() const {
    switch (kind_) {
        case Kind::None:
            return "None";
        case Kind::Bool:
            return integer_ ? "True" : "False";
        case Kind::Int:
            return fmt::format("{}", integer_);
        case Kind::Float:
            return fmt::format("{}", real_);
        case Kind::Text:
            return "the text " + argosy::shown(*text_);
        case Kind::Bytes:
            return fmt::format("{} bytes", text_->size());
        case Kind::List:
        case Kind::Tuple:
            return fmt::format("a {} of {}", kind_ == Kind::List ? "list" : "tuple", items().size());
        case Kind::Dict:
            return fmt::format("a dict of {}", entries().size());
        case Kind::Class:
            return std::string(class_name());
        case Kind::Object:
            return fmt::format("an object of {}", class_name());
        case Kind::PersistentId:
            return "a persistent id";
    }
    return {};
}

}  // namespace argosy::pytorch
