// The step times of all ranks: the file ranks.jsonl (FORMAT.md), and warnings of slow ranks. The clocks of
// the other ranks show a slow rank only as exposed communication, because these ranks wait for it.
//
// Cost: the ranks exchange their means at each log line, in one all-gather of 16 bytes a rank. At 16,384
// ranks each rank receives 256 KiB a window. Rank 0 then needs time that is linear in the number of ranks,
// and writes at most 7 KB a window on average, because above 256 ranks it leaves windows out.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "layout/mesh_shape.h"
#include "observe/append_file.h"
#include "observe/metrics_writer.h"
#include "observe/step_timer.h"

namespace argosy::observe {

/// The mean times of one rank's steps in a window.
struct RankStep {
    float total_ms = 0, compute_ms = 0, data_ms = 0, exposed_ms = 0;
};

/// The hosts of the ranks of a job, and each rank's GPU on its host.
struct RankHosts {
    std::vector<std::string> names;  // of the hosts, in the order of their first ranks
    std::vector<int> host_of_rank;   // number in `names`
    std::vector<int> gpu_of_rank;    // -1: the rank computes on a CPU
};

/// The lines of ranks.jsonl, without their newlines.
std::string ranks_header(const RankHosts& hosts, const layout::MeshShape& mesh);
std::string ranks_line(int64_t step, int64_t num_steps, std::span<const RankStep> ranks);

/// Finds ranks that are slower than the median of the ranks with the same work, in two windows in a row: in
/// computation, or in waiting for data. In one window alone, the cause may be chance.
class SlowRanks {
  public:
    /// A rank is slow if it computes longer than the median by more than this share. Healthy GPUs of one
    /// model differ by a few percent, as their temperatures and voltages do.
    static constexpr double kMaxComputeExcess = 0.10;
    /// A rank is slow if its share of the step in which it waits for data exceeds the median by more than
    /// this.
    static constexpr double kMaxDataExcess = 0.05;
    /// Shorter differences are ignored: they are the scheduling of processes, not a fault.
    static constexpr double kMinExcessMs = 1;

    /// Only ranks with the same coordinates on `unequal_axes` have the same work. Without ranks, nothing is
    /// found.
    SlowRanks(RankHosts hosts, const layout::MeshShape& mesh, layout::AxisSet unequal_axes);

    /// Takes the next window. Returns a sentence for each host with ranks that have become slow.
    std::vector<std::string> add(std::span<const RankStep> window);

    /// Sentences about the ranks that are slow in the last window and the one before it.
    std::vector<std::string> now() const;
    /// Sentences about the ranks that were slow in a quarter of the windows or more.
    std::vector<std::string> in_run() const;

  private:
    enum Kind { Compute, Data };
    static constexpr std::array kKinds = {Compute, Data};
    /// Values by rank.
    struct State {
        explicit State(size_t num_ranks)
            : slow_before(num_ranks),
              reported(num_ranks),
              share(num_ranks),
              num_slow(num_ranks),
              shares(num_ranks) {}
        std::vector<char> slow_before;  // in the window before
        std::vector<char> reported;     // slow, and part of a sentence since it became so
        std::vector<float> share;       // of the last window, as sentences show it
        std::vector<int> num_slow;      // windows in which the rank was found slow
        std::vector<float> shares;      // sum over these windows
    };
    /// How far a rank is above the median, and the share that a sentence shows.
    struct Excess {
        double share = 0, shown = 0;
    };

    std::vector<Excess> excesses(Kind kind, std::span<const RankStep> window) const;
    std::vector<std::string> sentences(Kind kind, std::span<const int> ranks, std::span<const float> shares,
                                       const std::string& end) const;
    std::string subject(int host, std::span<const int> ranks) const;

    RankHosts hosts_;
    std::vector<int> ranks_on_host_;        // numbers of ranks
    std::vector<std::vector<int>> equals_;  // ranks with the same work
    std::vector<int> equals_of_rank_;       // number in `equals_`
    std::vector<State> states_;             // by kind
    int num_windows_ = 0;
};

struct RankTimesOptions {
    std::string host;  // the name of this rank's node
    layout::MeshShape mesh;
    /// Ranks that differ on these axes have different work: the stages of a pipeline have.
    layout::AxisSet unequal_axes = layout::Axis::Pipeline;
};

/// The windows are those of MetricsOptions. A job of one rank exchanges and writes nothing.
class RankTimes {
  public:
    /// COLLECTIVE over `control`, which has all ranks and outlives this object. On rank 0: moves the lines of
    /// steps after metrics.last_own_step to ranks.jsonl.aside, and writes a header. Throws RunError if the
    /// file cannot be written.
    RankTimes(const RankTimesOptions& options, const MetricsOptions& metrics, comm::Communicator& control);

    /// Takes the times of this rank's next step. Returns whether a window ends with this step. COLLECTIVE
    /// over `control` if so; rank 0 then warns of the ranks that have become slow. Throws RunError if the
    /// line cannot be written.
    bool add(int64_t step, const StepTimes& times);

    /// On rank 0.
    const RankHosts& hosts() const { return hosts_; }
    const SlowRanks& slow_ranks() const { return slow_ranks_; }

  private:
    RankHosts gather_hosts() const;
    void exchange(int64_t step);
    void write(int64_t step, std::span<const RankStep> ranks);

    RankTimesOptions options_;
    MetricsOptions metrics_;
    comm::Communicator& control_;
    RankHosts hosts_;
    SlowRanks slow_ranks_;
    std::optional<AppendFile> file_;  // on rank 0
    StepTimes window_;                // sums
    int64_t num_steps_ = 0;           // of the window
    int64_t num_windows_ = 0;
};

}  // namespace argosy::observe
