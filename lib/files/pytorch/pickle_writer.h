// Private to this room: writes pickles of protocol 2, which torch.load reads. Calls push and replace values
// on the stack of the machine that reads the pickle.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "pytorch/distributed_checkpoint_writer.h"

namespace argosy::pytorch {

class PickleWriter {
  public:
    PickleWriter& none() { return opcode('N'); }
    PickleWriter& boolean(bool value) { return opcode(value ? '\x88' : '\x89'); }
    PickleWriter& integer(int64_t value);
    PickleWriter& real(double value);
    PickleWriter& text(std::string_view text);
    /// A class or function, "torch.Size".
    PickleWriter& global(std::string_view name);
    PickleWriter& object(const Object& object);
    /// A torch.Size.
    PickleWriter& size(std::span<const int64_t> numbers);

    // A container: it begins, values follow, and it ends. A dict has keys and values in turn.
    PickleWriter& begin_tuple() { return opcode('('); }
    PickleWriter& end_tuple() { return opcode('t'); }
    PickleWriter& begin_list() { return opcode(']').opcode('('); }
    PickleWriter& end_list() { return opcode('e'); }
    PickleWriter& begin_dict() { return opcode('}').opcode('('); }
    PickleWriter& end_dict() { return opcode('u'); }

    /// Calls the function below the tuple on the stack.
    PickleWriter& call() { return opcode('R'); }
    /// An object of a class, whose state is pushed next and set by end_object().
    PickleWriter& begin_object(std::string_view name) { return global(name).opcode(')').opcode('\x81'); }
    PickleWriter& end_object() { return opcode('b'); }
    PickleWriter& persistent_id() { return opcode('Q'); }

    /// The whole pickle of the value on the stack.
    std::string finish() { return opcode('.').bytes_; }

  private:
    PickleWriter& opcode(char code) {
        bytes_ += code;
        return *this;
    }
    PickleWriter& number(uint64_t value, int width);

    std::string bytes_ = "\x80\x02";
    std::map<std::string, uint32_t, std::less<>> globals_;  // their indices in the memo
};

}  // namespace argosy::pytorch
