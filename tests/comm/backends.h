// Every backend, for suites that hold all of them to the same contract.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "comm/group.h"
#include "support/world.h"

namespace argosy::comm {

/// SmallRing: shared memory that hardly anything fits into.
enum class Backend { Mpi, SharedMemory, SmallRing };

inline constexpr int64_t kSmallRingBytes = 64 << 10;

inline std::string backend_name(Backend backend) {
    switch (backend) {
        case Backend::Mpi:
            return "Mpi";
        case Backend::SharedMemory:
            return "SharedMemory";
        case Backend::SmallRing:
            return "SmallRing";
    }
    return "";
}

/// COLLECTIVE: all ranks as a group of that backend.
inline std::unique_ptr<Communicator> all_ranks(Backend backend, std::string name, GroupOptions options = {}) {
    if (backend == Backend::SharedMemory) options.shared_memory_bytes = testing::kSharedMemoryBytes;
    if (backend == Backend::SmallRing) options.shared_memory_bytes = kSmallRingBytes;
    return make_communicator(mpi::Comm::world(), std::move(name), options);
}

inline auto all_backends() {
    return ::testing::Values(Backend::Mpi, Backend::SharedMemory, Backend::SmallRing);
}
inline std::string name_of_backend(const ::testing::TestParamInfo<Backend>& info) {
    return backend_name(info.param);
}

}  // namespace argosy::comm
