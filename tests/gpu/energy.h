// The energy that a GPU takes, as NVML reports it. The library is loaded when it is asked for: without it, or
// on a GPU without a counter, nothing is known.
#pragma once

#include <optional>
#include <string>

namespace argosy::cuda {

class EnergyMeter {
  public:
    explicit EnergyMeter(const std::string& pci_bus_id);
    EnergyMeter(const EnergyMeter&) = delete;
    ~EnergyMeter();

    /// Joules since the driver was loaded. NVML renews the number about ten times a second.
    std::optional<double> joules() const;

  private:
    void* library_;
    void* device_ = nullptr;
};

}  // namespace argosy::cuda
