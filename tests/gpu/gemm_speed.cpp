// gemm_speed: TFLOP/s of the matrix products of linear layers on a GPU, in bf16, and in float8 (E4M3) with a
// scale for each matrix, each line, or blocks of 128 terms (of weights squares), as a Markdown table with one
// row per product. Every product is checked before it is timed: some elements are compared with sums in fp64.
// The results are those of training: bf16, and weight gradients accumulated in fp32. Casts are not timed.
//
// --held measures the products in bf16 while a kernel holds some multiprocessors, as NCCL's collectives do:
// with the algorithm of a free GPU, and with the one that cuBLASLt chooses for the multiprocessors that are
// left.
//
// --finalists N measures each product in bf16 with the first N algorithms of cuBLASLt's heuristic on a hot
// GPU: the heuristic's own choice runs first, without being measured; then all run in turn, twice. A GPU at
// its power limit may run the algorithm slower that is faster in a short burst. Training takes the
// heuristic's choice; the last lines say what the best ones would save of a microbatch's products.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/element_type.h"
#include "base/program.h"
#include "cublas/matmul.h"
#include "cuda/device.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "gpu/energy.h"
#include "gpu/hold.h"

namespace argosy::cublas {
namespace {

struct Linear {
    std::string model, name;
    int64_t in, out;
    bool bias = false;
    int64_t most_tokens = 1 << 30;  // the head computes its logits in chunks
    int64_t times = 1;              // of a microbatch
};

struct Model {
    std::string name;
    int64_t dim, key_dim, hidden, vocab;
    bool bias;  // biases of queries, keys and values
    int64_t layers;
};

constexpr int64_t kHeadTokens = 5632;  // of 16384 in three chunks: model/head.cpp

/// Products as a layer runs them: one for q, k and v, one for gate and up.
std::vector<Linear> linears_of(const Model& model, int64_t tokens) {
    constexpr int64_t kAll = 1 << 30;
    const int64_t layers = model.layers, chunks = (tokens + kHeadTokens - 1) / kHeadTokens;
    return {{model.name, "q, k, v", model.dim, model.dim + 2 * model.key_dim, model.bias, kAll, layers},
            {model.name, "o", model.dim, model.dim, false, kAll, layers},
            {model.name, "gate, up", model.dim, 2 * model.hidden, false, kAll, layers},
            {model.name, "down", model.hidden, model.dim, false, kAll, layers},
            {model.name, "head", model.dim, model.vocab, false, kHeadTokens, chunks}};
}

const std::vector<Model> kModels = {{"Qwen2.5-0.5B", 896, 128, 4864, 151936, true, 24},
                                    {"Qwen2.5-1.5B", 1536, 256, 8960, 151936, true, 28},
                                    {"Qwen2.5-3B", 2048, 256, 11008, 151936, true, 36},
                                    {"Qwen2.5-7B", 3584, 512, 18944, 152064, true, 28},
                                    {"Llama-3-8B", 4096, 1024, 14336, 128256, false, 32}};
const Model kTiny = {"tiny", 48, 16, 96, 200, true, 2};

/// The GPU's rate at sizes that suit it.
const Linear kPeak = {"-", "square", 8192, 8192, false, 8192};

/// Repeatable random numbers of an element type: the host can compute each one without storing a copy of all.
template <class Type>
class Numbers {
  public:
    Numbers(unsigned seed, double deviation, size_t size) : memory_(size * sizeof(typename Type::Bits)) {
        std::mt19937 engine(seed);
        std::normal_distribution<float> normal(0, static_cast<float>(deviation));
        period_.resize(std::min(kPeriod, size));
        for (auto& bits : period_) bits = Type::rounded(normal(engine));
        const cuda::Stream stream;
        const auto bytes = std::as_bytes(std::span(period_));
        for (size_t begin = 0; begin < memory_.bytes(); begin += bytes.size()) {
            const size_t count = std::min(bytes.size(), memory_.bytes() - begin);
            cuda::copy_to_device(memory_.data() + begin, bytes.first(count), stream);
        }
        stream.synchronize();
    }

