// Settings that a file of TorchTitan leaves to the date of the TorchTitan that read it.
#include <fmt/format.h>

#include <algorithm>

#include "config/arrival.h"

namespace argosy::config {
namespace {

constexpr const char* kDateOption = "--torchtitan-date YYYY-MM-DD";

/// Whether a setting has a spelling of float8 of before 8 April 2025, or one that was valid then too.
bool is_old_float8(const Setting& setting) {
    const auto* names = std::get_if<std::vector<std::string>>(&setting.value);
    return setting.key.starts_with("float8.") || (names && std::ranges::count(*names, "float8") > 0) ||
           (setting.key.starts_with("training.") &&
            newest_name(torchtitan_table(), setting.key) == "quantize.linear.float8.enable");
}

void decide_output_cast(const std::vector<Setting>& settings, const std::string& date, Arrival& arrival) {
    constexpr const char* kFilter = "quantize.linear.float8.filter_fqns";
    const bool is_cast = std::ranges::count(arrival.config.model.converters, Converter::Float8) > 0;
    if (!is_cast || arrival.given.contains(kFilter)) return;
    if ("2024-07-19" <= date && date <= "2025-04-07") {
        apply({kFilter, std::vector<std::string>{"output"}, "", ""}, arrival.config);
        arrival.given.insert(kFilter);
        arrival.keys.push_back(
            {Fate::Equivalent, "(float8)", "",
             fmt::format("{} = [\"output\"]: TorchTitan of {} never cast output", kFilter, date)});
    } else if (date.empty() && std::ranges::any_of(settings, is_old_float8)) {
        arrival.warnings.push_back(fmt::format(
            "TorchTitan never cast the layer `output` to float8 from 2024-07-19 to 2025-04-07, and the "
            "translation does: if the file is of that time, give {}, or set {} = [\"output\"]",
            kDateOption, kFilter));
    }
}

void decide_frequencies(const std::string& date, Arrival& arrival) {
    std::string flavor = arrival.config.model.flavor.value_or("");
    if (arrival.config.model.name != "llama3" || !arrival.sizes.empty() || date >= "2025-10-08") return;
    if (flavor != "8B" && flavor != "70B" && flavor != "405B") return;
    if (date.empty()) {
        arrival.warnings.push_back(
            fmt::format("TorchTitan did not scale the frequencies of llama3 {} before 2025-10-08, and the "
                        "translation does, unless model.hf_assets_path has a config.json that says "
                        "otherwise: if the file is older, give {}",
                        flavor, kDateOption));
    } else if (flavor == "405B") {
        arrival.keys.push_back(
            {Fate::Missing, "(frequencies)", "",
             fmt::format("TorchTitan of {} did not scale them; nearest: model.hf_assets_path with a "
                         "config.json without rope_scaling",
                         date)});
    } else {
        arrival.config.model.flavor = flavor += "-8k";
        arrival.keys.push_back(
            {Fate::Equivalent, "(frequencies)", "",
             fmt::format("model.flavor = \"{}\": TorchTitan of {} did not scale them", flavor, date)});
    }
}

}  // namespace

void decide_by_date(const std::vector<Setting>& settings, const std::string& date, Arrival& arrival) {
    if (std::ranges::count(settings, "(float8)", &Setting::key) > 0)
        arrival.warnings.push_back(kUnsaidCasts);
    decide_output_cast(settings, date, arrival);
    decide_frequencies(date, arrival);
}

}  // namespace argosy::config
