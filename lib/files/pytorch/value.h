// Values that a pickle describes, as data: no class is loaded and nothing is executed. A Value is a small
// handle, copied freely; containers belong to the Pickle that was read and may be shared, so a Value is valid
// as long as its Pickle.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace argosy::pytorch {

class Value {
  public:
    /// Class: a global of the pickle, by its whole name. Object: a call of a class or function, with what
    /// BUILD gave it. PersistentId: what torch.save puts in the place of a storage. torch.Size is a Tuple,
    /// OrderedDict a Dict, and _codecs.encode(text, "latin1") gives Bytes.
    enum class Kind : uint8_t {
        None,
        Bool,
        Int,
        Float,
        Text,
        Bytes,
        List,
        Tuple,
        Dict,
        Class,
        Object,
        PersistentId
    };

    struct Entry;

    Value() = default;
    Kind kind() const { return kind_; }
    bool is_none() const { return kind_ == Kind::None; }

    // Each of these is empty, or null, for a value of another kind.
    std::optional<bool> boolean() const;
    std::optional<int64_t> integer() const;
    /// A Float or an Int.
    std::optional<double> number() const;
    /// A Text's.
    const std::string* text() const;
    /// The bytes of a Bytes.
    const std::string* bytes() const;
    /// Elements of a List or a Tuple.
    std::span<const Value> items() const;
    /// Elements of a Tuple of Ints that are not negative, as torch.Size is; none for any other Tuple, and for
    /// one of more than 32, which would take memory at each of the places that share it.
    std::optional<std::vector<int64_t>> sizes() const;
    /// Entries of a Dict, in its order.
    std::span<const Entry> entries() const;
    /// The value of a Dict's text key; an Object's field, if its state is a Dict. The last one, if a key
    /// occurs twice. Null if there is none. Takes time in proportion to the Dict's length.
    const Value* find(std::string_view key) const;
    /// The whole name of a Class, or of the class or function whose call an Object is: "torch.float32".
    std::string_view class_name() const;
    /// Positional arguments of an Object's call.
    std::span<const Value> arguments() const;
    /// The state that BUILD gave an Object or an OrderedDict; None where there was no BUILD.
    Value state() const;
    /// The tuple that identifies the storage of a PersistentId.
    Value persistent_id() const;

    /// For messages: "the text 'abc'", "a Dict of 3", "torch.Size".
    std::string shown() const;

  private:
    friend class Pickle;
    friend class PickleReader;
    struct Container;

    Kind kind_ = Kind::None;
    union {
        int64_t integer_ = 0;
        double real_;
        const std::string* text_;
        Container* container_;
    };
};

struct Value::Entry {
    Value key, value;
};

/// The parts of a List, Tuple, Dict, Object or PersistentId.
struct Value::Container {
    std::vector<Value> items;    // of a List or Tuple; an Object has one, the Tuple of its arguments
    std::vector<Entry> entries;  // of a Dict
    Value subject;               // class of an Object; what identifies a storage
    Value state;
};

}  // namespace argosy::pytorch
