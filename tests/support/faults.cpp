#include "support/faults.h"

namespace argosy {
namespace {

std::optional<Fault> planted;

}  // namespace

// In place of lib/base/fault.cpp's: the linker takes a library's object only for names that are still
// missing.
bool fault_planted(Fault fault) { return planted == fault; }

namespace testing {

PlantedFault::PlantedFault(Fault fault) { planted = fault; }
PlantedFault::~PlantedFault() { planted.reset(); }

}  // namespace testing
}  // namespace argosy
