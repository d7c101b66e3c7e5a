// Runs a test for every table that this CPU supports, and for one whose vectors are as wide as those of
// AVX-512.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/table.h"

namespace argosy::kernels {

namespace wide {
extern const Table kTable;  // plain C++ with 16 lanes
}

class TableTest : public ::testing::TestWithParam<const Table*> {};

inline std::vector<const Table*> tables_to_test() {
    std::vector<const Table*> tables(available_tables().begin(), available_tables().end());
    tables.push_back(&wide::kTable);
    return tables;
}

inline std::string table_name(const ::testing::TestParamInfo<const Table*>& info) { return info.param->name; }

}  // namespace argosy::kernels

#define ARGOSY_FOR_EACH_TABLE(Fixture) \
    INSTANTIATE_TEST_SUITE_P(Tables, Fixture, ::testing::ValuesIn(tables_to_test()), table_name)
