// attention_speed: TFLOP/s of attention within documents, windows and parts of sequences on a GPU in bf16, by
// FlashAttention and by cuDNN (gpu/cudnn.h), as a Markdown table. Only visible pairs of a query and a key
// count; a backward pass counts 2.5 times. cuDNN's results are compared with FlashAttention's first, of which
// the column "difference" has the largest, relative to the largest element. Times are the host's, of many
// launches.
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/program.h"
#include "cuda/device.h"
#include "gpu/cudnn.h"
#include "gpu/device.h"

namespace argosy::gpu {
namespace {

struct Case {
    const char* name;
    int64_t heads, kv_heads, head_dim;
    std::vector<int32_t> query_ends, key_ends;  // of segments
    std::optional<int64_t> window = {};
};

/// Offsets of `count` segments, of which every second is `ratio` times as long as the others.
std::vector<int32_t> ends(int32_t tokens, int32_t count, int32_t ratio = 1) {
    std::vector<int32_t> made = {0};
    const int32_t unit = tokens / (count / 2 * (1 + ratio));
    for (int32_t i = 1; i < count; ++i) made.push_back(made.back() + (i % 2 == 1 ? unit : ratio * unit));
    made.push_back(tokens);
    return made;
}

double visible_pairs(const Case& one) {
    double pairs = 0;
    for (size_t i = 1; i < one.query_ends.size(); ++i) {
        const int64_t queries = one.query_ends[i] - one.query_ends[i - 1],
                      keys = one.key_ends[i] - one.key_ends[i - 1];
        for (int64_t query = 0; query < queries; ++query) {
            const int64_t seen = std::max<int64_t>(0, keys - queries + query + 1);
            pairs += static_cast<double>(one.window ? std::min(seen, *one.window) : seen);
        }
    }
    return pairs;
}

struct Results {
    Attention forward;
    AttentionGradient gradient;
};

class Calls {
  public:
    Calls(const Case& one, c10::Device device)
        : q_(random(one.query_ends.back(), one.heads, one, device)),
          k_(random(one.key_ends.back(), one.kv_heads, one, device)),
          v_(random(one.key_ends.back(), one.kv_heads, one, device)),
          dy_(random(one.query_ends.back(), one.heads, one, device)),
          visible_{.window = one.window,
                   .query_offsets = at::tensor(one.query_ends, at::kInt).to(device),
                   .key_offsets = at::tensor(one.key_ends, at::kInt).to(device)} {}

    Attention forward() const { return masked_attention(q_, k_, v_, visible_); }
    AttentionGradient backward(const Attention& forward) const {
        return masked_attention_backward(dy_, q_, k_, v_, forward, visible_);
    }

