// Stories whose last word was said long before: who, where, which colour, kept in what.
#pragma once

#include <string>

#include "data/random_stream.h"
#include "data/synthetic_words.h"

namespace argosy::data {

/// The people of one document; every paragraph that names people names these.
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
