#include "data/synthetic_document.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "data/synthetic_story.h"
#include "data/synthetic_words.h"

namespace argosy::data {
namespace {

std::string story(RandomStream& random, const Cast& cast) {
    const Story told = random_story(random, cast);
    return fmt::format("{} {}.", told.text, told.last_word);
}

std::string description(RandomStream& random, const Cast&) {
    std::string text;
    for (int left = random.between(2, 6); left > 0; --left) {
        const AgreementSentence sentence = agreement_sentence(random);
        if (!text.empty()) text += ' ';
        text += sentence.text();
        if (!random.chance(30)) continue;
        const bool single = sentence.number == Grammatical::Singular;
        text += fmt::format(" {} {} too.", single ? "That one is" : "They are", random.pick(kAdjectives));
    }
    return text;
}

std::string sums(RandomStream& random, const Cast&) {
    std::string text;
    for (int left = random.between(2, 8); left > 0; --left) {
        const Sum sum = random_sum(random);
        if (!text.empty()) text += ' ';
        text += fmt::format("{} {}.", sum.question, sum.answer);
    }
    return text;
}

std::string trade(RandomStream& random, const Cast& cast) {
    const Noun& fruit = random.pick(kFruits);
    const int before = random.between(3, 30), given = random.between(2, before - 1),
              bought = random.between(2, 20);
    return fmt::format(
        "{0} has {1} {2}. {3} gives {4} {2} to {5}, so {6} has {7} left. Then {6} buys {8} more, and now "
        "{6} has {9} {2}.",
        cast.hero.name, before, fruit.plural, capitalised(cast.hero.pronouns.subject), given,
        cast.friend_.name, cast.hero.pronouns.subject, before - given, bought, before - given + bought);
}

std::string calendar(RandomStream& random, const Cast& cast) {
    const int day = random.below(kDays.size()), month = random.below(kMonths.size());
    const int later = random.between(2, 5);
    return fmt::format(
        "The day after {} is {}, and the month after {} is {}. {} leaves on {} and comes back {} days "
        "later, on {}.",
        kDays[day], kDays[(day + 1) % 7], kMonths[month], kMonths[(month + 1) % 12], cast.friend_.name,
        kDays[day], kNumberWords[later], kDays[(day + later) % 7]);
}

std::string list(RandomStream& random, const Cast& cast) {
    const int count = random.between(2, 5);
    const Permutation order(kThings.size(), random.below(1 << 30), 0);
    std::string items;
    for (int i = 0; i < count; ++i) {
        items += fmt::format("{}a {} {}",
                             i == 0          ? ""
                             : i + 1 < count ? ", "
                                             : " and ",
                             random.pick(kColours), kThings[order.at(i)].singular);
    }
    return fmt::format(
        "There are {} things on the table of {}: {}. The first is the {} and the last is the {}.",
        kNumberWords[count], cast.hero.name, items, kThings[order.at(0)].singular,
        kThings[order.at(count - 1)].singular);
}

std::string counting(RandomStream& random, const Cast& cast) {
    const int first = random.between(0, 6), last = random.between(first + 2, 12);
    std::string numbers(kNumberWords[first]);
    for (int number = first + 1; number <= last; ++number)
        numbers += fmt::format(", {}", kNumberWords[number]);
    return fmt::format("{} counts from {} to {}: {}.", cast.friend_.name, kNumberWords[first],
                       kNumberWords[last], numbers);
}

struct Topic {
    int percent;
    std::string (*write)(RandomStream& random, const Cast& cast);
};

constexpr auto kTopics = std::to_array<Topic>(
    {{40, story}, {25, description}, {15, sums}, {6, trade}, {5, calendar}, {5, list}, {4, counting}});

std::string paragraph(RandomStream& random, const Cast& cast) {
    int ticket = random.below(100);
    for (const Topic& topic : kTopics) {
        if (ticket < topic.percent) return topic.write(random, cast);
        ticket -= topic.percent;
    }
    throw RunError("internal error: the topics' shares do not add up to 100 percent");
}

}  // namespace

std::string random_document(RandomStream& random) {
    const Cast cast = random_cast(random);
    std::string text;
    for (int left = random.between(2, 8); left > 0; --left) {
        if (!text.empty()) text += '\n';
        text += paragraph(random, cast);
    }
    return text;
}

Sum random_sum(RandomStream& random) {
    const int kind = random.below(100);
    if (kind < 20) {
        const int left = random.between(2, 12), right = random.between(2, 12);
        return {fmt::format("{} times {} is", left, right), left * right};
    }
    const int largest = random.chance(50) ? 20 : 99;
    const int first = random.between(1, largest), second = random.between(1, largest);
    if (kind < 60) return {fmt::format("{} plus {} is", first, second), first + second};
    const int left = std::max(first, second), right = std::min(first, second);
    return {fmt::format("{} minus {} is", left, right), left - right};
}

}  // namespace argosy::data
