// Plans of deep models from plans of shallow ones. Layers are alike, so memory and times grow linearly with
// the layers of a stage: two plans with a few of them give the plan with all, in a fraction of the time. The
// update must be linear too, as AdamW's is.
#pragma once

#include <cstdint>

#include "plan/plan.h"
#include "train/trainer.h"

namespace argosy::plan {

/// Layers to remove from each stage for the two plans.
struct FewerLayers {
    int64_t many = 0, few = 0;  // few: removed for the deeper one
    explicit operator bool() const { return many > 0; }
};
/// None if the model's stages are shallow already. Layers that alternate are removed in whole periods.
FewerLayers fewer_layers(const train::TrainerOptions& options);

/// Removes `count` layers of each stage.
void remove_layers(train::TrainerOptions& options, int64_t count);

/// Continues the line through memory and times of the two plans to all layers. All else stays that of
/// `deeper`.
Plan with_all_layers(Plan deeper, const Plan& shallower, const FewerLayers& removed);

}  // namespace argosy::plan
