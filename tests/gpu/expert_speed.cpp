// expert_speed: TFLOP/s of products of groups of rows, each group with the matrix of its expert
// (ops/grouped.h), on a GPU in bf16, beside one product of as many rows with one matrix, as a Markdown table.
// "Uneven" groups have 0, 1/2, 1 and 5/2 times as many rows in turn. Each product is checked first: the rows
// of the last group against the product of its matrix alone. Times are the host's, of many launches.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/program.h"
#include "cuda/device.h"
#include "gpu/device.h"
#include "ops/grouped.h"
#include "ops/matmul.h"
#include "ops/ops_context.h"

namespace argosy::ops {
namespace {

struct Sizes {
    int64_t num_experts, in, out, rows;  // rows of an expert
};

enum class Pass { Forward, InputGradient, WeightGradient };
constexpr Pass kPasses[] = {Pass::Forward, Pass::InputGradient, Pass::WeightGradient};
const char* name(Pass pass) {
    constexpr const char* kNames[] = {"forward", "input gradient", "weight gradient"};
    return kNames[static_cast<int>(pass)];
}

std::vector<int64_t> counts_of(const Sizes& sizes, bool even) {
    std::vector<int64_t> counts(sizes.num_experts, sizes.rows);
    for (int64_t i = 0; !even && i + 3 < sizes.num_experts; i += 4) {
        counts[i] = 0;
        counts[i + 1] = sizes.rows / 2;
        counts[i + 3] = 3 * sizes.rows - sizes.rows / 2;
    }
    return counts;
}

/// The operands of a layer's products; dx and dW take the place of x and the weights.
class Products {
  public:
    Products(const Sizes& sizes, c10::Device device)
        : sizes_(sizes),
          x_(at::randn({sizes.num_experts * sizes.rows, sizes.in},
                       at::TensorOptions(device).dtype(at::kBFloat16))),
          dy_(at::randn({x_.size(0), sizes.out}, x_.options())),
          weights_(at::randn({sizes.num_experts, sizes.out, sizes.in}, x_.options())),
          sums_(at::zeros(weights_.sizes(), x_.options().dtype(at::kFloat))) {}

    void run_groups(Pass pass, const at::Tensor& counts) const {
        if (pass == Pass::Forward) grouped_linear(x_, weights_, counts);
        if (pass == Pass::InputGradient) grouped_input_gradient(dy_, weights_, counts);
        if (pass == Pass::WeightGradient)
            grouped_weight_gradient(sums_, dy_, x_, counts, /*accumulate=*/true);
    }
    /// The product with one matrix, of the first `num_rows` rows, or of the last.
    void run_one(Pass pass) const { one(pass, x_, dy_, weights_[0], sums_[0]); }

    /// Throws RunError if the last group's result is not that of its matrix alone.
    void check(Pass pass, const std::vector<int64_t>& counts) const {
        const int64_t num_rows = counts.back(), first = x_.size(0) - num_rows;
        const at::Tensor on_device = at::tensor(counts, at::kLong).to(x_.device());
        const at::Tensor sum = at::zeros(sums_[0].sizes(), sums_.options());
        const at::Tensor right = one(pass, x_.narrow(0, first, num_rows), dy_.narrow(0, first, num_rows),
                                     weights_[sizes_.num_experts - 1], sum);
        at::Tensor found;
        if (pass == Pass::Forward) found = grouped_linear(x_, weights_, on_device).narrow(0, first, num_rows);
        if (pass == Pass::InputGradient)
            found = grouped_input_gradient(dy_, weights_, on_device).narrow(0, first, num_rows);
        if (pass == Pass::WeightGradient) {
            grouped_weight_gradient(sums_, dy_, x_, on_device, /*accumulate=*/false);
            found = sums_[sizes_.num_experts - 1];
        }
        const at::Tensor wide = right.to(at::kFloat);
        const double error = (found.to(at::kFloat) - wide).abs().max().item<double>() /
                             std::max(1e-9, wide.abs().max().item<double>());
        if (!(error <= 1.0 / 64)) throw RunError("products of {} are wrong by {}", name(pass), error);
    }

