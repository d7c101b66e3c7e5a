// Valid texts, mutated: what reads them ends with a table or a UserError, whatever they are. The seeds are
// fixed, so a failure repeats.
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "checkpoint/sample.h"
#include "checkpoint/sample_tables.h"
#include "checkpoint/user_block.h"
#include "scratch_folder.h"
#include "support/fuzzing.h"

namespace argosy::checkpoint {
namespace {

constexpr int kRounds = 5000;

const std::vector<std::string> kTokens = {"{",
                                          "}",
                                          "[",
                                          "]",
                                          "[[[[[[[[",
                                          "\"",
                                          ",",
                                          ":",
                                          "null",
                                          "true",
                                          "-1",
                                          "1e999",
                                          "0",
                                          "\\u0000",
                                          "\xff",
                                          "\n",
                                          "\"at\"",
                                          "\"slabs\"",
                                          "\"cuts\"",
                                          "\"grid\":[2],",
                                          "[0,1]",
                                          "\"file\"",
                                          "\"shape\"",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "18446744073709551616",
                                          "0.5",
                                          "\"name\":\"table\""};

void change_number(Random& random, std::string& text) {
    const size_t begin = text.find_first_of("0123456789", below(random, text.size()));
    if (begin == std::string::npos) return;
    const size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
    const std::vector<std::string> numbers = {"0",
                                              "1",
                                              "-1",
                                              "511",
                                              "512",
                                              "1999",
                                              "2000",
                                              "4294967296",
                                              "4611686018427387904",
                                              "9223372036854775807",
                                              std::to_string(below(random, 3000))};
    text.replace(begin, end - begin, numbers[below(random, numbers.size())]);
}

/// A part of `other` in place of a part of the text.
void splice(Random& random, std::string& text, const std::string& other) {
    const size_t from = below(random, other.size()), at = below(random, text.size());
    text.replace(at, below(random, 60), other.substr(from, below(random, 60)));
}

std::string mutated(Random& random, std::string text, const std::string& other) {
    for (int64_t left = 1 + below(random, 4); left > 0 && !text.empty(); --left) {
        const size_t at = below(random, text.size());
        switch (below(random, 7)) {
            case 0:
                text[at] = static_cast<char>(text[at] ^ 1 << below(random, 8));
                break;
            case 1:
                text.erase(at, 1 + below(random, 40));
                break;
            case 2:
                text.insert(at, kTokens[below(random, kTokens.size())]);
                break;
            case 3:
                splice(random, text, other);
                break;
            case 4:
                splice(random, text, std::string(text));
                break;
            case 5:
                text.resize(at);
                break;
            default:
                change_number(random, text);
        }
    }
    return text;
}

/// Reads `valid` mutated in many ways; returns how many were read without an error.
int fuzz(const std::string& valid, const std::string& other,
         const std::function<void(const std::string&)>& read) {
    int accepted = 0, num_rounds = 0;
    for (const uint64_t seed : testing::FuzzSeeds(kRounds)) {
        ++num_rounds;
        Random random(seed);
        const std::string text = mutated(random, valid, other);
        try {
            read(text);
            ++accepted;
        } catch (const UserError& error) {
            EXPECT_STRNE(error.what(), "");
        } catch (const std::exception& error) {
            ADD_FAILURE() << "seed " << seed << ": " << error.what() << "\n" << text;
        }
    }
    EXPECT_GT(accepted, 0);
    EXPECT_LT(accepted, num_rounds / 2);
    return accepted;
}

// What is taken is a table that prints and parses to itself.
TEST(Fuzz, ManifestsAreTakenOrRefused) {
    fuzz(to_json(sample_manifest()), to_json(sample_full()), [](const std::string& text) {
        const Manifest manifest = parse_manifest(text, "F", kSampleFile);
        EXPECT_EQ(parse_manifest(to_json(manifest), "F", kSampleFile), manifest);
    });
    fuzz(to_json(sample_joint_manifest()), to_json(sample_manifest()), [](const std::string& text) {
        const Manifest manifest = parse_manifest(text, "F", kSampleFile);
        EXPECT_EQ(parse_manifest(to_json(manifest), "F", kSampleFile), manifest);
    });
    fuzz(to_json(sample_full()), to_json(sample_shard()), [](const std::string& text) {
        const Manifest manifest = parse_manifest(text, "F", kSampleFile);
        EXPECT_EQ(parse_manifest(to_json(manifest), "F", kSampleFile), manifest);
    });
}

TEST(Fuzz, ShardTablesAreTakenOrRefused) {
    fuzz(to_json(sample_shard()), to_json(sample_full()), [](const std::string& text) {
        const ShardTable table = parse_shard_table(text, "F", kSampleFile);
        EXPECT_EQ(parse_shard_table(to_json(table), "F", kSampleFile), table);
    });
}

/// A user block of these lines, with the check that is right for them.
std::string checked(const std::string& lines) {
    std::string text = lines + "check " + hash_of(lines).hex() + "\n";
    text.resize(kUserBlockBytes - 1, ' ');
    return text + "\n";
}

TEST(Fuzz, UserBlocksAreTakenOrRefused) {
    const std::string valid =
        to_text({.num_bytes = 9000, .table_at = 2048, .table_bytes = 5000, .set = Hash{}});
    const std::string lines = valid.substr(0, valid.find("check "));
    fuzz(lines, to_json(sample_shard()),
         [](const std::string& text) { parse_user_block(checked(text.substr(0, 400)), "F"); });
    fuzz(valid, lines, [&](std::string text) {
        text.resize(kUserBlockBytes, ' ');
        EXPECT_EQ(parse_user_block(text, "F"),
                  parse_user_block(valid, "F"));  // its check lets nothing else pass
    });
}

// Whole files, so that user block, table and shards meet.
TEST(Fuzz, FilesAreTakenOrRefused) {
    Random random(1);
    const ScratchFolder folder;
    const Sample sample = random_sample(random, 2);
    write_full_file(random, folder / "all.h5", sample);
    const std::string valid = read_file(folder / "all.h5");
    for (const uint64_t seed : testing::FuzzSeeds(1000)) {
        Random own(seed);
        const std::string text = mutated(own, valid, valid);
        write_file(folder / "all.h5", text);
        std::vector<std::string> faults;
        try {
            faults = Checkpoint(folder / "all.h5").faults();
        } catch (const UserError& error) {
            faults = {error.what()};
        }
        EXPECT_EQ(faults.empty(), text == valid) << seed;
    }
}

}  // namespace
}  // namespace argosy::checkpoint
