#include "support/faults.h"

namespace argosy {
namespace {

std::optional<Fault> planted;

}  // namespace

// Replaces lib/base/fault.cpp: the linker takes an object from a library only for symbols that are still
// missing.
bool fault_planted(Fault fault) { return planted == fault; }

namespace testing {

PlantedFault::PlantedFault(Fault fault) { planted = fault; }
PlantedFault::~PlantedFault() { planted.reset(); }

}  // namespace testing
}  // namespace argosy
