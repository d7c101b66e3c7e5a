// A document of the synthetic corpus: a few paragraphs on mixed topics about the same two people.
#pragma once

#include <string>

#include "data/random_stream.h"

namespace argosy::data {

/// Plain ASCII, some hundred to some thousand characters, paragraphs separated by a line feed.
std::string random_document(RandomStream& random);

}  // namespace argosy::data
