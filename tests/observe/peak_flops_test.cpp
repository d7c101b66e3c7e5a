#include "observe/peak_flops.h"

#include <gtest/gtest.h>

#include "base/clock.h"

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

    EXPECT_EQ(tera_flops("NVIDIA H200", at::kHalf), 989);
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

}  // namespace
}  // namespace argosy::observe
