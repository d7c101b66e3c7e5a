#include "data/mixture_order.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <string>

#include "base/error.h"

namespace argosy::data {
namespace {

// Times are compared by products of two numbers up to twice this, which fit 128 bits.
constexpr int64_t kMaxTotal = int64_t{1} << 60;
using Wide = __int128;

/// A number as digits x 10^exponent, with the fewest digits that read back as the same double.
struct Decimal {
    int64_t digits = 0;
    int exponent = 0;
};

Decimal decimal_of(double number) {
    std::string text;
    for (int precision = 0; precision < 17; ++precision) {
        text = fmt::format("{:.{}e}", number, precision);
        if (std::strtod(text.c_str(), nullptr) == number) break;
    }
    const std::size_t e = text.find('e');
    Decimal decimal{.exponent = std::stoi(text.substr(e + 1))};
    for (const char letter : text.substr(0, e)) {
        if (letter != '.') decimal.digits = decimal.digits * 10 + (letter - '0');
    }
    if (e > 1) decimal.exponent -= static_cast<int>(e) - 2;
    return decimal;
}

/// digits x 10^power, or more than kMaxTotal.
int64_t scaled(int64_t digits, int power) {
    for (; power > 0 && digits <= kMaxTotal / 10; --power) digits *= 10;
    return power > 0 ? kMaxTotal + 1 : digits;
}

}  // namespace

MixtureOrder::MixtureOrder(const std::vector<double>& weights) {
    std::vector<Decimal> decimals;
    for (const double weight : weights) {
        ARGOSY_CHECK(std::isfinite(weight) && weight > 0, "weight {}", weight);
        decimals.push_back(decimal_of(weight));
    }
    const int unit = std::ranges::min(decimals, {}, &Decimal::exponent).exponent;
    int64_t divisor = 0;
    for (const auto& [digits, exponent] : decimals) {
        weights_.push_back(scaled(digits, exponent - unit));
        divisor = std::gcd(divisor, weights_.back());
        if (weights_.back() > kMaxTotal - total_) {
            throw UserError(
                "the weights {} of data.mixture have too many digits to be mixed exactly; round them to 6 "
                "digits",
                fmt::join(weights, ", "));
        }
        total_ += weights_.back();
    }
    for (int64_t& weight : weights_) weight /= divisor;
    total_ /= divisor;
}

MixtureOrder::Element MixtureOrder::at(int64_t position) const {
    const int64_t round = position / total_, within = position % total_;
    const auto num_streams = static_cast<int64_t>(weights_.size());
    // 1. Elements before an early enough time, `early` / total_: those with (2k + 1) / 2w < early / total_.
    const int64_t early = std::max<int64_t>(0, within - (num_streams + 1) / 2);
    std::vector<int64_t> next;
    int64_t passed = 0;
    for (const int64_t weight : weights_) {
        const Wide doubled = Wide{2} * weight * early - total_;
        next.push_back(
            doubled <= 0 ? 0 : static_cast<int64_t>((doubled + 2 * Wide{total_} - 1) / (2 * Wide{total_})));
        passed += next.back();
    }
    // 2. The elements from there on, one by one.
    for (;; ++passed) {
        int64_t first = 0;
        for (int64_t stream = 1; stream < num_streams; ++stream) {
            if (Wide{2 * next[stream] + 1} * weights_[first] < Wide{2 * next[first] + 1} * weights_[stream])
                first = stream;
        }
        if (passed == within) return {first, round * weights_[first] + next[first]};
        ++next[first];
    }
}

}  // namespace argosy::data