  private:
    static at::Tensor random(int64_t tokens, int64_t heads, const Case& one, c10::Device device) {
        return at::randn({1, tokens, heads, one.head_dim}, at::TensorOptions(device).dtype(at::kBFloat16));
    }
    at::Tensor q_, k_, v_, dy_;
    VisibleKeys visible_;
};

double difference(const Results& a, const Results& b) {
    double largest = 0;
    const auto compare = [&](const at::Tensor& x, const at::Tensor& y) {
        const at::Tensor wide = y.to(at::kFloat);
        const double error = (x.to(at::kFloat) - wide).abs().max().item<double>() /
                             std::max(1e-9, wide.abs().max().item<double>());
        largest = std::isfinite(error) ? std::max(largest, error) : std::numeric_limits<double>::infinity();
    };
    compare(a.forward.y, b.forward.y);
    compare(a.forward.log_sum_exp, b.forward.log_sum_exp);
    compare(a.gradient.dq, b.gradient.dq);
    compare(a.gradient.dk, b.gradient.dk);
    compare(a.gradient.dv, b.gradient.dv);
    return largest;
}

/// The median of five measurements, after a warm-up.
double seconds_of(const std::function<void()>& run, double seconds) {
    const auto measure = [&](int launches) {
        synchronize();
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < launches; ++i) run();
        synchronize();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / launches;
    };
    const double estimate = std::max((measure(3), measure(3)), 1e-7);
    std::vector<double> all;
    for (int i = 0; i < 5; ++i)
        all.push_back(measure(std::clamp(static_cast<int>(seconds / estimate), 1, 10'000)));
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

void measure(const Case& one, c10::Device device, double seconds) {
    constexpr double kTolerance = 1.0 / 32, kBackward = 2.5;
    const Calls calls(one, device);
    const double flops =
        4 * visible_pairs(one) * static_cast<double>(one.heads) * static_cast<double>(one.head_dim);
    std::vector<Results> results;
    std::vector<double> rates;
    for (const bool by_cudnn : {false, true}) {
        prefer_cudnn(by_cudnn);
        const Attention forward = calls.forward();
        results.push_back({forward, calls.backward(forward)});
        rates.push_back(flops / seconds_of([&] { calls.forward(); }, seconds) / 1e12);
        rates.push_back(kBackward * flops / seconds_of([&] { calls.backward(forward); }, seconds) / 1e12);
    }
    const double worst = difference(results[1], results[0]);
    fmt::print("| {} | {}/{} of {} | {:.3g} | {:.3g} | {:.3g} | {:.3g} | {:.1g} |\n", one.name, one.heads,
               one.kv_heads, one.head_dim, rates[0], rates[2], rates[1], rates[3], worst);
    std::fflush(stdout);
    if (!(worst <= kTolerance)) throw RunError("{}: cuDNN differs by {}", one.name, worst);
}

ExitCode measure_all(int device_number, bool quick) {
    if (cuda::device_count() == 0) throw RunError("there is no GPU here");
    const c10::Device device = use(device_number);
    fmt::print("{}, bf16; TFLOP/s\n\n", cuda::describe_device(device_number).name);
    fmt::print(
        "| attention | heads | forward, Flash | forward, cuDNN | backward, Flash | backward, cuDNN | "
        "difference "
        "|\n| --- | --- | --- | --- | --- | --- | --- |\n");
    if (quick) {
        measure({"documents", 4, 2, 16, ends(24, 4, 3), ends(24, 4, 3)}, device, 1e-4);
        measure({"a part, in a window", 4, 2, 16, {0, 6}, {0, 24}, 5}, device, 1e-4);
        return ExitCode::Done;
    }
    measure({"8 documents of 1,024", 32, 8, 128, ends(8192, 8), ends(8192, 8)}, device, 0.05);
    measure({"8 documents, 1 to 7", 32, 8, 128, ends(8192, 8, 7), ends(8192, 8, 7)}, device, 0.05);
    measure({"128 documents of 64", 32, 8, 128, ends(8192, 128), ends(8192, 128)}, device, 0.05);
    measure({"a rank's last part of 32,768", 32, 8, 128, {0, 4096}, {0, 32768}}, device, 0.05);
    measure({"a rank's middle part of 32,768", 32, 8, 128, {0, 4096}, {0, 16384}}, device, 0.05);
    measure({"a window of 1,024 in 8,192", 32, 8, 128, {0, 8192}, {0, 8192}, 1024}, device, 0.05);
    measure({"8 documents of 1,024", 14, 2, 64, ends(8192, 8), ends(8192, 8)}, device, 0.05);
    return ExitCode::Done;
}

int run(int argc, char** argv) {
    int device = 0;
    bool quick = false;
    CLI::App app{"TFLOP/s of attention by FlashAttention and by cuDNN, as a table."};
    app.add_option("--device", device, "the GPU's number");
    app.add_flag("--quick", quick, "tiny sizes, to see that it works");
    CLI11_PARSE(app, argc, argv);
    return run_program("attention_speed", [&] { return measure_all(device, quick); });
}

}  // namespace
}  // namespace argosy::gpu

int main(int argc, char** argv) { return argosy::gpu::run(argc, argv); }
