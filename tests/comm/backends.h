// The backends, for suites that test the same contract on each. A suite with stand-ins for GPUs (room
// test_fake_gpu) tests the GPU backends, any other suite the host backends.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/group.h"
#include "cuda/device.h"
#include "nccl/comm.h"
#include "support/world.h"

namespace argosy::comm {

/// SmallRing: shared memory with a ring that is smaller than most tensors.
enum class Backend { Mpi, SharedMemory, SmallRing, Nccl };

inline constexpr int64_t kSmallRingBytes = 64 << 10;

inline std::string backend_name(Backend backend) {
    switch (backend) {
        case Backend::Mpi:
            return "Mpi";
        case Backend::SharedMemory:
            return "SharedMemory";
        case Backend::SmallRing:
            return "SmallRing";
        case Backend::Nccl:
            return "Nccl";
    }
    return "";
}

/// COLLECTIVE: all ranks as a group of that backend.
inline std::unique_ptr<Communicator> all_ranks(Backend backend, std::string name, GroupOptions options = {}) {
    if (backend == Backend::SharedMemory) options.shared_memory_bytes = testing::kSharedMemoryBytes;
    if (backend == Backend::SmallRing) options.shared_memory_bytes = kSmallRingBytes;
    mpi::Comm world = mpi::Comm::world();
    if (backend == Backend::Nccl) {
        options.gpu_path = GpuPath::Nccl;
        cuda::set_device(world.rank());
    }
    return make_communicator(std::move(world), std::move(name), options);
}

/// The groups of group_of(). They end with the tests: a rank that exits with a group looks to the watchdogs
/// of the others like one that has died.
class SharedGroups : public ::testing::Environment {
  public:
    void TearDown() override { by_backend.clear(); }
    std::map<Backend, std::unique_ptr<Communicator>> by_backend;
};
inline SharedGroups& shared_groups =
    dynamic_cast<SharedGroups&>(*::testing::AddGlobalTestEnvironment(new SharedGroups));

/// Returns the group of all ranks on a backend, which all tests share. COLLECTIVE at the first call for a
/// backend.
inline Communicator& group_of(Backend backend) {
    auto& group = shared_groups.by_backend[backend];
    if (!group) group = all_ranks(backend, "world", {.timeout_seconds = testing::kTimeoutSeconds});
    return *group;
}

inline auto host_backends() {
    return ::testing::Values(Backend::Mpi, Backend::SharedMemory, Backend::SmallRing);
}
inline auto all_backends() {
    std::vector<Backend> all = {Backend::Nccl};
    if (nccl::version() == 0) all = {Backend::Mpi, Backend::SharedMemory, Backend::SmallRing};
    return ::testing::ValuesIn(all);
}
inline std::string name_of_backend(const ::testing::TestParamInfo<Backend>& info) {
    return backend_name(info.param);
}

}  // namespace argosy::comm
