// kernel_bandwidth: the bandwidth of lib/numerics/kernels/cuda at large sizes as a share of a copy's, as a
// Markdown table with one row per kernel; exits with 3 if a kernel stays under 85 %. Each kernel is first
// compared with the CPU's kernel at small sizes. The time is the median of several launches between events,
// on two sets of memory in turn, each several times the size of the cache. Beside each launch the device
// copies as many bytes within its own memory (cudaMemcpyAsync); half of these bytes are read and half are
// written.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/program.h"
#include "cuda/device.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "gpu/kernel_cases.h"

namespace argosy::kernels {
namespace {

constexpr double kMinPercent = 85;
constexpr int kWarmUps = 3, kLaunches = 21;

struct Sizes {
    int64_t elements;  // approximate elements of a tensor
    size_t set_bytes;
};
constexpr Sizes kLarge = {int64_t{1} << 27, size_t{3} << 30};
constexpr Sizes kSmall = {20'000, size_t{8} << 20};

/// Memory that host and device fill identically: multiples of one half, which the narrow types represent
/// exactly.
std::vector<std::byte> random_bytes(size_t size) {
    std::mt19937 engine(11);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> all(size / sizeof(uint16_t));
    for (uint16_t& bits : all) bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(normal(engine)) >> 16);
    std::vector<std::byte> bytes(size);
    std::memcpy(bytes.data(), all.data(), all.size() * sizeof(uint16_t));
    return bytes;
}

class Benchmark {
  public:
    explicit Benchmark(const Sizes& sizes)
        : sizes_(sizes), sets_{cuda::DeviceMemory(sizes.set_bytes), cuda::DeviceMemory(sizes.set_bytes)} {
        const auto period = random_bytes(kSmall.set_bytes);
        for (const auto& set : sets_) {
            for (size_t begin = 0; begin < set.bytes(); begin += period.size()) {
                const size_t count = std::min(period.size(), set.bytes() - begin);
                cuda::copy_to_device(set.data() + begin, std::span(period).first(count), stream_);
            }
        }
        stream_.synchronize();
    }

    /// Throws RunError if GPU and CPU differ by more than rounding.
    void compare(const Case& one);

    struct Speed {
        double bytes, kernel_seconds, copy_seconds;
        double percent() const { return copy_seconds / kernel_seconds * 100; }
    };
    Speed measure(const Case& one);

  private:
    Run prepare(const Case& one, int64_t elements, int set, Slices& slices) {
        Run run = one.build(slices, elements);
        for (const auto& ids : slices.ids()) {
            cuda::copy_to_device(sets_[set].data() + ids.offset, std::as_bytes(std::span(ids.values)),
                                 stream_);
        }
        stream_.synchronize();
        return run;
    }
    template <class Work>
    double seconds_of(const Work& work) {
        cuda::Event begin, end;
        begin.record(stream_);
        work();
        end.record(stream_);
        stream_.synchronize();
        return cuda::Event::seconds_between(begin, end);
    }

    Sizes sizes_;
    cuda::Stream stream_;
    cuda::DeviceMemory sets_[2];
};

void Benchmark::compare(const Case& one) {
    auto host = random_bytes(kSmall.set_bytes);
    Slices here(host.data(), host.size()), there(sets_[0].data(), host.size());
    const Run expected = one.build(here, kSmall.elements);
    for (const auto& ids : here.ids()) {
        std::memcpy(host.data() + ids.offset, ids.values.data(), ids.values.size() * sizeof(int64_t));
    }
    cuda::copy_to_device(sets_[0].data(), host, stream_);
    const Run found = prepare(one, kSmall.elements, 0, there);
    found.on_gpu(stream_.handle());
    expected.on_processor();
    std::vector<std::byte> results(host.size());
    cuda::copy_to_host(results, sets_[0].data(), stream_);
    stream_.synchronize();
    for (const auto& output : here.outputs()) {
        const double error =
            output.largest_error(results.data() + output.offset, host.data() + output.offset);
        if (!(error <= output.tolerance)) {
            throw RunError("{} of {} is wrong: results differ from the processor's by {}", one.kernel,
                           one.size, error);
        }
    }
}

Benchmark::Speed Benchmark::measure(const Case& one) {
    Slices slices[2] = {{sets_[0].data(), sizes_.set_bytes}, {sets_[1].data(), sizes_.set_bytes}};
    const Run runs[2] = {prepare(one, sizes_.elements, 0, slices[0]),
                         prepare(one, sizes_.elements, 1, slices[1])};
    const size_t half = slices[0].traffic_bytes() / 2;
    std::vector<double> kernels, copies;
    for (int i = 0; i < kWarmUps + kLaunches; ++i) {
        const int set = i % 2;
        const double copy = seconds_of([&] {
            cuda::copy_on_device(sets_[set].data(), sets_[1 - set].data(), std::min(half, sizes_.set_bytes),
                                 stream_);
        });
        const double kernel = seconds_of([&] { runs[set].on_gpu(stream_.handle()); });
        if (i >= kWarmUps) kernels.push_back(kernel), copies.push_back(copy);
    }
    std::sort(kernels.begin(), kernels.end()), std::sort(copies.begin(), copies.end());
    return {static_cast<double>(2 * half), kernels[kLaunches / 2], copies[kLaunches / 2]};
}

ExitCode measure_all(int device, bool quick) {
    if (cuda::device_count() == 0) throw RunError("there is no GPU here");
    cuda::set_device(device);
    Benchmark benchmark(quick ? kSmall : kLarge);
    fmt::print("{}, kernels beside a copy of as many bytes\n\n", cuda::describe_device(device).name);
    fmt::print(
        "| kernel | size | MB | GB/s | copy GB/s | percent |\n| --- | --- | --- | --- | --- | --- |\n");
    int num_slow = 0;
    for (const Case& one : all_cases()) {
        benchmark.compare(one);
        const auto speed = benchmark.measure(one);
        if (speed.percent() < kMinPercent) ++num_slow;
        fmt::print("| {} | {} | {:.0f} | {:.0f} | {:.0f} | {:.1f} |\n", one.kernel, one.size,
                   speed.bytes / 1e6, speed.bytes / speed.kernel_seconds / 1e9,
                   speed.bytes / speed.copy_seconds / 1e9, speed.percent());
        std::fflush(stdout);
    }
    if (quick || num_slow == 0) return ExitCode::Done;
    fmt::print("\n{} under {} %\n", num_slow, kMinPercent);
    return ExitCode::CheckFailed;
}

int run(int argc, char** argv) {
    int device = 0;
    bool quick = false;
    CLI::App app{
        "What kernels reach of a copy's bandwidth, as a table; exits with 3 where one is under 85 %."};
    app.add_option("--device", device, "the GPU's number");
    app.add_flag("--quick", quick, "small sizes and no demand, to see that it works");
    CLI11_PARSE(app, argc, argv);
    return run_program("kernel_bandwidth", [&] { return measure_all(device, quick); });
}

}  // namespace
}  // namespace argosy::kernels

int main(int argc, char** argv) { return argosy::kernels::run(argc, argv); }
