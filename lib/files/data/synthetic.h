// Generates a corpus that needs no download and has something to learn: verbs agree with subjects far before
// them, stories end with a person or thing named early, calculations are correct. The seed alone determines
// the texts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/random.h"

namespace argosy::data {

struct SyntheticOptions {
    std::filesystem::path output;  // a folder, made if missing
    double megabytes = 16;         // size of train.jsonl, in units of 1e6 bytes
    uint64_t seed = 0;
};

/// Writes train.jsonl, valid.jsonl (a twentieth of train.jsonl, but 50 kB to 5 MB) and tasks/*.jsonl. The
/// files appear once all are written: an error or a signal leaves an earlier corpus as it was. A smaller
/// corpus is the beginning of a larger one with the same seed.
void write_synthetic_corpus(const SyntheticOptions& options);

// Documents, and the parts that the evaluation tasks take from them: calculations, stories, and sentences
// whose verb agrees with a distant subject.

/// Returns a few paragraphs on mixed topics about the same two people: plain ASCII, a few hundred to a few
/// thousand characters, with a line feed between paragraphs.
std::string random_document(RandomStream& random);

/// A sum, difference or product in words and digits: "17 plus 25 is 42."
struct Calculation {
    std::string question;  // "17 plus 25 is"
    int answer;            // never negative
};

Calculation random_calculation(RandomStream& random);

/// A story whose last word follows from earlier sentences: mostly one of the two people, else a town or a
/// colour.
struct Story {
    std::string text;  // all but the last word and its full stop
    std::string last_word;
};

Story random_story(RandomStream& random);

/// A present-tense sentence whose verb agrees with a subject that may be far before it: "The small dogs
/// behind the tower sleep at night." Both forms of the verb are given, for the task that asks for the right
/// one.
struct AgreementSentence {
    std::string subject;           // "The dogs near the house"
    bool is_plural;                // the subject
    std::string singular, plural;  // the rest with either verb form: "sees the cat.", "see the cat."

    const std::string& right() const { return is_plural ? plural : singular; }
    const std::string& wrong() const { return is_plural ? singular : plural; }
    std::string text() const { return subject + " " + right(); }
};

AgreementSentence agreement_sentence(RandomStream& random);

}  // namespace argosy::data
