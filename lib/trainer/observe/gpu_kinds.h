// The kinds of work of a step, and how long a GPU's current stream does work of each kind: the time between
// events, without the waits for groups of ranks.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>

#include "comm/mesh.h"
#include "cuda/stream_times.h"

namespace argosy::observe {

/// The kinds of work of the phase Compute.
enum class ComputeKind { Forward, Recompute, Head, Backward, Weights, Other };
inline constexpr int kNumComputeKinds = 6;

/// "forward", "recompute", "head" (with the loss), "backward" (the gradients of layers' inputs), "weights"
/// (the gradients of their weights), "other" (sums of gradients, hand-over between stages, norms).
const char* name_of(ComputeKind kind);

class GpuKinds {
  public:
    /// REQUIRES: `mesh` outlives this object.
    explicit GpuKinds(const comm::Mesh& mesh) : mesh_(mesh) {}

    /// The current stream does work of this kind from now on, until the next call. Work after the last call
    /// of a recording, or of a phase, counts as Other; so end with Other.
    void begin(ComputeKind kind);
    void end();
    void launched(uint64_t graph) { ++num_launches_[graph]; }

    /// The seconds of each kind since the last call. The rest of `all_seconds` is Other. REQUIRES:
    /// the GPU has done all work.
    std::array<double, kNumComputeKinds> take(double all_seconds);

  private:
    struct Mark {
        uint64_t graph;
        cuda::PooledEvent event;
    };
    static constexpr int kNoKind = 0;  // a label; that of a kind is its number + 1
    void set_label(int label);
    double total_seconds(int label) const;

    const comm::Mesh& mesh_;
    const cuda::EventPool clocks_{cuda::Timing::On};
    cuda::StreamTimes times_;  // the waits included
    int label_ = kNoKind;      // of the work since last_
    std::optional<Mark> last_;
    std::map<uint64_t, int64_t> num_launches_;  // by graph
    std::array<double, kNumComputeKinds> taken_{};
};

}  // namespace argosy::observe