    double flops() const { return 2.0 * x_.size(0) * sizes_.in * sizes_.out; }

  private:
    static at::Tensor one(Pass pass, const at::Tensor& x, const at::Tensor& dy, const at::Tensor& weight,
                          at::Tensor sum) {
        if (pass == Pass::Forward) return linear(x, weight);
        if (pass == Pass::InputGradient) return linear_input_gradient(dy, weight);
        linear_weight_gradient(sum, dy, x, /*accumulate=*/true);
        return sum;
    }

    const Sizes sizes_;
    const at::Tensor x_, dy_, weights_, sums_;
};

/// The median of five measurements, after a warm-up.
double seconds_of(const std::function<void()>& run, double seconds) {
    const auto measure = [&](int launches) {
        gpu::synchronize();
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < launches; ++i) run();
        gpu::synchronize();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / launches;
    };
    const double estimate = std::max((measure(3), measure(3)), 1e-7);
    std::vector<double> all;
    for (int i = 0; i < 5; ++i)
        all.push_back(measure(std::clamp(static_cast<int>(seconds / estimate), 1, 10'000)));
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

void measure(const Sizes& sizes, c10::Device device, double seconds) {
    const Products products(sizes, device);
    for (const Pass pass : kPasses) {
        const auto rate = [&](const std::function<void()>& run) {
            return products.flops() / seconds_of(run, seconds) / 1e12;
        };
        std::vector<double> of_groups;
        for (const bool even : {true, false}) {
            const std::vector<int64_t> counts = counts_of(sizes, even);
            products.check(pass, counts);
            const at::Tensor on_device = at::tensor(counts, at::kLong).to(device);
            of_groups.push_back(rate([&] { products.run_groups(pass, on_device); }));
        }
        const double one = rate([&] { products.run_one(pass); });
        fmt::print("| {} | {} | {} x {} | {} | {:.4g} | {:.4g} | {:.0f} | {:.4g} | {:.0f} |\n",
                   sizes.num_experts, sizes.rows, sizes.out, sizes.in, name(pass), one, of_groups[0],
                   100 * of_groups[0] / one, of_groups[1], 100 * of_groups[1] / one);
        std::fflush(stdout);
    }
}

ExitCode measure_all(int device_number, bool quick) {
    if (cuda::device_count() == 0) throw RunError("there is no GPU here");
    const c10::Device device = gpu::use(device_number);
    const OpsContext context;
    fmt::print("{}, bf16, weight gradients added to fp32; TFLOP/s, and percent of one product's\n\n",
               cuda::describe_device(device_number).name);
    fmt::print(
        "| experts | rows of each | out x in | pass | one product | groups | % | uneven | % |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    if (quick) {
        measure({4, 24, 40, 6}, device, 1e-4);
        return ExitCode::Done;
    }
    // Gate and up of Mixtral 8x7B, and of Qwen3 30B-A3B.
    for (const int64_t rows : {64, 256, 1024, 4096}) {
        measure({8, 4096, 28672, rows}, device, 0.03);
        measure({128, 2048, 1536, rows}, device, 0.03);
    }
    return ExitCode::Done;
}

int run(int argc, char** argv) {
    int device = 0;
    bool quick = false;
    CLI::App app{"TFLOP/s of the products of experts beside one product of as many rows, as a table."};
    app.add_option("--device", device, "the GPU's number");
    app.add_flag("--quick", quick, "a tiny layer, to see that it works");
    CLI11_PARSE(app, argc, argv);
    return run_program("expert_speed", [&] { return measure_all(device, quick); });
}

}  // namespace
}  // namespace argosy::ops

int main(int argc, char** argv) { return argosy::ops::run(argc, argv); }
