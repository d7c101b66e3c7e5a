// One collective at one size, in place or not: its result verified, its time taken. Knows no collective and
// no library by name.
//
// How time is taken. After `warmup` iterations all ranks meet; then `iterations` follow one another without a
// pause; the backend says when the next may begin. A rank's time is the whole interval, until it has seen the
// last one end, over the number of operations; those of the ranks become one as `across_ranks` says. Beside
// it stands the distribution of single iterations, where an iteration takes as long as on its slowest rank:
// from the end of the one before it to its own end there.
//
// How a result is verified. The output begins as the complement of what it must become, one operation runs on
// fresh input, and every element is compared, bit for bit, but for averages that a backend rounds on the way;
// out of place once more what the timed operations left. In place that would say nothing: each of them worked
// on the result of the one before.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/backend.h"
#include "bench/collective.h"
#include "bench/options.h"
#include "bench/ranks.h"
#include "bench/statistics.h"
#include "mpi/comm.h"

namespace argosy::bench {

/// What is measured. `chunk_elements` is the column "count".
struct Case {
    const Collective* collective;
    ElementType type;
    Operation operation;
    int root;
    size_t chunk_elements;
    size_t bytes;  // of the larger of a rank's two buffers
};

/// The case nearest below `bytes`; none when that is less than an element for each chunk.
std::optional<Case> case_of(const Case& kind, size_t bytes, int num_ranks);

enum class Placement { OutOfPlace, InPlace };

struct Timing {
    double seconds = 0;        // of one operation
    double own_seconds = 0;    // of one on this rank
    double start_seconds = 0;  // of the call that starts it, where the options ask for it
    Distribution slowest;      // of one operation, in seconds
    double algorithm_bandwidth = 0, bus_bandwidth = 0;  // bytes a second
    std::optional<int64_t> num_wrong;                   // elements, over all ranks; none: not verified
};

class Measurement {
  public:
    /// `world`: all ranks, which measure at the same time, each group of `backend` by itself. Takes two
    /// buffers of `max_bytes` for each operation under way. The arguments outlive it.
    Measurement(Backend& backend, const mpi::Comm& world, const RollCall& roll, const Options& options,
                size_t max_bytes);

    /// COLLECTIVE over the backend's group: one operation, whose result nobody looks at.
    void connect(const Case& kind);

    /// COLLECTIVE over the world. The same on all ranks.
    Timing measure(const Case& kind, Placement placement);

  private:
    struct Buffers {
        Backend::Memory input, output;
    };
    struct Samples {
        double seconds = 0;  // of all iterations
        std::vector<double> iterations;
        double starting_seconds = 0;
    };

    Call call_on(const Buffers& buffers, const Case& kind, Placement placement) const;
    Place place_of(const Case& kind) const;
    void refill(const Case& kind, const Pattern& pattern, const std::vector<Call>& calls) const;
    int64_t count_wrong(const Case& kind, const Pattern& pattern, const std::vector<Call>& calls) const;
    void start(const Case& kind, const std::vector<Call>& calls) const;
    void run_to_verify(const Case& kind, const std::vector<Call>& calls) const;
    Samples run_to_time(const Case& kind, const std::vector<Call>& calls, const std::string& what) const;
    Timing evaluate(const Case& kind, const Samples& samples) const;
    void combine(std::vector<double>& values, mpi::Reduction reduction) const;

    Backend& backend_;
    const mpi::Comm& world_;
    const RollCall& roll_;
    const Options& options_;
    std::vector<Buffers> buffers_;
};

}  // namespace argosy::bench
