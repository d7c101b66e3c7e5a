#include <algorithm>

#include "base/error.h"
#include "base/strict_json.h"
#include "tokenizer/pattern.h"

namespace argosy::tokenizer {
namespace {

using Op = Pattern::Op;

// The limit of a text. Published patterns take less than 10 steps a byte.
constexpr int64_t kStepsOfText = 1'000'000, kStepsOfByte = 100;
constexpr int64_t kBytesOfStep = 16;  // a loop's scan of so many bytes counts as a step

}  // namespace

PatternSearch::PatternSearch(const Pattern& pattern, std::string_view text)
    : pattern_(pattern),
      text_(text.data()),
      at_(text.data()),
      end_(text.data() + text.size()),
      steps_left_(kStepsOfText + kStepsOfByte * static_cast<int64_t>(text.size())),
      stack_([]() -> std::vector<Entry>& {
          thread_local std::vector<Entry> stack;
          return stack;
      }()) {}

bool PatternSearch::next(std::string_view& match) {
    for (; at_ != end_; at_ += utf8_size(*at_)) {
        for (const uint32_t alternative : pattern_.alternatives_[static_cast<unsigned char>(*at_)]) {
            const char* end = this->match(alternative, at_);
            if (end == nullptr) continue;
            match = {at_, end};
            at_ = end;
            return true;
        }
        count_steps(1);
    }
    return false;
}

void PatternSearch::push(const Entry& entry) {
    constexpr size_t kMinSize = 64;
    if (height_ == stack_.size()) stack_.resize(std::max(kMinSize, 2 * height_));
    stack_[height_++] = entry;
}

void PatternSearch::count_steps(int64_t steps) {
    steps_left_ -= steps;
    if (steps_left_ < 0) {
        throw UserError("{}: the pattern takes too many steps at byte {} of a text, which goes on with {}",
                        pattern_.place_, at_ - text_, shown({at_, std::min<size_t>(end_ - at_, 40)}));
    }
}

const char* PatternSearch::match(uint32_t instruction, const char* at) {
    const size_t base = height_;
    int64_t steps = 0;
    for (uint32_t next = instruction;;) {
        const Pattern::Instruction& current = pattern_.program_[next++];
        if (current.op == Op::Accept) break;
        if (++steps % 1024 == 0) count_steps(1024);
        if (step(current, next, at)) continue;
        if (height_ == base) {
            count_steps(steps % 1024);
            return nullptr;
        }
        Entry& entry = stack_[height_ - 1];
        next = entry.target;
        at = entry.at;
        if (entry.at == entry.shortest) {
            --height_;
        } else {
            do --entry.at;
            while (continues_utf8(*entry.at));
        }
    }
    height_ = base;
    return at;
}

/// Runs one instruction. Returns false if it does not match.
bool PatternSearch::step(const Pattern::Instruction& instruction, uint32_t& next, const char*& at) {
    switch (instruction.op) {
        case Op::Byte:
            return at != end_ && *at++ == instruction.byte;
        case Op::Set:
            if (at == end_ || !pattern_.sets_[instruction.target].contains_at(at)) return false;
            at += utf8_size(*at);
            return true;
        case Op::Loop:
        case Op::Possessive:
            return loop(instruction, next, at);
        case Op::Branch:
            push({instruction.target, at, at});
            return true;
        case Op::Jump:
            next = instruction.target;
            return true;
        case Op::LineEnd:
            return at == end_ || *at == '\n';
        default:  // Ahead, NotAhead
            const bool matches = match(next, at) != nullptr;
            next = instruction.target;
            return matches == (instruction.op == Op::Ahead);
    }
}

bool PatternSearch::loop(const Pattern::Instruction& instruction, uint32_t next, const char*& at) {
    const CodeTable& set = pattern_.sets_[instruction.target];
    const char* const begin = at;
    uint32_t count = 0;
    for (; count < instruction.min; ++count) {
        if (at == end_ || !set.contains_at(at)) return false;
        at += utf8_size(*at);
    }
    const char* const shortest = at;
    if (instruction.max == UINT32_MAX) {
        at = set.skip(at, end_);
    } else {
        for (; count < instruction.max && at != end_ && set.contains_at(at); ++count) at += utf8_size(*at);
    }
    if (const int64_t steps = (at - begin) / kBytesOfStep; steps != 0) count_steps(steps);
    // A shorter match is not needed if the program ends here.
    if (at == shortest || instruction.op == Op::Possessive || pattern_.program_[next].op == Op::Accept)
        return true;
    const char* shorter = at;
    do --shorter;
    while (continues_utf8(*shorter));
    push({next, shorter, shortest});
    return true;
}

}  // namespace argosy::tokenizer
