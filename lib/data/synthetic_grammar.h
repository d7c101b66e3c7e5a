// Present-tense sentences whose verb agrees with a subject that may be far before it: "The small dogs behind
// the tower that follow the cat sleep at night." Each has both forms of the verb, for the task that asks for
// the right one.
#pragma once

#include <string>

#include "data/random_stream.h"

namespace argosy::data {

enum class Grammatical { Singular, Plural };

struct AgreementSentence {
    std::string subject;           // "The dogs near the house"
    Grammatical number;            // of the subject
    std::string singular, plural;  // the rest with either verb form: "sees the cat.", "see the cat."

    const std::string& right() const { return number == Grammatical::Singular ? singular : plural; }
    const std::string& wrong() const { return number == Grammatical::Singular ? plural : singular; }
    std::string text() const { return subject + " " + right(); }
};

AgreementSentence agreement_sentence(RandomStream& random);

}  // namespace argosy::data