    double value(int64_t index) const { return Type::value(period_[index % period_.size()]); }
    std::byte* data() const { return memory_.data(); }
    ConstMatrix matrix(int64_t rows, int64_t columns) const {
        constexpr bool kWide = sizeof(typename Type::Bits) == 2;
        return {memory_.data(), kWide ? ElementType::BFloat16 : ElementType::Float8E4M3,
                rows,           columns,
                columns,        1};
    }

  private:
    static constexpr size_t kPeriod = 1'048'573;  // a prime: rows do not repeat
    cuda::DeviceMemory memory_;
    std::vector<typename Type::Bits> period_;
};

/// The largest matrices of each kind over all layers.
struct Sizes {
    size_t tokens_by_dim = 0, weight = 0, bias = 0, lines = 0, scales = 0;

    Sizes(const std::vector<Linear>& layers, int64_t tokens) {
        for (const Linear& one : layers) {
            const int64_t rows = std::min(tokens, one.most_tokens);
            tokens_by_dim = std::max<size_t>(tokens_by_dim, rows * std::max(one.in, one.out));
            weight = std::max<size_t>(weight, one.in * one.out);
            bias = std::max<size_t>(bias, one.out);
            lines = std::max<size_t>({lines, bias, static_cast<size_t>(rows), static_cast<size_t>(one.in)});
        }
        scales = std::max(tokens_by_dim, weight) / 128 + lines + 16;
    }
};

enum class Pass { Forward, InputGradient, WeightGradient };
constexpr Pass kPasses[] = {Pass::Forward, Pass::InputGradient, Pass::WeightGradient};

const char* name(Pass pass) {
    constexpr const char* kNames[] = {"forward", "input gradient", "weight gradient"};
    return kNames[static_cast<int>(pass)];
}

/// Number `place` of the scales of each float8 operand.
double scale_at(int64_t place) { return static_cast<double>(2 << place % 3); }

/// The scale of a term of a line, of an operand with so many lines and terms (ScaleMode).
double scale_of(ScaleMode mode, bool square, int64_t line, int64_t term, int64_t num_lines,
                int64_t num_terms) {
    if (mode == ScaleMode::None) return 1;
    if (mode == ScaleMode::Matrix) return scale_at(0);
    if (mode == ScaleMode::Line) return scale_at(line);
    const int64_t num_blocks = (num_terms + 127) / 128, block = term / 128;
    return scale_at(square ? line / 128 * ((num_blocks + 3) / 4 * 4) + block : block * num_lines + line);
}

/// Memory that the layers use in turn.
class Operands {
  public:
    explicit Operands(const Sizes& sizes)
        : x_(1, 1, sizes.tokens_by_dim),
          dy_(2, 1, sizes.tokens_by_dim),
          weight_(3, 0.02, sizes.weight),
          bias_(4, 1, sizes.bias),
          narrow_x_(5, 1, sizes.tokens_by_dim),
          narrow_dy_(6, 1, sizes.tokens_by_dim),
          narrow_weight_(7, 1, sizes.weight),
          scales_(sizes.scales * sizeof(float)),
          result_(std::max(sizes.tokens_by_dim * sizeof(uint16_t), sizes.weight * sizeof(float))) {
        std::vector<float> scales(sizes.scales);
        for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<float>(scale_at(i));
        const cuda::Stream stream;
        cuda::copy_to_device(scales_.data(), std::as_bytes(std::span(scales)), stream);
        stream.synchronize();
    }

    Product product(const Linear& layer, Pass pass, int64_t tokens) const {
        const ConstMatrix x = x_.matrix(tokens, layer.in), dy = dy_.matrix(tokens, layer.out);
        const ConstMatrix weight = weight_.matrix(layer.out, layer.in);
        switch (pass) {
            case Pass::Forward:
                return {.c = result(ElementType::BFloat16, tokens, layer.out),
                        .a = x,
                        .b = weight.transposed(),
                        .bias = layer.bias ? bias_.data() : nullptr};
            case Pass::InputGradient:
                return {.c = result(ElementType::BFloat16, tokens, layer.in), .a = dy, .b = weight};
            default:
                return {.c = result(ElementType::Float32, layer.out, layer.in),
                        .a = dy.transposed(),
                        .b = x,
                        .addend = result_.data()};
        }
    }

