#include "pytorch/pickle_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <vector>

#include "base/error.h"
#include "base/strict_json.h"

namespace argosy::pytorch {

/// Owns what the values of a pickle refer to. A deque does not move its elements.
struct Pickle::Store {
    std::deque<std::string> texts;
    std::deque<Value::Container> containers;
};

/// The stack machine of pickles. Each opcode of a group is handled by the function of this group, which
/// returns false for the opcodes of the others.
class PickleReader {
  public:
    PickleReader(std::span<const std::byte> bytes, const std::string& place, KnownClasses more_classes,
                 Pickle& result)
        : bytes_(bytes), place_(place), more_classes_(more_classes), result_(result) {}

    void run() {
        result_.store_ = std::make_unique<Pickle::Store>();
        empty_tuple_ = container(Kind::Tuple);
        for (;;) {
            const auto opcode = static_cast<unsigned char>(take(1).front());
            if (opcode == '.') break;
            if (number(opcode) || text(opcode) || sequence(opcode) || dict(opcode) || memo(opcode) ||
                object(opcode))
                continue;
            throw UserError("{}: opcode {:#04x} at byte {} of its pickle is not supported", place_, opcode,
                            at_ - 1);
        }
        result_.root_ = pop();
        if (!stack_.empty() || !marks_.empty()) fail("values are left at its end");
        result_.num_bytes_ = at_;
    }

  private:
    using Kind = Value::Kind;

    [[noreturn]] void fail(std::string_view fault) const {
        throw DamageError("{} is damaged: its pickle is invalid before byte {}: {}", place_, at_, fault);
    }

    std::span<const std::byte> take(uint64_t count) {
        if (count > bytes_.size() - at_) fail("it lacks its end");
        const auto taken = bytes_.subspan(at_, count);
        at_ += count;
        return taken;
    }
    /// A little-endian number.
    uint64_t take_number(size_t width) {
        uint64_t value = 0;
        const auto taken = take(width);
        for (size_t i = width; i-- > 0;) value = value << 8 | static_cast<uint64_t>(taken[i]);
        return value;
    }
    std::string take_text(uint64_t count) {
        const auto taken = take(count);
        return {reinterpret_cast<const char*>(taken.data()), taken.size()};
    }
    std::string take_line() {
        const auto rest = bytes_.subspan(at_);
        const auto end = std::ranges::find(rest, std::byte{'\n'});
        if (end == rest.end()) fail("it lacks its end");
        std::string line = take_text(static_cast<uint64_t>(end - rest.begin()));
        take(1);
        return line;
    }

    // Values.

    static Value integer(Kind kind, int64_t number) {
        Value value;
        value.kind_ = kind;
        value.integer_ = number;
        return value;
    }
    Value text_value(Kind kind, std::string text) {
        Value value;
        value.kind_ = kind;
        value.text_ = &result_.store_->texts.emplace_back(std::move(text));
        return value;
    }
    Value container(Kind kind, std::span<const Value> items = {}) {
        Value value;
        value.kind_ = kind;
        value.container_ = &result_.store_->containers.emplace_back();
        value.container_->items.assign(items.begin(), items.end());
        return value;
    }

    // The stack.

