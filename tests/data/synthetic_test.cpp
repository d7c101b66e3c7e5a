#include "data/synthetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/error.h"
#include "expect_error.h"
#include "scratch_folder.h"

namespace argosy::data {
namespace {

namespace fs = std::filesystem;

constexpr auto kTaskFiles = {"agreement.jsonl", "arithmetic.jsonl", "last_word.jsonl", "perplexity.jsonl"};

std::vector<nlohmann::json> records(const fs::path& path) {
    std::vector<nlohmann::json> all;
    std::istringstream lines(read_file(path));
    for (std::string line; std::getline(lines, line);) all.push_back(nlohmann::json::parse(line));
    return all;
}

std::string all_files(const fs::path& folder) {
    std::string bytes = read_file(folder / "train.jsonl") + read_file(folder / "valid.jsonl");
    for (const char* task : kTaskFiles) bytes += read_file(folder / "tasks" / task);
    return bytes;
}

TEST(Synthetic, IsDeterministicInItsSeed) {
    const ScratchFolder folder;
    write_synthetic_corpus({.output = folder / "a", .megabytes = 0.1, .seed = 1});
    write_synthetic_corpus({.output = folder / "b", .megabytes = 0.1, .seed = 1});
    write_synthetic_corpus({.output = folder / "c", .megabytes = 0.1, .seed = 2});
    EXPECT_EQ(all_files(folder / "a"), all_files(folder / "b"));
    for (const fs::path file :
         {"train.jsonl", "valid.jsonl", "tasks/agreement.jsonl", "tasks/last_word.jsonl"}) {
        EXPECT_NE(read_file(folder / "a" / file), read_file(folder / "c" / file)) << file;
    }
}

TEST(Synthetic, HasTheRequestedSize) {
    const ScratchFolder folder;
    for (const double megabytes : {0.02, 0.5, 2.0}) {
        write_synthetic_corpus({.output = folder / "a", .megabytes = megabytes, .seed = 1});
        EXPECT_NEAR(static_cast<double>(fs::file_size(folder / "a/train.jsonl")), megabytes * 1e6,
                    megabytes * 1e5);
    }
    EXPECT_ERROR(write_synthetic_corpus({.output = folder / "a", .megabytes = 0}), UserError,
                 "--megabytes is 0");
    EXPECT_ERROR(write_synthetic_corpus({.output = folder / "a", .megabytes = NAN}), UserError,
                 "--megabytes is nan");
}

TEST(Synthetic, DocumentsArePlainTextAndNoneIsInBothSplits) {
    const ScratchFolder folder;
    write_synthetic_corpus({.output = folder / "a", .megabytes = 0.5, .seed = 1});
    std::set<std::string> trained, held_out;
    for (const auto& record : records(folder / "a/train.jsonl")) trained.insert(record["text"]);
    for (const auto& record : records(folder / "a/valid.jsonl")) held_out.insert(record["text"]);
    for (const auto& record : records(folder / "a/tasks/perplexity.jsonl")) held_out.insert(record["text"]);
    for (const std::string& text : trained) {
        EXPECT_EQ(held_out.count(text), 0) << text;
        EXPECT_GT(text.size(), 60) << text;
        EXPECT_LT(text.size(), 6000) << text;
        EXPECT_EQ(text.back(), '.') << text;
        EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }))
            << text;
        EXPECT_EQ(text.find("  "), std::string::npos) << text;
        EXPECT_EQ(text.find_first_of("{}"), std::string::npos) << text;
    }
}

TEST(Synthetic, MultipleChoiceHasTheGoldAtEveryPosition) {
    const ScratchFolder folder;
    write_synthetic_corpus({.output = folder / "a", .megabytes = 0.02, .seed = 1});
    for (const char* task : {"agreement.jsonl", "arithmetic.jsonl"}) {
        std::map<int, int> golds;
        const auto all = records(folder / "a/tasks" / task);
        const size_t num_choices = all.front()["choices"].size();
        for (const auto& record : all) {
            ++golds[record["gold"]];
            const std::set<std::string> distinct(record["choices"].begin(), record["choices"].end());
            EXPECT_EQ(distinct.size(), num_choices) << record;
            for (const std::string& choice : distinct) EXPECT_EQ(choice.back(), '.') << record;
        }
        EXPECT_EQ(golds.size(), num_choices);
        EXPECT_LT(golds.rbegin()->first, static_cast<int>(num_choices));
        for (const auto& [gold, count] : golds)
            EXPECT_GT(count, static_cast<int>(all.size() / num_choices / 2)) << gold;
    }
}

TEST(Synthetic, ArithmeticGoldIsRight) {
    const ScratchFolder folder;
    write_synthetic_corpus({.output = folder / "a", .megabytes = 0.02, .seed = 1});
    for (const auto& record : records(folder / "a/tasks/arithmetic.jsonl")) {
        std::istringstream question(record["context"].get<std::string>());
        int left = 0, right = 0;
        std::string operation, is;
        question >> left >> operation >> right >> is;
        const int answer = operation == "plus"    ? left + right
                           : operation == "minus" ? left - right
                                                  : left * right;
        EXPECT_EQ(record["choices"][record["gold"].get<int>()], std::to_string(answer) + ".") << record;
    }
}

TEST(AgreementSentence, FormsDifferOnlyInTheirVerb) {
    int plural = 0;
    for (int i = 0; i < 500; ++i) {
        RandomStream random(1, "test", i);
        const AgreementSentence sentence = agreement_sentence(random);
        plural += sentence.is_plural;
        EXPECT_NE(sentence.right(), sentence.wrong());
        EXPECT_EQ(sentence.right().substr(sentence.right().find(' ')),
                  sentence.wrong().substr(sentence.wrong().find(' ')));
        EXPECT_EQ(sentence.text().rfind("The ", 0), 0);
    }
    EXPECT_NEAR(plural, 250, 60);
}

TEST(Story, ItsLastWordOccursEarlier) {
    std::set<std::string> last_words;
    for (int i = 0; i < 300; ++i) {
        RandomStream random(1, "test", i);
        const Story story = random_story(random);
        EXPECT_NE(story.text.find(" " + story.last_word), std::string::npos)
            << story.text << " " << story.last_word;
        EXPECT_EQ(story.last_word.find(' '), std::string::npos);
        last_words.insert(story.last_word);
    }
    EXPECT_GT(last_words.size(), 35);  // of 20 people, 10 towns and 10 colours
}

}  // namespace
}  // namespace argosy::data