    /// The same product of operands that were cast and, where their terms would not be adjacent, transposed.
    Product float8_product(const Linear& layer, Pass pass, int64_t tokens, ScaleMode mode) const {
        Product product = this->product(layer, pass, tokens);
        const bool of_weight = pass == Pass::WeightGradient;
        const auto& a = pass == Pass::Forward ? narrow_x_ : narrow_dy_;
        const auto& b = of_weight ? narrow_x_ : narrow_weight_;
        product.a = a.matrix(product.a.rows, product.a.columns);
        product.b = b.matrix(product.b.columns, product.b.rows).transposed();
        product.scales = mode;
        product.scale_a = product.scale_b = scales_.data();
        product.fast_sums = pass == Pass::Forward && !has_blocks_of_128(mode);
        return product;
    }

    /// Throws RunError if the product differs from the host's result.
    void check(Multiplier& multiplier, const Product& product, const cuda::Stream& stream) const;

  private:
    Matrix result(ElementType type, int64_t rows, int64_t columns) const {
        return {result_.data(), type, rows, columns, columns, 1};
    }

    /// One element of a factor.
    double value(const ConstMatrix& x, int64_t row, int64_t column) const {
        const auto find = [&](const auto&... all) {
            double found = std::nan("");
            const int64_t place = row * x.row_stride + column * x.column_stride;
            ((all.data() == x.data ? void(found = all.value(place)) : void()), ...);
            return found;
        };
        return find(x_, dy_, weight_, narrow_x_, narrow_dy_, narrow_weight_);
    }

