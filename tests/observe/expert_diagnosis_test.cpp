#include "observe/expert_diagnosis.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <cmath>
#include <memory>
#include <sstream>

#include "base/log.h"

namespace argosy::observe {
namespace {

using Texts = std::vector<std::string>;
using Counts = std::vector<std::vector<int64_t>>;

constexpr ExpertFacts kFacts{.top_k = 2, .num_parts = 2, .planned_imbalance = 1.2, .bias_update_rate = 0.001};
const double kLargestEntropy = std::log(8);

/// A step of layers 1 and 3 in which nothing stands out.
model::ExpertFigures good_step() {
    return {.layers = {1, 3},
            .counts = Counts(2, {9, 11, 10, 12, 8, 10, 13, 7}),
            .entropy = {1.2, 1.3},
            .bias_min = {-0.1, -0.2},
            .bias_max = {0.2, 0.1}};
}

ExpertWindow window_of(const model::ExpertFigures& step, int64_t first_step = 301) {
    ExpertWindow window;
    for (int64_t number = first_step; number < first_step + 100; ++number)
        window.add(number, step, kFacts.num_parts);
    return window;
}

Texts texts_of(const model::ExpertFigures& step, const ExpertFacts& facts = kFacts,
               const std::optional<ExpertWindow>& before = window_of(good_step(), 201)) {
    Texts texts;
    for (const ExpertFault& fault : diagnose(window_of(step), before, facts)) texts.push_back(fault.text);
    return texts;
}

TEST(DiagnoseExperts, NothingStandsOutOfGoodSteps) {
    EXPECT_EQ(texts_of(good_step()), Texts());
    EXPECT_EQ(texts_of(good_step(), kFacts, {}), Texts());
}

TEST(DiagnoseExperts, ExpertsWithoutTokens) {
    model::ExpertFigures step = good_step();
    step.counts[1] = {20, 0, 20, 0, 20, 0, 10, 10};
    const std::string text =
        "3 of 8 experts got no tokens in steps 301 to 400: raise moe.bias_update_rate (0.001 now) or "
        "moe.sequence_loss (0 now)";
    EXPECT_EQ(texts_of(step), Texts{"layer 3: " + text});
    step.counts[0] = {20, 20, 20, 0, 20, 20, 20, 20};
    EXPECT_EQ(texts_of(step), Texts{"layer 3, the worst of 2 such layers: " + text});
    ExpertWindow rare = window_of(good_step());
    rare.counts[1] = {60, 0, 55, 0, 60, 0, 55, 0};
    EXPECT_TRUE(diagnose(rare, {}, kFacts).empty()) << "fewer than 30 tokens an expert";
    rare.counts[1] = {60, 0, 60, 0, 60, 0, 60, 0};
    EXPECT_FALSE(diagnose(rare, {}, kFacts).empty());
}

TEST(DiagnoseExperts, MoreTokensThanPlanned) {
    model::ExpertFigures step = good_step();
    step.counts[0] = {16, 16, 16, 12, 10, 10, 10, 10};  // the first four have 60 of 100
    EXPECT_EQ(texts_of(step), Texts()) << "as planned";
    step.counts[0] = {16, 16, 16, 17, 10, 10, 10, 5};
    ExpertWindow window = window_of(step);
    window.part_load[0] = 1.71;
    const std::vector<ExpertFault> found = diagnose(window, {}, kFacts);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(
        found[0].text,
        "layer 1: the rank with the busiest experts got 1.30 times an equal share of the tokens in steps 301 "
        "to "
        "400 (1.71 in one step), more than moe.planned_imbalance = 1.2, for which memory is planned: raise "
        "moe.bias_update_rate (0.001 now) or moe.sequence_loss (0 now), or see whether pretrain --plan "
        "--moe.planned_imbalance=1.8 still fits");
    ExpertFacts alone = kFacts;
    alone.num_parts = 1;
    EXPECT_EQ(texts_of(step, alone), Texts()) << "one rank has all experts, and all tokens";
}

TEST(DiagnoseExperts, OneExpertWithAllTheWeight) {
    model::ExpertFigures step = good_step();
    step.entropy[1] = 0.09 * kLargestEntropy;
    EXPECT_EQ(
        texts_of(step),
        Texts{
            "layer 3: the router's entropy is 0.187 nats in steps 301 to 400, below 0.208: one of the 2 "
            "experts of "
            "a token has almost all of the weight, and the others learn nothing from it: raise moe.z_loss (0 "
            "now), or lower optimizer.lr"});
    ExpertFacts of_one = kFacts;
    of_one.top_k = 1;
    EXPECT_EQ(texts_of(step, of_one), Texts()) << "a token has one expert";
}

TEST(DiagnoseExperts, ScoresThatHardlyDiffer) {
    model::ExpertFigures step = good_step();
    step.entropy[0] = 0.999 * kLargestEntropy;
    const std::string text =
        "layer 1: the router's entropy is 2.077 of at most 2.079 nats in steps 301 to 400 and does not fall: "
        "its scores "
        "hardly differ, so that it does not learn: ";
    EXPECT_EQ(texts_of(step),
              Texts{text + "give routers a larger learning rate (an entry of optimizer.groups)"});
    ExpertFacts with_loss = kFacts;
    with_loss.step_loss = 0.5;
    EXPECT_EQ(texts_of(step, with_loss),
              Texts{text + "lower moe.sequence_loss (0 now), moe.step_loss (0.5) and moe.z_loss (0)"});
    ExpertWindow before = window_of(step, 201);
    before.entropy[0] = kLargestEntropy;
    EXPECT_EQ(texts_of(step, kFacts, before), Texts()) << "it falls";
    EXPECT_EQ(texts_of(step, kFacts, {}), Texts()) << "nothing says whether it falls";
}

TEST(DiagnoseExperts, BiasesFartherApartThanScores) {
    model::ExpertFigures step = good_step();
    step.bias_max[1] = 0.8;
    EXPECT_EQ(texts_of(step), Texts()) << "1 apart";
    step.bias_max[1] = 0.9;
    EXPECT_EQ(texts_of(step),
              Texts{"layer 3: the biases of experts are 1.10 apart after step 400, but scores are at most 1, "
                    "so that no "
                    "token can prefer the expert with the smallest bias to that with the largest: lower "
                    "moe.bias_update_rate (0.001 now), and raise moe.sequence_loss (0 now)"});
    step.bias_min = step.bias_max = {};
    EXPECT_EQ(texts_of(step), Texts());
}

TEST(DiagnoseExperts, FiguresThatAreNotFinite) {
    model::ExpertFigures step = good_step();
    step.entropy = {NAN, NAN};
    step.counts = Counts(2, std::vector<int64_t>(8));
    EXPECT_EQ(texts_of(step), Texts());
}

TEST(DiagnoseExperts, AFaultIsLoggedWhenItBegins) {
    std::ostringstream log;
    const auto before = spdlog::default_logger();
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
    spdlog::set_pattern("%v");
    ExpertDiagnosis diagnosis(kFacts);
    model::ExpertFigures bad = good_step();
    bad.counts[0] = {20, 20, 20, 20, 20, 20, 20, 0};
    const auto train = [&](int64_t first, int64_t last, const model::ExpertFigures& step) {
        for (int64_t number = first; number <= last; ++number) diagnosis.add(number, step);
        const std::string text = log.str();
        log.str("");
        return text;
    };
    EXPECT_EQ(train(1, 299, bad), "") << "the run has just begun";
    EXPECT_TRUE(
        train(300, 300, bad)
            .starts_with("experts (unused): layer 1: 1 of 8 experts got no tokens in steps 201 to 300: "));
    EXPECT_EQ(train(301, 500, bad), "") << "it is known";
    EXPECT_EQ(train(501, 1400, good_step()) + train(1401, 1500, bad), "") << "it comes and goes";
    EXPECT_EQ(train(1501, 2500, good_step()), "");
    EXPECT_TRUE(
        train(2501, 2600, bad)
            .starts_with("experts (unused): layer 1: 1 of 8 experts got no tokens in steps 2501 to 2600: "));
    diagnosis.end();
    EXPECT_TRUE(log.str().starts_with("experts (unused): layer 1: 1 of 8 experts got no tokens"))
        << log.str();
    bad.forced_balance = true;
    ExpertDiagnosis forced(kFacts);
    log.str("");
    for (int64_t number = 1; number <= 400; ++number) forced.add(number, bad);
    forced.end();
    EXPECT_EQ(log.str(), "");
    spdlog::set_default_logger(before);
}

}  // namespace
}  // namespace argosy::observe
