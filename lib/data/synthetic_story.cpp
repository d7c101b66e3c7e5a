#include "data/synthetic_story.h"

#include <fmt/args.h>
#include <fmt/format.h>

#include "data/synthetic_words.h"

namespace argosy::data {
namespace {

/// The facts of a story, keyed by the names in its sentences; {her} is as in "saw her", {hers} in "her
/// house".
using Facts = fmt::dynamic_format_arg_store<fmt::format_context>;

constexpr auto kOpenings = std::to_array<std::string_view>({
    "{hero} was a {job} who lived in {town}. One {day} {she} found a {colour} {thing} near the {place}. "
    "{She} put it "
    "in the {container}, because {she} wanted to show it to {friend}, the {friend_job}.",
    "In {town} there lived a {job}, and {hers} name was {hero}. {She} had a friend, the {friend_job} "
    "{friend}. One "
    "{day}, near the {place}, {she} found a {colour} {thing} and hid it in the {container}.",
});

constexpr auto kMiddles = std::to_array<std::string_view>({
    " {friend} said that {he} liked the {colour} {thing}.",
    " {hero} told {friend} that {she} would never sell the {thing}.",
    " The {job} and the {friend_job} talked about {town} until it was dark.",
    " Every morning {hero} went to the {container} and looked at the {thing}.",
    " {friend} asked {hero} where {she} had found it, and {she} told {him} about the {place}.",
    " {hero} gave {friend} some bread, and {he} thanked {her}.",
    " People in {town} said that the {thing} would bring luck to {hero} and {hers} house.",
    " {friend} forgot {his} hat, so {hero} carried it to {him}.",
    " The next day was {next_day}, and {friend} came back to see {hero}.",
});

struct Ending {
    std::string_view text, last_word;
};

constexpr auto kEndings = std::to_array<Ending>({
    {" Much later {friend} asked for the {thing}. {hero} opened the door and took it out of the",
     "container"},
    {" When people asked {hero} about {hers} work, {she} said that {she} was still a", "job"},
    {" In the evening {friend} walked home through the streets of", "town"},
    {" Years went by, but the colour of the {thing} did not change. It was still", "colour"},
    {" {hero} often went back to the place where {she} had found the {thing}, near the", "place"},
    {" When {hero} was old, {she} gave {friend} the", "thing"},
    {" The {friend_job} thanked the {job}, whose name was", "hero"},
});

std::string tell(std::string_view sentence, const Facts& facts) { return fmt::vformat(sentence, facts); }

Facts random_facts(RandomStream& random, const Cast& cast) {
    Facts facts;
    const auto add = [&](const char* name, std::string_view value) {
        facts.push_back(fmt::arg(name, value));
    };
    const std::string_view job = random.pick(kJobs);
    const int day = random.below(kDays.size());
    add("hero", cast.hero.name);
    add("she", cast.hero.pronouns.subject);
    facts.push_back(fmt::arg("She", capitalised(cast.hero.pronouns.subject)));
    add("her", cast.hero.pronouns.object);
    add("hers", cast.hero.pronouns.possessive);
    add("friend", cast.friend_.name);
    add("he", cast.friend_.pronouns.subject);
    add("him", cast.friend_.pronouns.object);
    add("his", cast.friend_.pronouns.possessive);
    add("job", job);
    add("friend_job", random.pick_other(kJobs, job));
    add("town", random.pick(kTowns));
    add("colour", random.pick(kColours));
    add("thing", random.pick(kThings).singular);
    add("place", random.pick(kPlaceNouns).singular);
    add("container", random.pick(kContainers));
    add("day", kDays[day]);
    add("next_day", kDays[(day + 1) % kDays.size()]);
    return facts;
}

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

Cast random_cast(RandomStream& random) {
    const Person& hero = random.pick(kPeople);
    return {hero, random.pick_other(kPeople, hero)};
}

Story random_story(RandomStream& random, const Cast& cast) {
    const Facts facts = random_facts(random, cast);
    Story story{tell(random.pick(kOpenings), facts), ""};
    const Permutation order(kMiddles.size(), random.below(1 << 30), 0);  // no sentence occurs twice
    const int num_middles = random.between(2, 5);
    for (int i = 0; i < num_middles; ++i) story.text += tell(kMiddles[order.at(i)], facts);
    const Ending& ending = random.pick(kEndings);
    story.text += tell(ending.text, facts);
    story.last_word = tell(fmt::format("{{{}}}", ending.last_word), facts);
    return story;
}

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