    bool push(Value value) {
        stack_.push_back(value);
        return true;
    }
    size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
    Value& top() {
        if (stack_.size() <= floor()) fail("the stack is empty");
        return stack_.back();
    }
    Value pop() {
        const Value value = top();
        stack_.pop_back();
        return value;
    }
    std::vector<Value> pop_count(size_t count) {
        if (stack_.size() - floor() < count) fail("the stack is empty");
        std::vector<Value> values(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
        stack_.resize(stack_.size() - count);
        return values;
    }
    std::vector<Value> pop_mark() {
        if (marks_.empty()) fail("a mark is missing");
        std::vector<Value> values = pop_count(stack_.size() - marks_.back());
        marks_.pop_back();
        return values;
    }

    // Groups of opcodes.

    bool number(unsigned char opcode) {
        switch (opcode) {
            case 'N':
                return push(Value());
            case 0x88:
            case 0x89:
                return push(integer(Kind::Bool, opcode == 0x88));
            case 'K':
            case 'M':
                return push(integer(Kind::Int, static_cast<int64_t>(take_number(opcode == 'K' ? 1 : 2))));
            case 'J':
                return push(integer(Kind::Int, static_cast<int32_t>(take_number(4))));
            case 0x8A:
            case 0x8B:
                return push(integer(Kind::Int, long_integer(take_number(opcode == 0x8A ? 1 : 4))));
            case 'G': {
                uint64_t bits = 0;  // big-endian, unlike all others
                for (const std::byte byte : take(8)) bits = bits << 8 | static_cast<uint64_t>(byte);
                Value value;
                value.kind_ = Kind::Float;
                value.real_ = std::bit_cast<double>(bits);
                return push(value);
            }
            default:
                return false;
        }
    }

    /// A number in two's complement of `width` bytes.
    int64_t long_integer(uint64_t width) {
        if (width == 0) return 0;
        if (width > sizeof(int64_t))
            throw UserError("{}: an integer of {} bytes at byte {} of its pickle is not supported", place_,
                            width, at_);
        const auto unused = static_cast<int>(64 - 8 * width);
        return static_cast<int64_t>(take_number(width) << unused) >> unused;
    }

    bool text(unsigned char opcode) {
        switch (opcode) {
            case 0x8C:
            case 'X':
            case 0x8D:
                return push(text_value(Kind::Text, take_text(take_number(opcode == 0x8C  ? 1
                                                                         : opcode == 'X' ? 4
                                                                                         : 8))));
            case 'C':
            case 'B':
            case 0x8E:
            case 0x96:
                return push(text_value(Kind::Bytes, take_text(take_number(opcode == 'C'   ? 1
                                                                          : opcode == 'B' ? 4
                                                                                          : 8))));
            default:
                return false;
        }
    }

    bool sequence(unsigned char opcode) {
        switch (opcode) {
            case '(':
                marks_.push_back(stack_.size());
                return true;
            case '0':
                pop();
                return true;
            case '1':
                pop_mark();
                return true;
            case ')':
                return push(empty_tuple_);
            case ']':
                return push(container(Kind::List));
            case 0x85:
            case 0x86:
            case 0x87:
                return push(container(Kind::Tuple, pop_count(opcode - 0x84)));
            case 't':
                return push(container(Kind::Tuple, pop_mark()));
            case 'a':
            case 'e': {
                const std::vector<Value> items = opcode == 'a' ? pop_count(1) : pop_mark();
                if (top().kind_ != Kind::List) fail("an item is appended to what is no list");
                std::vector<Value>& list = top().container_->items;
                list.insert(list.end(), items.begin(), items.end());
                return true;
            }
            default:
                return false;
        }
    }

    bool dict(unsigned char opcode) {
        if (opcode == '}') return push(container(Kind::Dict));
        if (opcode != 's' && opcode != 'u') return false;
        const std::vector<Value> items = opcode == 's' ? pop_count(2) : pop_mark();
        if (items.size() % 2 != 0) fail("a key of a dict has no value");
        if (top().kind_ != Kind::Dict) fail("a key is set in what is no dict");
        for (size_t i = 0; i < items.size(); i += 2)
            top().container_->entries.push_back({items[i], items[i + 1]});
        return true;
    }

    bool memo(unsigned char opcode) {
        switch (opcode) {
            case 'q':
            case 'r':
            case 0x94: {
                const uint64_t index = opcode == 0x94 ? num_memorized_ : take_number(opcode == 'q' ? 1 : 4);
                if (index > at_) fail("an index of its memo is too large");  // each takes a byte at least
                if (index >= memo_.size()) memo_.resize(index + 1);
                memo_[index] = top();
                ++num_memorized_;
                return true;
            }
            case 'h':
            case 'j': {
                const uint64_t index = take_number(opcode == 'h' ? 1 : 4);
                if (index >= memo_.size()) fail("its memo lacks a value");
                return push(memo_[index]);
            }
            case 0x80:
                if (const uint64_t protocol = take_number(1); protocol < 2 || protocol > 5) {
                    throw UserError("{}: protocol {} of its pickle is not supported", place_, protocol);
                }
                return true;
            case 0x95:
                take(8);  // a frame's length, for readers of streams
                return true;
            default:
                return false;
        }
    }

    bool object(unsigned char opcode) {
        switch (opcode) {
            case 'c': {
                const std::string module = take_line();
                return push(known_class(module + "." + take_line()));
            }
            case 0x93: {
                const std::vector<Value> names = pop_count(2);
                if (!names[0].text() || !names[1].text()) fail("a class has no name");
                return push(known_class(*names[0].text() + "." + *names[1].text()));
            }
            case 'R':
            case 0x81: {
                const std::vector<Value> call = pop_count(2);
                if (call[0].kind_ != Kind::Class || call[1].kind_ != Kind::Tuple)
                    fail("what is called is no class, or its arguments are no tuple");
                return push(called(call[0], call[1]));
            }
            case 'b': {
                const Value state = pop();
                if (top().kind_ != Kind::Object && top().kind_ != Kind::Dict)
                    fail("what has a state is no object");
                top().container_->state = state;
                return true;
            }
            case 'Q': {
                const Value id = pop();
                const Value value = container(Kind::PersistentId);
                value.container_->subject = id;
                return push(value);
            }
            default:
                return false;
        }
    }

    Value known_class(std::string name) {
        const auto has = [&](KnownClasses classes) {
            return std::ranges::find(classes, name) != classes.end();
        };
        if (!has(known_classes()) && !has(more_classes_)) {
            throw UserError(
                "{}: its pickle has the class {}, which is not among those that are read. Save tensors, "
                "numbers and "
                "texts only: a state_dict(), without the model or its options",
                place_, argosy::shown(name));
        }
        return text_value(Kind::Class, std::move(name));
    }

    Value called(Value callee, Value tuple) {
        const std::string& name = *callee.text_;
        const std::span<const Value> arguments = tuple.items();
        if (name == "torch.Size") {
            if (arguments.size() != 1 || arguments[0].kind_ != Kind::Tuple) fail("torch.Size has no tuple");
            return arguments[0];
        }
        if (name == "collections.OrderedDict" || name == "collections.defaultdict") {
            if (arguments.size() > (name == "collections.OrderedDict" ? 0 : 1))
                fail("a dict is made of arguments");
            return container(Kind::Dict);
        }
        if (name == "__builtin__.bytes" && arguments.empty()) return text_value(Kind::Bytes, {});
        if (name == "_codecs.encode") return encoded(arguments);
        const Value value = container(Kind::Object, {&tuple, 1});
        value.container_->subject = callee;
        return value;
    }

    /// Bytes in protocol 2: a text whose letters, below U+0100, are the bytes.
    Value encoded(std::span<const Value> arguments) {
        const bool is_latin = arguments.size() == 2 && arguments[0].text() && arguments[1].text() &&
                              *arguments[1].text() == "latin1";
        if (!is_latin) fail("bytes are not encoded in latin1");
        std::string bytes;
        const std::string& text = *arguments[0].text();
        if ((num_encoded_ += text.size()) > bytes_.size()) fail("it encodes a text too often");
        for (size_t i = 0; i < text.size(); ++i) {
            const auto first = static_cast<unsigned char>(text[i]);
            if (first < 0x80) {
                bytes += text[i];
                continue;
            }
            const bool two =
                (first == 0xC2 || first == 0xC3) && ++i < text.size() && (text[i] & 0xC0) == 0x80;
            if (!two) fail("bytes are not encoded in latin1");
            bytes += static_cast<char>((first & 3) << 6 | (text[i] & 0x3F));
        }
        return text_value(Kind::Bytes, std::move(bytes));
    }

    std::span<const std::byte> bytes_;
    const std::string& place_;
    KnownClasses more_classes_;
    Pickle& result_;
    size_t at_ = 0;
    std::vector<Value> stack_, memo_;
    std::vector<size_t> marks_;                     // heights of the stack
    uint64_t num_memorized_ = 0, num_encoded_ = 0;  // values; letters
    Value empty_tuple_;
};

Pickle::Pickle(std::span<const std::byte> bytes, const std::string& place, KnownClasses more_classes) {
    PickleReader(bytes, place, more_classes, *this).run();
}
Pickle::Pickle(Pickle&&) noexcept = default;
Pickle& Pickle::operator=(Pickle&&) noexcept = default;
Pickle::~Pickle() = default;

}  // namespace argosy::pytorch
