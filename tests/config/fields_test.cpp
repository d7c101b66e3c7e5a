// Properties that every line of the field table must have.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/text.h"
#include "config/choices.h"
#include "config/config_file.h"
#include "config/parse.h"
#include "config/sample_values.h"

namespace argosy::config {
namespace {

template <class Check>
void for_each_field(Check check) {
    for (const Section& section : schema()) {
        for (const Field& field : section.fields) {
            SCOPED_TRACE(field.key);
            check(field);
        }
    }
}

/// For keys whose sample value is consistent only with certain values of other keys: those values.
std::vector<std::string> companions(const std::string& key) {
    const std::string dtype = "--training.dtype=float64", param = "--training.mixed_precision_param=float64",
                      reduce = "--training.mixed_precision_reduce=float64";
    static const std::map<std::string, std::vector<std::string>> table = {
        {"optimizer.state_dtype", {dtype, param, reduce}},
        {"quantize.linear.float8.recipe_name", {"--model.converters=quantize.linear.float8"}},
        {"quantize.linear.float8.filter_fqns", {"--model.converters=quantize.linear.float8"}},
        {"quantize.linear.float8.enable_fsdp_float8_all_gather",
         {"--model.converters=quantize.linear.float8"}},
        {"quantize.linear.float8.emulate", {"--model.converters=quantize.linear.float8"}},
        {"quantize.linear.mx.recipe_name", {"--model.converters=quantize.linear.mx"}},
        {"quantize.linear.mx.filter_fqns", {"--model.converters=quantize.linear.mx"}},
        {"training.dtype", {param, reduce}},
        {"training.mixed_precision_param", {dtype, reduce}},
        {"training.mixed_precision_reduce", {dtype, param}},
        {"training.global_batch_size", {"--training.local_batch_size=4"}},
        {"lr_scheduler.total_steps", {"--lr_scheduler.warmup_steps=0"}},
        {"loss_spike.window", {"--loss_spike.loss_zscore=6", "--loss_spike.warmup_steps=2"}},
        {"loss_spike.warmup_steps", {"--loss_spike.loss_zscore=6"}},
        {"loss_spike.max_skipped_steps", {"--loss_spike.grad_norm_zscore=6"}},
        {"checkpoint.keep_every", {"--checkpoint.interval=2"}},
        {"checkpoint.export_dtype", {"--checkpoint.last_save_model_only=true"}},
        {"checkpoint.load_step", {"--checkpoint.enable=true"}},
        {"checkpoint.load_only", {"--checkpoint.enable=true"}},
        {"checkpoint.initial_load_model_only", {"--checkpoint.initial_load_path=run"}},
        {"checkpoint.initial_load_in_hf", {"--checkpoint.initial_load_path=folder"}},
        {"comm.products_leave_channels", {"--comm.collective_channels=16"}},
        {"validation.enable", {"--validation.dataset_path=valid.h5"}},
        {"evaluation.num_fewshot", {"--evaluation.fewshot_file=examples.jsonl"}},
        {"parallelism.pipeline_parallel_layers_per_stage", {"--parallelism.pipeline_parallel_degree=4"}},
    };
    if (key.starts_with("optimizer.muon_")) return {"--optimizer.name=Muon"};
    const auto found = table.find(key);
    return found == table.end() ? std::vector<std::string>{} : found->second;
}

JobConfig parsed(std::vector<std::string> words, const std::string& key) {
    const auto more = companions(key);
    words.insert(words.end(), more.begin(), more.end());
    return parse_command_line(words).config;
}

/// A value as written on a command line: as in TOML, but strings and durations have no quotes and no escapes.
std::string word_of(const Value& value) {
    const auto* text = std::get_if<std::string>(&value);
    if (text) return *text;
    const auto* duration = std::get_if<Duration>(&value);
    return duration ? duration_text(*duration) : toml_text(value);
}

TEST(Fields, AreNamedOnceAndAfterTheirSection) {
    std::set<std::string> seen;
    for (const Section& section : schema()) {
        EXPECT_EQ(find_section(section.name), &section);
        for (const Field& field : section.fields) {
            EXPECT_EQ(field.key, section.name + "." + field.name);
            EXPECT_EQ(find_field(field.key), &field);
            EXPECT_TRUE(seen.insert(field.key).second) << field.key << " twice";
        }
    }
    EXPECT_EQ(seen.size(), keys().size());
    EXPECT_EQ(find_field("training"), nullptr);
}

TEST(Fields, DefaultsAreWithinTheLimits) {
    for_each_field([](const Field& field) {
        const Value value = field.get(JobConfig{});
        EXPECT_EQ(broken_limit(field.limits, value), "");
        EXPECT_EQ(is_set(value), field.when_unset.empty());
    });
}

TEST(Fields, SetTheirOwnMemberAndNoOther) {
    for_each_field([](const Field& field) {
        JobConfig config;
        field.set(config, sample_value(field));
        EXPECT_EQ(field.get(config), sample_value(field));
        for_each_field([&](const Field& other) {
            if (&other == &field) return;
            EXPECT_EQ(other.get(config), other.get(JobConfig{}));
        });
    });
}

TEST(Fields, ReadTheSameFromFileAndCommandLine) {
    for_each_field([](const Field& field) {
        const Value value = sample_value(field);
        const std::string name = field.key.substr(0, field.key.rfind('.'));
        const ConfigFile file("[" + name + "]\n" + field.name + " = " + toml_text(value) + "\n");
        const JobConfig by_file = parsed({"--config", file.path()}, field.key);
        const JobConfig by_flag = parsed({"--" + field.key, word_of(value)}, field.key);
        EXPECT_EQ(by_file, by_flag);
        EXPECT_EQ(field.get(by_file), value);
        const bool has_other_value = field.limits.choices.size() != 1;
        EXPECT_EQ(field.get(by_file) != field.get(JobConfig{}), has_other_value);
    });
}

TEST(Fields, AcceptEachOfTheirChoices) {
    for_each_field([](const Field& field) {
        for (const std::string& choice : field.limits.choices) {
            JobConfig config;
            Value value = value_from_word(field.type, choice);  // a boolean of a switch
            field.set(config, value);
            EXPECT_EQ(field.get(config), value);
        }
    });
}

TEST(Fields, AreTheNearestToTheirOwnMisspelling) {
    for_each_field([](const Field& field) {
        EXPECT_EQ(nearest(field.key + "s", keys()), field.key);
        EXPECT_EQ(nearest("x" + field.key, keys()), field.key);
    });
}

}  // namespace
}  // namespace argosy::config
