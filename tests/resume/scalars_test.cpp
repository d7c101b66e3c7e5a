#include "resume/run_state.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <functional>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "config/print.h"
#include "expect_error.h"
#include "resume/loaded_parts.h"

namespace argosy::resume {
namespace {

Scalars sample_scalars() {
    return {.position = {100, 800, 25600},
            .seq_len = 32,
            .seed = std::numeric_limits<uint64_t>::max(),
            .data = "0f3c",
            .num_updates = 98,
            .guard = {.losses = {0.1 + 0.2, 5e-324},
                      .grad_norms = {1.0 / 3, 1e300},
                      .nonfinite_in_a_row = 1,
                      .spikes_in_a_row = 2,
                      .num_skipped = 3}};
}

TEST(Scalars, ReadBackBitForBit) {
    EXPECT_EQ(parse_scalars(to_json(sample_scalars()), "here"), sample_scalars());
    EXPECT_EQ(parse_scalars(to_json({.seq_len = 1}), "here"), Scalars{.seq_len = 1});
}

TEST(Scalars, ThePlaceInTheDataMayBeUnknown) {
    const Scalars unknown{.position = {7, 0, 99}, .knows_samples = false, .seq_len = 1};
    EXPECT_NE(to_json(unknown).find("\"samples\":null"), std::string::npos);
    EXPECT_EQ(parse_scalars(to_json(unknown), "here"), unknown);
    const checkpoint::Description theirs{.state = to_json(unknown)}, own{.state = to_json(sample_scalars())};
    EXPECT_FALSE(has_place(theirs, {.dataloader = true}, "here"));
    EXPECT_TRUE(has_place(own, {.dataloader = true}, "here"));
    EXPECT_FALSE(has_place(own, {}, "here"));

    config::JobConfig config;
    config.checkpoint.initial_load_model_only = false;
    config.training.first_sample = 5;
    EXPECT_TRUE(parts_to_begin_with(config, theirs, "DIR").dataloader);
    EXPECT_ERROR(parts_to_begin_with(config, own, "DIR"), UserError, "training.first_sample = 5",
                 "its own place in the data");
    config.checkpoint.exclude_from_loading = {config::SavedPart::DataLoader};
    EXPECT_NO_THROW(parts_to_begin_with(config, own, "DIR"));
}

TEST(Scalars, TheTokensMayBeUnknown) {
    const Scalars unknown{.position = {7, 0, 0}, .knows_samples = false, .knows_tokens = false, .seq_len = 1};
    EXPECT_NE(to_json(unknown).find("\"tokens\":null"), std::string::npos);
    EXPECT_EQ(parse_scalars(to_json(unknown), "here"), unknown);
    const checkpoint::Description theirs{.program = "TorchTitan", .state = to_json(unknown)};
    config::JobConfig config;
    config.checkpoint.initial_load_model_only = false;
    config.training.max_tokens = 1000;
    for (const auto& choose : {std::function([&] { return parts_to_begin_with(config, theirs, "DIR"); }),
                               std::function([&] { return parts_to_resume(config, {}, theirs); })}) {
        EXPECT_ERROR(choose(), UserError, "training.max_tokens is set",
                     "TorchTitan counts those of one rank");
        config.checkpoint.exclude_from_loading = {config::SavedPart::TrainState};
        EXPECT_NO_THROW(choose());
        config.checkpoint.exclude_from_loading = {};
    }
}

TEST(Scalars, AStepWithoutStatesSaysWhy) {
    config::JobConfig config;
    config.checkpoint.initial_load_model_only = false;
    const checkpoint::Description step{.model_only = true, .state = to_json(sample_scalars())};
    EXPECT_ERROR(parts_to_begin_with(config, step, "DIR", "states do not fit"), UserError,
                 "DIR: states do not fit", "checkpoint.exclude_from_loading = optimizer");
    config.checkpoint.exclude_from_loading = {config::SavedPart::Optimizer};
    EXPECT_TRUE(parts_to_begin_with(config, step, "DIR", "states do not fit").train_state);
}

/// The document's example, with blanks.
TEST(Scalars, AreAsFormatSays) {
    const Scalars scalars = parse_scalars(
        R"({"step": 100, "samples": 800, "tokens": 25600, "seq_len": 32, "seed": 0, "updates": 98,
            "guard": {"skipped": 2, "nonfinite_in_a_row": 0, "spikes_in_a_row": 0, "losses": [3.25],
                      "grad_norms": [0.5]}, "of_a_later_minor_version": 1})",
        "here");
    EXPECT_EQ(scalars.position, (train::Position{100, 800, 25600}));
    EXPECT_EQ(scalars.num_updates, 98);
    EXPECT_EQ(scalars.lr_schedule, 1);  // the key is newer
    EXPECT_EQ(scalars.guard, (train::UpdateGuard::State{{3.25}, {0.5}, 0, 0, 2}));
}

