// The rotary settings of a config.json. They have an older form (rope_theta, rope_scaling, and Gemma's
// rope_local_base_freq) and a newer form (rope_parameters, of Gemma for each type of layers); both are
// accepted.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/hugging_face_fields.h"

namespace argosy::model {
namespace {

/// transformers' default: the paper's value, or the quotient of two such values if both weights are given.
double default_attention_factor(const JsonField& rope, double factor) {
    const double numerator = rope["mscale"].number(0), denominator = rope["mscale_all_dim"].number(0);
    const auto with_weight = [&](double weight) {
        return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
    };
    if (numerator == 0 || denominator == 0) return with_weight(1);
    const double quotient = with_weight(numerator) / with_weight(denominator);
    if (!(quotient > 0) || !std::isfinite(quotient)) {
        rope["mscale"].refuse(fmt::format("is {}, and the attention factor would be {}; it must be above 0",
                                          rope["mscale"].shown(), quotient));
    }
    return quotient;
}

RopeScaling read_yarn(const JsonField& rope, int64_t max_context) {
    RopeScaling scaling{.type = RopeScaling::Type::Yarn, .factor = above_zero(rope["factor"])};
    scaling.original_context = size_of(rope["original_max_position_embeddings"], kMaxTokens, max_context);
    scaling.beta_slow = above_zero(rope["beta_slow"], scaling.beta_slow);
    scaling.beta_fast = above_zero(rope["beta_fast"], scaling.beta_fast);
    if (scaling.beta_fast < scaling.beta_slow) {
        rope["beta_fast"].refuse(fmt::format("is {} and \"beta_slow\" is {}; beta_fast must not be smaller",
                                             scaling.beta_fast, scaling.beta_slow));
    }
    scaling.truncate = rope["truncate"].boolean(scaling.truncate);
    const double otherwise = default_attention_factor(rope, scaling.factor);
    scaling.attention_factor = above_zero(rope["attention_factor"], otherwise);
    return scaling;
}

RopeScaling read_llama3(const JsonField& rope) {
    RopeScaling scaling{.type = RopeScaling::Type::Llama3,
                        .factor = above_zero(rope["factor"]),
                        .low_frequency_factor = above_zero(rope["low_freq_factor"]),
                        .high_frequency_factor = above_zero(rope["high_freq_factor"]),
                        .original_context = size_of(rope["original_max_position_embeddings"], kMaxTokens)};
    if (scaling.high_frequency_factor <= scaling.low_frequency_factor) {
        rope["high_freq_factor"].refuse(fmt::format("is {}, which is not above \"low_freq_factor\", {}",
                                                    rope["high_freq_factor"].shown(),
                                                    scaling.low_frequency_factor));
    }
    return scaling;
}

std::vector<double> read_factors(const JsonField& field, int64_t num_pairs) {
    std::vector<double> factors;
    for (const JsonField& entry : field.list()) factors.push_back(above_zero(entry));
    if (std::cmp_equal(factors.size(), num_pairs)) return factors;
    field.refuse(
        fmt::format("has {} numbers, but must have {}, one for each rotary pair", factors.size(), num_pairs));
}

/// The original context and the attention factor follow from keys of `config`. The object may repeat them.
RopeScaling read_longrope(const JsonField& rope, const JsonField& config, const ModelSpec& spec) {
    constexpr const char* kOriginal = "original_max_position_embeddings";
    const auto at_least_two = [](const JsonField& field, int64_t if_null) {
        return field.whole<int64_t>(2, kMaxTokens, if_null);
    };
    RopeScaling scaling{.type = RopeScaling::Type::Longrope};
    scaling.original_context = at_least_two(config[kOriginal], at_least_two(rope[kOriginal], 4096));
    require(rope[kOriginal], scaling.original_context);
    scaling.attention_factor = longrope_attention_factor(spec.max_context, scaling.original_context);
    require(rope["attention_factor"], scaling.attention_factor);
    require(rope["factor"],
            static_cast<double>(spec.max_context) / static_cast<double>(scaling.original_context));
    const int64_t num_pairs = rotary_dim(spec) / 2;
    scaling.short_factors = read_factors(rope["short_factor"], num_pairs);
    scaling.long_factors = read_factors(rope["long_factor"], num_pairs);
    return scaling;
}

std::optional<RopeScaling> read_scaling(const JsonField& rope, const JsonField& config,
                                        const ModelSpec& spec) {
    // "type" is the older name.
    const JsonField field = rope[rope["rope_type"].is_null() ? "type" : "rope_type"];
    const std::string type = field.is_null() ? "default" : field.string();
    require(rope["type"], type);
    if (type == "default") return std::nullopt;
    if (spec.name == "phi3") {
        // "su" and "yarn" are older names of longrope.
        if (type == "longrope" || type == "su" || type == "yarn") return read_longrope(rope, config, spec);
        field.refuse("is " + field.shown() + ", but only default and longrope are supported");
    }
    if (type == "linear") {
        return RopeScaling{.type = RopeScaling::Type::Linear, .factor = above_zero(rope["factor"])};
    }
    if (spec.name == "olmo2")
        field.refuse("is " + field.shown() + ", but only default and linear are supported");
    if (type == "llama3") return read_llama3(rope);
    if (type == "yarn") return read_yarn(rope, spec.max_context);
    field.refuse("is " + field.shown() + ", but only default, linear, llama3 and yarn are supported");
}

/// The keys of an object with rotary settings of this kind.
std::string keys_of(const std::optional<RopeScaling>& scaling) {
    const std::string keys = "rope_theta rope_type type partial_rotary_factor";
    if (!scaling) return keys;
    switch (scaling->type) {
        case RopeScaling::Type::Linear:
            return keys + " factor";
        case RopeScaling::Type::Llama3:
            return keys + " factor low_freq_factor high_freq_factor original_max_position_embeddings";
        case RopeScaling::Type::Yarn:
            return keys +
                   " factor original_max_position_embeddings beta_slow beta_fast truncate mscale "
                   "mscale_all_dim attention_factor";
        case RopeScaling::Type::Longrope:
            return keys +
                   " short_factor long_factor factor original_max_position_embeddings attention_factor";
    }
    return keys;
}

/// The share of a head's elements that rotate; null: 1.
JsonField rotated_share(const JsonField& config) {
    constexpr const char* kShare = "partial_rotary_factor";
    return config[kShare].is_null() ? config["rope_parameters"][kShare] : config[kShare];
}

void read_rotary_dim(const JsonField& config, const Family& family, ModelSpec& spec) {
    const JsonField field = rotated_share(config);
    if (!family.rotated_share) require(field, 1.0);
    const double share = above_zero(field, family.rotated_share.value_or(1));
    const int64_t rotated = share > 1 ? 0 : static_cast<int64_t>(static_cast<double>(spec.head_dim) * share);
    if (rotated == 0 || rotated % 2 != 0) {
        field.refuse(
            fmt::format("is {}; it must be at most 1 and give an even number of the {} elements of a "
                        "head, which rotate in pairs",
                        field.shown(), spec.head_dim));
    }
    if (rotated < spec.head_dim) spec.rotary_dim = rotated;
}

/// Reads one of the objects with rotary settings. `theta_is_given` says whether rope_theta has a value that
/// the object must agree with.
void read_rope_object(const JsonField& rope, const JsonField& config, const Family& family,
                      const AcceptedKeys& accepted, bool& theta_is_given, ModelSpec& spec) {
    for (const char* type : {kFull, kWindowed}) {
        if (rope[type].is_null()) continue;
        rope.refuse(
            fmt::format("has a \"{}\"; only one set of frequencies for all layers is supported", type));
    }
    const double theta = above_zero(rope["rope_theta"], spec.rope_theta);
    if (theta_is_given && theta != spec.rope_theta) {
        rope["rope_theta"].refuse(fmt::format("is {}, but it is {} elsewhere in the file",
                                              rope["rope_theta"].shown(), spec.rope_theta));
    }
    theta_is_given = theta_is_given || !rope["rope_theta"].is_null();
    spec.rope_theta = theta;
    spec.rope_scaling = read_scaling(rope, config, spec);
    require(rope["partial_rotary_factor"], rotated_share(config).number(family.rotated_share.value_or(1)));
    refuse_unknown(rope, keys_of(spec.rope_scaling), accepted);
}

/// Throws if a rotation cannot be computed for every position.
void check_frequencies(const JsonField& config, const ModelSpec& spec) {
    const bool yarn = spec.rope_scaling && spec.rope_scaling->type == RopeScaling::Type::Yarn;
    if (yarn && spec.rope_theta <= 1) {
        throw UserError("{}: \"rope_theta\" is {}, but yarn needs a value above 1", config.file(),
                        spec.rope_theta);
    }
    std::vector<double> frequencies = rope_frequencies(spec);
    std::ranges::copy(rope_frequencies(spec, kMaxTokens), std::back_inserter(frequencies));
    if (spec.window_rope_theta)
        std::ranges::copy(window_rope_frequencies(spec), std::back_inserter(frequencies));
    for (const double frequency : frequencies) {
        if (std::isfinite(frequency * static_cast<double>(kMaxTokens))) continue;
        throw UserError("{}: \"rope_theta\" {} and the factor of its scaling give a rotation by {} radians",
                        config.file(), spec.rope_theta, frequency);
    }
}

/// The rotary base of Gemma's layers with the window, whose frequencies are not scaled.
double read_window_base(const JsonField& config, const AcceptedKeys& accepted) {
    const JsonField older = config["rope_local_base_freq"], newer = config["rope_parameters"][kWindowed];
    const double base = above_zero(older, above_zero(newer["rope_theta"], kGemmaWindowBase));
    if (!newer["rope_theta"].is_null() && newer["rope_theta"].number() != base) {
        older.refuse(fmt::format("is {}, but it is {} elsewhere in the file", older.shown(),
                                 newer["rope_theta"].shown()));
    }
    if (newer.is_null()) return base;
    for (const char* key : {"rope_type", "type"}) require(newer[key], "default");
    require(newer["partial_rotary_factor"], 1.0);
    refuse_unknown(newer, keys_of({}), accepted);
    return base;
}

}  // namespace

void read_rope(const JsonField& config, const Family& family, const AcceptedKeys& accepted, ModelSpec& spec) {
    read_rotary_dim(config, family, spec);
    bool theta_is_given = !config["rope_theta"].is_null();
    spec.rope_theta = above_zero(config["rope_theta"], spec.rope_theta);
    const bool older = config.contains("rope_scaling"), newer = config.contains("rope_parameters");
    if (!config["rope_scaling"].is_null()) {
        read_rope_object(config["rope_scaling"], config, family, accepted, theta_is_given, spec);
    }
    const std::optional<RopeScaling> of_older = std::exchange(spec.rope_scaling, {});
    const JsonField parameters = config["rope_parameters"];
    const bool by_type = family.is_gemma && !parameters[kFull].is_null();
    if (!parameters.is_null()) {
        if (by_type) refuse_unknown(parameters, std::string(kFull) + " " + kWindowed, accepted);
        read_rope_object(by_type ? parameters[kFull] : parameters, config, family, accepted, theta_is_given,
                         spec);
    }
    if (older && newer && of_older != spec.rope_scaling) {
        throw UserError(
            "{}: \"rope_scaling\" and \"rope_parameters\" describe different frequencies; versions of "
            "transformers read one or the other, so remove the wrong one",
            config.file());
    }
    if (!newer) spec.rope_scaling = of_older;
    spec.window_rope_theta =
        window_rope_theta_of(spec, family.is_gemma ? read_window_base(config, accepted) : 0);
    check_frequencies(config, spec);
}

}  // namespace argosy::model
