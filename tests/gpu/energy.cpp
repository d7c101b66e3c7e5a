#include "gpu/energy.h"

#include <dlfcn.h>

namespace argosy::cuda {
namespace {

/// Calls a function of NVML: true if there is one and it succeeds.
template <class... Args>
bool call(void* library, const char* name, Args... args) {
    void* const found = library ? dlsym(library, name) : nullptr;
    return found && reinterpret_cast<int (*)(Args...)>(found)(args...) == 0;
}

}  // namespace

EnergyMeter::EnergyMeter(const std::string& pci_bus_id) : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
    if (!call(library_, "nvmlInit_v2")) return;
    if (!call(library_, "nvmlDeviceGetHandleByPciBusId_v2", pci_bus_id.c_str(), &device_)) device_ = nullptr;
}

EnergyMeter::~EnergyMeter() {
    if (library_) dlclose(library_);
}

std::optional<double> EnergyMeter::joules() const {
    unsigned long long millijoules = 0;
    if (!device_ || !call(library_, "nvmlDeviceGetTotalEnergyConsumption", device_, &millijoules)) return {};
    return static_cast<double>(millijoules) / 1e3;
}

}  // namespace argosy::cuda
