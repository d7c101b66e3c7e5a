// Stories whose last word follows from a much earlier sentence: a person, a town, a colour, a container.
#pragma once

#include <string>

#include "data/random_stream.h"
#include "data/synthetic_words.h"

namespace argosy::data {

/// The two people of a document; every paragraph that names people uses these.
struct Cast {
    Person hero, friend_;
};

Cast random_cast(RandomStream& random);

struct Story {
    std::string text;       // all but the last word and its full stop
    std::string last_word;  // follows from the text
};

Story random_story(RandomStream& random, const Cast& cast);

}  // namespace argosy::data
