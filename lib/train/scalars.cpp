#include "train/scalars.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace argosy::train {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const std::optional<optim::LossScale::State>& scale) {
    if (!scale) return nullptr;
    return {{"scale", scale->scale}, {"good_steps", scale->good_steps}};
}

Json json_of(const UpdateGuard::State& guard) {
    return {{"skipped", guard.num_skipped},
            {"nonfinite_in_a_row", guard.nonfinite_in_a_row},
            {"spikes_in_a_row", guard.spikes_in_a_row},
            {"losses", guard.losses},
            {"grad_norms", guard.grad_norms}};
}

/// A count that is stored as one: no fraction, not negative.
int64_t count_in(const Json& object, const char* key) {
    const Json& value = object.at(key);
    if (!value.is_number_integer() || value.get<int64_t>() < 0) {
        throw UserError("{} is {}, not a count", key, value.dump());
    }
    return value.get<int64_t>();
}

optim::LossScale::State loss_scale_in(const Json& object) {
    const auto scale = object.at("scale").get<double>();
    if (!(scale >= optim::LossScale::kFloor)) {
        throw UserError("the loss scale is {}, not {} or more", scale, optim::LossScale::kFloor);
    }
    return {scale, count_in(object, "good_steps")};
}

UpdateGuard::State guard_in(const Json& object) {
    return {.losses = object.at("losses").get<std::vector<double>>(),
            .grad_norms = object.at("grad_norms").get<std::vector<double>>(),
            .nonfinite_in_a_row = count_in(object, "nonfinite_in_a_row"),
            .spikes_in_a_row = count_in(object, "spikes_in_a_row"),
            .num_skipped = count_in(object, "skipped")};
}

Scalars scalars_in(const Json& object) {
    Scalars scalars{
        .position = {count_in(object, "step"), count_in(object, "samples"), count_in(object, "tokens")},
        .seq_len = count_in(object, "seq_len"),
        .seed = object.at("seed").get<uint64_t>(),
        .num_updates = count_in(object, "updates"),
        .loss_scale = std::nullopt,
        .guard = guard_in(object.at("guard"))};
    if (!object.at("loss_scale").is_null()) scalars.loss_scale = loss_scale_in(object.at("loss_scale"));
    return scalars;
}

}  // namespace

std::string to_json(const Scalars& scalars) {
    const Json object = {{"step", scalars.position.step},
                         {"samples", scalars.position.samples},
                         {"tokens", scalars.position.tokens},
                         {"seq_len", scalars.seq_len},
                         {"seed", scalars.seed},
                         {"updates", scalars.num_updates},
                         {"loss_scale", json_of(scalars.loss_scale)},
                         {"guard", json_of(scalars.guard)}};
    return object.dump();
}

Scalars parse_scalars(const std::string& text, const std::string& place) {
    try {
        return scalars_in(Json::parse(text));
    } catch (const std::exception& error) {
        throw UserError("{}: the run's state cannot be read: {}. Its format is that of lib/train/FORMAT.md",
                        place, error.what());
    }
}

}  // namespace argosy::train
