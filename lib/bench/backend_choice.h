// The library that moves the data of a run (MPI or NCCL), and the device of each rank. Both are chosen once,
// and all ranks have the same BackendChoice.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/backend.h"
#include "bench/control_channel.h"
#include "bench/options.h"
#include "cuda/device.h"
#include "mpi/comm.h"
#include "nccl/connection_log.h"

namespace argosy::bench {

struct BackendChoice {
    std::string backend;                       // "mpi" or "nccl"
    std::string library;                       // name and version of MPI or NCCL
    std::vector<cuda::Device> devices;         // by rank of the world; empty: host memory
    std::unique_ptr<nccl::ConnectionLog> log;  // null over MPI, and where the user sets NCCL_DEBUG
};

/// COLLECTIVE over `world`: chooses `backend`, "mpi" or "nccl". If it is empty: NCCL if this build has NCCL
/// and every rank sees a GPU, else MPI. Rank n of a node (from 0) gets device n, or device 0 if the launcher
/// shows the rank only one. Throws UserError, which names the ranks without a GPU or with a shared one.
BackendChoice choose_backend(const mpi::Comm& world, const ControlChannel& control,
                             const std::string& backend);

/// Makes a backend for the group `members`. COLLECTIVE over `world`: every rank passes the members of its own
/// group. REQUIRES: `members` are ranks of the world in ascending order, this rank among them. Throws
/// TimeoutError, which names the missing ranks.
std::unique_ptr<Backend> make_backend(const mpi::Comm& world, const ControlChannel& control,
                                      std::span<const int> members, const BackendChoice& choice,
                                      const Options& options);

/// The type of make_backend(), for callers that let a test replace the function.
using MakeBackend = std::function<std::unique_ptr<Backend>(
    const mpi::Comm& world, const ControlChannel& control, std::span<const int> members,
    const BackendChoice& choice, const Options& options)>;

}  // namespace argosy::bench
