// Plants a fault (base/fault.h) in this process. Only a suite that names module test_faults can do this.
#pragma once

#include <optional>

#include "base/fault.h"

namespace argosy::testing {

/// The fault lasts as long as this object.
class PlantedFault {
  public:
    explicit PlantedFault(Fault fault);
    ~PlantedFault();
    PlantedFault(const PlantedFault&) = delete;
};

}  // namespace argosy::testing