TEST(Scalars, OfOlderVersionsHaveALossScaleThatIsNullExceptInFloat16) {
    const std::string text = to_json(sample_scalars());
    const auto with_scale = [&](const std::string& scale) {
        return parse_scalars("{\"loss_scale\":" + scale + "," + text.substr(1), "here");
    };
    EXPECT_EQ(with_scale("null"), sample_scalars());
    const std::string in_float16 = "{\"loss_scale\":{\"scale\":65536.0,\"good_steps\":12}," + text.substr(1);
    EXPECT_TRUE(parse_scalars(in_float16, "here").has_loss_scale);
    EXPECT_ERROR(parts_to_resume({}, {}, {.step = 7, .state = in_float16}), UserError, "step 7", "float16",
                 "checkpoint.initial_load_path");
    config::JobConfig config;
    config.checkpoint.initial_load_model_only = false;
    EXPECT_ERROR(parts_to_begin_with(config, checkpoint::Description{.state = in_float16}, "DIR/step-7"),
                 UserError, "DIR/step-7", "float16");
    EXPECT_NO_THROW(parts_to_begin_with({}, checkpoint::Description{.state = in_float16}, "DIR/step-7"));
}

/// The log of a resume with 5 steps of warm-up, from a step with this state.
std::string differences_from(const Scalars& then) {
    std::ostringstream log;
    const auto before = spdlog::default_logger();
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
    config::JobConfig config;
    config.lr_scheduler.warmup_steps = 5;
    const layout::MeshShape mesh;
    log_differences(config, mesh,
                    {.mesh = mesh.name(), .config = config::print_toml(config), .state = to_json(then)});
    spdlog::set_default_logger(before);
    return log.str();
}

TEST(Scalars, AnOlderWarmUpIsSaidWhileItLasts) {
    Scalars then = {.position = {4, 8, 64}, .seq_len = 8};
    EXPECT_EQ(differences_from(then), "");
    then.lr_schedule = 1;
    EXPECT_NE(
        differences_from(then).find("optimizer.lr * step / (warmup_steps + 1) then, optimizer.lr * step "
                                    "/ warmup_steps now, until step 5"),
        std::string::npos);
    then.position.step = 5;
    EXPECT_EQ(differences_from(then), "");
}

TEST(Scalars, RefuseWhatNobodyWrote) {
    const std::string good = to_json(sample_scalars());
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string text = good;
        const size_t at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        return text.replace(at, from.size(), to);
    };
    for (const std::string& text :
         {std::string("{}"),
          std::string("[]"),
          std::string(""),
          std::string("{\"step\":"),
          good.substr(0, 40),
          with("\"step\":100", "\"step\":-1"),
          with("\"step\":100", "\"step\":1.5"),
          with("\"step\":100", "\"step\":\"1\""),
          with("\"samples\":800", "\"samples\":1e99"),
          with("\"samples\":800", "\"samples\":9223372036854775807"),
          with("\"samples\":800", "\"samples\":9007199254740993"),
          with("\"samples\":800", "\"samples\":562949953421312"),
          with("\"step\":100", "\"step\":-0.0"),
          with("\"seq_len\":32", "\"seq_len\":9223372036854775807"),
          with("\"seq_len\":32", "\"seq_len\":0"),
          with("\"tokens\":25600", "\"tokens\":9223372036854775807"),
          with("\"step\":100", "\"step\":18446744073709551615"),
          with("\"step\":100", "\"step\":true"),
          with("\"updates\":98", "\"updates\":9223372036854775807"),
          with("\"skipped\":3", "\"skipped\":1e3"),
          with("\"nonfinite_in_a_row\":1", "\"nonfinite_in_a_row\":9223372036854775807"),
          with("\"seed\":", "\"seed\":-1,\"was\":"),
          with("\"seed\":", "\"seed\":0.5,\"was\":"),
          with("\"data\":", "\"data\":5,\"was\":"),
          with("\"losses\":[", "\"losses\":[true,"),
          with("\"losses\":[", "\"losses\":[null,"),
          with("\"losses\":[", "\"losses\":[1e999,"),
          with("\"losses\":[", "\"losses\":[{},"),
          with("\"guard\":{", "\"guard\":[1],\"x\":{")}) {
        EXPECT_ERROR(parse_scalars(text, "place"), UserError, "place: the run's state cannot be read",
                     "lib/trainer/resume/FORMAT.md");
    }
}

/// As far as counts may go.
TEST(Scalars, HoldTheLongestRun) {
    Scalars longest = sample_scalars();
    longest.position = {int64_t{1} << 53, int64_t{1} << 48, int64_t{1} << 53};
    EXPECT_EQ(parse_scalars(to_json(longest), "here"), longest);
}

}  // namespace
}  // namespace argosy::resume
