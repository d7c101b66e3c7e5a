#include "pytorch/pickle_writer.h"

#include <bit>
#include <limits>

namespace argosy::pytorch {

PickleWriter& PickleWriter::number(uint64_t value, int width) {
    for (int i = 0; i < width; ++i) bytes_ += static_cast<char>(value >> 8 * i);
    return *this;
}

PickleWriter& PickleWriter::integer(int64_t value) {
    const bool is_short =
        value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max();
    if (is_short) return opcode('J').number(static_cast<uint64_t>(value), 4);
    return opcode('\x8A').number(8, 1).number(static_cast<uint64_t>(value), 8);
}

PickleWriter& PickleWriter::real(double value) {
    opcode('G');
    const auto bits = std::bit_cast<uint64_t>(value);
    for (int i = 8; i-- > 0;) bytes_ += static_cast<char>(bits >> 8 * i);  // big-endian
    return *this;
}

PickleWriter& PickleWriter::text(std::string_view text) {
    opcode('X').number(text.size(), 4);
    bytes_ += text;
    return *this;
}

PickleWriter& PickleWriter::global(std::string_view name) {
    const auto [known, is_new] = globals_.emplace(name, globals_.size());
    if (!is_new) return opcode('j').number(known->second, 4);
    const size_t dot = name.rfind('.');
    bytes_ += 'c';
    bytes_.append(name.substr(0, dot)).append("\n").append(name.substr(dot + 1)).append("\n");
    return opcode('r').number(known->second, 4);
}

PickleWriter& PickleWriter::size(std::span<const int64_t> numbers) {
    global("torch.Size").begin_tuple().begin_tuple();
    for (const int64_t number : numbers) integer(number);
    return end_tuple().end_tuple().call();
}

PickleWriter& PickleWriter::object(const Object& object) {
    struct Visitor {
        PickleWriter& writer;
        void operator()(std::monostate) { writer.none(); }
        void operator()(bool value) { writer.boolean(value); }
        void operator()(int64_t value) { writer.integer(value); }
        void operator()(double value) { writer.real(value); }
        void operator()(const std::string& text) { writer.text(text); }
        void operator()(const ObjectList& list) {
            writer.begin_list();
            for (const Object& item : list) writer.object(item);
            writer.end_list();
        }
        void operator()(const ObjectTuple& tuple) {
            writer.begin_tuple();
            for (const Object& item : tuple.items) writer.object(item);
            writer.end_tuple();
        }
        void operator()(const ObjectDict& dict) {
            writer.begin_dict();
            for (const auto& [key, value] : dict) writer.text(key).object(value);
            writer.end_dict();
        }
    };
    std::visit(Visitor{*this}, object.value);
    return *this;
}

}  // namespace argosy::pytorch
