// How a step updates one parameter, beside the learning rate of all.
#pragma once

#include "layout/param_spec.h"
#include "train/step.h"

namespace argosy::train {

struct ParameterRates {
    double lr_factor = 1;  // of the learning rate
    double weight_decay = 0;
};

/// The first group that the parameter is in decides, or else the options of all.
ParameterRates rates_of(const layout::ParamSpec& parameter, const StepOptions& options);

}  // namespace argosy::train
