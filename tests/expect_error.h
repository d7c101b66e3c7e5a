// EXPECT_ERROR(statement, UserError, "part", ...): the statement throws that error, and its message is one
// line that holds every part.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace argosy {

inline void expect_message(const std::string& message, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) {
        EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
    }
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

}  // namespace argosy

#define EXPECT_ERROR(statement, ErrorType, ...)                       \
    do {                                                              \
        try {                                                         \
            statement;                                                \
            ADD_FAILURE() << #statement " did not throw " #ErrorType; \
        } catch (const ErrorType& expected) {                         \
            ::argosy::expect_message(expected.what(), {__VA_ARGS__}); \
        }                                                             \
    } while (false)
