// Readers of text that others wrote, over mutations of sound texts: configurations, records, reports of other
// ranks' watchdogs. A reader returns a value or throws the error that its callers expect.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/parse.h"
#include "data/record_lines.h"
#include "scratch_folder.h"
#include "support/fuzzing.h"
#include "watch/report.h"

namespace argosy {
namespace {

using Random = std::mt19937_64;

const std::vector<std::string> kParts = {"{",
                                         "}",
                                         "[",
                                         "]",
                                         ",",
                                         ":",
                                         "=",
                                         "\"",
                                         "\"\"\"",
                                         "'",
                                         "\\",
                                         "\\u0000",
                                         std::string(1, '\0'),
                                         "\n",
                                         "\r",
                                         "-",
                                         "-1",
                                         "0",
                                         "1e999",
                                         "1_0",
                                         "0x",
                                         "nan",
                                         "-inf",
                                         "true",
                                         "null",
                                         "\xff",
                                         "\xc3",
                                         "9223372036854775808",
                                         "\t",
                                         "#",
                                         "[job]",
                                         "--",
                                         "99999999999999999999"};

/// Counts what a reader takes and refuses. An error must be one line.
class Readings {
  public:
    template <class Expected, class Read>
    void add(const std::string& text, Read read) {
        try {
            read();
            ++num_taken_;
        } catch (const Expected& error) {
            ++num_refused_;
            EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << text << "\n"
                                                                               << error.what();
        }
    }
    void expect_both() const {
        EXPECT_GT(num_taken_, 0);
        EXPECT_GT(num_refused_, 0);
    }

  private:
    int num_taken_ = 0, num_refused_ = 0;
};

/// Calls read(path, text) for files with mutations of a sound text.
template <class Read>
void read_mutations(const std::string& sound, Read read) {
    const ScratchFolder folder;
    const std::filesystem::path path = folder / "text";
    Readings readings;
    for (const uint64_t seed : testing::FuzzSeeds(4000)) {
        Random random(seed);
        const std::string text = testing::mutated(sound, kParts, random);
        write_file(path, text);
        readings.add<UserError>(text, [&] { read(path, text); });
    }
    readings.expect_both();
}

TEST(ParserFuzz, ConfigurationFiles) {
    const std::string sound =
        "[job]\ndump_folder = \"./outputs/x\"\n[training]\nsteps = 1000\nmax_time = \"11h30m\"\nshuffle = "
        "false\n"
        "[optimizer]\nlr = 3e-4\n[parallelism]\npipeline_parallel_layers_per_stage = [1, 2]\n"
        "pipeline_parallel_degree = 2\n[checkpoint]\nexclude_from_loading = [\"optimizer\"]\n";
    read_mutations(sound, [](const std::filesystem::path& path, const std::string&) {
        config::parse_command_line({"--config", path});
    });
}

TEST(ParserFuzz, CommandLines) {
    const std::vector<std::string> sound = {"--training.steps",
                                            "1000",
                                            "--optimizer.lr=3e-4",
                                            "--training.max_time",
                                            "2d",
                                            "--parallelism.pipeline_parallel_layers_per_stage",
                                            "[]",
                                            "--checkpoint.async_mode",
                                            "async"};
    Readings readings;
    for (const uint64_t seed : testing::FuzzSeeds(10000)) {
        Random random(seed);
        std::vector<std::string> words = sound;
        std::string& word = words[random() % words.size()];
        word = testing::mutated(word, kParts, random);
        readings.add<UserError>(word, [&] { config::parse_command_line(words); });
    }
    readings.expect_both();
}

TEST(ParserFuzz, Records) {
    const std::string sound =
        "{\"text\": \"caf\\u00e9 \\ud83d\\ude00\"}\n{\"tokens\": [1, 2, 299], \"id\": {\"a\": [null, "
        "1.5]}}\n{\"text\": \"\"}\n";
    read_mutations(sound, [](const std::filesystem::path& path, const std::string& text) {
        for (const data::Record& record : data::records_of(path, 300)) {
            for (const uint32_t token : record.tokens) ASSERT_LT(token, 300U) << text;
        }
    });
}

TEST(ParserFuzz, ReportsOfWatchdogs) {
    watch::RankReport report;
    report.queues.push_back({7, 3, {}});
    report.waits.push_back({.key = 9,
                            .operation = "all-reduce over dp",
                            .group = "dp",
                            .members = "0:1*4",
                            .limit_seconds = 2,
                            .limit_name = "a setting"});
    Readings readings;
    for (const uint64_t seed : testing::FuzzSeeds(10000)) {
        Random random(seed);
        const std::string text = testing::mutated(report.text(), kParts, random);
        readings.add<std::exception>(text, [&] {
            for (const watch::WaitReport& wait : watch::RankReport::parse(text).waits)
                watch::expand_ranks(wait.members);
        });
    }
    readings.expect_both();
}

}  // namespace
}  // namespace argosy
