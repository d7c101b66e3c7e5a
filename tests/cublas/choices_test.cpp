// Chosen algorithms as lines of text.
#include "cublas/choices.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "expect_error.h"

namespace argosy::cublas {
namespace {

const Origin kHere{"13.1.0", "NVIDIA-H200"};

Choice choice() {
    Choice made{.problem = {.type_a = ElementType::BFloat16,
                            .type_b = ElementType::BFloat16,
                            .result_type = ElementType::Float32,
                            .scales = ScaleMode::None,
                            .fast_sums = false,
                            .transpose_a = false,
                            .transpose_b = true,
                            .m = 4096,
                            .n = 1024,
                            .k = 16384,
                            .stride_a = 4096,
                            .stride_b = 2048,
                            .stride_d = 4097,
                            .addend = Addend::C,
                            .bias = false,
                            .alignment_a = 256,
                            .alignment_b = 16,
                            .alignment_c = 8,
                            .alignment_d = 4,
                            .alignment_bias = 256}};
    for (size_t i = 0; i < made.algorithm.size(); ++i) made.algorithm[i] = std::byte(7 * i);
    return made;
}

TEST(Choices, AreLinesThatReadBack) {
    const std::string line = line_of(choice(), kHere);
    EXPECT_EQ(line.substr(0, line.rfind(' ')),
              "cublasLt 4 13.1.0 NVIDIA-H200 bf16 bf16 fp32 unscaled promoted N T 4096 1024 16384 4096 2048 "
              "4097 add plain 256 16 8 "
              "4 256");
    EXPECT_EQ(line.back(), '\n');
    const std::vector<Choice> found = choices_in(line + line, kHere);
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[1].problem, choice().problem);
    EXPECT_EQ(found[1].algorithm, choice().algorithm);
    EXPECT_TRUE(choices_in("", kHere).empty());
}

TEST(Choices, OfEachKindOfProblem) {
    Choice other = choice();
    other.problem.type_a = other.problem.type_b = other.problem.result_type = ElementType::Float64;
    other.problem.transpose_a = true;
    other.problem.transpose_b = false;
    other.problem.addend = Addend::Another;
    other.problem.bias = true;
    EXPECT_EQ(choices_in(line_of(other, kHere), kHere)[0].problem, other.problem);
    other.problem.type_a = ElementType::Float8E5M2;
    other.problem.type_b = ElementType::Float8E4M3;
    other.problem.fast_sums = true;
    for (const ScaleMode scales : {ScaleMode::Matrix, ScaleMode::Line, ScaleMode::Block, ScaleMode::Block128,
                                   ScaleMode::SquareA, ScaleMode::SquareB}) {
        other.problem.scales = scales;
        EXPECT_EQ(choices_in(line_of(other, kHere), kHere)[0].problem, other.problem);
    }
}

TEST(Choices, OfAnotherVersionOrDeviceAreSkipped) {
    const std::string text = line_of(choice(), {"13.2.0", kHere.device}) + line_of(choice(), kHere) +
                             line_of(choice(), {kHere.version, "NVIDIA-B200"}) +
                             "cublasLt 14.0.0 NVIDIA-H200 in another form\n";
    EXPECT_EQ(choices_in(text, kHere).size(), 1u);
}

TEST(Choices, InvalidLinesAreUserErrors) {
    const std::string line = line_of(choice(), kHere);
    const auto replaced = [&](const std::string& what, const std::string& by) {
        return std::string(line).replace(line.find(what), what.size(), by);
    };
    EXPECT_ERROR(choices_in(line + line.substr(0, line.size() - 2), kHere), UserError, "line 2",
                 "cublasLt 4 13");
    for (const std::string& bad :
         {line.substr(0, 40), std::string("hello\n"), std::string("\n"), std::string("cublasLt"),
          replaced("bf16", "bf17"), replaced(" N ", " M "), replaced(" 4096 ", " 4096x "),
          replaced(" 4096 ", " -4096 "), replaced("add", "sub"), replaced("plain", "-"),
          replaced("00070e", "00070x"), replaced("\n", " more\n")}) {
        EXPECT_ERROR(choices_in(bad, kHere), UserError, "line 1 of the file of matrix");
    }
}

}  // namespace
}  // namespace argosy::cublas
