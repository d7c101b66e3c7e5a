// Sums in words and digits: "17 plus 25 is 42."
#pragma once

#include <string>

#include "data/random_stream.h"

namespace argosy::data {

struct Sum {
    std::string question;  // "17 plus 25 is"
    int answer;            // never negative
};

Sum random_sum(RandomStream& random);

}  // namespace argosy::data
