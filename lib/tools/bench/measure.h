// Measures one collective at one size, in place or out of place: verifies the result and takes the time. The
// code is the same for all collectives and libraries.
//
// Timing: after `warmup` iterations and a barrier, `iterations` iterations run back to back; the backend
// decides when the next one may begin. A rank's time is the interval from the barrier until the rank sees the
// last iteration end, divided by their number; the reported time is the mean over the ranks. The
// distribution of single iterations is reported too: an iteration's time runs from the end of the iteration
// before it to its own end, on the slowest rank. Each iteration uses the part of the buffers after that of
// the iteration before, as far as they have room, so that its data is not in the caches (nccl-tests does the
// same).
//
// Verification: the output buffer first holds the bitwise complement of the expected result, so that an
// element that is not written counts as wrong. One operation runs on fresh input, and every element is
// compared bit for bit. Out of place, all output of
// the timed operations is compared as well. In place, each timed operation takes the result of the one before
// as its input, so their output is not compared.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/backend.h"
#include "bench/collective.h"
#include "bench/control_channel.h"
#include "bench/options.h"
#include "bench/products.h"
#include "mpi/comm.h"

namespace argosy::bench {

struct Distribution {
    double min = 0, max = 0, mean = 0;
    double p50 = 0, p99 = 0;
    double deviation = 0;  // population standard deviation

    /// The deviation in percent of the mean.
    double variation_percent() const { return mean > 0 ? 100 * deviation / mean : 0; }
};

/// Percentiles are nearest-rank: p99 is the smallest of the times t for which at least 99 % of the times are
/// <= t, so the maximum if there are fewer than 100 times. REQUIRES: `times` is not empty.
Distribution distribution_of(std::span<const double> times);

/// The operation that one measurement runs. `chunk_elements` is the column "count" of the report.
struct Case {
    const Collective* collective;
    ElementType type;
    std::optional<Reduction> reduction;  // none if the collective reduces nothing
    int root;
    size_t chunk_elements;
    size_t bytes;  // size of the larger of a rank's two buffers
};

/// Returns `kind` with the largest size that is at most `bytes`. If a buffer has a chunk for each rank,
/// chunks are whole multiples of 16 bytes, or smaller than that. None if a chunk would have no element.
std::optional<Case> case_of(const Case& kind, size_t bytes, int num_ranks);

enum class Placement { OutOfPlace, InPlace };

struct Timing {
    double seconds = 0;                                 // of one operation, the mean over the ranks
    double own_seconds = 0;                             // the median of this rank's iterations
    Distribution slowest;                               // seconds on the slowest rank of each iteration
    double algorithm_bandwidth = 0, bus_bandwidth = 0;  // bytes a second
    std::optional<int64_t> num_wrong;                   // wrong elements on all ranks; none: not verified
    int64_t own_wrong = 0;                              // wrong elements on this rank
};

/// A collective beside products that run all the time (bench/products.h). Seconds on the mean of the ranks.
struct Beside {
    double seconds = 0;                     // of the collective, out of place
    double product_alone = 0, product = 0;  // of a product, without and with the collective
};

class Measurement {
  public:
    /// `world` has all ranks, `backend` one group of them; all groups measure at the same time. Allocates two
    /// buffers of `max_bytes`. REQUIRES: the arguments outlive this object.
    Measurement(Backend& backend, const mpi::Comm& world, const ControlChannel& control,
                const Options& options, size_t max_bytes);

    /// COLLECTIVE over the backend's group: runs one operation to set up connections, and ignores the result.
    void connect(const Case& kind);

    /// COLLECTIVE over the world. All ranks get the same Timing, except for what is their own.
    Timing measure(const Case& kind, Placement placement);

    /// COLLECTIVE over the world. `alone`: what measure() returned for Placement::OutOfPlace. Verifies
    /// nothing.
    Beside measure_beside(const Case& kind, const Timing& alone, Products& products);

  private:
    struct Samples {
        double seconds = 0;              // all iterations together
        std::vector<double> iterations;  // seconds of each
    };

    size_t num_shifts(const Case& kind) const;
    /// The call of an iteration, for each shift.
    std::vector<Call> calls_of(const Case& kind, Placement placement) const;
    Call call_at(size_t shift, const Case& kind, Placement placement) const;
    GroupPosition position_of(const Case& kind) const;
    void refill(const Case& kind, const Pattern& pattern, const Call& call) const;
    int64_t count_wrong(const Case& kind, const Pattern& pattern, const Call& call) const;
    Samples run_to_time(const Case& kind, const std::vector<Call>& calls, const std::string& what) const;
    Timing evaluate(const Case& kind, const Samples& samples) const;
    void combine(std::span<double> values, Reduction reduction) const;

    Backend& backend_;
    const mpi::Comm& world_;
    const ControlChannel& control_;
    const Options& options_;
    size_t max_bytes_;
    Backend::Memory input_, output_;
};

}  // namespace argosy::bench
