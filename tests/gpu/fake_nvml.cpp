// A stand-in for libnvidia-ml.so.1 for one GPU, which takes 500 W.
#include <chrono>

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* pci_bus_id, void** device) {
    static int gpu;
    *device = &gpu;
    return *pci_bus_id == '\0';
}
int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* millijoules) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    *millijoules = std::chrono::duration_cast<std::chrono::microseconds>(now).count() / 2;
    return 0;
}
}
