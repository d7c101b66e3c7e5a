#include "observe/peak_flops.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "ops/matmul.h"

namespace argosy::observe {
namespace {

struct Datasheet {
    std::string_view words;  // the driver's name in upper case, without maker and memory size
    double bf16, fp32;       // TFLOP/s: `bf16`, and `fp32` without TF32; 0: not known
};

// Source: NVIDIA's datasheets and architecture white papers. The sources print bf16 figures with 2:4
// sparsity; this table has the dense figures, which are half of them.
constexpr Datasheet kDatasheets[] = {
    {"A10", 125, 31.2},       {"A30", 165, 10.3},        {"A40", 149.7, 37.4},
    {"L4", 121, 30.3},        {"L40", 181, 90.5},        {"L40S", 362, 91.6},
    {"A100 SXM4", 312, 19.5}, {"A100 PCIE", 312, 19.5},  {"A800 SXM4", 312, 19.5},
    {"A800 PCIE", 312, 19.5}, {"H100 HBM3", 989, 67},    {"H100 SXM5", 989, 67},
    {"H100 PCIE", 756, 51},   {"H100 NVL", 835, 60},     {"H800", 989, 67},
    {"H800 PCIE", 756, 51},   {"GH200", 989, 67},        {"GH200 HBM3E", 989, 67},
    {"H200", 989, 67},        {"H200 NVL", 835, 60},     {"H20", 148, 44},
    {"B200", 2250, 0},        {"GB200", 2500, 0},        {"RTX A6000", 154.8, 38.7},
    {"RTX 3090", 71, 35.6},   {"RTX 4090", 165.2, 82.6}, {"RTX 5090", 209.5, 104.8},
};

/// FLOP/s; 0: not known.
double peak_of(const Datasheet& sheet, at::ScalarType type) {
    if (type == at::kBFloat16) return 1e12 * sheet.bf16;
    return type == at::kFloat ? 1e12 * sheet.fp32 : 0;
}

/// Whether the word is a memory size such as "80GB" or "144G". Memory sizes do not change the peak.
bool is_memory_size(std::string_view word) {
    const size_t digits = std::min(word.find_first_not_of("0123456789"), word.size());
    const std::string_view unit = word.substr(digits);
    return digits > 0 && (unit == "G" || unit == "GB");
}

/// "NVIDIA A100-SXM4-80GB" -> "A100 SXM4". Unknown words stay, so a name with unknown words matches no
/// datasheet.
std::string significant_words(std::string_view name) {
    std::string words, word;
    const auto take_word = [&] {
        if (!word.empty() && word != "NVIDIA" && word != "GEFORCE" && !is_memory_size(word)) {
            words += (words.empty() ? "" : " ") + word;
        }
        word.clear();
    };
    for (const unsigned char letter : name) {
        if (letter == ' ' || letter == '-') {
            take_word();
        } else {
            word += static_cast<char>(std::toupper(letter));
        }
    }
    take_word();
    return words;
}

/// Makes a factor for measured products. A GPU gets random numbers, because products of equal numbers draw
/// less power and would run at higher clocks.
at::Tensor factor(int64_t size, at::ScalarType type, c10::Device device) {
    const auto options = at::TensorOptions(device).dtype(type);
    return device.is_cpu() ? at::ones({size, size}, options) : at::rand({size, size}, options);
}

/// Makes a factor that is the same on all devices: random numbers from -0.5 to 0.5.
at::Tensor fixed_factor(int64_t size, at::ScalarType type, c10::Device device, uint64_t seed) {
    const auto options = at::TensorOptions(c10::kCPU).dtype(type);
    return at::rand({size, size}, at::detail::createCPUGenerator(seed), options).sub_(0.5).to(device);
}

/// Sums the bits of each row as 64-bit integers, whose sum does not depend on the order: a different row has
/// a different sum, unless differences cancel out.
at::Tensor sums_of_bits(const at::Tensor& x) { return x.view(at::kLong).sum(1); }

uint64_t hash_of(const at::Tensor& numbers) {
    const at::Tensor on_host = numbers.cpu();
    Fnv hash;
    for (int64_t i = 0; i < on_host.numel(); ++i) hash.add(on_host.const_data_ptr<int64_t>()[i]);
    return hash.hash();
}

}  // namespace

const char* peak_source_name(PeakSource source) {
    switch (source) {
        case PeakSource::None:
            return "none";
        case PeakSource::Datasheet:
            return "datasheet";
        case PeakSource::MeasuredGemm:
            return "measured GEMM";
    }
    return "";
}

PeakFlops datasheet_peak(std::string_view device_name, at::ScalarType type) {
    const std::string words = significant_words(device_name);
    const auto sheet = std::ranges::find(kDatasheets, words, &Datasheet::words);
    if (sheet == std::end(kDatasheets) || peak_of(*sheet, type) == 0) return {};
    return {peak_of(*sheet, type), PeakSource::Datasheet};
}

PeakFlops measure_gemm_peak(at::ScalarType type, double seconds, c10::Device device) {
    constexpr int64_t kSmallest = 512;
    const int64_t largest = device.is_cpu() ? 4096 : 8192;  // large enough for a GPU's best rate
    constexpr int kProductsWanted = 20;  // a size is too large if fewer measurements fit into `seconds`
    // A GPU gets several products per measurement, so that launch latency does not count.
    const int at_once = device.is_cpu() ? 1 : 10;
    const double deadline = seconds_now() + seconds;
    double best = 0;
    at::Tensor a, b;
    int64_t size = kSmallest;
    for (int done = 0; done < 2 || seconds_now() < deadline; ++done) {
        if (!a.defined() || a.size(0) != size) {
            a = factor(size, type, device);
            b = factor(size, type, device);
        }
        const double start = seconds_now();
        at::Tensor product;
        for (int i = 0; i < at_once; ++i) product = ops::linear(a, b);
        if (!device.is_cpu()) product.view(-1).narrow(0, 0, 1).item();  // waits for all products
        const double took = (seconds_now() - start) / at_once;
        best = std::max(best, 2 * std::pow(static_cast<double>(size), 3) / took);
        // A product of the next size takes about eight times as long.
        if (done > 0 && size < largest && 8 * took * at_once * kProductsWanted < seconds) size *= 2;
    }
    ARGOSY_CHECK(std::isfinite(best));
    return {best, PeakSource::MeasuredGemm};
}

SustainedProducts sustain_products(at::ScalarType type, double seconds, c10::Device device,
                                   const Multiply& multiply) {
    const int64_t size = device.is_cpu() ? 512 : 8192;
    const int at_once = device.is_cpu() ? 1 : 10;  // as in measure_gemm_peak()
    const at::Tensor a = fixed_factor(size, type, device, 1), b = fixed_factor(size, type, device, 2);
    const at::Tensor first = sums_of_bits(multiply(a, b));
    at::Tensor different = at::zeros({}, first.options());
    SustainedProducts result{.hash = hash_of(first), .num_products = 1};
    const double start = seconds_now();
    double now = start, counted_since = start;
    int64_t num_counted = 0;
    do {
        for (int i = 0; i < at_once; ++i) different.add_(sums_of_bits(multiply(a, b)).ne(first).any());
        result.num_different = different.item<int64_t>();  // waits for all products
        result.num_products += at_once;
        now = seconds_now();
        const bool settled = now - start >= seconds / 2;
        num_counted = settled ? num_counted + at_once : 0;
        if (!settled) counted_since = now;
    } while (now - start < seconds);
    result.flops_per_second =
        2 * std::pow(static_cast<double>(size), 3) * static_cast<double>(num_counted) / (now - counted_since);
    return result;
}

SustainedProducts sustain_products(at::ScalarType type, double seconds, c10::Device device) {
    return sustain_products(type, seconds, device,
                            [](const at::Tensor& a, const at::Tensor& b) { return ops::linear(a, b); });
}

}  // namespace argosy::observe
