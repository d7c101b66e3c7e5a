// The floor of a training step: the time of its matrix products alone, through the functions that the model
// calls, with separate weights for each layer. A pass has the products of one step of one rank: forward,
// input gradient and weight gradient of each linear layer and, in chunks of rows, of the head. Outputs are in
// warm memory: malloc keeps the memory that a pass frees for the next one. Measures the processor's peak
// first. Prints one JSON line.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/clock.h"
#include "model/head.h"
#include "observe/memory.h"
#include "ops/matmul.h"
#include "ops/ops_context.h"
#include "processor_peak.h"

namespace argosy::ops {
namespace {

struct Options {
    int64_t dim = 512, layers = 6, hidden = 1344, vocab = 8192, tokens = 2048;
    std::string dtype = "bf16";
    double seconds = 2;

    at::ScalarType type() const { return dtype == "bf16" ? at::kBFloat16 : at::kFloat; }
};

struct Linear {
    at::Tensor weight;    // [out, in]
    at::Tensor gradient;  // also float32
};

Linear make_linear(int64_t num_out, int64_t num_in, at::ScalarType type) {
    return {at::randn({num_out, num_in}).to(type), at::empty({num_out, num_in}, at::kFloat)};
}

/// y, dx and dW of one layer; the first product of a sum overwrites, later ones add, as in a step.
void multiply(Linear& linear_layer, const at::Tensor& x, const at::Tensor& dy, bool accumulate) {
    linear(x, linear_layer.weight);
    linear_input_gradient(dy, linear_layer.weight);
    linear_weight_gradient(linear_layer.gradient, dy, x, accumulate);
}

class Step {
  public:
    explicit Step(const Options& options)
        : options_(options),
          narrow_(at::randn({options.tokens, options.dim}).to(options.type())),
          wide_(at::randn({options.tokens, options.hidden}).to(options.type())),
          logits_(at::randn({model::Head::rows_per_chunk(options.tokens, options.vocab, at::Tensor()),
                             options.vocab})
                      .to(options.type())),
          head_(make_linear(options.vocab, options.dim, options.type())) {
        for (int64_t layer = 0; layer < options.layers; ++layer) {
            for (int i = 0; i < 4; ++i)
                square_.push_back(make_linear(options.dim, options.dim, options.type()));
            for (int i = 0; i < 2; ++i)
                up_.push_back(make_linear(options.hidden, options.dim, options.type()));
            down_.push_back(make_linear(options.dim, options.hidden, options.type()));
        }
    }

    void run() {
        for (int64_t layer = 0; layer < options_.layers; ++layer) {
            for (int i = 0; i < 4; ++i) multiply(square_[4 * layer + i], narrow_, narrow_, false);
            for (int i = 0; i < 2; ++i) multiply(up_[2 * layer + i], narrow_, wide_, false);
            multiply(down_[layer], wide_, narrow_, false);
        }
        for (int64_t row = 0; row < options_.tokens; row += logits_.size(0)) {
            const int64_t count = std::min(logits_.size(0), options_.tokens - row);
            multiply(head_, narrow_.narrow(0, row, count), logits_.narrow(0, 0, count), row > 0);
        }
    }

    double flops() const {
        const double layer = 4.0 * options_.dim * options_.dim + 3.0 * options_.dim * options_.hidden;
        return 6.0 * options_.tokens * (options_.layers * layer + 1.0 * options_.vocab * options_.dim);
    }

    /// The largest error of y, dx and dW at one element each of the first layer, against sums in float64, in
    /// standard deviations of such a sum. Wrong results are not worth timing.
    double error() const {
        const Linear& layer = up_[0];
        at::Tensor gradient = at::empty_like(layer.gradient);
        linear_weight_gradient(gradient, wide_, narrow_, false);
        const auto off = [](const at::Tensor& found, const at::Tensor& a, const at::Tensor& b) {
            const double right = a.to(at::kDouble).dot(b.to(at::kDouble)).item<double>();
            return std::abs(found.item<double>() - right) / std::sqrt(static_cast<double>(a.size(0)));
        };
        return std::max({off(linear(narrow_, layer.weight)[1][2], narrow_[1], layer.weight[2]),
                         off(linear_input_gradient(wide_, layer.weight)[1][2], wide_[1], layer.weight.t()[2]),
                         off(gradient[1][2], wide_.t()[1], narrow_.t()[2])});
    }

  private:
    const Options options_;
    const at::Tensor narrow_, wide_, logits_;  // x and dy of every layer
    std::vector<Linear> square_, up_, down_;
    Linear head_;
};

/// Seconds of each pass, without the first one, which warms up: for `seconds`, at least three passes.
std::vector<double> time_passes(Step& step, double seconds) {
    step.run();
    std::vector<double> passes;
    for (const double end = seconds_now() + seconds; passes.size() < 3 || seconds_now() < end;) {
        const double start = seconds_now();
        step.run();
        passes.push_back(seconds_now() - start);
    }
    std::sort(passes.begin(), passes.end());
    return passes;
}

/// {"instructions": GFLOP/s, ...} of the loops that can multiply the type.
std::string peaks_in_json(const Options& options) {
    constexpr double kSecondsOfLoop = 0.3;
    std::string text;
    for (const speed::Peak& peak : speed::measure_peaks(at::get_num_threads(), kSecondsOfLoop)) {
        if (!peak.for_fp32 && options.dtype == "fp32") continue;
        text += fmt::format("{}\"{}\": {:.4g}", text.empty() ? "" : ", ", peak.instructions, peak.gflops);
    }
    return "{" + text + "}";
}

int run(int argc, char** argv) {
    Options options;
    CLI::App app{"The matrix products of a training step, without the rest of it."};
    app.add_option("--dim", options.dim);
    app.add_option("--layers", options.layers);
    app.add_option("--hidden", options.hidden);
    app.add_option("--vocab", options.vocab);
    app.add_option("--tokens", options.tokens, "of one rank and step");
    app.add_option("--dtype", options.dtype)->check(CLI::IsMember({"bf16", "fp32"}));
    app.add_option("--seconds", options.seconds, "how long to measure");
    CLI11_PARSE(app, argc, argv);

    observe::MemoryMeter::install();
    const OpsContext tensors;
    Step step(options);
    const double error = step.error(), tolerance = options.dtype == "bf16" ? 0.05 : 1e-4;
    if (!(error < tolerance)) {
        fmt::print(stderr, "bench_products: a product is off by {:.3g}, more than {:.3g}\n", error,
                   tolerance);
        return 1;
    }
    const std::string peaks = peaks_in_json(options);
    const auto passes = time_passes(step, options.seconds);
    fmt::print(
        "{{\"best_seconds\": {}, \"median_seconds\": {}, \"passes\": {}, \"gflops\": {}, \"threads\": {}, "
        "\"peaks\": {}}}\n",
        passes.front(), passes[passes.size() / 2], passes.size(), step.flops() / passes.front() / 1e9,
        at::get_num_threads(), peaks);
    return 0;
}

}  // namespace
}  // namespace argosy::ops

int main(int argc, char** argv) { return argosy::ops::run(argc, argv); }
