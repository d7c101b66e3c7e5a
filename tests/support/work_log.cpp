// LibTorch's part of the log. LibTorch's headers declare members differently in builds without NDEBUG, and
// its libraries are built with it, so this file is compiled with NDEBUG.
#include "support/work_log.h"

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <fmt/ranges.h>

#include <memory>
#include <sstream>
#include <utility>

namespace argosy::testing {
namespace {

std::string in_words(const c10::IValue& value) {
    if (value.isTensor()) {
        const at::Tensor& x = value.toTensor();
        return x.defined() ? fmt::format(" {}{}", toString(x.scalar_type()), fmt::join(x.sizes(), "x"))
                           : " none";
    }
    std::ostringstream text;
    if (!value.isTensorList() && !value.isStorage()) text << " " << value;
    return text.str();
}

std::unique_ptr<at::ObserverContext> note_operation(const at::RecordFunction& call) {
    std::string text = call.name();
    for (const c10::IValue& input : call.inputs()) text += in_words(input);
    note_work(text);
    return nullptr;
}

struct Noting {
    Noting() { work_log = &log; }
    ~Noting() {
        work_log = nullptr;
        at::removeCallback(handle);
    }
    Noting(const Noting&) = delete;

    std::vector<std::string> log;
    at::CallbackHandle handle =
        at::addThreadLocalCallback(at::RecordFunctionCallback(note_operation).needsInputs(true));
};

}  // namespace

std::vector<std::string> record_work(const std::function<void()>& work) {
    Noting noting;
    work();
    return std::move(noting.log);
}

}  // namespace argosy::testing
