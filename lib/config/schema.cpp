#include "config/schema.h"

#include <algorithm>

namespace argosy::config {

const Section* find_section(std::string_view name) {
    const auto found = std::ranges::find(schema(), name, &Section::name);
    return found == schema().end() ? nullptr : &*found;
}

const Field* find_field(std::string_view key) {
    for (const Section& section : schema()) {
        const auto found = std::ranges::find(section.fields, key, &Field::key);
        if (found != section.fields.end()) return &*found;
    }
    return nullptr;
}

std::vector<std::string> section_names() {
    std::vector<std::string> names;
    for (const Section& section : schema()) names.push_back(section.name);
    return names;
}

std::vector<std::string> keys() {
    std::vector<std::string> keys;
    for (const Section& section : schema()) {
        for (const Field& field : section.fields) keys.push_back(field.key);
    }
    return keys;
}

}  // namespace argosy::config
