// Smaller steps that stand for a whole one (plan/continued_plan.h): with fewer layers in each stage, and with
// fewer stages. The update must be linear in the layers too, as AdamW's is.
#pragma once

#include <cstdint>

#include "train/trainer.h"

namespace argosy::plan {

/// Layers to remove from each stage for the two plans.
struct FewerLayers {
    int64_t many = 0, few = 0;  // few: removed for the deeper one
    explicit operator bool() const { return many > 0; }
    /// The factor of continued() that leads to all layers.
    double factor() const { return static_cast<double>(few) / static_cast<double>(many - few); }
};
/// None if the model's stages are shallow already, or if single layers have no experts. Layers that alternate
/// are removed in whole periods.
FewerLayers fewer_layers(const train::TrainerOptions& options);

/// Removes `count` layers of each stage.
void remove_layers(train::TrainerOptions& options, int64_t count);

/// Leaves `count` stages: the first and the last one, as the second one the deepest inner stage, and between
/// them inner stages of median depth. REQUIRES: a rank has one stage, and 3 <= count <= the number of stages.
void keep_stages(train::TrainerOptions& options, int count);

}  // namespace argosy::plan
