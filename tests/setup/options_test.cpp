// The options of the rooms below, made from a configuration.
#include "setup/options.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "expect_error.h"
#include "scratch_folder.h"

namespace argosy::setup {
namespace {

using config::JobConfig;
using layout::MeshShape;

MeshShape mesh_of(int pipeline, int replicate, int shard, int tensor) {
    return {{pipeline, replicate, shard, /*context=*/1, tensor}};
}

JobConfig with_batches(int64_t local, int64_t global) {
    JobConfig config;
    config.training.local_batch_size = local;
    config.training.global_batch_size = global;
    return config;
}

void expect_sizes(const train::BatchSizes& found, int64_t global, int64_t microbatch_size,
                  int64_t num_microbatches) {
    EXPECT_EQ(found.global_batch, global);
    EXPECT_EQ(found.microbatch_size, microbatch_size);
    EXPECT_EQ(found.num_microbatches, num_microbatches);
}

TEST(BatchSizes, WithoutAGlobalBatchEveryDataRankTakesOne) {
    expect_sizes(batch_sizes(with_batches(8, -1), mesh_of(1, 1, 1, 1)), 8, 8, 1);
    expect_sizes(batch_sizes(with_batches(8, -1), mesh_of(1, 2, 3, 4)), 48, 8, 1);
}

TEST(BatchSizes, TheGlobalBatchIsReachedByAccumulation) {
    expect_sizes(batch_sizes(with_batches(4, 24), mesh_of(1, 1, 1, 1)), 24, 4, 6);
    const train::BatchSizes sizes = batch_sizes(with_batches(4, 24), mesh_of(1, 1, 2, 1));
    expect_sizes(sizes, 24, 4, 3);
    EXPECT_EQ(sizes.samples_per_rank(), 12);
    EXPECT_EQ(sizes.global_tokens(), 24 * JobConfig().training.seq_len);
}

TEST(BatchSizes, APipelineTakesSmallerMicrobatches) {
    JobConfig config = with_batches(8, -1);
    config.parallelism.pipeline_parallel_microbatch_size = 2;
    expect_sizes(batch_sizes(config, mesh_of(2, 1, 2, 1)), 16, 2, 4);
    expect_sizes(batch_sizes(config, mesh_of(1, 1, 2, 1)), 16, 8,
                 1);  // without a pipeline there are no such microbatches
    config.training.global_batch_size = 48;
    expect_sizes(batch_sizes(config, mesh_of(2, 1, 2, 1)), 48, 2, 12);
}

TEST(BatchSizes, OfValidationNeedWholeMicrobatchesOnly) {
    JobConfig config = with_batches(8, 32);
    expect_sizes(validation_batch_sizes(config, mesh_of(1, 1, 2, 1)), 16, 8, 1);
    config.validation.local_batch_size = 24;
    expect_sizes(validation_batch_sizes(config, mesh_of(1, 1, 2, 1)), 48, 8, 3);
    config.parallelism.pipeline_parallel_microbatch_size = 4;
    config.validation.local_batch_size = 12;
    expect_sizes(validation_batch_sizes(config, mesh_of(2, 1, 2, 1)), 24, 4, 3);
}

TEST(BatchSizes, RefusesAGlobalBatchThatRanksCannotShare) {
    EXPECT_ERROR(batch_sizes(with_batches(8, 40), mesh_of(1, 2, 2, 1)), UserError,
                 "training.global_batch_size = 40", "4 data-parallel ranks", "local_batch_size = 8");
    EXPECT_ERROR(batch_sizes(with_batches(8, 8), mesh_of(1, 1, 2, 1)), UserError, "= 8 is not a multiple");
}

TEST(MeshRequest, TakesEveryDegree) {
    config::JobConfig config;
    config::Parallelism& parallelism = config.parallelism;
    EXPECT_EQ(mesh_request(config).shard, -1);
    parallelism.pipeline_parallel_degree = 2;
    parallelism.data_parallel_replicate_degree = 3;
    parallelism.data_parallel_shard_degree = 5;
    parallelism.tensor_parallel_degree = 7;
    const layout::MeshRequest request = mesh_request(config);
    EXPECT_EQ(request.pipeline, 2);
    EXPECT_EQ(request.replicate, 3);
    EXPECT_EQ(request.shard, 5);
    EXPECT_EQ(request.tensor, 7);
    EXPECT_EQ(request.context, 1);
    EXPECT_EQ(request.expert, 1);
}

TEST(MeshRequest, KnowsTheNumberOfExperts) {
    config::JobConfig config;
    config.parallelism.expert_parallel_degree = 4;
    EXPECT_ERROR(layout::resolve(mesh_request(config), 4), UserError,
                 "expert_parallel_degree is 4, but the model has no experts");
    config.model.name = "qwen3_moe";
    EXPECT_EQ(layout::resolve(mesh_request(config), 8).name(), "dp_shard 8, ep 4");
}

config::Model named(std::optional<std::string> name, std::optional<std::string> flavor) {
    return {
        .name = std::move(name), .flavor = std::move(flavor), .hf_assets_path = "", .accept_config_keys = {}};
}

TEST(ChooseModel, APresetAndItsDefaults) {
    EXPECT_EQ(choose_model({}), model::preset("llama3", "debugmodel"));
    EXPECT_EQ(choose_model(named(std::nullopt, "8B")), model::preset("llama3", "8B"));
    EXPECT_EQ(choose_model(named("qwen3", "0.6B")), model::preset("qwen3", "0.6B"));
    EXPECT_ERROR(choose_model(named("llama3", "9B")), UserError, "9B");
}

class ChooseModelFromFolder : public ::testing::Test {
  protected:
    ChooseModelFromFolder() {
        write_file(folder_ / "config.json",
                   R"({"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896,
            "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
            "intermediate_size": 4864, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
            "tie_word_embeddings": true, "hidden_act": "silu"})");
    }
    config::Model with_folder(config::Model model) const {
        model.hf_assets_path = (folder_ / "").string();
        return model;
    }
    ScratchFolder folder_;
};

TEST_F(ChooseModelFromFolder, TheFolderAlone) {
    EXPECT_EQ(model::differences(choose_model(with_folder({})), model::preset("qwen2", "0.5B")),
              std::vector<std::string>{});
}

TEST_F(ChooseModelFromFolder, BothIfTheyAgree) {
    const model::ModelSpec spec = choose_model(with_folder(named("qwen2", "0.5B")));
    EXPECT_EQ(model::differences(spec, model::preset("qwen2", "0.5B")), std::vector<std::string>{});
}

TEST_F(ChooseModelFromFolder, BothAreRefusedIfTheyDiffer) {
    EXPECT_ERROR(choose_model(with_folder(named("qwen2", "1.5B"))), UserError, "qwen2 1.5B", "config.json",
                 "different models", "1536", "896", "remove one of the two");
}

TEST_F(ChooseModelFromFolder, ANameOrAFlavorAloneIsComparedWithTheFolder) {
    EXPECT_NO_THROW(choose_model(with_folder(named("qwen2", std::nullopt))));
    EXPECT_NO_THROW(choose_model(with_folder(named(std::nullopt, "0.5B"))));
    EXPECT_ERROR(choose_model(with_folder(named("qwen3", std::nullopt))), UserError, "model.name is qwen3",
                 "qwen2");
    EXPECT_ERROR(choose_model(with_folder(named(std::nullopt, "7B"))), UserError, "different models");
}

TEST_F(ChooseModelFromFolder, AnUnknownKeyIsAccepted) {
    write_file(folder_ / "config.json",
               read_file(folder_ / "config.json").replace(0, 1, "{\"use_qk_norm\": false,"));
    config::Model model = with_folder({});
    EXPECT_ERROR(choose_model(model), UserError, "config.json", "\"use_qk_norm\"",
                 "model.accept_config_keys");
    model.accept_config_keys = {"use_qk_norm"};
    EXPECT_EQ(choose_model(model).name, "qwen2");
}

TEST_F(ChooseModelFromFolder, ATokenizerAloneNeedsAPreset) {
    std::filesystem::remove(folder_ / "config.json");
    write_file(folder_ / "tokenizer.json", "");
    EXPECT_EQ(choose_model(with_folder(named("qwen2", "0.5B"))).name, "qwen2");
    for (const auto& [name, flavor] :
         {std::pair<const char*, const char*>{"qwen2", nullptr}, {nullptr, "8B"}}) {
        config::Model model;
        if (name != nullptr) model.name = name;
        if (flavor != nullptr) model.flavor = flavor;
        EXPECT_ERROR(choose_model(with_folder(model)), UserError, "no config.json",
                     "model.name and model.flavor");
    }
}

TEST_F(ChooseModelFromFolder, APresetNeedsNoFolder) {
    for (const char* name : {"missing", ""}) {
        config::Model model = named("llama2", "7B");
        model.hf_assets_path = (folder_ / name).string();
        std::filesystem::remove(folder_ / "config.json");
        EXPECT_EQ(choose_model(model), model::preset("llama2", "7B"));
        EXPECT_NE(missing_assets(model).find(
                      "neither a config.json nor a tokenizer: the model is the preset llama2 7B"),
                  std::string::npos)
            << missing_assets(model);
    }
    EXPECT_EQ(missing_assets({}), "");
    write_file(folder_ / "tokenizer.json", "");
    EXPECT_EQ(missing_assets(with_folder({})), "");
}

TEST_F(ChooseModelFromFolder, PresetsOfOneArchitectureAreComparedByTheirSizes) {
    const model::ModelSpec spec = model::preset("llama2", "7B");
    write_file(folder_ / "config.json", model::hugging_face_config(spec));
    EXPECT_EQ(model::differences(choose_model(with_folder(named("llama2", "7B"))), spec),
              std::vector<std::string>{});
    EXPECT_NO_THROW(choose_model(with_folder(named("llama3", std::nullopt))));
    EXPECT_ERROR(choose_model(with_folder(named("llama2", "13B"))), UserError, "the preset llama2 13B");
}

TEST_F(ChooseModelFromFolder, AFolderWithoutAModel) {
    config::Model model;
    model.hf_assets_path = (folder_ / "missing").string();
    EXPECT_ERROR(choose_model(model), UserError, "missing", "config.json");
    model.hf_assets_path = (folder_ / "nested").string();
    std::filesystem::create_directories(folder_ / "nested" / "config.json");
    EXPECT_ERROR(choose_model(model), UserError, "no file", "nested/config.json",
                 "a folder with a config.json");
}

TEST(SettleModel, NamesPairsThatAreNone) {
    const auto missing = [](const char* name, const char* flavor) {
        config::Arrival arrival;
        arrival.config.model.name = name;
        arrival.config.model.flavor = flavor;
        settle_model(arrival, "run.model");
        return arrival.keys.empty() ? "" : arrival.keys[0].sentence;
    };
    EXPECT_EQ(missing("llama3", "8B"), "");
    EXPECT_EQ(missing("qwen2", "7B"), "");
    EXPECT_NE(missing("llama3", "7B").find("no preset has model.name = \"llama3\" and"), std::string::npos);
    EXPECT_NE(missing("qwen3", "256x6x16").find("qwen3: 0.6B"), std::string::npos);
}

train::TrainerOptions options_of(const JobConfig& config, const MeshShape& mesh = mesh_of(1, 1, 1, 1)) {
    return trainer_options(config, choose_model(config.model), mesh);
}

JobConfig pipelined(int degree) {
    JobConfig config;
    config.parallelism.pipeline_parallel_degree = degree;
    return config;
}

TEST(TrainerOptions, CarryTheConfiguration) {
    JobConfig config;
    config.training.seq_len = 77;
    config.training.max_norm = 0.25;
    config.training.local_batch_size = 3;
    config.training.global_batch_size = 12;
    config.debug.seed = 41;
    config.optimizer = {
        .beta1 = 0.7, .beta2 = 0.8, .eps = 1e-4, .weight_decay = 0.3, .decay_all_parameters = true};
    const train::TrainerOptions options = options_of(config);
    EXPECT_EQ(options.spec, model::preset("llama3", "debugmodel"));
    EXPECT_EQ(options.model.seq_len, 77);
    EXPECT_EQ(options.model.microbatch_size, 3);
    EXPECT_EQ(options.num_microbatches, 4);
    EXPECT_EQ(options.model.seed, 41);
    EXPECT_EQ(options.step.max_norm, 0.25);
    EXPECT_TRUE(options.step.decay_all_parameters);
    EXPECT_EQ(options.step.adamw.beta1, 0.7);
    EXPECT_EQ(options.step.adamw.beta2, 0.8);
    EXPECT_EQ(options.step.adamw.eps, 1e-4);
    EXPECT_EQ(options.step.weight_decay, 0.3);
}

TEST(TrainerOptions, GroupsNameParameters) {
    JobConfig config;
    config.optimizer.groups = {{"norm", 0.5, 0.0}, {"wq"}};
    const auto groups = options_of(config).step.groups;
    ASSERT_EQ(groups.size(), 2);
    EXPECT_EQ(groups[0].lr_factor, 0.5);
    EXPECT_EQ(groups[0].weight_decay, 0.0);
    EXPECT_EQ(groups[1].weight_decay, std::nullopt);
    config.optimizer.groups = {{"nrom"}};
    EXPECT_ERROR(options_of(config), UserError,
                 "optimizer.groups has the part nrom, which is in no parameter's name");
}

TEST(TrainerOptions, QkClipIsForModelsWithoutQkNorm) {
    JobConfig config;
    EXPECT_EQ(options_of(config).step.qk_clip, std::nullopt);
    config.optimizer.qk_clip = 100;
    EXPECT_EQ(options_of(config).step.qk_clip, 100);
    config.model.name = "qwen3";
    config.model.flavor = "0.6B";
    EXPECT_ERROR(options_of(config), UserError, "optimizer.qk_clip = 100 shrinks wq and wk",
                 "remove the key");
}

TEST(TrainerOptions, ImbalanceIsForModelsWithExperts) {
    JobConfig config;
    config.moe.planned_imbalance = 1.5;
    EXPECT_ERROR(options_of(config), UserError, "[moe] is for experts, but the model llama3 has none");
    config.model.name = "qwen3_moe";
    EXPECT_EQ(options_of(config).model.planned_imbalance, 1.5);
}

TEST(TrainerOptions, BalancingIsForModelsWithExperts) {
    JobConfig config;
    config.moe.z_loss = 0.001;
    EXPECT_ERROR(options_of(config), UserError, "[moe] is for experts, but the model llama3 has none",
                 "remove the keys", "mixtral");
    config.model.name = "mixtral";
    config.model.flavor = "8x7B";
    config.moe = {.bias_update_rate = 0.1, .sequence_loss = 0.2, .step_loss = 0.3, .z_loss = 0.4};
    const train::BalanceOptions balance = options_of(config).step.balance;
    EXPECT_EQ(balance.bias_update_rate, 0.1);
    EXPECT_EQ(balance.sequence_loss, 0.2);
    EXPECT_EQ(balance.step_loss, 0.3);
    EXPECT_EQ(balance.z_loss, 0.4);
    EXPECT_FALSE(balance.force_balance);
    config.moe = {.force_balance = true};
    EXPECT_TRUE(options_of(config).step.balance.force_balance);
    config.moe.bias_update_rate = 0.1;
    EXPECT_ERROR(options_of(config), UserError,
                 "moe.bias_update_rate = 0.1, but with moe.force_balance experts take turns", "remove one");
}

TEST(TrainerOptions, NumberTypes) {
    JobConfig config;
    EXPECT_EQ(options_of(config).model.precision.master, at::kFloat);
    EXPECT_EQ(options_of(config).model.precision.compute, at::kBFloat16);
    EXPECT_EQ(options_of(config).model.precision.reduce, at::kFloat);
    config.training.dtype = config.training.mixed_precision_param = config.training.mixed_precision_reduce =
        config::Precision::Float64;
    EXPECT_EQ(options_of(config).model.precision.master, at::kDouble);
    EXPECT_EQ(options_of(config).model.precision.compute, at::kDouble);
    EXPECT_EQ(options_of(config).model.precision.reduce, at::kDouble);
    EXPECT_EQ(options_of(config).model.precision.gradient(), at::kDouble);
}

TEST(TrainerOptions, GradientsAreOfTheTypeGiven) {
    JobConfig config;
    EXPECT_EQ(options_of(config).model.precision.gradient(), at::kFloat);
    config.training.gradient_accumulation_dtype = config::Precision::Float32;
    EXPECT_EQ(options_of(config).model.precision.gradient(), at::kFloat);
    config.training.gradient_accumulation_dtype = config::Precision::BFloat16;
    EXPECT_EQ(options_of(config).model.precision.gradient(), at::kBFloat16);
    EXPECT_EQ(options_of(config).model.precision.reduce, at::kFloat);
}

TEST(TrainerOptions, StatesAreOfTheTypeGiven) {
    using enum config::Precision;
    JobConfig config;
    EXPECT_EQ(options_of(config).step.adamw.moments, std::nullopt);
    config.optimizer.state_dtype = BFloat16;
    EXPECT_EQ(options_of(config).step.adamw.moments, at::kBFloat16);
    config.training.dtype = BFloat16;
    EXPECT_EQ(options_of(config).model.precision.master, at::kBFloat16);
}

TEST(TrainerOptions, WeightsAreFreedAfterEachPassExceptInAPipeline) {
    using config::ReshardAfterForward;
    for (const int degree : {1, 2}) {
        JobConfig config = pipelined(degree);
        const MeshShape mesh = mesh_of(degree, 1, 1, 1);
        const auto of = [&](ReshardAfterForward choice) {
            config.parallelism.fsdp_reshard_after_forward = choice;
            return options_of(config, mesh).reshard;
        };
        EXPECT_EQ(of(ReshardAfterForward::Default),
                  degree > 1 ? parallel::Reshard::Never : parallel::Reshard::EveryPass);
        EXPECT_EQ(of(ReshardAfterForward::Always), parallel::Reshard::EveryPass);
        EXPECT_EQ(of(ReshardAfterForward::Never), parallel::Reshard::Never);
    }
}

TEST(TrainerOptions, RecomputeModes) {
    using config::RecomputeMode;
    JobConfig config;
    const auto of = [&](RecomputeMode mode) {
        config.activation_checkpoint.mode = mode;
        return options_of(config).recompute;
    };
    EXPECT_EQ(of(RecomputeMode::None), model::RecomputeMode::None);
    EXPECT_EQ(of(RecomputeMode::Selective), model::RecomputeMode::Selective);
    EXPECT_EQ(of(RecomputeMode::Full), model::RecomputeMode::Full);
}

TEST(TrainerOptions, StagesGivenOrEven) {
    JobConfig config = pipelined(2);
    config.model.flavor = "8B";  // 32 layers
    config.parallelism.pipeline_parallel_last_stage_less_layers = 3;
    EXPECT_EQ(options_of(config, mesh_of(2, 1, 1, 1)).stage_layers, (std::vector{17, 15}));
    config.parallelism.pipeline_parallel_layers_per_stage = {30, 2};
    EXPECT_EQ(options_of(config, mesh_of(2, 1, 1, 1)).stage_layers, (std::vector{30, 2}));
    EXPECT_EQ(options_of(JobConfig()).stage_layers, std::vector{4});
}

TEST(TrainerOptions, SeveralStagesOnARank) {
    JobConfig config = pipelined(2);
    config.model.flavor = "8B";  // 32 layers
    const auto layers = [&] { return options_of(config, mesh_of(2, 1, 1, 1)).stage_layers; };
    config.parallelism.pipeline_parallel_schedule = config::PipelineSchedule::ZbvZeroBubble;
    EXPECT_EQ(layers(), (std::vector{8, 9, 8, 7})) << "two stages on each rank by default";
    config.parallelism.pipeline_parallel_first_stage_less_layers = 3;
    EXPECT_EQ(layers(), (std::vector{6, 9, 9, 8}));
    config.parallelism.pipeline_parallel_first_stage_less_layers = 1;
    config.parallelism.pipeline_parallel_layers_per_stage = {6};
    EXPECT_EQ(layers(), (std::vector{5, 6, 6, 6, 5, 4}))
        << "34 layers by 6, the embedding and the head included";
    config.parallelism.pipeline_parallel_layers_per_stage = {7};
    EXPECT_ERROR(layers(), UserError, "layers_per_stage = 7", "5 stages", "2 ranks");
    config.parallelism.pipeline_parallel_layers_per_stage = {10, 10, 6, 6};
    EXPECT_EQ(layers(), (std::vector{10, 10, 6, 6}));
}

TEST(TrainerOptions, EveryScheduleOfTheConfigurationExists) {
    JobConfig config;
    EXPECT_EQ(options_of(config).schedule, "1F1B");
    config.parallelism.pipeline_parallel_schedule = config::PipelineSchedule::GPipe;
    EXPECT_EQ(options_of(config).schedule, "GPipe");
    const auto names = config::names_of(config::PipelineSchedule());
    EXPECT_EQ(std::vector<std::string>(names.begin(), names.end()), parallel::schedule_names());
}

TEST(LrScheduleOptions, TotalIsTheRunsNumberOfStepsUnlessGiven) {
    JobConfig config;
    config.training.steps = 500;  // max_tokens may leave 300 of them
    config.optimizer.lr = 0.125;
    config.lr_scheduler = {
        .warmup_steps = 7, .decay_ratio = 0.4, .decay_type = config::DecayType::Cosine, .min_lr_factor = 0.1};
    const train::LrScheduleOptions options = lr_schedule_options(config, /*final_step=*/300);
    EXPECT_EQ(options.peak, 0.125);
    EXPECT_EQ(options.warmup_steps, 7);
    EXPECT_EQ(options.total_steps, 300);
    EXPECT_EQ(options.decay_ratio, 0.4);
    EXPECT_EQ(options.shape, train::DecayShape::Cosine);
    EXPECT_EQ(options.min_factor, 0.1);
    config.lr_scheduler.total_steps = 900;
    EXPECT_EQ(lr_schedule_options(config, 300).total_steps, 900);
}

TEST(LrScheduleOptions, EveryShape) {
    JobConfig config;
    const auto of = [&](config::DecayType type) {
        config.lr_scheduler.decay_type = type;
        return lr_schedule_options(config, 300).shape;
    };
    EXPECT_EQ(of(config::DecayType::Linear), train::DecayShape::Linear);
    EXPECT_EQ(of(config::DecayType::Cosine), train::DecayShape::Cosine);
    EXPECT_EQ(of(config::DecayType::Sqrt), train::DecayShape::Sqrt);
}

}  // namespace
}  // namespace argosy::setup
