#include "tokenizer/pattern.h"

#include <algorithm>

#include "base/error.h"
#include "base/strict_json.h"
#include "tokenizer/pattern_syntax.h"

namespace argosy::tokenizer {
namespace {

using Op = Pattern::Op;
using Kind = PatternNode::Kind;
using Bytes = std::array<bool, 256>;

/// Turns a tree into instructions.
class PatternCompiler {
  public:
    PatternCompiler(const PatternTree& tree, std::vector<Pattern::Instruction>& program, std::string place)
        : tree_(tree), program_(program), place_(std::move(place)) {}

    uint32_t size() const { return static_cast<uint32_t>(program_.size()); }

    void emit(const PatternNode& node) {
        switch (node.kind) {
            case Kind::Set:
                return emit_set(node.set);
            case Kind::Sequence:
                for (const PatternNode& part : node.parts) emit(part);
                return;
            case Kind::Choice:
                return emit_choice(node.parts);
            case Kind::Repeat:
                return emit_repeat(node);
            case Kind::Look: {
                const uint32_t look = add({.op = node.negative ? Op::NotAhead : Op::Ahead});
                emit(node.parts[0]);
                add({.op = Op::Accept});
                program_[look].target = size();
                return;
            }
            case Kind::LineEnd:
                add({.op = Op::LineEnd});
        }
    }

    uint32_t add(const Pattern::Instruction& instruction) {
        constexpr size_t kMaxSize = 20'000;
        if (program_.size() == kMaxSize) throw UserError("{}: the pattern is too large", place_);
        program_.push_back(instruction);
        return size() - 1;
    }

  private:
    void emit_set(size_t index) {
        const std::vector<CodeRange>& ranges = tree_.sets[index].ranges();
        if (ranges.size() > 1 || ranges[0].first != ranges[0].last) {
            add({.op = Op::Set, .target = static_cast<uint32_t>(index)});
            return;
        }
        std::string bytes;
        append_utf8(bytes, ranges[0].first);
        for (const char byte : bytes) add({.op = Op::Byte, .byte = byte});
    }

    void emit_choice(const std::vector<PatternNode>& alternatives) {
        std::vector<uint32_t> jumps;
        for (size_t i = 0; i + 1 < alternatives.size(); ++i) {
            const uint32_t branch = add({.op = Op::Branch});
            emit(alternatives[i]);
            jumps.push_back(add({.op = Op::Jump}));
            program_[branch].target = size();
        }
        emit(alternatives.back());
        for (const uint32_t jump : jumps) program_[jump].target = size();
    }

    void emit_repeat(const PatternNode& node) {
        const PatternNode& part = node.parts[0];
        if (part.kind == Kind::Set && node.greed != PatternNode::Greed::Lazy) {
            const bool possessive = node.greed == PatternNode::Greed::Possessive;
            add({.op = possessive ? Op::Possessive : Op::Loop,
                 .target = static_cast<uint32_t>(part.set),
                 .min = node.min,
                 .max = node.max});
            return;
        }
        for (uint32_t i = 0; i < node.min; ++i) emit(part);
        if (node.max == PatternNode::kNoLimit) return emit_endless(node);
        // Nested options, (x(x(x)?)?)?: each branch leads to the end.
        std::vector<uint32_t> branches;
        for (uint32_t i = node.min; i < node.max; ++i) {
            branches.push_back(begin_option(node.greed));
            emit(part);
        }
        for (const uint32_t branch : branches) end_option(branch, node.greed);
    }

    void emit_endless(const PatternNode& node) {
        const uint32_t branch = begin_option(node.greed);
        emit(node.parts[0]);
        add({.op = Op::Jump, .target = branch});
        end_option(branch, node.greed);
    }

    /// Greedy: a branch past the option comes second. Lazy: a jump past it comes first.
    uint32_t begin_option(PatternNode::Greed greed) {
        const uint32_t branch = add({.op = Op::Branch});
        if (greed == PatternNode::Greed::Lazy) add({.op = Op::Jump});
        return branch;
    }
    void end_option(uint32_t branch, PatternNode::Greed greed) {
        const bool lazy = greed == PatternNode::Greed::Lazy;
        program_[branch + (lazy ? 1 : 0)].target = size();
        if (lazy) program_[branch].target = branch + 2;
    }

    const PatternTree& tree_;
    std::vector<Pattern::Instruction>& program_;
    const std::string place_;
};

void add_lead_bytes(const CodeSet& set, Bytes& bytes) {
    for (const CodeRange& range : set.ranges()) {
        std::string first, last;
        append_utf8(first, range.first);
        append_utf8(last, range.last);
        for (int byte = static_cast<unsigned char>(first[0]); byte <= static_cast<unsigned char>(last[0]);
             ++byte)
            bytes[byte] = true;
    }
}

/// Adds the bytes with which a match of the node may begin, if it is not empty.
void add_first_bytes(const PatternNode& node, const std::vector<CodeSet>& sets, Bytes& bytes) {
    if (node.kind == Kind::Set) return add_lead_bytes(sets[node.set], bytes);
    if (node.kind == Kind::Look) return;
    for (const PatternNode& part : node.parts) {
        add_first_bytes(part, sets, bytes);
        if (node.kind == Kind::Sequence && !part.can_be_empty()) return;
    }
}

}  // namespace

Pattern::Pattern(std::string_view expression, const std::string& place) : place_(place) {
    const PatternTree tree = parse_pattern(expression, place);
    if (tree.root.can_be_empty()) {
        throw UserError("{}: the pattern {} can match the empty text, which is not supported", place,
                        shown(expression));
    }
    PatternCompiler compiler(tree, program_, place);
    const bool is_choice = tree.root.kind == Kind::Choice;
    const std::vector<PatternNode> whole = is_choice ? std::vector<PatternNode>{} : std::vector{tree.root};
    for (const PatternNode& alternative : is_choice ? tree.root.parts : whole) {
        Bytes bytes{};
        add_first_bytes(alternative, tree.sets, bytes);
        for (size_t byte = 0; byte < bytes.size(); ++byte)
            if (bytes[byte]) alternatives_[byte].push_back(compiler.size());
        compiler.emit(alternative);
        compiler.add({.op = Op::Accept});
    }
    for (const CodeSet& set : tree.sets) sets_.emplace_back(set);
}

}  // namespace argosy::tokenizer
