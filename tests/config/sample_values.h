// A valid value for each key of the table; it differs from the default if the key accepts a second value.
#pragma once

#include <algorithm>

#include "base/error.h"
#include "config/schema.h"

namespace argosy::config {

inline Value sample_value(const Field& field) {
    const Value otherwise = field.get(JobConfig{});
    switch (field.type) {
        case ValueType::Boolean:
            return !std::get<bool>(otherwise);
        case ValueType::Switch:
            return otherwise == Value("auto") ? Value(true) : Value("auto");
        case ValueType::Integer:
            return int64_t{4};
        case ValueType::Number:
            return std::max(0.1 + 0.2, field.limits.range.min + 0.1);  // 0.1 + 0.2 needs all 17 digits
        case ValueType::String:
            return "a \"b\" \\ # c=d\t\x01\x7f \xc3\xa9 'e'";
        case ValueType::Choice:
            return otherwise == Value(field.limits.choices.back()) ? field.limits.choices.front()
                                                                   : field.limits.choices.back();
        case ValueType::Duration:
            return Duration{4 * 3600 + 4};
        case ValueType::IntegerList:
            return std::vector<int64_t>{3, 4, 4, 3};
        case ValueType::ChoiceList:
            if (field.limits.choices.empty()) return std::vector<std::string>{"one_key", "an_object.key"};
            if (field.key == "model.converters") return std::vector<std::string>{field.limits.choices.back()};
            return std::vector<std::string>{field.limits.choices.back(), field.limits.choices.front()};
        case ValueType::Mixture:
            return std::vector<Row>{{{"path", "a, {b}.h5"}, {"weight", 0.1 + 0.2}},
                                    {{"path", "c=d"}, {"weight", 3.0}}};
        case ValueType::ParameterGroups:
            return std::vector<Row>{{{"part", "norm"}, {"lr_factor", 0.1 + 0.2}, {"weight_decay", 0.0}},
                                    {{"part", "wq, {wk}"}, {"lr_factor", 3.0}}};
    }
    throw RunError("key {} has no type", field.key);
}

/// The configuration of all sample values. It is consistent: every integer, including the degree and each
/// batch size, is 4; the layers are placed by their number; the number types are float64, without the keys
/// and converters that float64 does not accept; the loaded model is Hugging Face's; and the run is
/// deterministic.
inline JobConfig sample_config() {
    JobConfig config;
    for (const Section& section : schema()) {
        for (const Field& field : section.fields) field.set(config, sample_value(field));
    }
    config.model.converters.clear();
    config.float8 = {};
    config.mx = {};
    config.training.gradient_accumulation_dtype.reset();
    config.optimizer.muon_ns_dtype.reset();
    config.training.dataset_path.clear();
    config.checkpoint.initial_load_model_only = true;
    return config;
}

}  // namespace argosy::config
