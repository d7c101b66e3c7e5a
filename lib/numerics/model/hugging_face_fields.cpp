#include "model/hugging_face_fields.h"

#include <fmt/ranges.h>

#include <iterator>
#include <set>
#include <sstream>
#include <vector>

#include "base/strict_json.h"

namespace argosy::model {

int64_t size_of(const JsonField& field, int64_t max, std::optional<int64_t> if_null) {
    return field.whole<int64_t>(1, max, if_null);
}

double above_zero(const JsonField& field, std::optional<double> if_null) {
    const double value = field.number(if_null);
    if (value <= 0) field.refuse(fmt::format("is {}, which is not above 0", field.shown()));
    return value;
}

void require(const JsonField& field, const nlohmann::ordered_json& only) {
    if (field.is_null() || field.value() == only) return;
    field.refuse(fmt::format("is {}, but only {} is supported", field.shown(), shown_value(only)));
}

void refuse_unknown(const JsonField& object, const std::string& known, const AcceptedKeys& accepted) {
    std::istringstream words(known);
    const std::set<std::string> names{std::istream_iterator<std::string>(words), {}};
    std::vector<std::string> unknown;
    for (const auto& [name, value] : object.members()) {
        const std::string key = object[name].key();
        if (!value.is_null() && !names.contains(name) && !accepted.has(key)) unknown.push_back(shown(key));
    }
    if (unknown.empty()) return;
    object.refuse(fmt::format(
        "has keys that this program does not know and that may change the model: {}; accept each key that "
        "does not (--accept-config-key KEY, in a run's configuration model.accept_config_keys)",
        fmt::join(unknown, ", ")));
}

}  // namespace argosy::model
