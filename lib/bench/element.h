// The types of elements and the operations that a benchmark may run over, under nccl-tests' names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/element_type.h"

namespace argosy::bench {

/// None: nothing is reduced. Average is the sum over the ranks divided by their number, rounded once.
enum class Operation { None, Sum, Product, Min, Max, Average };

const char* name(ElementType type);  // "bfloat16"
const char* name(Operation operation);
bool is_signed(ElementType type);
bool is_whole(ElementType type);

/// Those that a user names: one of them, or "all". Throws UserError with the names that there are.
std::vector<ElementType> types_named(const std::string& name);
std::vector<Operation> operations_named(const std::string& name);

/// `value` as an element's bits, in its lower bytes; rounded where the type cannot hold it.
uint64_t bits_of(double value, ElementType type);

/// Of the element there; REQUIRES: it has one that a double holds.
double value_of(const std::byte* element, ElementType type);

/// The most by which rounding to the type may change a number of about this value.
double largest_rounding(double value, ElementType type);

/// Divides elements by `divisor`: integers towards zero, others rounded to nearest.
void divide(std::span<std::byte> elements, ElementType type, int divisor);

/// The largest n so that all whole numbers up to n have exact elements, at most 2^20.
int largest_exact(ElementType type);

/// The largest n so that all powers of two up to 2^n are finite elements, at most 100.
int largest_exponent(ElementType type);

}  // namespace argosy::bench
