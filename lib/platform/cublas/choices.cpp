#include "cublas/choices.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <sstream>

#include "base/error.h"
#include "cublas/matmul.h"

namespace argosy::cublas {
namespace {

constexpr std::string_view kBegin = "cublasLt", kFormat = "4";  // changes with the fields of a line
constexpr const char* kAddends[] = {"set", "add", "plus"};      // in the order of Addend
// in the order of ScaleMode
constexpr const char* kScales[] = {"unscaled", "matrix", "line", "block", "block128", "square-a", "square-b"};
constexpr ElementType kTypes[] = {ElementType::BFloat16, ElementType::Float32, ElementType::Float64,
                                  ElementType::Float8E4M3, ElementType::Float8E5M2};

std::string hex(const Algorithm& algorithm) {
    std::string text;
    for (const std::byte byte : algorithm) text += fmt::format("{:02x}", std::to_integer<int>(byte));
    return text;
}

/// Reads a line word by word. good() turns false at the first word that is not of the requested kind.
class Words {
  public:
    explicit Words(const std::string& line) : stream_(line) {}

    bool good() const { return good_; }

    std::string next() {
        std::string word;
        if (!(stream_ >> word)) good_ = false;
        return word;
    }

    template <class Number>
    Number number() {
        const std::string word = next();
        Number value{};
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
        if (error != std::errc() || end != word.data() + word.size() || value < 0) good_ = false;
        return value;
    }

    bool is_first_of_two(std::string_view first, std::string_view second) {
        const std::string word = next();
        if (word != first && word != second) good_ = false;
        return word == first;
    }

    /// The enumerator whose name, of `names` in their order, is the next word.
    template <class Enum, size_t kCount>
    Enum one_of(const char* const (&names)[kCount]) {
        const auto found = std::ranges::find(names, next());
        if (found == std::end(names)) good_ = false;
        return static_cast<Enum>(found == std::end(names) ? 0 : found - std::begin(names));
    }

    ElementType type() {
        const std::string word = next();
        for (const ElementType one : kTypes) {
            if (word == name(one)) return one;
        }
        good_ = false;
        return {};
    }

    Algorithm algorithm() {
        const std::string word = next();
        Algorithm bytes{};
        if (word.size() != 2 * bytes.size()) {
            good_ = false;
            return bytes;
        }
        for (size_t i = 0; i < bytes.size(); ++i) {
            const char* const digits = word.data() + 2 * i;
            uint8_t byte = 0;
            const auto [end, error] = std::from_chars(digits, digits + 2, byte, 16);
            if (error != std::errc() || end != digits + 2) good_ = false;
            bytes[i] = std::byte{byte};
        }
        return bytes;
    }

    void expect_end() {
        std::string word;
        if (stream_ >> word) good_ = false;
    }

  private:
    std::istringstream stream_;
    bool good_ = true;
};

Problem problem_of(Words& words) {
    Problem p;
    p.type_a = words.type();
    p.type_b = words.type();
    p.result_type = words.type();
    p.scales = words.one_of<ScaleMode>(kScales);
    p.fast_sums = words.is_first_of_two("fast", "promoted");
    p.transpose_a = words.is_first_of_two("T", "N");
    p.transpose_b = words.is_first_of_two("T", "N");
    for (int64_t* number : {&p.m, &p.n, &p.k, &p.stride_a, &p.stride_b, &p.stride_d}) {
        *number = words.number<int64_t>();
    }
    p.addend = words.one_of<Addend>(kAddends);
    p.bias = words.is_first_of_two("bias", "plain");
    for (int* number : {&p.alignment_a, &p.alignment_b, &p.alignment_c, &p.alignment_d, &p.alignment_bias}) {
        *number = words.number<int>();
    }
    return p;
}

}  // namespace

std::string line_of(const Choice& choice, const Origin& origin) {
    const Problem& p = choice.problem;
    return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}\n", kBegin,
                       kFormat, origin.version, origin.device, name(p.type_a), name(p.type_b),
                       name(p.result_type), kScales[static_cast<int>(p.scales)],
                       p.fast_sums ? "fast" : "promoted", p.transpose_a ? "T" : "N",
                       p.transpose_b ? "T" : "N", p.m, p.n, p.k, p.stride_a, p.stride_b, p.stride_d,
                       kAddends[static_cast<int>(p.addend)], p.bias ? "bias" : "plain", p.alignment_a,
                       p.alignment_b, p.alignment_c, p.alignment_d, p.alignment_bias, hex(choice.algorithm));
}

std::vector<Choice> choices_in(std::string_view text, const Origin& origin) {
    std::vector<Choice> choices;
    std::istringstream lines{std::string(text)};
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
        Words words(line);
        const bool begins = words.next() == kBegin;
        const std::string format = words.next(), version = words.next(), device = words.next();
        const bool usable = format == kFormat && version == origin.version && device == origin.device;
        if (begins && words.good() && !usable) continue;
        Choice choice{.problem = problem_of(words), .algorithm = words.algorithm()};
        words.expect_end();
        if (!begins || !words.good()) {
            throw UserError(
                "line {} of the file of matrix product algorithms is invalid: '{:.60}'; restore the file, or "
                "remove it, and the algorithms are searched again",
                number, line);
        }
        choices.push_back(choice);
    }
    return choices;
}

std::string version_text() {
    const int number = version();
    return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

}  // namespace argosy::cublas
