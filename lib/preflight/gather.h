// Texts of different lengths, from every rank to every rank.
#pragma once

#include <string>
#include <vector>

#include "bench/ranks.h"
#include "mpi/comm.h"

namespace argosy::preflight {

/// COLLECTIVE: every rank's text, by number. Throws TimeoutError that names ranks which stay away.
std::vector<std::string> gather_texts(const mpi::Comm& world, const bench::RollCall& roll,
                                      const std::string& own, double timeout_seconds);

/// COLLECTIVE: every rank's number.
std::vector<double> gather_numbers(const mpi::Comm& world, const bench::RollCall& roll, double own,
                                   double timeout_seconds);

}  // namespace argosy::preflight
