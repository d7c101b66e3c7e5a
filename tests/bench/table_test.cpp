// The table against nccl-tests' own text: what reads its columns must read ours.
#include "bench/benchmark.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "bench/options.h"

namespace argosy::bench {
namespace {

Timing timing(double seconds, double algorithm, double bus) {
    Timing made{.seconds = seconds, .algorithm_bandwidth = algorithm, .bus_bandwidth = bus};
    made.num_wrong = 0;
    made.slowest = {.min = 1e-6, .max = 5e-6, .mean = 2e-6, .p50 = 2e-6, .p99 = 4e-6, .deviation = 1e-6};
    return made;
}

Row row_of(const char* collective, double seconds = 206.1e-6) {
    Row row{
        .kind = {&collective_named(collective), ElementType::Float32, Reduction::Sum, 0, 8388608, 33554432}};
    row.out_of_place = timing(seconds, 162.8e9, 305.25e9);
    row.in_place = timing(204.94e-6, 163.73e9, 306.99e9);
    return row;
}

AxisResults axis_of(std::vector<Row> rows) { return {"all", 1, 4, {}, std::move(rows)}; }

std::vector<std::string> lines(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> found;
    for (std::string line; std::getline(stream, line);) found.push_back(line);
    return found;
}

TEST(Table, HeaderBeginsAsNcclTests) {
    const auto header = lines(table_header(axis_of({}), {}));
    ASSERT_EQ(header.size(), 4U);
    EXPECT_EQ(header[0], "#");
    EXPECT_EQ(header[1],
              "#                                                              out-of-place                   "
              "    in-place   "
              "       ");
    const std::string second =
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   "
        "algbw   busbw  "
        "#wrong ";
    const std::string third =
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  "
        "(GB/s)  (GB/s)  "
        "       ";
    EXPECT_EQ(header[2], second + "  oop_p50  oop_p99   ip_p50   ip_p99");
    EXPECT_EQ(header[3], third + "     (us)     (us)     (us)     (us)");
}

TEST(Table, RowBeginsAsNcclTests) {
    const std::string row = table_row(row_of("all_reduce"), {});
    EXPECT_EQ(row,
              "    33554432       8388608     float     sum      -1   206.10  162.80  305.25       0   "
              "204.94  163.73  306.99  "
              "     0     2.00     4.00     2.00     4.00\n");
}

TEST(Table, WithoutPercentilesEachRowHasThe13ColumnsOfNcclTests) {
    const Options options{.percentiles = false};
    EXPECT_EQ(table_row(row_of("all_reduce"), options),
              "    33554432       8388608     float     sum      -1   206.10  162.80  305.25       0   "
              "204.94  163.73  306.99       0\n");
    for (const std::string& line : lines(table_header(axis_of({}), options)))
        EXPECT_EQ(line.find("p50"), std::string::npos) << line;
    EXPECT_TRUE(lines(table_header(axis_of({}), options))[2].ends_with("  #wrong "));
}

TEST(Table, NumbersFitTheirColumns) {
    const auto time_column = [](double seconds) {
        return table_row(row_of("all_reduce", seconds), {}).substr(52, 9);
    };
    EXPECT_EQ(time_column(1e-9), "     0.00");
    EXPECT_EQ(time_column(9999.99e-6), "  9999.99");
    EXPECT_EQ(time_column(99999.9e-6), "  99999.9");
    EXPECT_EQ(time_column(999999e-6), "   999999");
    EXPECT_EQ(time_column(9.999999), "  9999999");
    EXPECT_EQ(time_column(123), "  1.2e+08");
}

TEST(Table, RootedCollectivesShowTheirRoot) {
    EXPECT_EQ(table_row(row_of("all_reduce"), {}).substr(44, 8), "      -1");
    EXPECT_EQ(table_row(row_of("broadcast"), {}).substr(44, 8), "       0");
}

TEST(Table, UncheckedResultsAreNotCalledRight) {
    Row row = row_of("all_reduce");
    row.out_of_place.num_wrong.reset();
    row.in_place.num_wrong.reset();
    EXPECT_NE(table_row(row, {}).find("  305.25     N/A   204.94"), std::string::npos);
    EXPECT_NE(table_footer(axis_of({row}), {.checks = 0}).find("nothing was verified"), std::string::npos);
}

TEST(Table, FooterIsNcclTests) {
    Options options;
    EXPECT_EQ(table_footer(axis_of({row_of("all_reduce")}), options),
              "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 306.12 \n#\n");
    Row wrong = row_of("all_reduce");
    wrong.in_place.num_wrong = 3;
    options.min_bus_bandwidth = 307;
    EXPECT_EQ(table_footer(axis_of({wrong}), options),
              "# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : 306.12 FAILED\n#\n");
}

TEST(Results, FailOnAWrongElementOrTooLittleBandwidth) {
    Options options;
    Results results{.axes = {axis_of({row_of("all_reduce")})}};
    EXPECT_TRUE(results.passed(options));
    options.min_bus_bandwidth = 306;
    EXPECT_TRUE(results.passed(options));
    options.min_bus_bandwidth = 307;
    EXPECT_FALSE(results.passed(options));
    options.min_bus_bandwidth.reset();
    results.axes[0].rows[0].out_of_place.num_wrong = 1;
    EXPECT_FALSE(results.passed(options));
}

}  // namespace
}  // namespace argosy::bench
