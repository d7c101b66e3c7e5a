#include "data/synthetic.h"

#include <fmt/args.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace argosy::data {
namespace {

// The vocabulary. Every word that follows "a" begins with a consonant, so that sentences need no spelling
// rules.

struct Pronouns {
    std::string_view subject, object, possessive;
};

struct Person {
    std::string_view name;
    Pronouns pronouns;
    bool operator==(const Person& other) const { return name == other.name; }
};

constexpr Pronouns kShe{"she", "her", "her"}, kHe{"he", "him", "his"};

constexpr auto kPeople = std::to_array<Person>({
    {"Mira", kShe},  {"Clara", kShe}, {"Nora", kShe}, {"Ruth", kShe}, {"Helen", kShe},
    {"Paula", kShe}, {"Greta", kShe}, {"Lucy", kShe}, {"Vera", kShe}, {"Susan", kShe},
    {"Tom", kHe},    {"Peter", kHe},  {"Oscar", kHe}, {"Henry", kHe}, {"Jonas", kHe},
    {"Martin", kHe}, {"David", kHe},  {"Felix", kHe}, {"Simon", kHe}, {"Victor", kHe},
});

constexpr auto kCreatures =
    std::to_array<std::string_view>({"dog", "cat", "horse", "child", "farmer", "teacher", "goose", "sailor",
                                     "mouse", "woman", "man", "rabbit", "fox", "student", "singer", "guest"});

constexpr auto kPlaceNouns = std::to_array<std::string_view>(
    {"house", "river", "bridge", "garden", "tower", "field", "shop", "well", "barn", "tree"});

constexpr auto kThings =
    std::to_array<std::string_view>({"lamp", "key", "book", "cup", "rope", "coin", "map", "knife", "basket",
                                     "mirror", "whistle", "ring", "bell", "letter", "hat"});

constexpr auto kFruits = std::to_array<std::string_view>({"apple", "pear", "plum", "nut", "cherry"});

constexpr auto kTransitiveVerbs = std::to_array<std::string_view>(
    {"see", "follow", "help", "know", "watch", "like", "hear", "find", "meet", "carry"});

constexpr auto kIntransitiveVerbs =
    std::to_array<std::string_view>({"sleep", "run", "sing", "wait", "rest", "walk"});

constexpr auto kAdjectives =
    std::to_array<std::string_view>({"small", "tall", "quiet", "young", "tired", "happy", "brave", "hungry",
                                     "clever", "gentle", "proud", "lazy"});

constexpr auto kAdverbs = std::to_array<std::string_view>(
    {"slowly", "every day", "in the morning", "after lunch", "at night", "in the rain", "without a sound"});

constexpr auto kPrepositions = std::to_array<std::string_view>({"near", "behind", "beside", "in front of"});

constexpr auto kColours = std::to_array<std::string_view>(
    {"red", "green", "blue", "yellow", "white", "black", "brown", "grey", "purple", "silver"});

constexpr auto kJobs = std::to_array<std::string_view>(
    {"baker", "doctor", "painter", "fisher", "gardener", "builder", "tailor", "miller", "cook", "driver"});

constexpr auto kTowns = std::to_array<std::string_view>(
    {"Oslo", "Lisbon", "Bergen", "Dublin", "Turin", "Krakow", "Geneva", "Seville", "Ghent", "Riga"});

constexpr auto kContainers = std::to_array<std::string_view>(
    {"drawer", "cellar", "kitchen", "box", "cupboard", "bag", "attic", "chest", "pocket", "wagon"});

constexpr auto kDays = std::to_array<std::string_view>(
    {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"});

constexpr auto kMonths =
    std::to_array<std::string_view>({"January", "February", "March", "April", "May", "June", "July", "August",
                                     "September", "October", "November", "December"});

constexpr auto kNumberWords =
    std::to_array<std::string_view>({"zero", "one", "two", "three", "four", "five", "six", "seven", "eight",
                                     "nine", "ten", "eleven", "twelve"});

/// The plural of a noun, and the form of a verb that agrees with a singular subject.
std::string with_s(std::string_view word) {
    constexpr std::pair<std::string_view, const char*> kIrregular[] = {
        {"child", "children"}, {"goose", "geese"}, {"mouse", "mice"},
        {"woman", "women"},    {"man", "men"},     {"knife", "knives"}};
    for (const auto& [singular, plural] : kIrregular) {
        if (word == singular) return plural;
    }
    const std::string text(word);
    if (word.ends_with("ry")) return text.substr(0, text.size() - 1) + "ies";
    return text + (word.ends_with('x') || word.ends_with("ch") ? "es" : "s");
}

std::string capitalised(std::string_view word) {
    std::string text(word);
    if (text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return text;
}

/// The two people of a document; every paragraph that names people uses these.
struct Cast {
    Person hero, companion;
};

Cast random_cast(RandomStream& random) {
    const Person& hero = random.pick(kPeople);
    return {hero, random.pick_other(kPeople, hero)};
}

Story story_of(RandomStream& random, const Cast& cast);

std::string story(RandomStream& random, const Cast& cast) {
    const Story told = story_of(random, cast);
    return fmt::format("{} {}.", told.text, told.last_word);
}

std::string description(RandomStream& random, const Cast&) {
    std::string text;
    for (int left = random.between(2, 6); left > 0; --left) {
        const AgreementSentence sentence = agreement_sentence(random);
        if (!text.empty()) text += ' ';
        text += sentence.text();
        if (!random.chance(30)) continue;
        text += fmt::format(" {} {} too.", sentence.is_plural ? "They are" : "That one is",
                            random.pick(kAdjectives));
    }
    return text;
}

std::string calculations(RandomStream& random, const Cast&) {
    std::string text;
    for (int left = random.between(2, 8); left > 0; --left) {
        const auto [question, answer] = random_calculation(random);
        if (!text.empty()) text += ' ';
        text += fmt::format("{} {}.", question, answer);
    }
    return text;
}

std::string trade(RandomStream& random, const Cast& cast) {
    const std::string fruits = with_s(random.pick(kFruits));
    const int before = random.between(3, 30), given = random.between(2, before - 1),
              bought = random.between(2, 20);
    return fmt::format(
        "{0} has {1} {2}. {3} gives {4} {2} to {5}, so {6} has {7} left. Then {6} buys {8} more, and now "
        "{6} has {9} {2}.",
        cast.hero.name, before, fruits, capitalised(cast.hero.pronouns.subject), given, cast.companion.name,
        cast.hero.pronouns.subject, before - given, bought, before - given + bought);
}

std::string calendar(RandomStream& random, const Cast& cast) {
    const int day = random.below(kDays.size()), month = random.below(kMonths.size());
    const int later = random.between(2, 5);
    return fmt::format(
        "The day after {} is {}, and the month after {} is {}. {} leaves on {} and comes back {} days "
        "later, on {}.",
        kDays[day], kDays[(day + 1) % 7], kMonths[month], kMonths[(month + 1) % 12], cast.companion.name,
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
                             random.pick(kColours), kThings[order.at(i)]);
    }
    return fmt::format(
        "There are {} things on the table of {}: {}. The first is the {} and the last is the {}.",
        kNumberWords[count], cast.hero.name, items, kThings[order.at(0)], kThings[order.at(count - 1)]);
}

std::string counting(RandomStream& random, const Cast& cast) {
    const int first = random.between(0, 6), last = random.between(first + 2, 12);
    std::string numbers(kNumberWords[first]);
    for (int number = first + 1; number <= last; ++number)
        numbers += fmt::format(", {}", kNumberWords[number]);
    return fmt::format("{} counts from {} to {}: {}.", cast.companion.name, kNumberWords[first],
                       kNumberWords[last], numbers);
}

struct Topic {
    int percent;
    std::string (*write)(RandomStream& random, const Cast& cast);
};

constexpr auto kTopics = std::to_array<Topic>({{40, story},
                                               {25, description},
                                               {15, calculations},
                                               {6, trade},
                                               {5, calendar},
                                               {5, list},
                                               {4, counting}});

std::string paragraph(RandomStream& random, const Cast& cast) {
    int ticket = random.below(100);
    for (const Topic& topic : kTopics) {
        if (ticket < topic.percent) return topic.write(random, cast);
        ticket -= topic.percent;
    }
    throw RunError("internal error: the topics' shares do not add up to 100 percent");
}

/// The facts of a story, keyed by the names in braces in its sentences.
using Facts = fmt::dynamic_format_arg_store<fmt::format_context>;

// A story names its two people in the same words again and again: "the story of Nora", "a friend called Tom".
// At the end these words have the same name after them as before.

constexpr auto kOpenings = std::to_array<std::string_view>({
    "This is the story of {hero}, who was a {job} in {town}. {She} had a friend called {friend}, the "
    "{friend_job}. "
    "One {day} {she} found a {colour} {thing} near the {place}. {She} put it in the {container}, because "
    "{she} "
    "wanted to show it to {friend}.",
    "In {town} there lived a {job}, and this is the story of {hero}. {She} had a friend called {friend}, the "
    "{friend_job}. One {day}, near the {place}, {she} found a {colour} {thing} and hid it in the "
    "{container}.",
});

constexpr auto kMiddles = std::to_array<std::string_view>({
    " {friend} said that {he} liked the {colour} {thing}.",
    " {hero} told {friend} that {she} would never sell the {thing}.",
    " The {job} and the {friend_job} talked about {town} until it was dark.",
    " Every morning {hero} went to the {container} and looked at the {thing}.",
    " {friend} asked {hero} where {she} had found it, and {she} told {him} about the {place}.",
    " Everybody knew that {hero} had a friend called {friend}.",
    " People in {town} told the story of {hero} and the {colour} {thing}.",
    " {friend} forgot {his} hat, so {hero} carried it to {him}.",
    " The next day was {next_day}, and {friend} came back to see {hero}.",
});

struct Ending {
    std::string_view text, last_word;
};

constexpr auto kEndings = std::to_array<Ending>({
    {" {friend} told {his} children the story of", "hero"},
    {" Even when {she} was old, {hero} had a friend called", "friend"},
    {" Much later {friend} asked for the {thing}. The one who had found it was", "hero"},
    {" When {hero} was old, {she} gave the {thing} to", "friend"},
    {" Years went by, but the colour of the {thing} did not change. It was still", "colour"},
    {" In the evening {friend} walked home through the streets of", "town"},
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
    add("friend", cast.companion.name);
    add("he", cast.companion.pronouns.subject);
    add("him", cast.companion.pronouns.object);
    add("his", cast.companion.pronouns.possessive);
    add("job", job);
    add("friend_job", random.pick_other(kJobs, job));
    add("town", random.pick(kTowns));
    add("colour", random.pick(kColours));
    add("thing", random.pick(kThings));
    add("place", random.pick(kPlaceNouns));
    add("container", random.pick(kContainers));
    add("day", kDays[day]);
    add("next_day", kDays[(day + 1) % kDays.size()]);
    return facts;
}

bool random_plural(RandomStream& random) { return !random.chance(50); }

std::string form(std::string_view noun, bool is_plural) {
    return is_plural ? with_s(noun) : std::string(noun);
}

std::string creature(RandomStream& random, bool is_plural) {
    const std::string noun = form(random.pick(kCreatures), is_plural);
    if (random.chance(40)) return fmt::format("the {} {}", random.pick(kAdjectives), noun);
    return fmt::format("the {}", noun);
}

/// The words between a subject and its verb, often with a noun of the other number.
std::string between(RandomStream& random, bool is_plural) {
    if (random.chance(50)) {
        const std::string_view preposition = random.pick(kPrepositions), place = random.pick(kPlaceNouns);
        return fmt::format(" {} the {}", preposition, form(place, random_plural(random)));
    }
    const std::string verb = form(random.pick(kTransitiveVerbs), !is_plural);
    return fmt::format(" that {} {}", verb, creature(random, random_plural(random)));
}

/// Both forms of a verb, and what follows it.
struct Predicate {
    std::string plural, singular, rest;
};

Predicate predicate(RandomStream& random) {
    const int kind = random.below(100);
    if (kind < 65) {
        const std::string_view verb =
            kind < 40 ? random.pick(kTransitiveVerbs) : random.pick(kIntransitiveVerbs);
        return {std::string(verb), with_s(verb),
                kind < 40 ? creature(random, random_plural(random)) : std::string(random.pick(kAdverbs))};
    }
    if (kind < 85) return {"are", "is", std::string(random.pick(kAdjectives))};
    const std::string_view colour = random.pick(kColours);
    return {"have", "has", fmt::format("a {} {}", colour, random.pick(kThings))};
}

/// `cast`: the people of the story.
Story story_of(RandomStream& random, const Cast& cast) {
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

Calculation random_calculation(RandomStream& random) {
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

Story random_story(RandomStream& random) {
    const Cast cast = random_cast(random);
    return story_of(random, cast);
}

AgreementSentence agreement_sentence(RandomStream& random) {
    const bool is_plural = random_plural(random);
    std::string subject = creature(random, is_plural);
    if (random.chance(60)) subject += between(random, is_plural);
    const auto [plural, singular, rest] = predicate(random);
    return {.subject = capitalised(subject),
            .is_plural = is_plural,
            .singular = fmt::format("{} {}.", singular, rest),
            .plural = fmt::format("{} {}.", plural, rest)};
}

}  // namespace argosy::data
