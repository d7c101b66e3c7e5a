#include "observe/peak_flops.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "ops/matmul.h"
#include "ops/ops_context.h"

namespace argosy::observe {
namespace {

TEST(DatasheetPeak, FindsGpusByTheirDriversNames) {
    const auto tera_flops = [](const char* name, at::ScalarType type = at::kBFloat16) {
        return datasheet_peak(name, type).flops_per_second / 1e12;
    };
    EXPECT_EQ(tera_flops("NVIDIA H200"), 989);
    EXPECT_EQ(tera_flops("NVIDIA H200 NVL"), 835);
    EXPECT_EQ(tera_flops("NVIDIA H100 80GB HBM3"), 989);
    EXPECT_EQ(tera_flops("NVIDIA H100 PCIe"), 756);
    EXPECT_EQ(tera_flops("NVIDIA H100 NVL"), 835);
    EXPECT_EQ(tera_flops("NVIDIA A100-SXM4-40GB"), 312);
    EXPECT_EQ(tera_flops("NVIDIA A100 80GB PCIe"), 312);
    EXPECT_EQ(tera_flops("NVIDIA B200"), 2250);
    EXPECT_EQ(tera_flops("NVIDIA GH200 480GB"), 989);
    EXPECT_EQ(tera_flops("NVIDIA GeForce RTX 4090"), 165.2);
    EXPECT_EQ(datasheet_peak("NVIDIA H200", at::kBFloat16).source, PeakSource::Datasheet);

    EXPECT_EQ(tera_flops("NVIDIA H200", at::kFloat), 67);
    EXPECT_EQ(tera_flops("NVIDIA H100 80GB HBM3", at::kFloat), 67);
    EXPECT_EQ(tera_flops("NVIDIA A100-SXM4-80GB", at::kFloat), 19.5);
    EXPECT_FALSE(datasheet_peak("NVIDIA H200", at::kDouble).known());
    EXPECT_FALSE(datasheet_peak("NVIDIA B200", at::kFloat).known());
}

TEST(DatasheetPeak, HasNoneForUnknownGpus) {
    for (const char* name :
         {"", "NVIDIA", "cpu", "AMD EPYC 9654", "NVIDIA H2000", "NVIDIA H300", "NVIDIA Tesla V100-SXM2-16GB",
          "NVIDIA H100", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
          "NVIDIA L400", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "80GB"}) {
        EXPECT_FALSE(datasheet_peak(name, at::kBFloat16).known()) << name;
        EXPECT_EQ(datasheet_peak(name, at::kBFloat16).source, PeakSource::None) << name;
        EXPECT_EQ(datasheet_peak(name, at::kBFloat16).flops_per_second, 0) << name;
    }
}

TEST(MeasureGemmPeak, FindsAPlausibleRateInTime) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
        const double start = seconds_now();
        const PeakFlops peak = measure_gemm_peak(type, 0.1);
        EXPECT_LT(seconds_now() - start, 5)
            << toString(type);  // two small products of a slow type may take longer
        EXPECT_EQ(peak.source, PeakSource::MeasuredGemm);
        EXPECT_STREQ(peak_source_name(peak.source), "measured GEMM");
        // One core reaches at least 1e9 in any type; a thousand cores with matrix units stay under 1e16.
        EXPECT_GT(peak.flops_per_second, 1e8) << toString(type);
        EXPECT_LT(peak.flops_per_second, 1e16) << toString(type);
    }
}

TEST(SustainedProducts, HaveTheSameResultInEveryRun) {
    const ops::OpsContext context;
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const SustainedProducts first = sustain_products(type, 0), again = sustain_products(type, 0.05);
        EXPECT_EQ(first.hash, again.hash);
        EXPECT_GE(first.num_products, 2);
        EXPECT_EQ(first.num_different + again.num_different, 0);
        EXPECT_GT(first.flops_per_second, 1e8);
        EXPECT_LT(first.flops_per_second, 1e15);
    }
    EXPECT_NE(sustain_products(at::kFloat, 0).hash, sustain_products(at::kBFloat16, 0).hash);
}

TEST(SustainedProducts, ThatDifferInOneBitAreCounted) {
    const ops::OpsContext context;
    int64_t num_products = 0, num_wrong = 0;
    const auto result = sustain_products(at::kBFloat16, 0.1, c10::kCPU, [&](const auto& a, const auto& b) {
        at::Tensor product = ops::linear(a, b);
        if (++num_products % 2 == 0) {
            ++num_wrong;
            product.view(at::kShort).data_ptr<int16_t>()[12345] ^= 1;
        }
        return product;
    });
    EXPECT_EQ(result.num_products, num_products);
    EXPECT_EQ(result.num_different, num_wrong);
    const auto other = sustain_products(at::kBFloat16, 0, c10::kCPU, [&](const auto& a, const auto& b) {
        at::Tensor product = ops::linear(a, b);
        product.view(at::kShort).data_ptr<int16_t>()[12345] ^= 1;
        return product;
    });
    EXPECT_EQ(other.num_different, 0) << "always the same error";
    EXPECT_NE(other.hash, result.hash);
}

}  // namespace
}  // namespace argosy::observe
