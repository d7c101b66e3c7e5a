#include "data/synthetic_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/synthetic_arithmetic.h"
#include "data/synthetic_document.h"
#include "data/synthetic_grammar.h"
#include "data/synthetic_story.h"

namespace argosy::data {
namespace {

using nlohmann::json;

/// Inserts the right choice at a random position among the wrong ones, whose order stays.
json multiple_choice(RandomStream& random, const std::string& context, const std::string& right,
                     std::vector<std::string> choices) {
    const int gold = random.below(static_cast<int>(choices.size()) + 1);
    choices.insert(choices.begin() + gold, right);
    return {{"context", context}, {"choices", choices}, {"gold", gold}};
}

/// Choices include the full stop: "chase" alone is a prefix of "chases", so it could only be more likely.
json agreement(RandomStream& random) {
    const AgreementSentence sentence = agreement_sentence(random);
    return multiple_choice(random, sentence.subject, sentence.right(), {sentence.wrong()});
}

json arithmetic(RandomStream& random) {
    constexpr int kNumWrong = 3;
    constexpr std::array kSlips = {-10, -2, -1, 1, 2, 10};
    const Sum sum = random_sum(random);
    std::vector<std::string> wrong;
    while (wrong.size() < kNumWrong) {
        const int slip = sum.answer + random.pick(kSlips);
        const std::string choice = fmt::format("{}.", slip);
        if (slip >= 0 && std::ranges::count(wrong, choice) == 0) wrong.push_back(choice);
    }
    return multiple_choice(random, sum.question, fmt::format("{}.", sum.answer), std::move(wrong));
}

json last_word(RandomStream& random) {
    const Story story = random_story(random, random_cast(random));
    return {{"text", fmt::format("{} {}", story.text, story.last_word)}};
}

json held_out_document(RandomStream& random) { return {{"text", random_document(random)}}; }

}  // namespace

const std::array<SyntheticTask, 4> kSyntheticTasks = {{
    {"agreement", 400, agreement},
    {"arithmetic", 400, arithmetic},
    {"last_word", 200, last_word},
    {"perplexity", 100, held_out_document},
}};

}  // namespace argosy::data
