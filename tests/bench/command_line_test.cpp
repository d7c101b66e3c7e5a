// What the values of a command line mean, and what is refused.
#include "bench/options.h"

#include <gtest/gtest.h>

#include <limits>

#include "bench/collective.h"
#include "bench/measure.h"
#include "expect_error.h"

namespace argosy::bench {
namespace {

RawOptions raw_options() {
    RawOptions made;
    made.options.collective = "all_reduce";
    return made;
}

TEST(Sizes, TakesPowersOf1024) {
    EXPECT_EQ(parse_size("8", "-b"), 8U);
    EXPECT_EQ(parse_size("128M", "-b"), size_t{128} << 20);
    EXPECT_EQ(parse_size("4k", "-b"), 4096U);
    EXPECT_EQ(parse_size("1.5G", "-b"), size_t{3} << 29);
    for (const char* bad : {"", "M", "1T", "-1", "1MB", "12 M", "nan", "1e99"}) {
        EXPECT_THROW(parse_size(bad, "-b"), UserError) << bad;
    }
    EXPECT_ERROR(parse_size("1T", "-b"), UserError, "-b 1T: 'T' is not a unit", "1024G");
    EXPECT_ERROR(parse_size("12MB", "-b"), UserError, "-b 12MB: 'MB' is not a unit");
    EXPECT_ERROR(parse_size("2000000G", "-b"), UserError, "-b 2000000G: 2.147e+15 bytes are more", "1e+15");
    EXPECT_ERROR(parse_size("x", "-b"), UserError, "-b x: not a size");
}

TEST(Sizes, SweepsByFactorsAndBySteps) {
    EXPECT_EQ(sizes_of({.min_bytes = 8, .max_bytes = 100, .factor = 3}), (std::vector<size_t>{8, 24, 72}));
    EXPECT_EQ(sizes_of({.min_bytes = 8, .max_bytes = 32, .factor = 2}), (std::vector<size_t>{8, 16, 32}));
    EXPECT_EQ(sizes_of({.min_bytes = 0, .max_bytes = 20, .step_bytes = 10}),
              (std::vector<size_t>{0, 10, 20}));
    EXPECT_EQ(sizes_of({.min_bytes = 7, .max_bytes = 7, .step_bytes = 0}), (std::vector<size_t>{7}));
    EXPECT_EQ(sizes_of({.min_bytes = 1, .max_bytes = 8, .factor = 8}), (std::vector<size_t>{1, 8}));
    constexpr size_t kMost = 1'000'000'000'000'000;
    constexpr int kFactor = 1'844'674'408;  // times 1e10 is 2^64 and some more
    EXPECT_EQ(sizes_of({.min_bytes = 10'000'000'000, .max_bytes = kMost, .factor = kFactor}),
              (std::vector<size_t>{10'000'000'000}));
    EXPECT_THROW(sizes_of({.min_bytes = 9, .max_bytes = 8}), UserError);
    EXPECT_THROW(sizes_of({.min_bytes = 0, .max_bytes = 8, .factor = 2}), UserError);
    EXPECT_THROW(sizes_of({.min_bytes = 1, .max_bytes = 8, .factor = 1}), UserError);
    EXPECT_THROW(sizes_of({.min_bytes = 1, .max_bytes = 8, .step_bytes = 0}), UserError);
}

TEST(CommandLine, DefaultsAreNcclTests) {
    const Options options = parse_values(raw_options());
    EXPECT_EQ(options.sweep.min_bytes, size_t{32} << 20);
    EXPECT_EQ(options.sweep.max_bytes, size_t{32} << 20);
    EXPECT_EQ(options.types, std::vector{ElementType::Float32});
    EXPECT_EQ(options.reductions, std::vector{Reduction::Sum});
    EXPECT_EQ(options.root, 0);
    EXPECT_EQ(options.iterations, 20);
}

TEST(CommandLine, NamesWhatItDoesNotKnow) {
    const auto expect_refused = [](auto change, const std::vector<std::string>& parts) {
        RawOptions some = raw_options();
        change(some);
        EXPECT_ERROR(parse_values(some), UserError, parts);
    };
    expect_refused([](RawOptions& some) { some.options.collective = "allreduce"; },
                   {"allreduce", "all_reduce", "sendrecv"});
    expect_refused([](RawOptions& some) { some.type = "fp16"; }, {"--datatype fp16", "half", "fp8_e5m2"});
    expect_refused([](RawOptions& some) { some.reduction = "xor"; }, {"--op xor", "sum, max and all"});
    expect_refused([](RawOptions& some) { some.root = "first"; }, {"--root first"});
    expect_refused([](RawOptions& some) { some.mesh = "4"; }, {"--mesh 4", "4x8"});
    expect_refused([](RawOptions& some) { some.mesh = "4x"; }, {"--mesh 4x"});
    expect_refused([](RawOptions& some) { some.num_threads = "3"; }, {"--nthreads 3", "start more ranks"});
    expect_refused([](RawOptions& some) { some.num_gpus = "3"; }, {"--ngpus 3", "start more ranks"});
}

TEST(CommandLine, NumbersMustFitEachOtherAndTheRanks) {
    const auto expect_refused = [](auto change, const std::vector<std::string>& parts) {
        Options options = parse_values(raw_options());
        EXPECT_NO_THROW(check(options, 4));
        change(options);
        EXPECT_ERROR(check(options, 4), UserError, parts);
    };
    expect_refused([](Options& some) { some.iterations = 0; }, {"--iters 0"});
    expect_refused([](Options& some) { some.mesh = {2, 3}; }, {"2x3", "6 ranks", "4 were started"});
    expect_refused([](Options& some) { some.root = 4; }, {"--root 4", "0 to 3"});
    expect_refused([](Options& some) { some.timeout_seconds = 0; }, {"--timeout"});
    for (const double bandwidth : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
        expect_refused([=](Options& some) { some.min_bus_bandwidth = bandwidth; }, {"--min-busbw "});
    }
}

TEST(Collectives, BusFactorsAreNcclTests) {
    const auto factor = [](const char* name, int ranks) { return collective_named(name).bus_factor(ranks); };
    EXPECT_DOUBLE_EQ(factor("all_reduce", 4), 1.5);
    for (const char* name : {"all_gather", "reduce_scatter", "alltoall"}) {
        EXPECT_DOUBLE_EQ(factor(name, 4), 0.75) << name;
        EXPECT_DOUBLE_EQ(factor(name, 1), 0) << name;
    }
    for (const char* name : {"broadcast", "sendrecv"}) EXPECT_DOUBLE_EQ(factor(name, 4), 1) << name;
}

TEST(Collectives, ASizeIsRoundedDownToWholeChunks) {
    const auto of = [](const char* name, size_t bytes, int ranks) {
        return case_of({&collective_named(name), ElementType::Float32, std::nullopt, 0, 0, 0}, bytes, ranks);
    };
    EXPECT_EQ(of("all_reduce", 1023, 3)->bytes, 1020U);
    EXPECT_EQ(of("all_gather", 1024, 3)->chunk_elements, 84U)
        << "85 elements, without the last 4 bytes of 340";
    EXPECT_EQ(of("all_gather", 1024, 3)->bytes, 3 * 84 * 4);
    EXPECT_EQ(of("alltoall", 3 * 28, 3)->chunk_elements, 4U);
    EXPECT_EQ(of("all_reduce", 1020, 3)->chunk_elements, 255U) << "one chunk, as in nccl-tests";
    EXPECT_EQ(of("all_gather", 36, 3)->chunk_elements, 3U) << "less than 16 bytes";
    EXPECT_EQ(of("reduce_scatter", 12, 3)->chunk_elements, 1U);
    EXPECT_FALSE(of("alltoall", 11, 3).has_value());
}

}  // namespace
}  // namespace argosy::bench
