#include "data/synthetic_grammar.h"

#include <fmt/format.h>

#include "data/synthetic_words.h"

namespace argosy::data {
namespace {

Grammatical random_number(RandomStream& random) {
    return random.chance(50) ? Grammatical::Singular : Grammatical::Plural;
}

std::string_view form(const Noun& noun, Grammatical number) {
    return number == Grammatical::Singular ? noun.singular : noun.plural;
}

std::string_view form(const Verb& verb, Grammatical number) {
    return number == Grammatical::Singular ? verb.singular : verb.plural;
}

std::string creature(RandomStream& random, Grammatical number) {
    const Noun& noun = random.pick(kCreatures);
    if (random.chance(40)) return fmt::format("the {} {}", random.pick(kAdjectives), form(noun, number));
    return fmt::format("the {}", form(noun, number));
}

/// The words between a subject and its verb, often with a noun of the other number.
std::string between(RandomStream& random, Grammatical number) {
    if (random.chance(50)) {
        const std::string_view preposition = random.pick(kPrepositions);
        const Noun& place = random.pick(kPlaceNouns);
        return fmt::format(" {} the {}", preposition, form(place, random_number(random)));
    }
    const std::string_view verb = form(random.pick(kTransitiveVerbs), number);
    return fmt::format(" that {} {}", verb, creature(random, random_number(random)));
}

struct Predicate {
    Verb verb;
    std::string rest;
};

Predicate predicate(RandomStream& random) {
    const int kind = random.below(100);
    if (kind < 40) return {random.pick(kTransitiveVerbs), creature(random, random_number(random))};
    if (kind < 65) return {random.pick(kIntransitiveVerbs), std::string(random.pick(kAdverbs))};
    if (kind < 85) return {kBe, std::string(random.pick(kAdjectives))};
    const std::string_view colour = random.pick(kColours);
    return {kHave, fmt::format("a {} {}", colour, random.pick(kThings).singular)};
}

}  // namespace

AgreementSentence agreement_sentence(RandomStream& random) {
    const Grammatical number = random_number(random);
    std::string subject = creature(random, number);
    if (random.chance(60)) subject += between(random, number);
    const Predicate rest = predicate(random);
    return {.subject = capitalised(subject),
            .number = number,
            .singular = fmt::format("{} {}.", rest.verb.singular, rest.rest),
            .plural = fmt::format("{} {}.", rest.verb.plural, rest.rest)};
}

}  // namespace argosy::data
