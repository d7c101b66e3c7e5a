// The vocabulary of the synthetic corpus. Every word that follows "a" begins with a consonant, and every noun
// lists its plural, so that sentences need no spelling rules.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace argosy::data {

struct Pronouns {
    std::string_view subject, object, possessive;
};

struct Person {
    std::string_view name;
    Pronouns pronouns;
    bool operator==(const Person& other) const { return name == other.name; }
};

struct Noun {
    std::string_view singular, plural;
};

/// Present tense; the first form agrees with a plural subject, the second with a singular one.
struct Verb {
    std::string_view plural, singular;
};

inline constexpr Pronouns kShe{"she", "her", "her"}, kHe{"he", "him", "his"};

inline constexpr auto kPeople = std::to_array<Person>({
    {"Mira", kShe},  {"Clara", kShe}, {"Nora", kShe}, {"Ruth", kShe}, {"Helen", kShe},
    {"Paula", kShe}, {"Greta", kShe}, {"Lucy", kShe}, {"Vera", kShe}, {"Susan", kShe},
    {"Tom", kHe},    {"Peter", kHe},  {"Oscar", kHe}, {"Henry", kHe}, {"Jonas", kHe},
    {"Martin", kHe}, {"David", kHe},  {"Felix", kHe}, {"Simon", kHe}, {"Victor", kHe},
});

inline constexpr auto kCreatures = std::to_array<Noun>({
    {"dog", "dogs"},
    {"cat", "cats"},
    {"horse", "horses"},
    {"child", "children"},
    {"farmer", "farmers"},
    {"teacher", "teachers"},
    {"goose", "geese"},
    {"sailor", "sailors"},
    {"mouse", "mice"},
    {"woman", "women"},
    {"man", "men"},
    {"rabbit", "rabbits"},
    {"fox", "foxes"},
    {"student", "students"},
    {"singer", "singers"},
    {"guest", "guests"},
});

inline constexpr auto kPlaceNouns = std::to_array<Noun>({
    {"house", "houses"},
    {"river", "rivers"},
    {"bridge", "bridges"},
    {"garden", "gardens"},
    {"tower", "towers"},
    {"field", "fields"},
    {"shop", "shops"},
    {"well", "wells"},
    {"barn", "barns"},
    {"tree", "trees"},
});

inline constexpr auto kThings = std::to_array<Noun>({
    {"lamp", "lamps"},
    {"key", "keys"},
    {"book", "books"},
    {"cup", "cups"},
    {"rope", "ropes"},
    {"coin", "coins"},
    {"map", "maps"},
    {"knife", "knives"},
    {"basket", "baskets"},
    {"mirror", "mirrors"},
    {"whistle", "whistles"},
    {"ring", "rings"},
    {"bell", "bells"},
    {"letter", "letters"},
    {"hat", "hats"},
});

inline constexpr auto kFruits = std::to_array<Noun>({
    {"apple", "apples"},
    {"pear", "pears"},
    {"plum", "plums"},
    {"nut", "nuts"},
    {"cherry", "cherries"},
});

inline constexpr auto kTransitiveVerbs = std::to_array<Verb>({
    {"see", "sees"},
    {"follow", "follows"},
    {"help", "helps"},
    {"know", "knows"},
    {"watch", "watches"},
    {"like", "likes"},
    {"hear", "hears"},
    {"find", "finds"},
    {"meet", "meets"},
    {"carry", "carries"},
});

inline constexpr auto kIntransitiveVerbs = std::to_array<Verb>({
    {"sleep", "sleeps"},
    {"run", "runs"},
    {"sing", "sings"},
    {"wait", "waits"},
    {"rest", "rests"},
    {"walk", "walks"},
});

inline constexpr Verb kBe{"are", "is"}, kHave{"have", "has"};

inline constexpr auto kAdjectives =
    std::to_array<std::string_view>({"small", "tall", "quiet", "young", "tired", "happy", "brave", "hungry",
                                     "clever", "gentle", "proud", "lazy"});

inline constexpr auto kAdverbs = std::to_array<std::string_view>(
    {"slowly", "every day", "in the morning", "after lunch", "at night", "in the rain", "without a sound"});

inline constexpr auto kPrepositions =
    std::to_array<std::string_view>({"near", "behind", "beside", "in front of"});

inline constexpr auto kColours = std::to_array<std::string_view>(
    {"red", "green", "blue", "yellow", "white", "black", "brown", "grey", "purple", "silver"});

inline constexpr auto kJobs = std::to_array<std::string_view>(
    {"baker", "doctor", "painter", "fisher", "gardener", "builder", "tailor", "miller", "cook", "driver"});

inline constexpr auto kTowns = std::to_array<std::string_view>(
    {"Oslo", "Lisbon", "Bergen", "Dublin", "Turin", "Krakow", "Geneva", "Seville", "Ghent", "Riga"});

inline constexpr auto kContainers = std::to_array<std::string_view>(
    {"drawer", "cellar", "kitchen", "box", "cupboard", "bag", "attic", "chest", "pocket", "wagon"});

inline constexpr auto kDays = std::to_array<std::string_view>(
    {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"});

inline constexpr auto kMonths =
    std::to_array<std::string_view>({"January", "February", "March", "April", "May", "June", "July", "August",
                                     "September", "October", "November", "December"});

inline constexpr auto kNumberWords =
    std::to_array<std::string_view>({"zero", "one", "two", "three", "four", "five", "six", "seven", "eight",
                                     "nine", "ten", "eleven", "twelve"});

/// Returns the word with a capital first letter.
inline std::string capitalised(std::string_view word) {
    std::string text(word);
    if (text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return text;
}

}  // namespace argosy::data
