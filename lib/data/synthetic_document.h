// A document of the synthetic corpus: a few paragraphs on mixed topics about the same two people.
#pragma once

#include <string>

#include "data/random_stream.h"

namespace argosy::data {

/// Plain ASCII, some hundred to some thousand characters, paragraphs separated by a line feed.
std::string random_document(RandomStream& random);

// Sums in words and digits: "17 plus 25 is 42."

struct Sum {
    std::string question;  // "17 plus 25 is"
    int answer;            // never negative
};

Sum random_sum(RandomStream& random);

}  // namespace argosy::data
