// Early return of absl::Status, which Abseil 20220623 does not provide.
#ifndef WEFT_BASE_STATUS_MACROS_H_
#define WEFT_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function if `expr` (an absl::Status) is not OK.
#define WEFT_RETURN_IF_ERROR(expr)               \
  do {                                           \
    absl::Status weft_status_ = (expr);          \
    if (!weft_status_.ok()) return weft_status_; \
  } while (false)

// Evaluates `expr` (an absl::StatusOr<T>); returns its status if it is not OK, else assigns the
// value to `lhs`, which may be a declaration: WEFT_ASSIGN_OR_RETURN(Program program, Parse(s));
#define WEFT_ASSIGN_OR_RETURN(lhs, expr) \
  WEFT_ASSIGN_OR_RETURN_IMPL_(WEFT_CONCAT_(weft_status_or_, __LINE__), lhs, expr)

#define WEFT_ASSIGN_OR_RETURN_IMPL_(var, lhs, expr) \
  auto var = (expr);                                \
  if (!var.ok()) return std::move(var).status();    \
  lhs = *std::move(var)

#define WEFT_CONCAT_(a, b) WEFT_CONCAT_IMPL_(a, b)
#define WEFT_CONCAT_IMPL_(a, b) a##b

#endif  // WEFT_BASE_STATUS_MACROS_H_
