#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/median.h"
#include "base/units.h"

namespace argosy::bench {
namespace {

constexpr size_t kBlockBytes = 256 << 10;  // buffers are filled and compared in blocks of this size
constexpr size_t kAlignmentBytes = 16;     // of chunks and of shifted operations

/// Calls visit(index of the first element, number of bytes) for each block of a chunk.
template <class Visit>
void for_each_block(const Case& kind, Visit visit) {
    const size_t bytes = size_bytes(kind.type);
    const size_t max_elements = kBlockBytes / bytes;
    for (size_t first = 0; first < kind.chunk_elements; first += max_elements) {
        visit(first, std::min(max_elements, kind.chunk_elements - first) * bytes);
    }
}

std::string name_of(const Case& kind) {
    return fmt::format("{} of {} bytes ({})", kind.collective->name, kind.bytes, name(kind.type));
}

/// Whether a rank's buffer has a chunk for each rank.
bool is_chunked(const Collective& collective) {
    const Chunks of_two = collective.chunks(2);
    return std::max(of_two.input, of_two.output) == 2;
}

size_t chunk_bytes(const Case& kind) { return kind.chunk_elements * size_bytes(kind.type); }

/// The distance between the places at which the iterations take turns.
size_t shift_bytes(const Case& kind) { return round_up(kind.bytes, kAlignmentBytes); }

int64_t count_different(std::span<const std::byte> wanted, std::span<const std::byte> found,
                        ElementType type) {
    if (std::memcmp(wanted.data(), found.data(), wanted.size()) == 0) return 0;
    const size_t bytes = size_bytes(type);
    int64_t different = 0;
    for (size_t at = 0; at < wanted.size(); at += bytes)
        different += std::memcmp(&wanted[at], &found[at], bytes) != 0;
    return different;
}

}  // namespace

std::optional<Case> case_of(const Case& kind, size_t bytes, int num_ranks) {
    const Chunks chunks = kind.collective->chunks(num_ranks);
    const auto num_chunks = static_cast<size_t>(std::max(chunks.input, chunks.output));
    Case result = kind;
    result.chunk_elements = bytes / size_bytes(kind.type) / num_chunks;
    const size_t aligned = kAlignmentBytes / size_bytes(kind.type);
    if (is_chunked(*kind.collective) && result.chunk_elements > aligned)
        result.chunk_elements -= result.chunk_elements % aligned;
    result.bytes = result.chunk_elements * num_chunks * size_bytes(kind.type);
    if (result.chunk_elements == 0) return std::nullopt;
    return result;
}

Measurement::Measurement(Backend& backend, const mpi::Comm& world, const ControlChannel& control,
                         const Options& options, size_t max_bytes)
    : backend_(backend),
      world_(world),
      control_(control),
      options_(options),
      max_bytes_(max_bytes),
      input_(backend.allocate(max_bytes)),
      output_(backend.allocate(max_bytes)) {}

GroupPosition Measurement::position_of(const Case& kind) const {
    return {backend_.rank(), backend_.size(), kind.root, backend_.result_at_start()};
}

/// The number of places in the buffers at which the iterations take turns.
size_t Measurement::num_shifts(const Case& kind) const {
    const size_t room = (max_bytes_ - kind.bytes) / shift_bytes(kind) + 1;
    return std::min(room, static_cast<size_t>(options_.iterations));
}

std::vector<Call> Measurement::calls_of(const Case& kind, Placement placement) const {
    std::vector<Call> calls;
    for (size_t i = 0; i < num_shifts(kind); ++i)
        calls.push_back(call_at(i * shift_bytes(kind), kind, placement));
    return calls;
}

Call Measurement::call_at(size_t shift, const Case& kind, Placement placement) const {
    const bool in_place = placement == Placement::InPlace;
    const Chunks offsets = in_place ? kind.collective->in_place(position_of(kind)) : Chunks{0, 0};
    std::byte* const output = output_.get() + shift;
    std::byte* const input = in_place ? output : input_.get() + shift;
    return {.in = input + static_cast<size_t>(offsets.input) * chunk_bytes(kind),
            .out = output + static_cast<size_t>(offsets.output) * chunk_bytes(kind),
            .count = kind.chunk_elements,
            .type = kind.type,
            .reduction = kind.reduction.value_or(Reduction::Sum),
            .root = kind.root};
}

/// Fills the output before the input, because in place the input overlaps the output.
void Measurement::refill(const Case& kind, const Pattern& pattern, const Call& call) const {
    const Chunks chunks = kind.collective->chunks(backend_.size());
    const GroupPosition position = position_of(kind);
    std::vector<std::byte> block(kBlockBytes);
    const auto fill = [&](std::byte* buffer, int chunk, const Part& part, bool complement) {
        for_each_block(kind, [&](size_t first, size_t bytes) {
            const std::span elements = std::span(block).first(bytes);
            pattern.fill(part, kind.chunk_elements, first, elements);
            if (complement) {
                std::ranges::transform(elements, elements.begin(), [](std::byte byte) { return ~byte; });
            }
            backend_.write(
                buffer + static_cast<size_t>(chunk) * chunk_bytes(kind) + first * size_bytes(kind.type),
                elements);
        });
    };
    for (int chunk = 0; chunk < chunks.output; ++chunk) {
        const auto part = kind.collective->expected(position, chunk);
        if (part) fill(call.out, chunk, *part, /*complement=*/true);
    }
    for (int chunk = 0; chunk < chunks.input; ++chunk) {
        const auto part = kind.collective->input(position, chunk);
        if (part) fill(const_cast<std::byte*>(call.in), chunk, *part, /*complement=*/false);
    }
}

int64_t Measurement::count_wrong(const Case& kind, const Pattern& pattern, const Call& call) const {
    const GroupPosition position = position_of(kind);
    std::vector<std::byte> wanted(kBlockBytes), found(kBlockBytes);
    int64_t wrong = 0;
    for (int chunk = 0; chunk < kind.collective->chunks(position.size).output; ++chunk) {
        const auto part = kind.collective->expected(position, chunk);
        if (!part) continue;
        const std::byte* const start = call.out + static_cast<size_t>(chunk) * chunk_bytes(kind);
        for_each_block(kind, [&](size_t first, size_t bytes) {
            const std::span left = std::span(wanted).first(bytes), right = std::span(found).first(bytes);
            pattern.fill(*part, kind.chunk_elements, first, left);
            backend_.read(right, start + first * size_bytes(kind.type));
            wrong += count_different(left, right, kind.type);
        });
    }
    return wrong;
}

Measurement::Samples Measurement::run_to_time(const Case& kind, const std::vector<Call>& calls,
                                              const std::string& what) const {
    for (int i = 0; i < options_.warmup; ++i) {
        kind.collective->run(backend_, calls[i % calls.size()]);
        backend_.wait();
    }
    Samples samples;
    control_.barrier(what);
    const double begun = seconds_now();
    backend_.start_clock();
    for (int i = 0; i < options_.iterations; ++i) {
        kind.collective->run(backend_, calls[i % calls.size()]);
        backend_.end_iteration();
    }
    samples.iterations = backend_.iteration_seconds();
    samples.seconds = seconds_now() - begun;
    return samples;
}

void Measurement::combine(std::span<double> values, Reduction reduction) const {
    control_.wait(
        world_.all_reduce(values.data(), values.data(), values.size(), ElementType::Float64, reduction),
        "the reduction of the ranks' times");
}

Timing Measurement::evaluate(const Case& kind, const Samples& samples) const {
    const double own = samples.seconds / options_.iterations;
    Timing timing{.seconds = own, .own_seconds = lower_median(samples.iterations)};
    combine({&timing.seconds, 1}, Reduction::Sum);
    timing.seconds /= world_.size();

    std::vector<double> single = samples.iterations;
    combine(single, Reduction::Max);
    timing.slowest = distribution_of(single);
    timing.algorithm_bandwidth = timing.seconds > 0 ? static_cast<double>(kind.bytes) / timing.seconds : 0;
    timing.bus_bandwidth = timing.algorithm_bandwidth * kind.collective->bus_factor(backend_.size());
    return timing;
}

void Measurement::connect(const Case& kind) {
    try {
        kind.collective->run(backend_, call_at(0, kind, Placement::OutOfPlace));
        backend_.wait();
    } catch (const WaitTimeout&) {
        throw control_.timeout_error("connecting ranks for " + name_of(kind));
    }
}

Timing Measurement::measure(const Case& kind, Placement placement) {
    const std::string what = name_of(kind);
    const Pattern pattern(kind.type, kind.reduction, backend_.size());
    const std::vector<Call> calls = calls_of(kind, placement);
    try {
        int64_t wrong = 0;
        for (int i = 0; i < options_.checks; ++i) {
            refill(kind, pattern, calls.front());
            control_.barrier(what);
            kind.collective->run(backend_, calls.front());
            backend_.wait();
            wrong += count_wrong(kind, pattern, calls.front());
        }
        for (size_t i = options_.checks == 0 ? 0 : 1; i < calls.size(); ++i) refill(kind, pattern, calls[i]);
        const Samples samples = run_to_time(kind, calls, what);
        if (options_.checks > 0 && placement == Placement::OutOfPlace) {
            for (const Call& call : calls) wrong += count_wrong(kind, pattern, call);
        }
        Timing timing = evaluate(kind, samples);
        timing.own_wrong = wrong;
        auto sum = static_cast<double>(wrong);
        combine({&sum, 1}, Reduction::Sum);
        if (options_.checks > 0) timing.num_wrong = static_cast<int64_t>(sum);
        return timing;
    } catch (const WaitTimeout&) {
        throw control_.timeout_error(what);
    }
}

Beside Measurement::measure_beside(const Case& kind, const Timing& alone, Products& products) {
    constexpr double kSeconds = 0.2, kMaxRounds = 1000;  // the same number of rounds on all ranks
    const auto rounds = static_cast<int>(
        std::clamp(std::ceil(kSeconds / (options_.iterations * alone.seconds)), 1.0, kMaxRounds));
    const std::string what = name_of(kind) + " beside products";
    const std::vector<Call> calls = calls_of(kind, Placement::OutOfPlace);
    Beside beside;
    try {
        control_.barrier(what);
        products.start();
        std::this_thread::sleep_for(std::chrono::duration<double>(kSeconds));
        beside.product_alone = products.stop();
        control_.barrier(what);
        products.start();
        for (int round = 0; round < rounds; ++round)
            beside.seconds += run_to_time(kind, calls, what).seconds / (rounds * options_.iterations);
        beside.product = products.stop();
    } catch (const WaitTimeout&) {
        throw control_.timeout_error(what);
    }
    double sums[] = {beside.seconds, beside.product_alone, beside.product};
    combine(sums, Reduction::Sum);
    for (double& sum : sums) sum /= world_.size();
    return {sums[0], sums[1], sums[2]};
}

Distribution distribution_of(std::span<const double> times) {
    ARGOSY_CHECK(!times.empty());
    std::vector<double> sorted(times.begin(), times.end());
    std::ranges::sort(sorted);
    const auto count = static_cast<double>(sorted.size());
    const auto percentile = [&](size_t percent) { return sorted[(sorted.size() * percent + 99) / 100 - 1]; };
    Distribution result{.min = sorted.front(),
                        .max = sorted.back(),
                        .mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / count,
                        .p50 = percentile(50),
                        .p99 = percentile(99)};
    double squares = 0;
    for (const double time : sorted) squares += (time - result.mean) * (time - result.mean);
    result.deviation = std::sqrt(squares / count);
    return result;
}

}  // namespace argosy::bench
