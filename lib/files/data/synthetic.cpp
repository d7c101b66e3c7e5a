#include "data/synthetic.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/output.h"
#include "base/program.h"
#include "base/random.h"
#include "base/raw_file.h"

namespace argosy::data {
namespace {

using nlohmann::json;

constexpr double kBytesPerMegabyte = 1e6;
constexpr double kMaxMegabytes = 1e6;

constexpr const char *kKey = "argosy", *kMark = "synthetic corpus";  // the key sorts before all others

/// Whether the file at `path` has the mark.
bool is_synthetic(const std::filesystem::path& path) {
    return begins_with(fmt::format("{{\"{}\":\"{}\",", kKey, kMark))(path);
}

/// Appends a record to a file. The first record carries the mark, a key that readers of records ignore; a
/// later run of the tool replaces only files with the mark. Throws RunError after a signal that asks the
/// program to end (base/program.h).
void append(PartialFile& file, json record, bool is_first) {
    throw_if_stop_requested();
    if (is_first) record[kKey] = kMark;
    file.append(record.dump() + '\n');
}

/// Inserts the right choice at a random position among the wrong ones, which keep their order.
json multiple_choice(RandomStream& random, const std::string& context, const std::string& right,
                     std::vector<std::string> choices) {
    const int gold = random.below(static_cast<int>(choices.size()) + 1);
    choices.insert(choices.begin() + gold, right);
    return {{"context", context}, {"choices", choices}, {"gold", gold}};
}

/// A choice is the rest of the sentence. The verb alone would not do: "see" is a prefix of "sees", so it
/// would always be at least as likely.
json agreement(RandomStream& random) {
    const AgreementSentence sentence = agreement_sentence(random);
    return multiple_choice(random, sentence.subject, sentence.right(), {sentence.wrong()});
}

json arithmetic(RandomStream& random) {
    constexpr int kNumWrong = 3;
    constexpr std::array kSlips = {-10, -2, -1, 1, 2, 10};
    const auto [question, answer] = random_calculation(random);
    std::vector<std::string> wrong;
    while (wrong.size() < kNumWrong) {
        const int slip = answer + random.pick(kSlips);
        const std::string choice = fmt::format("{}.", slip);
        if (slip >= 0 && std::ranges::count(wrong, choice) == 0) wrong.push_back(choice);
    }
    return multiple_choice(random, question, fmt::format("{}.", answer), std::move(wrong));
}

json last_word(RandomStream& random) {
    const Story story = random_story(random);
    return {{"text", fmt::format("{} {}", story.text, story.last_word)}};
}

json held_out_document(RandomStream& random) { return {{"text", random_document(random)}}; }

/// An evaluation task on what the synthetic corpus teaches, made with the same grammar from other random
/// choices. data/README.md specifies the formats.
struct SyntheticTask {
    const char* name;  // of the file NAME.jsonl
    int num_records;
    json (*record)(RandomStream& random);  // makes a multiple-choice question or a text
};

constexpr std::array<SyntheticTask, 4> kSyntheticTasks = {{
    {"agreement", 400, agreement},
    {"arithmetic", 400, arithmetic},
    {"last_word", 200, last_word},
    {"perplexity", 100, held_out_document},
}};

/// Appends documents until one more would move the file's size further away from `wanted_bytes`.
void write_split(PartialFile& file, const std::string& split, uint64_t seed, double wanted_bytes) {
    double num_bytes = 0;
    for (uint64_t index = 0;; ++index) {
        RandomStream random(seed, split, index);
        json record = {{"text", random_document(random)}};
        const auto size = static_cast<double>(record.dump().size() + 1);
        const double overshoot = num_bytes + size - wanted_bytes;
        if (index > 0 && overshoot > wanted_bytes - num_bytes) break;
        num_bytes += size;
        append(file, std::move(record), index == 0);
    }
}

void write_task(PartialFile& file, const SyntheticTask& task, uint64_t seed) {
    for (int i = 0; i < task.num_records; ++i) {
        RandomStream random(seed, task.name, i);
        append(file, task.record(random), i == 0);
    }
}

}  // namespace

void write_synthetic_corpus(const SyntheticOptions& options) {
    if (!(options.megabytes > 0 && options.megabytes <= kMaxMegabytes)) {
        throw UserError("--megabytes is {}; it must be more than 0, and at most {}", options.megabytes,
                        kMaxMegabytes);
    }
    const double train_bytes = options.megabytes * kBytesPerMegabyte;
    make_folders(options.output / "tasks");
    // All files are open before the first is written, and whole before the first appears.
    std::deque<PartialFile> files;
    const auto open = [&](const std::string& name) {
        files.emplace_back(options.output / fmt::format("{}.jsonl", name), is_synthetic);
    };
    for (const char* split : {"train", "valid"}) open(split);
    for (const SyntheticTask& task : kSyntheticTasks) open(fmt::format("tasks/{}", task.name));

    write_split(files[0], "train", options.seed, train_bytes);
    write_split(files[1], "valid", options.seed, std::clamp(train_bytes / 20, 5e4, 5e6));
    for (size_t i = 0; i < kSyntheticTasks.size(); ++i) {
        write_task(files[2 + i], kSyntheticTasks[i], options.seed);
    }
    for (PartialFile& file : files) file.commit();
}

}  // namespace argosy::data
