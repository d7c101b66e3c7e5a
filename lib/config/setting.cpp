#include "config/setting.h"

#include "base/error.h"
#include "config/nearest.h"
#include "config/schema.h"

namespace argosy::config {
namespace {

const Field& field_of(const Setting& setting) {
    if (const Field* field = find_field(setting.key)) return *field;
    const std::string meant = nearest(setting.key, keys());
    throw UserError("unknown key {} {}; {}", setting.key, setting.place,
                    meant.empty() ? "--help lists all keys" : "did you mean " + meant + "?");
}

}  // namespace

void apply(const Setting& setting, JobConfig& config) {
    const Field& field = field_of(setting);
    const Value value = value_as(field.type, setting.value);
    if (!is_set(value)) {
        throw UserError("{} {} must be {}, but is {}", field.key, setting.place, type_name(field.type),
                        setting.found);
    }
    const std::string broken = broken_limit(field.limits, value);
    if (!broken.empty()) {
        throw UserError("{} {} is {}; it must be {}", field.key, setting.place, toml_text(value), broken);
    }
    field.set(config, value);
}

}  // namespace argosy::config
