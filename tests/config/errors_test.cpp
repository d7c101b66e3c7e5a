// Every kind of configuration mistake, with its message.
#include <gtest/gtest.h>

#include "base/error.h"
#include "config/arrival.h"
#include "config/config_file.h"
#include "config/parse.h"

namespace argosy::config {
namespace {

/// The message of the UserError that `words` cause; "no error" if they cause none.
std::string error_of(const std::vector<std::string>& words) {
    try {
        parse_command_line(words);
    } catch (const UserError& error) {
        EXPECT_EQ(error.code(), ExitCode::BadInput);
        return error.what();
    }
    return "no error";
}

/// The message of the UserError that a file with this content causes; the message shows the file's path as F.
std::string file_error(const std::string& content) {
    const ConfigFile file(content);
    std::string message = error_of({"--config", file.path()});
    for (auto at = message.find(file.path()); at != std::string::npos; at = message.find(file.path())) {
        message.replace(at, file.path().size(), "F");
    }
    return message;
}

TEST(Errors, UnknownKeyNamesTheNearest) {
    EXPECT_EQ(file_error("[training]\n\nseq_length = 8\n"),
              "unknown key training.seq_length in F:3; did you mean training.seq_len?");
    EXPECT_EQ(file_error("[training.dataloader]\nnum_workers = 8\n"),
              "unknown key training.dataloader in F:1; it is TorchTitan's; pretrain --from-torchtitan F.toml "
              "translates a whole file");
    EXPECT_EQ(
        file_error("[training]\ngc_freq = 50\n"),
        "unknown key training.gc_freq in F:2; it is TorchTitan's (there is no garbage collector that could "
        "stop a rank); pretrain --from-torchtitan F.toml translates a whole file");
    EXPECT_EQ(file_error("[checkpoint]\nenable_checkpoint = true\n"),
              "unknown key checkpoint.enable_checkpoint in F:2; its name is checkpoint.enable");
    EXPECT_EQ(file_error("seq_len = 8\n"), "unknown key seq_len in F:1; did you mean training.seq_len?");
    EXPECT_EQ(error_of({"--optimizer.seq_len", "8"}),
              "unknown option --optimizer.seq_len; did you mean --training.seq_len?");
    EXPECT_EQ(error_of({"--confg", "F.toml"}), "unknown option --confg; did you mean --config?");
    EXPECT_EQ(error_of({"--training.nonsense=1"}),
              "unknown option --training.nonsense; --help training lists the keys of its section");
    EXPECT_EQ(error_of({"--nonsense"}), "unknown option --nonsense; --help lists all keys");
}

// A key of another section may have just this name: checkpoint.enable.
TEST(Errors, AnUnknownKeyOfASectionIsMeantForThatSection) {
    EXPECT_EQ(error_of({"--profiling.enable"}),
              "unknown option --profiling.enable; did you mean --profiling.enable_profiling?");
    EXPECT_EQ(file_error("[metrics]\nfolder = \"tb\"\n"),
              "unknown key metrics.folder in F:2; did you mean metrics.save_tb_folder?");
}

TEST(Errors, AllMistakesOfALineAreNamedAtOnce) {
    EXPECT_EQ(
        error_of({"--tp", "8", "--training.steps=x", "stray", "--compile.enable", "--json"}),
        "4 mistakes: (1) unexpected 'stray' on the command line; options are --config F.toml and "
        "--section.key value; (2) --json is an option of --plan; add --plan; (3) unknown option --tp; it "
        "is --parallelism.tensor_parallel_degree; (4) training.steps on the command line must be an "
        "integer, but is 'x'");
    EXPECT_EQ(file_error("[training]\nsteps = 0\nseq = 3\n"),
              "2 mistakes: (1) unknown key training.seq in F:3; did you mean training.seq_len?; (2) "
              "training.steps in F:2 is 0; it must be >= 1");
    EXPECT_EQ(
        error_of({"--from-litgpt", "F.yaml", "--plan", "--nonsense", "1"}),
        "2 mistakes: (1) unknown option --nonsense; --help lists all keys; (2) --plan has no effect beside "
        "--from-torchtitan or --from-litgpt; give it to the run");
}

TEST(Errors, WhatUsersOfOtherTrainersTypeIsAnsweredWithKeysThatExist) {
    for (const ForeignWord& word : foreign_words()) {
        const std::string answer(word.answer);
        for (size_t at = answer.find("--"); at != std::string::npos; at = answer.find("--", at + 1)) {
            const std::string key = answer.substr(at + 2, answer.find_first_of(" ,;)", at) - at - 2);
            const bool is_key = key.find('.') != std::string::npos;
            EXPECT_TRUE(!is_key || find_field(key) != nullptr) << answer;
        }
    }
    for (const auto& [option, part] : std::initializer_list<std::pair<const char*, const char*>>{
             {"--tp", "tensor_parallel_degree"},
             {"--resume", "--checkpoint.enable true"},
             {"--wandb", "jobs/export_run.py --wandb"},
             {"--batch-size", "local_batch_size"},
             {"--lr", "did you mean --optimizer.lr?"},
             {"--seed", "did you mean --debug.seed?"}}) {
        EXPECT_NE(error_of({option, "1"}).find(part), std::string::npos) << error_of({option, "1"});
    }
}

TEST(Errors, WordsOfOtherProgramsAreAnsweredWithTheKeys) {
    for (const char* word : {"--FULL_SHARD", "--fsdp", "--fsdp.full-shard"}) {
        EXPECT_NE(error_of({word}).find("--parallelism.data_parallel_shard_degree N"), std::string::npos)
            << word;
    }
    EXPECT_EQ(error_of({"--tensor-model-parallel-size", "8"}),
              "unknown option --tensor-model-parallel-size; it is --parallelism.tensor_parallel_degree");
    EXPECT_NE(file_error("[training]\nzero_stage = 3\n").find("ZeRO stage 1 or 2 is --parallelism."),
              std::string::npos);
    EXPECT_NE(file_error("[fault_tolerance]\nenable = true\n").find("it is TorchTitan's"), std::string::npos);
}

TEST(Errors, BooleansNeedNoValue) {
    const JobConfig config = parse_command_line({"--debug.deterministic", "--training.steps", "3"}).config;
    EXPECT_TRUE(config.debug.deterministic);
    EXPECT_EQ(config.training.steps, 3);
    EXPECT_FALSE(parse_command_line({"--compile.enable", "false"}).config.compile.enable);
}

TEST(Errors, Switches) {
    EXPECT_EQ(file_error("[parallelism]\nenable_async_tensor_parallel = 1\n"),
              "parallelism.enable_async_tensor_parallel in F:2 must be true, false or \"auto\", but is the "
              "integer 1");
    EXPECT_EQ(error_of({"--parallelism.enable_async_tensor_parallel", "maybe"}),
              "parallelism.enable_async_tensor_parallel on the command line is \"maybe\"; it must be one of "
              "false, true, auto");
}

TEST(Errors, KeysThatHaveLeft) {
    EXPECT_EQ(file_error("[compile]\nside_stream = false\n[quantize.linear.float8]\nemulated_accumulation = "
                         "\"float32\"\n[profiling]\nenable_memory_snapshot = false\n"
                         "save_memory_snapshot_folder = \"memory_snapshot\"\n"),
              "no error");
    for (const char* value : {"true", "1979-05-27", "{a = 1}"})
        EXPECT_TRUE(file_error(std::string("[compile]\nside_stream = ") + value + "\n")
                        .starts_with("unknown key compile.side_stream in F:2; "));
}

TEST(Errors, UnknownSection) {
    EXPECT_EQ(file_error("[job]\n[optimiser]\nlr = 1.0\n"),
              "unknown section [optimiser] in F:2; did you mean [optimizer]?");
    EXPECT_NE(file_error("[xyz]\n").find("unknown section [xyz] in F:1; the sections are job, model,"),
              std::string::npos);
    EXPECT_EQ(file_error("training = 3\n"),
              "training in F:1 is a section: write [training] and its keys below");
    EXPECT_EQ(file_error("[[training]]\nsteps = 3\n"),
              "training in F:1 is a section: write [training] and its keys below");
}

TEST(Errors, SectionsWithDotsInTheirNames) {
    EXPECT_EQ(file_error("[quantize.linear.flot8]\n"),
              "unknown section [quantize.linear.flot8] in F:1; did you mean [quantize.linear.float8]?");
    EXPECT_EQ(file_error("[quantize.linear.float8]\nrecipe = \"rowwise\"\n"),
              "unknown key quantize.linear.float8.recipe in F:2; did you mean "
              "quantize.linear.float8.recipe_name?");
    EXPECT_EQ(file_error("[quantize.linear.float8]\nrecipe_nam = \"rowwise\"\n"),
              "unknown key quantize.linear.float8.recipe_nam in F:2; did you mean "
              "quantize.linear.float8.recipe_name?");
}

TEST(Errors, Converters) {
    EXPECT_EQ(
        error_of({"--quantize.linear.float8.recipe_name", "rowwise"}),
        "[quantize.linear.float8] has no effect without model.converters = [\"quantize.linear.float8\"]; "
        "add it, or remove the keys");
    EXPECT_EQ(error_of({"--model.converters", "quantize.linear.float8,quantize.linear.mx"}),
              "model.converters has 2 converters of the same layers; choose one");
    EXPECT_EQ(
        error_of({"--model.converters", "quantize.linear.mx", "--training.dtype", "float64",
                  "--training.mixed_precision_param", "float64", "--training.mixed_precision_reduce",
                  "float64"}),
        "quantize.linear.mx sums products in float32: set training.mixed_precision_param to bfloat16 or "
        "float32");
    EXPECT_EQ(
        error_of({"--model.converters", "quantize.linear.float8", "--quantize.linear.float8.recipe_name",
                  "rowwise", "--quantize.linear.float8.enable_fsdp_float8_all_gather", "true"}),
        "quantize.linear.float8.enable_fsdp_float8_all_gather is for the recipe tensorwise, not for rowwise: "
        "weights are gathered with one scale for a whole matrix");
    EXPECT_EQ(
        error_of({"--model.converters", "quantize.linear.mx", "--quantize.linear.float8.emulate", "true"}),
        "[quantize.linear.float8] has no effect without model.converters = [\"quantize.linear.float8\"]; "
        "add it, or remove the keys");
    EXPECT_NE(error_of({"--model.converters", "quantize.grouped_mm.float8"}).find("quantize.linear.float8"),
              std::string::npos);
}

TEST(Errors, WrongTypeInAFile) {
    EXPECT_EQ(file_error("[training]\nsteps = \"ten\"\n"),
              "training.steps in F:2 must be an integer, but is the string \"ten\"");
    EXPECT_EQ(file_error("[training]\nsteps = 1.5\n"),
              "training.steps in F:2 must be an integer, but is the number 1.5");
    EXPECT_EQ(file_error("[training]\nshuffle = 1\n"),
              "training.shuffle in F:2 must be true or false, but is the integer 1");
    EXPECT_EQ(file_error("[optimizer]\nlr = true\n"), "optimizer.lr in F:2 must be a number, but is true");
    EXPECT_EQ(file_error("[job]\ndescription = 1979-05-27\n"),
              "job.description in F:2 must be a string, but is a date or time");
    EXPECT_EQ(file_error("[training.steps]\nx = 1\n"),
              "training.steps in F:1 must be an integer, but is a table");
    EXPECT_EQ(file_error("[training]\nsteps = [1, 2]\n"),
              "training.steps in F:2 must be an integer, but is the list [1, 2]");
    EXPECT_EQ(file_error("[parallelism]\npipeline_parallel_layers_per_stage = [1, \"x\"]\n"),
              "parallelism.pipeline_parallel_layers_per_stage in F:2 must be a list of integers, but is a "
              "list with elements of another type");
    EXPECT_EQ(
        file_error("[model]\nconverters = [{name = \"x\"}]\n"),
        "model.converters in F:2 must be a list of strings, but is a list with elements of another type");
}

TEST(Errors, WrongTypeOnTheCommandLine) {
    EXPECT_EQ(error_of({"--training.steps", "1e3"}),
              "training.steps on the command line must be an integer, but is '1e3'");
    EXPECT_EQ(error_of({"--training.steps", "99999999999999999999"}),
              "training.steps on the command line must be between -2^63 and 2^63 - 1, but is "
              "'99999999999999999999'");
    EXPECT_EQ(
        error_of({"--optimizer.lr", "1e400"}),
        "optimizer.lr on the command line must be 0 or between 1e-307 and 1e308 in size, but is '1e400'");
    for (const char* word : {"yes", "1", "True", ""}) {
        EXPECT_EQ(
            error_of({"--training.shuffle", word}),
            std::string("training.shuffle on the command line must be true or false, but is '") + word + "'");
    }
    EXPECT_EQ(error_of({"--optimizer.lr", "3e-4x"}),
              "optimizer.lr on the command line must be a number, but is '3e-4x'");
    EXPECT_EQ(error_of({"--parallelism.pipeline_parallel_layers_per_stage", "4,,3"}),
              "parallelism.pipeline_parallel_layers_per_stage on the command line must be a list of "
              "integers, but is "
              "'4,,3'");
}

TEST(Errors, OutOfRangeNamesTheBound) {
    EXPECT_EQ(file_error("[training]\nsteps = 0\n"), "training.steps in F:2 is 0; it must be >= 1");
    EXPECT_EQ(error_of({"--optimizer.beta1", "1"}),
              "optimizer.beta1 on the command line is 1.0; it must be < 1");
    EXPECT_EQ(error_of({"--optimizer.beta1=-0.5"}),
              "optimizer.beta1 on the command line is -0.5; it must be in [0, 1)");
    EXPECT_EQ(error_of({"--optimizer.eps", "0"}), "optimizer.eps on the command line is 0.0; it must be > 0");
    EXPECT_EQ(error_of({"--optimizer.lr", "nan"}),
              "optimizer.lr on the command line is nan; it must be finite");
    EXPECT_EQ(error_of({"--optimizer.lr", "-nan"}),
              "optimizer.lr on the command line is nan; it must be finite");
    EXPECT_EQ(error_of({"--job.dump_folder", ""}),
              "job.dump_folder is empty; name a folder for the files that the run writes");
    EXPECT_EQ(error_of({"--optimizer.lr", "inf"}),
              "optimizer.lr on the command line is inf; it must be finite");
    EXPECT_EQ(error_of({"--training.max_norm", "inf"}), "no error");
    EXPECT_EQ(error_of({"--lr_scheduler.min_lr_factor", "2"}),
              "lr_scheduler.min_lr_factor on the command line is 2.0; it must be <= 1");
    EXPECT_EQ(error_of({"--training.global_batch_size", "0"}),
              "training.global_batch_size on the command line is 0; it must be -1 or >= 1");
    EXPECT_EQ(
        error_of({"--parallelism.tensor_parallel_degree", "3000000000"}),
        "parallelism.tensor_parallel_degree on the command line is 3000000000; it must be <= 2147483647");
    EXPECT_EQ(
        error_of({"--parallelism.pipeline_parallel_layers_per_stage", "4,-1"}),
        "parallelism.pipeline_parallel_layers_per_stage on the command line is [4, -1]; it must be made of "
        "integers >= 0");
    EXPECT_EQ(error_of({"--parallelism.pipeline_parallel_layers_per_stage", "0,4",
                        "--parallelism.pipeline_parallel_degree", "2"}),
              "no error");
    EXPECT_EQ(
        error_of({"--parallelism.pipeline_parallel_layers_per_stage", "0",
                  "--parallelism.pipeline_parallel_degree", "2"}),
        "parallelism.pipeline_parallel_layers_per_stage = 0 leaves every stage without layers; give one "
        "number from 1 on, or one per stage: the first and the last may be 0");
}

TEST(Errors, SizesAreSmallEnoughToMultiply) {
    for (const char* key : {"training.local_batch_size", "training.global_batch_size", "training.seq_len",
                            "parallelism.pipeline_parallel_microbatch_size"}) {
        EXPECT_EQ(error_of({std::string("--") + key, "4611686018427387904"}),
                  std::string(key) + " on the command line is 4611686018427387904; it must be <= 2147483647");
    }
    EXPECT_EQ(
        error_of({"--parallelism.pipeline_parallel_layers_per_stage", "4294967297,3"}),
        "parallelism.pipeline_parallel_layers_per_stage on the command line is [4294967297, 3]; it must "
        "be made of integers <= 2147483647");
}

TEST(Errors, UnknownChoiceListsTheChoices) {
    EXPECT_EQ(file_error("[lr_scheduler]\ndecay_type = \"linaer\"\n"),
              "lr_scheduler.decay_type in F:2 is \"linaer\"; it must be one of linear, cosine, sqrt");
    EXPECT_EQ(
        error_of({"--training.dtype", "float16"}),
        "training.dtype on the command line is \"float16\"; it must be one of bfloat16, float32, float64");
}

TEST(Errors, MissingOrUnwantedValue) {
    const std::string lacks = " needs a value (write ";
    EXPECT_EQ(error_of({"--training.steps"}),
              "--training.steps" + lacks + "--training.steps=VALUE if the value begins with --)");
    EXPECT_EQ(error_of({"--training.steps", "--training.seq_len", "8"}),
              "--training.steps" + lacks + "--training.steps=VALUE if the value begins with --)");
    EXPECT_EQ(error_of({"--config"}), "--config" + lacks + "--config=VALUE if the value begins with --)");
    EXPECT_EQ(error_of({"--print-config=yes"}), "--print-config takes no value, but got 'yes'");
    EXPECT_EQ(error_of({"run.toml"}),
              "unexpected 'run.toml' on the command line; a configuration is --config run.toml");
    EXPECT_EQ(error_of({"--training.shuffle", "true", "false"}),
              "unexpected 'false' on the command line; options are --config F.toml and --section.key value");
}

TEST(Errors, UnreadableFile) {
    EXPECT_EQ(error_of({"--config", "absent.toml"}),
              "cannot read --config absent.toml: No such file or directory");
    EXPECT_EQ(error_of({"--config", "/"}), "--config / is a folder, not a file");
}

TEST(Errors, SyntaxErrorHasItsPosition) {
    EXPECT_EQ(file_error("[training]\nsteps = = 3\n").find("F:2:9 is not TOML: "), 0U)
        << file_error("[training]\nsteps = = 3\n");
    EXPECT_EQ(file_error("[training]\nsteps = 3\nsteps = 4\n").find("F:3:"), 0U);
}

TEST(Errors, CharactersOutsideOfAsciiNeedQuotes) {
    const std::string refused = " is not TOML: a character outside of ASCII needs quotes around it";
    EXPECT_EQ(file_error("[training]\nsteps = 1ð00\n"), "F:2:10" + refused);
    EXPECT_EQ(file_error("[training]\nßteps = 100\n"), "F:2:1" + refused);
    EXPECT_EQ(file_error("[job]\ndump_folder = \"a\\\"\"ð\n"), "F:2:20" + refused);
    EXPECT_EQ(file_error("[job]\ndump_folder = '\\'ð\n"), "F:2:18" + refused);
    EXPECT_EQ(file_error("[job]\ndump_folder = \"\"\"\na\n\"\"\"\"ð\n"), "F:4:5" + refused);
    EXPECT_EQ(file_error("\xEF\xBB\xBF# größer\n[job]\n"), "no error");
    EXPECT_EQ(file_error("[job]\ndump_folder = \"ä\\\"ö\" # ü\n"), "no error");
    EXPECT_EQ(file_error("[job]\ndump_folder = \"\"\"\n\"ä\"\n\"\"\"\n"), "no error");
    EXPECT_EQ(file_error("[job]\ndump_folder = '''a'ð'''\n"), "no error");
}

TEST(Errors, TextOnTheCommandLineIsUtf8) {
    const std::string refused = " on the command line must be text in UTF-8, but is ";
    EXPECT_EQ(error_of({"--job.description", "d\xff"}), "job.description" + refused + R"("d\ufffd")");
    EXPECT_EQ(error_of({"--training.dataset_path=/a\xC3/b.h5"}),
              "training.dataset_path" + refused + R"("/a\ufffd/b.h5")");
    EXPECT_EQ(error_of({"--data.mixture", "[{path = \xff}]"}),
              "data.mixture" + refused + R"("[{path = \ufffd}]")");
    EXPECT_EQ(error_of({"--job.description", "größer"}), "no error");
}

TEST(Errors, EitherAllOrNoneOfTheTypesAreFloat64) {
    const std::string dtype = "--training.dtype=float64", param = "--training.mixed_precision_param=float64",
                      reduce = "--training.mixed_precision_reduce=float64";
    EXPECT_EQ(error_of({dtype, param, reduce}), "no error");
    EXPECT_EQ(error_of({dtype}),
              "training.dtype = float64, mixed_precision_param = bfloat16, mixed_precision_reduce = float32: "
              "set all three to float64, or none");
    for (const std::vector<std::string>& some :
         {std::vector{param}, std::vector{reduce}, std::vector{param, reduce}, std::vector{dtype, param},
          std::vector{dtype, reduce}}) {
        EXPECT_NE(error_of(some).find("set all three to float64"), std::string::npos) << some[0];
    }
}

TEST(Errors, EpsIsNotZeroInTheTypeOfTheOptimizer) {
    const std::vector<std::string> doubles = {"--training.dtype=float64",
                                              "--training.mixed_precision_param=float64",
                                              "--training.mixed_precision_reduce=float64"};
    EXPECT_EQ(error_of({"--optimizer.eps=1e-50"}),
              "optimizer.eps = 1e-50 is 0 in float32, the optimizer's type with training.dtype = float32; "
              "set it to 1.4e-45 or more");
    EXPECT_EQ(error_of({"--optimizer.eps=1.4e-45"}), "no error");
    std::vector<std::string> words = doubles;
    words.push_back("--optimizer.eps=1e-50");
    EXPECT_EQ(error_of(words), "no error");
}

TEST(Errors, StatesAreFloat64IfTheWeightsAre) {
    const std::vector<std::string> doubles = {"--training.dtype=float64",
                                              "--training.mixed_precision_param=float64",
                                              "--training.mixed_precision_reduce=float64"};
    const auto with_states = [](std::vector<std::string> words, const std::string& type) {
        words.push_back("--optimizer.state_dtype=" + type);
        return error_of(words);
    };
    EXPECT_EQ(with_states(doubles, "float64"), "no error");
    EXPECT_EQ(
        with_states(doubles, "float32"),
        "optimizer.state_dtype = float32, but training.dtype = float64: set both to float64, or neither");
    EXPECT_NE(with_states({}, "float64").find("set both to float64, or neither"), std::string::npos);
    EXPECT_EQ(with_states({}, "bfloat16"), "no error");
    EXPECT_EQ(with_states({"--training.dtype=bfloat16"}, "bfloat16"), "no error");
}

TEST(Errors, KeysOfMuonNeedMuon) {
    for (const char* key :
         {"--optimizer.muon_momentum=0.9", "--optimizer.muon_nesterov=false", "--optimizer.muon_ns_steps=6",
          "--optimizer.muon_adjust_lr=original", "--optimizer.muon_ns_dtype=float32",
          "--optimizer.muon_split=head", "--optimizer.muon_routers=false"}) {
        EXPECT_NE(error_of({key}).find("set optimizer.name = Muon, or remove the key"), std::string::npos)
            << key;
        EXPECT_EQ(error_of({key, "--optimizer.name=Muon"}), "no error") << key;
    }
    EXPECT_NE(
        error_of({"--optimizer.name=Muon", "--optimizer.muon_ns_dtype=float32", "--training.dtype=float64",
                  "--training.mixed_precision_param=float64", "--training.mixed_precision_reduce=float64"})
            .find("a float64 run computes all in float64"),
        std::string::npos);
}

TEST(Errors, Float64RunsKeepTheirGradientsInFloat64) {
    const std::string key = "--training.gradient_accumulation_dtype=";
    EXPECT_EQ(error_of({key + "bfloat16"}), "no error");
    EXPECT_EQ(error_of({key + "float32"}), "no error");
    for (const std::string type : {"bfloat16", "float32"}) {
        EXPECT_EQ(error_of({"--training.dtype=float64", "--training.mixed_precision_param=float64",
                            "--training.mixed_precision_reduce=float64", key + type}),
                  "training.gradient_accumulation_dtype = " + type +
                      ", but training.dtype = float64: a float64 run keeps its gradients in float64; remove "
                      "the key");
    }
    EXPECT_NE(error_of({key + "float64"}).find("gradient_accumulation_dtype"), std::string::npos);
}

TEST(Errors, Bfloat16WeightsNeedBfloat16Computation) {
    const std::string dtype = "--training.dtype=bfloat16";
    EXPECT_EQ(error_of({dtype}), "no error");
    EXPECT_EQ(error_of({dtype, "--training.mixed_precision_param=float32"}),
              "training.dtype = bfloat16, but mixed_precision_param = float32: without a float32 copy the "
              "computation uses the weights' own type; set both to bfloat16, or training.dtype to float32");
}

TEST(Errors, NoComputationIsInFloat16) {
    EXPECT_EQ(error_of({"--training.mixed_precision_param=float16"}),
              "training.mixed_precision_param on the command line is \"float16\"; it must be one of "
              "bfloat16, float32, float64");
}

TEST(Errors, BatchesMustDivide) {
    EXPECT_EQ(error_of({"--training.local_batch_size", "3", "--training.global_batch_size", "8"}),
              "training.global_batch_size = 8 is not a multiple of training.local_batch_size = 3; change one "
              "of them");
    EXPECT_EQ(error_of({"--training.local_batch_size", "3", "--training.global_batch_size", "9"}),
              "no error");
    EXPECT_EQ(error_of({"--parallelism.pipeline_parallel_microbatch_size", "3"}),
              "training.local_batch_size = 8 is not a multiple of "
              "parallelism.pipeline_parallel_microbatch_size = 3; change one of them");
}

TEST(Errors, LayersPerStageMustNameEachStage) {
    EXPECT_EQ(
        error_of({"--parallelism.pipeline_parallel_layers_per_stage", "4,3",
                  "--parallelism.pipeline_parallel_degree", "3"}),
        "parallelism.pipeline_parallel_layers_per_stage = [4, 3] is for 2 stages, but "
        "parallelism.pipeline_parallel_degree is 3; give one number per stage, and each rank as many stages");
}

TEST(Errors, MixturesAreListsOfSources) {
    const std::string key = "data.mixture",
                      wanted = " must be a list of sources as {path = \"F.h5\", weight = 2.0}, but is ";
    for (const char* word : {"a.h5", "[a.h5]", "[{a.h5}]", "[{weight=1}]", "[{path=a,path=b}]", "[{path=a,}]",
                             "[{path=a,share=1}]", "[{path=a,weight=x}]", "[{path=a}", "[{path=a},]", ""}) {
        EXPECT_EQ(error_of({"--" + key, word}), key + " on the command line" + wanted + "'" + word + "'");
    }
    EXPECT_EQ(file_error("[data]\nmixture = [{path=\"a\", wieght=2}]\n"),
              key + " in F:2" + wanted + "a list with the unknown key wieght; did you mean weight?");
    EXPECT_EQ(file_error("[[data.mixture]]\npath = \"a\"\nshare = 1\n"),
              key + " in F:1" + wanted + "a list with the unknown key share");
    for (const char* entry : {"weight = 1", "path = 1", "path = \"a\"\nweight = \"1\""}) {
        EXPECT_EQ(file_error(std::string("[[data.mixture]]\n") + entry + "\n"),
                  key + " in F:1" + wanted + "a list with elements of another type");
    }
    for (const char* weight : {"0", "-1", "nan", "inf"}) {
        const std::string message = error_of({"--" + key, std::string("[{path=a,weight=") + weight + "}]"});
        EXPECT_NE(message.find("; it must be made of tables whose weight is "), std::string::npos) << message;
    }
    EXPECT_EQ(error_of({"--" + key, "[{path=}]"}),
              key +
                  " on the command line is [{path = \"\"}]; it must be made of tables whose "
                  "path is not empty");
    EXPECT_EQ(error_of({"--" + key, "[{path=a}, {weight=2.5,path=\"b,}\"}]"}), "no error");
    EXPECT_EQ(file_error("[[data.mixture]]\npath = \"a\"\n[[data.mixture]]\npath = \"b\"\nweight = 2\n"),
              "no error");
    EXPECT_EQ(
        error_of({"--" + key, "[{path=a}]", "--training.dataset_path=b"}),
        "training.dataset_path = b and data.mixture are both set; to mix that file in, give it an entry of "
        "data.mixture and remove training.dataset_path");
}

TEST(Errors, GroupsAreListsOfTables) {
    const std::string key = "optimizer.groups",
                      wanted =
                          " must be a list of groups as {part = \"norm\", lr_factor = 0.5, weight_decay = "
                          "0.0}, but is ";
    for (const char* word : {"norm", "[norm]", "[{lr_factor=1}]", "[{part=a,part=b}]", "[{part=a,path=b}]"})
        EXPECT_EQ(error_of({"--" + key, word}), key + " on the command line" + wanted + "'" + word + "'");
    EXPECT_EQ(file_error("[[optimizer.groups]]\npart = \"a\"\nlr_facter = 1\n"),
              key + " in F:1" + wanted + "a list with the unknown key lr_facter; did you mean lr_factor?");
    EXPECT_EQ(
        error_of({"--" + key, "[{part=a,lr_factor=-1}]"}),
        key +
            " on the command line is [{lr_factor = -1.0, part = \"a\"}]; it must be made of tables whose "
            "lr_factor is >= 0");
    EXPECT_EQ(file_error("[[optimizer.groups]]\npart = \"norm\"\nweight_decay = 0\n"), "no error");
}

TEST(Errors, EvaluationWithExamplesNeedsAFileOfThem) {
    EXPECT_EQ(error_of({"--evaluation.num_fewshot=2"}),
              "evaluation.num_fewshot = 2 needs examples; name a file of them with evaluation.fewshot_file");
    EXPECT_EQ(error_of({"--evaluation.num_fewshot=2", "--evaluation.fewshot_file=f.jsonl"}), "no error");
}

TEST(Errors, ValidationRunsWithTheMicrobatchesOfTraining) {
    const std::string on = "--validation.enable=true", path = "--validation.dataset_path=v.h5";
    EXPECT_EQ(error_of({on}), "validation.enable = true, but validation.dataset_path is not set");
    EXPECT_EQ(error_of({on, path}), "no error");
    EXPECT_EQ(
        error_of({on, path, "--validation.local_batch_size=12"}),
        "validation.local_batch_size = 12 is not a multiple of training.local_batch_size = 8, the samples "
        "of a microbatch; change one of them");
    EXPECT_EQ(error_of({on, path, "--validation.local_batch_size=16"}), "no error");
    const std::string pipeline = "--parallelism.pipeline_parallel_degree=2",
                      microbatch = "--parallelism.pipeline_parallel_microbatch_size=4";
    EXPECT_EQ(error_of({on, path, pipeline, microbatch, "--validation.local_batch_size=12"}), "no error");
    EXPECT_EQ(error_of({on, path, pipeline, microbatch, "--validation.local_batch_size=10"}),
              "validation.local_batch_size = 10 is not a multiple of "
              "parallelism.pipeline_parallel_microbatch_size = 4, the samples of a microbatch; change one of "
              "them");
    EXPECT_EQ(
        error_of({on, path, "--validation.seq_len=2049"}),
        "validation.seq_len = 2049 exceeds training.seq_len = 2048, for which the model is built; lower "
        "the first");
    EXPECT_EQ(error_of({"--validation.seq_len=2049"}), "no error");
}

TEST(Errors, WarmupWithinAnExplicitTotal) {
    EXPECT_EQ(error_of({"--lr_scheduler.total_steps", "100"}),
              "lr_scheduler.warmup_steps = 200 exceeds lr_scheduler.total_steps = 100; lower the first");
    EXPECT_EQ(error_of({"--lr_scheduler.total_steps", "200"}), "no error");
    EXPECT_EQ(error_of({"--training.steps", "20"}), "no error");
}

TEST(Errors, LossSpikesNeedAThresholdAndAWindowLongEnough) {
    EXPECT_EQ(error_of({"--loss_spike.window", "64"}).substr(0, 60),
              "a key of [loss_spike] is set, but neither loss_spike.loss_zs");
    EXPECT_EQ(error_of({"--loss_spike.window", "64", "--loss_spike.grad_norm_zscore", "6"}), "no error");
    EXPECT_EQ(error_of({"--loss_spike.window", "63", "--loss_spike.loss_zscore", "6"}),
              "loss_spike.warmup_steps = 64 exceeds loss_spike.window = 63, so no step would ever be "
              "checked; lower the first");
}

TEST(Errors, ChoicesInAListMustExist) {
    EXPECT_EQ(
        error_of({"--checkpoint.exclude_from_loading", "optimizer,lr_scheduler"}),
        "checkpoint.exclude_from_loading on the command line is [\"optimizer\", \"lr_scheduler\"]; it must "
        "be a list of some of optimizer, dataloader, train_state");
    EXPECT_EQ(
        error_of({"--quantize.linear.mx.filter_fqns", "1,,2"}),
        "quantize.linear.mx.filter_fqns on the command line is [\"1\", \"\", \"2\"]; it must be made of "
        "names that are not empty");
    EXPECT_EQ(file_error("[checkpoint]\nexclude_from_loading = [1]\n"),
              "checkpoint.exclude_from_loading in F:2 must be a list of strings, but is the list [1]");
    EXPECT_EQ(file_error("[checkpoint]\nexclude_from_loading = [\"optimizer\", 1]\n"),
              "checkpoint.exclude_from_loading in F:2 must be a list of strings, but is a list with "
              "elements of another type");
}

TEST(Errors, ChannelsOfCommunicatorsAreThoseThatNcclTakes) {
    EXPECT_EQ(
        error_of({"--comm.collective_channels=18"}),
        "comm.collective_channels = 18 is not a multiple of 4, the thread blocks of a cluster of NCCL's "
        "kernels on Hopper and later; set 20, or 0 to let NCCL choose");
    EXPECT_EQ(error_of({"--comm.message_channels=12"}),
              "comm.message_channels = 12 is not a power of two, and NCCL would take 16, the next one; set 8 "
              "or 16, or 0 to let NCCL choose");
    for (const char* const few : {"1", "2", "4", "16"}) {
        EXPECT_EQ(error_of({"--comm.collective_channels=16", std::string("--comm.message_channels=") + few}),
                  "no error");
    }
    EXPECT_EQ(error_of({"--comm.collective_channels=16", "--comm.products_leave_channels=true"}), "no error");
    EXPECT_EQ(error_of({"--comm.products_leave_channels=true"}),
              "comm.products_leave_channels = true, but neither comm.collective_channels nor "
              "comm.message_channels is set, so nothing says how many SMs products leave; set "
              "comm.collective_channels = 16, or remove the key");
}

TEST(Errors, CheckpointRetentionOptionsMustBeValid) {
    EXPECT_EQ(
        error_of({"--checkpoint.keep_latest_k=1"}),
        "checkpoint.keep_latest_k = 1 would leave no other checkpoint if the newest one is damaged; set "
        "2 or more, or 0 to keep all");
    for (const char* number : {"0", "2", "100"}) {
        EXPECT_EQ(error_of({"--checkpoint.keep_latest_k", number}), "no error");
    }
    EXPECT_EQ(error_of({"--checkpoint.keep_every=750"}),
              "checkpoint.keep_every = 750 is not a multiple of checkpoint.interval = 500, and steps are "
              "saved only at multiples of the interval; change one of them");
    EXPECT_EQ(error_of({"--checkpoint.keep_every=1000"}), "no error");
    EXPECT_EQ(error_of({"--checkpoint.async_mode=async_with_pinned_mem"}), "no error");  // TorchTitan's async
    EXPECT_EQ(error_of({"--checkpoint.async_mode=pinned"}),
              "checkpoint.async_mode on the command line is \"pinned\"; it must be one of "
              "disabled, async");
}

TEST(Errors, LoadOptionsNeedWhatTheyDependOn) {
    const auto has = [](const std::vector<std::string>& words, const std::string& part) {
        const std::string message = error_of(words);
        EXPECT_NE(message.find(part), std::string::npos) << message;
    };
    has({"--checkpoint.load_step=5"}, "load_step = 5 needs checkpoint.enable");
    has({"--checkpoint.load_only=true"}, "load_only needs checkpoint.enable");
    has({"--checkpoint.initial_load_in_hf=true"}, "nor model.hf_assets_path names a folder");
    has({"--checkpoint.initial_load_model_only=false"}, "initial_load_path is not set");
    has({"--checkpoint.initial_load_model_only=false", "--checkpoint.initial_load_path=x",
         "--checkpoint.initial_load_in_hf=true"},
        "holds only weights");
    has({"--checkpoint.export_dtype=float32"}, "neither is set");
    has({"--checkpoint.export_dtype=float64", "--checkpoint.last_save_in_hf=true"}, "one of float16");
    EXPECT_EQ(error_of({"--checkpoint.initial_load_in_hf=true", "--model.hf_assets_path=x"}), "no error");
    EXPECT_EQ(error_of({"--checkpoint.enable=true", "--checkpoint.load_step=5"}), "no error");
}

}  // namespace
}  // namespace argosy::config