    Numbers<BFloat16> x_, dy_, weight_, bias_;
    Numbers<Float8E4M3> narrow_x_, narrow_dy_, narrow_weight_;
    cuda::DeviceMemory scales_, result_;
};

void Operands::check(Multiplier& multiplier, const Product& product, const cuda::Stream& stream) const {
    constexpr int kPlaces = 16;
    cuda::set_to_zero(result_.data(), result_.bytes(), stream);
    multiplier.run(product, stream.handle());
    std::mt19937 engine(5);
    for (int i = 0; i < kPlaces; ++i) {
        const int64_t row = engine() % product.c.rows, column = engine() % product.c.columns;
        double expected = product.bias ? bias_.value(column) : 0, size = std::fabs(expected);
        const int64_t num_terms = product.a.columns;
        for (int64_t term = 0; term < num_terms; ++term) {
            const double scale = scale_of(product.scales, false, row, term, product.c.rows, num_terms) *
                                 scale_of(product.scales, product.scales == ScaleMode::SquareB, column, term,
                                          product.c.columns, num_terms);
            const double more = scale * value(product.a, row, term) * value(product.b, term, column);
            expected += more;
            size += std::fabs(more);
        }
        const size_t bytes = size_bytes(product.c.type);
        std::byte element[sizeof(float)] = {};
        const size_t place = (row * product.c.row_stride + column) * bytes;
        cuda::copy_to_host(std::span(element).first(bytes), result_.data() + place, stream);
        stream.synchronize();
        float found;
        std::memcpy(&found, element, sizeof(found));
        if (bytes == 2) {
            uint16_t bits;
            std::memcpy(&bits, element, sizeof(bits));
            found = BFloat16::value(bits);
        }
        // One element of the output: a rounded result, or a sum in fp32, for float8 on Hopper in 14 bits.
        const double of_sum = product.scales == ScaleMode::None ? 3e-5 : 2e-3;
        const double allowed = (bytes == 2 ? std::ldexp(1, -8) : 0) * std::fabs(expected) + of_sum * size;
        if (!(std::fabs(found - expected) <= allowed)) {
            throw RunError("a product is wrong: element [{}, {}] is {}, not {}", row, column, found,
                           expected);
        }
    }
}

/// The median of several measurements, each `seconds` long, after one warm-up.
double seconds_of(Multiplier& multiplier, const Product& product, double seconds,
                  const cuda::Stream& stream) {
    const auto measure = [&](int launches) {
        cuda::Event begin, end;
        begin.record(stream);
        for (int i = 0; i < launches; ++i) multiplier.run(product, stream.handle());
        end.record(stream);
        stream.synchronize();
        return cuda::Event::seconds_between(begin, end) / launches;
    };
    const double estimate = std::max(measure(3), 1e-7);
    const int launches = std::clamp(static_cast<int>(seconds / estimate), 1, 10'000);
    std::vector<double> all;
    for (int i = 0; i < 5; ++i) all.push_back(measure(launches));
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

struct Options {
    int device = 0;
    int64_t tokens = 16384;
    std::string model;
    double seconds = 0.06;
    bool quick = false;
    std::vector<int> held;  // numbers of multiprocessors
    int finalists = 0;
    double preheat_seconds = 1, sustained_seconds = 0.75;
};

std::vector<Linear> layers_of(const Options& options) {
    if (options.quick) return linears_of(kTiny, options.tokens);
    std::vector<Linear> layers;
    if (options.finalists == 0) layers.push_back(kPeak);
    for (const Model& model : kModels) {
        if (!options.model.empty() && model.name != options.model) continue;
        for (const Linear& layer : linears_of(model, options.tokens)) layers.push_back(layer);
    }
    return layers;
}

double tera_flops(const Product& product, double seconds) {
    return 2e-12 * static_cast<double>(product.c.rows) * static_cast<double>(product.c.columns) *
           static_cast<double>(product.a.columns) / seconds;
}

/// TFLOP/s of products, each checked first.
class Rates {
  public:
    Rates(const Options& options, const Operands& operands) : options_(options), operands_(operands) {}
    double operator()(const Product& product) {
        operands_.check(multiplier_, product, stream_);
        return tera_flops(product, seconds_of(multiplier_, product, options_.seconds, stream_));
    }
    Target target() const { return multiplier_.target(); }

  private:
    const Options& options_;
    const Operands& operands_;
    const cuda::Stream stream_;
    Multiplier multiplier_;
};

ExitCode measure_held(const Options& options) {
    const std::vector<Linear> layers = layers_of(options);
    const Operands operands(Sizes(layers, options.tokens));
    Rates rate(options, operands);
    const int all = cuda::num_multiprocessors();
    fmt::print(
        "{} of {} multiprocessors; bf16, {} tokens, heads {}; TFLOP/s, and percent of those of a free "
        "GPU\n\n",
        cuda::describe_device(options.device).name, all, options.tokens, kHeadTokens);
    fmt::print(
        "| model | linear | pass | held | free GPU | beside it | % | chosen for the rest | % | share left % "
        "|\n");
    fmt::print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (const Linear& layer : layers) {
        for (const Pass pass : kPasses) {
            Product product = operands.product(layer, pass, std::min(options.tokens, layer.most_tokens));
            const double free = rate(product);
            for (const int held : options.held) {
                product.max_multiprocessors = 0;
                const cuda::HeldMultiprocessors kernel(held);
                const double beside = rate(product);
                product.max_multiprocessors = all - held;
                const double chosen = rate(product);
                fmt::print("| {} | {} | {} | {} | {:.4g} | {:.4g} | {:.0f} | {:.4g} | {:.0f} | {:.0f} |\n",
                           layer.model, layer.name, name(pass), held, free, beside, 100 * beside / free,
                           chosen, 100 * chosen / free, 100.0 * (all - held) / all);
                std::fflush(stdout);
            }
        }
    }
    return ExitCode::Done;
}

/// An algorithm of a product, and what it takes while it runs again and again.
struct Finalist {
    std::unique_ptr<Multiplier> multiplier;
    double seconds = 0, busy_seconds = 0;
    std::optional<double> joules = 0;  // of busy_seconds
    int64_t launches = 0;

    double seconds_each() const { return busy_seconds / static_cast<double>(launches); }
    std::string watts() const { return joules ? fmt::format("{:.0f}", *joules / seconds) : "-"; }
    std::string joules_each() const {
        return joules ? fmt::format("{:.4g}", *joules / static_cast<double>(launches)) : "-";
    }
};

/// Runs products for some seconds, without a wait between them, and adds up what they take.
void sustain(Finalist& finalist, const Product& product, double seconds, const cuda::EnergyMeter& meter,
             const cuda::Stream& stream) {
    constexpr int kAtOnce = 8;
    const auto begin = std::chrono::steady_clock::now();
    const auto passed = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    const std::optional<double> before = meter.joules();
    cuda::Event first, last;
    first.record(stream);
    do {
        // The host waits for the launches before the last ones, so the GPU never does.
        cuda::Event earlier;
        earlier.record(stream);
        for (int i = 0; i < kAtOnce; ++i) finalist.multiplier->run(product, stream.handle());
        finalist.launches += kAtOnce;
        while (!earlier.done()) std::this_thread::sleep_for(std::chrono::microseconds(20));
    } while (passed() < seconds);
    last.record(stream);
    stream.synchronize();
    finalist.busy_seconds += cuda::Event::seconds_between(first, last);
    finalist.seconds += passed();
    const std::optional<double> after = meter.joules();
    finalist.joules = finalist.joules && before && after ? std::optional(*finalist.joules + *after - *before)
                                                         : std::nullopt;
}

/// The heuristic's first algorithms that compute the product, in its order, measured.
std::vector<Finalist> finalists_of(const Product& product, const Operands& operands, const Options& options,
                                   const cuda::EnergyMeter& meter, const cuda::Stream& stream) {
    std::vector<Finalist> all;
    for (int choice = 0; choice < options.finalists; ++choice) {
        Finalist one{.multiplier = std::make_unique<Multiplier>(MultiplierOptions{.choice = choice})};
        try {
            operands.check(*one.multiplier, product, stream);
        } catch (const NoAlgorithm&) {
            if (choice == 0) throw;
            break;
        }
        all.push_back(std::move(one));
    }
    sustain(all[0], product, options.preheat_seconds, meter, stream);
    all[0] = {.multiplier = std::move(all[0].multiplier)};
    for (int round = 0; round < 2; ++round) {
        for (Finalist& one : all) sustain(one, product, options.sustained_seconds, meter, stream);
    }
    return all;
}

ExitCode measure_finalists(const Options& options) {
    const std::vector<Linear> layers = layers_of(options);
    const Operands operands(Sizes(layers, options.tokens));
    const cuda::Device device = cuda::describe_device(options.device);
    const cuda::EnergyMeter meter(device.pci_bus_id);
    const cuda::Stream stream;
    fmt::print(
        "{}, cuBLASLt {}; bf16, {} tokens, heads {}; the heuristic's first {} algorithms, each for 2 x {} s "
        "after {} s\n\n"
        "| model | linear | pass | algorithms | heuristic TFLOP/s | W | J | fastest | TFLOP/s | W | J | % "
        "less "
        "time |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        device.name, version_text(), options.tokens, kHeadTokens, options.finalists,
        options.sustained_seconds, options.preheat_seconds);
    double of_heuristic = 0, of_fastest = 0;
    for (const Linear& layer : layers) {
        for (const Pass pass : kPasses) {
            const Product product =
                operands.product(layer, pass, std::min(options.tokens, layer.most_tokens));
            const auto all = finalists_of(product, operands, options, meter, stream);
            const auto fastest = std::ranges::min_element(all, {}, &Finalist::seconds_each);
            const Finalist& first = all.front();
            fmt::print("| {} | {} | {} | {} | {:.4g} | {} | {} | {} | {:.4g} | {} | {} | {:.2f} |\n",
                       layer.model, layer.name, name(pass), all.size(),
                       tera_flops(product, first.seconds_each()), first.watts(), first.joules_each(),
                       fastest - all.begin(), tera_flops(product, fastest->seconds_each()), fastest->watts(),
                       fastest->joules_each(), 100 * (1 - fastest->seconds_each() / first.seconds_each()));
            std::fflush(stdout);
            of_heuristic += static_cast<double>(layer.times) * first.seconds_each();
            of_fastest += static_cast<double>(layer.times) * fastest->seconds_each();
        }
    }
    fmt::print(
        "\n| products of a microbatch | heuristic ms | fastest ms | % less time |\n| --- | --- | --- | --- "
        "|\n"
        "| {} tokens | {:.4g} | {:.4g} | {:.2f} |\n",
        options.tokens, 1e3 * of_heuristic, 1e3 * of_fastest, 100 * (1 - of_fastest / of_heuristic));
    return ExitCode::Done;
}

ExitCode measure(const Options& options) {
    const std::vector<Linear> layers = layers_of(options);
    const Operands operands(Sizes(layers, options.tokens));
    Rates rate(options, operands);
    const auto float8_rate = [&](const Product& product) -> std::string {
        const Float8Product kind = {product.a.type,    product.b.type,    product.c.type, product.scales,
                                    product.c.columns, product.a.columns, product.c.rows};
        if (!refusal(kind, rate.target()).empty()) return "-";
        return fmt::format("{:.4g}", rate(product));
    };

    fmt::print("{}, cuBLASLt {}; bf16, weight gradients added to fp32; {} tokens, heads {}; TFLOP/s\n\n",
               cuda::describe_device(options.device).name, version_text(), options.tokens, kHeadTokens);
    fmt::print(
        "| model | linear | pass | rows x columns x terms | bf16 | float8 by matrix | by line | by block |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (const Linear& layer : layers) {
        const int64_t tokens = std::min(options.tokens, layer.most_tokens);
        for (const Pass pass : kPasses) {
            const Product product = operands.product(layer, pass, tokens);
            const auto in_float8 = [&](ScaleMode mode) {
                return float8_rate(operands.float8_product(layer, pass, tokens, mode));
            };
            fmt::print("| {} | {} | {} | {} x {} x {} | {:.4g} | {} | {} | {} |\n", layer.model, layer.name,
                       name(pass), product.c.rows, product.c.columns, product.a.columns, rate(product),
                       in_float8(ScaleMode::Matrix), in_float8(ScaleMode::Line),
                       in_float8(pass == Pass::WeightGradient ? ScaleMode::Block128 : ScaleMode::SquareB));
            std::fflush(stdout);
        }
    }
    return ExitCode::Done;
}

int run(int argc, char** argv) {
    Options options;
    std::vector<std::string> names;
    for (const Model& model : kModels) names.push_back(model.name);
    CLI::App app{"TFLOP/s of the matrix products of linear layers, as a table."};
    app.add_option("--device", options.device, "the GPU's number");
    app.add_option("--tokens", options.tokens)->check(CLI::PositiveNumber);
    app.add_option("--model", options.model, "one of them alone")->check(CLI::IsMember(names));
    app.add_option("--seconds", options.seconds, "of each of five measurements a product")
        ->check(CLI::PositiveNumber);
    app.add_flag("--quick", options.quick, "tiny layers, to see that it works");
    app.add_option("--held", options.held, "instead, products in bf16 while so many multiprocessors are held")
        ->check(CLI::PositiveNumber);
    app.add_option("--finalists", options.finalists,
                   "instead, products in bf16 with so many algorithms of the heuristic, on a hot GPU")
        ->check(CLI::Range(1, 8));
    app.add_option("--preheat", options.preheat_seconds, "seconds before the finalists of a product")
        ->check(CLI::PositiveNumber);
    app.add_option("--sustained", options.sustained_seconds, "of each of two measurements of a finalist")
        ->check(CLI::PositiveNumber);
    CLI11_PARSE(app, argc, argv);
    return run_program("gemm_speed", [&] {
        if (cuda::device_count() == 0) throw RunError("there is no GPU here");
        cuda::set_device(options.device);
        if (options.finalists > 0) return measure_finalists(options);
        return options.held.empty() ? measure(options) : measure_held(options);
    });
}

}  // namespace
}  // namespace argosy::cublas

int main(int argc, char** argv) { return argosy::cublas::run(argc, argv); }
