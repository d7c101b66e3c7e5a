// Configurations of TorchTitan and Lit-GPT: what becomes of each key, and that the result is a run of ours.
#include "config/arrival.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "base/error.h"
#include "config/arrivals.h"

namespace argosy::config {
namespace {

TEST(Arrival, EachKeyOfTorchTitanIsAnsweredAtItsDefault) {
    const std::vector<Setting> defaults = torchtitan_defaults();
    ASSERT_EQ(defaults.size(), 149U);
    const Arrival arrival = translate(ForeignProgram::TorchTitan, defaults);
    for (const Setting& setting : defaults) {
        const auto found = std::ranges::find(arrival.keys, setting.key, &ArrivedKey::key);
        ASSERT_NE(found, arrival.keys.end()) << setting.key;
        EXPECT_NE(found->sentence, "") << setting.key;
        EXPECT_NE(found->fate, Fate::Missing) << setting.key << ": " << found->sentence;
    }
    EXPECT_GE(arrival.count(Fate::Taken), 50);
    EXPECT_EQ(read_back(arrival), arrival.config);
    EXPECT_EQ(arrival.config.model.flavor, "256x6x16");
    EXPECT_TRUE(arrival.config.optimizer.decay_all_parameters);
}

TEST(Arrival, FormerNamesAndSpellings) {
    const Arrival arrival = titan(
        "[training]\nbatch_size = 4\ncompile = true\ntensor_parallel_degree = 2\n"
        "[experimental]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = \"interleave_1f1b\"\n"
        "[quantize.dense.float8]\nenable = true\nrecipe_name = \"rowwise\"\n"
        "[float8]\nfilter_fqns = [\"output\"]\n[checkpoint]\nenable_checkpoint = true\n"
        "async_mode = \"async_with_pinned_mem\"\n");
    EXPECT_EQ(arrival.count(Fate::Missing), 0) << arrival_text(arrival, {});
    const JobConfig config = read_back(arrival);
    EXPECT_EQ(config.training.local_batch_size, 4);
    EXPECT_TRUE(config.compile.enable && config.checkpoint.enable);
    EXPECT_EQ(config.parallelism.tensor_parallel_degree, 2);
    EXPECT_EQ(config.parallelism.pipeline_parallel_degree, 2);
    EXPECT_EQ(config.parallelism.pipeline_parallel_schedule,
              PipelineSchedule::InterleavedOneForwardOneBackward);
    EXPECT_EQ(config.model.converters, std::vector{Converter::Float8});
    EXPECT_EQ(config.float8.recipe_name, Float8Recipe::Rowwise);
    EXPECT_EQ(config.float8.filter_fqns, std::vector<std::string>{"output"});
    EXPECT_EQ(config.checkpoint.async_mode, AsyncMode::Async);
    EXPECT_EQ(fate_of(arrival, "training.batch_size"), "equivalent: training.local_batch_size = 4");
}

TEST(Arrival, MissingKeysNameTheNearest) {
    const Arrival arrival = titan(
        "\"two\\nlines\" = 1\n[parallelism]\nexpert_tensor_parallel_degree = 8\npipeline_parallel_schedule = "
        "\"DualPipeV\"\n"
        "[training]\nenable_cpu_offload = true\nno_such_key = 1\n[model]\nflavor = \"671B\"\n"
        "[activation_checkpoint]\nmode = \"memory_budget\"\n[checkpoint]\ninitial_load_path = "
        "\"dcp/step-10\"\n"
        "[validation]\nenable = true\n");
    EXPECT_EQ(arrival.count(Fate::Missing), 8) << arrival_text(arrival, {});
    for (const char* key :
         {"parallelism.expert_tensor_parallel_degree", "training.enable_cpu_offload", "model.flavor",
          "activation_checkpoint.mode", "validation.enable"}) {
        EXPECT_EQ(fate_of(arrival, key).find("missing: "), 0U) << key;
        EXPECT_NE(fate_of(arrival, key).find("nearest: "), std::string::npos) << fate_of(arrival, key);
    }
    EXPECT_NE(fate_of(arrival, "training.no_such_key").find("unknown to TorchTitan and here"),
              std::string::npos);
    const JobConfig config = read_back(arrival);
    EXPECT_EQ(config.model.flavor, "671B");  // the run stops, rather than training another model
    EXPECT_FALSE(config.validation.enable);
}

TEST(Arrival, KeysWithoutEffectAreHarmless) {
    const Arrival arrival = titan(
        "[quantize.linear.float8]\nfilter_fqns = [\"output\"]\n[checkpoint]\nlast_save_model_only = false\n"
        "export_dtype = \"float32\"\n[fault_tolerance]\nenable = false\nreplica_id = 3\n[compile]\nenable = "
        "false\n");
    EXPECT_EQ(arrival.count(Fate::Harmless), 5) << arrival_text(arrival, {});
    EXPECT_TRUE(read_back(arrival).compile.enable);
}

TEST(Arrival, TheCommandLineOverridesTheFile) {
    const Arrival arrival =
        titan("[training]\nsteps = 10\ndataset_path = \"c4\"\n[compile]\nenable = false\n",
              {"training.steps", "2", "compile.enable", "true", "training.dataset_path", "F.h5",
               "model.converters", "float8", "model.hf_assets_path", ""});
    EXPECT_EQ(arrival.count(Fate::Missing), 0) << arrival_text(arrival, {});
    const JobConfig config = read_back(arrival);
    EXPECT_EQ(config.training.steps, 2);
    EXPECT_EQ(config.training.dataset_path, "F.h5");
    EXPECT_TRUE(arrival.given.contains("compile.enable"));
    EXPECT_EQ(config.model.converters, std::vector{Converter::Float8});
}

TEST(Arrival, ContradictionsAreNamedBeforeARun) {
    const Arrival arrival = titan("[training]\nlocal_batch_size = 8\nglobal_batch_size = 12\n");
    EXPECT_THROW(arrival_toml(arrival, {.path = "F.toml"}), UserError);
}

constexpr const char* kLitGpt = R"(# a comment
model_name: meta-llama/Meta-Llama-3.1-8B
model_config:
out_dir: out/pretrain  # where
precision: bf16-true
data:
  class_path: litgpt.data.TextFiles
  init_args:
    train_data_path: "a: b # c"

train:
  save_interval: 1000
  global_batch_size: 512
  micro_batch_size: 4
  lr_warmup_steps: 2000
  epochs:
  max_tokens: 1048577
  max_seq_length: 2048
  tie_embeddings: null
  min_lr: 4.0e-05
optimizer:
  class_path: torch.optim.AdamW
  init_args:
    lr: 4e-4
    betas:
      - 0.9
      - 0.97
devices: auto
logger_name: tensorboard
seed: 42
)";

TEST(Arrival, LitGpt) {
    const Arrival arrival = litgpt(kLitGpt, {"train.micro_batch_size", "8"});
    EXPECT_EQ(arrival.count(Fate::Missing), 0) << arrival_text(arrival, {});
    const JobConfig config = read_back(arrival);
    EXPECT_EQ(config.model.name, "llama3");
    EXPECT_EQ(config.model.flavor, "8B");
    EXPECT_EQ(config.job.dump_folder, "out/pretrain");
    EXPECT_EQ(config.training.dtype, Precision::BFloat16);
    EXPECT_EQ(config.training.local_batch_size, 8);
    EXPECT_EQ(config.training.steps, 1);  // 1048576 tokens a step
    EXPECT_EQ(config.optimizer.lr, 4e-4);
    EXPECT_EQ(config.optimizer.beta2, 0.97);
    EXPECT_NEAR(config.lr_scheduler.min_lr_factor, 0.1, 1e-12);
    EXPECT_EQ(config.lr_scheduler.decay_type, DecayType::Cosine);
    EXPECT_TRUE(config.checkpoint.enable && config.metrics.enable_tensorboard);
    EXPECT_EQ(config.debug.seed, 42);
}

TEST(Arrival, LitGptModelsWithoutAPresetStopTheRun) {
    const Arrival arrival = litgpt("model_name: pythia-14m\nmodel_config:\n  n_layer: 6\n");
    EXPECT_EQ(arrival.count(Fate::Missing), 7)
        << arrival_text(arrival, {});  // five kinds of parts, and the length
    EXPECT_EQ(read_back(arrival).model.flavor, "pythia-14m");
}

TEST(Arrival, OtherYamlIsRefusedWithItsLine) {
    for (const char* text : {"a: 1\nb: {c: 1}\n", "a: 1\nb: &x 1\n", "a: 1\n- b\n", "a: 1\nb: |\n",
                             "a:\n  - b: 1\n", "a: 1\n  b: 2\n", "a: 1\nb\n", "a: 1\nb: \"c\n"}) {
        try {
            read_yaml(text, "F");
            ADD_FAILURE() << text;
        } catch (const UserError& error) {
            EXPECT_EQ(std::string(error.what()).find("F:2: "), 0U) << text << error.what();
        }
    }
}

TEST(Arrival, MutatedYamlIsReadOrRefused) {
    std::mt19937 random(1);
    int num_refused = 0;
    for (int round = 0; round < 3000; ++round) {
        std::string text = kLitGpt;
        for (int edit = 0; edit < 3; ++edit) {
            const std::size_t at = random() % text.size();
            if (random() % 2) {
                text[at] = "\n: -#\"'[]{}|\t\\~x0"[random() % 17];
            } else {
                text.erase(at, random() % 9);
            }
        }
        try {
            const Arrival arrival = translate(ForeignProgram::LitGpt, read_yaml(text, "F"));
            EXPECT_NE(arrival_text(arrival, {}), "");
        } catch (const UserError&) {
            ++num_refused;
        }
    }
    EXPECT_GT(num_refused, 100);
    EXPECT_LT(num_refused, 2900);
}

TEST(Arrival, WordsAreOnThePage) {
    std::ostringstream page;
    page << std::ifstream(std::filesystem::path(ARGOSY_CONFIGS) / "ARRIVING.md").rdbuf();
    std::string text = page.str();
    std::ranges::transform(text, text.begin(), [](unsigned char letter) { return std::tolower(letter); });
    for (const ForeignWord& word : foreign_words()) {
        EXPECT_NE(text.find("`" + std::string(word.word) + "`"), std::string::npos) << word.word;
    }
}

TEST(Arrival, TheCommandToStartQuotesTheFile) {
    const Arrival arrival = titan("");
    EXPECT_NE(arrival_text(arrival, {.output = "my run's.toml"}).find("--config 'my run'\\''s.toml' --"),
              std::string::npos);
    EXPECT_NE(arrival_text(arrival, {.output = "a/run.toml"}).find("--config a/run.toml --"),
              std::string::npos);
}

TEST(Arrival, DevicesAndNodesOfLitGptAreDegrees) {
    const Arrival given = litgpt("devices: 8\nnum_nodes: 2\n");
    EXPECT_EQ(given.config.parallelism.data_parallel_shard_degree, 8);
    EXPECT_EQ(given.config.parallelism.data_parallel_replicate_degree, 2);
    const Arrival automatic = litgpt("devices: auto\n");
    EXPECT_EQ(automatic.config.parallelism.data_parallel_shard_degree, -1);
    EXPECT_EQ(automatic.config.parallelism.data_parallel_replicate_degree, 1);
    EXPECT_EQ(given.count(Fate::Missing), automatic.count(Fate::Missing));
}

}  // namespace
}  // namespace argosy::config
