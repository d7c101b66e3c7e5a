#include "base/error.h"
#include "cublas/matmul.h"

namespace argosy::cublas {
namespace {

[[noreturn]] void absent() {
    throw UserError("this build has no cuBLASLt: configure it with -DARGOSY_CUDA=ON (preset cuda)");
}

}  // namespace

int version() { return 0; }

// No Multiplier exists in this build: the constructor throws.
struct Multiplier::State {};

Multiplier::Multiplier(const MultiplierOptions& /*options*/) { absent(); }
Multiplier::~Multiplier() = default;
Multiplier::Multiplier(Multiplier&&) noexcept = default;
Multiplier& Multiplier::operator=(Multiplier&&) noexcept = default;
void Multiplier::run(const Product& /*product*/, CUstream_st* /*stream*/) {}
bool Multiplier::try_run(const Product& /*product*/, CUstream_st* /*stream*/) { return false; }
Target Multiplier::target() const { return {}; }

}  // namespace argosy::cublas
