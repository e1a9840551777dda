// Exceptions on the threads of a run.
#ifndef WEFT_EXECUTOR_STEP_CATCH_EXCEPTIONS_H_
#define WEFT_EXECUTOR_STEP_CATCH_EXCEPTIONS_H_

#include <exception>
#include <new>

#include "absl/status/status.h"

namespace weft {

// Returns what `run` does. The code of a run does not throw, but what it calls may: the standard
// library, and the source of the feeds. What is thrown is an error of the rank or the op, and ends
// the run like any other: ResourceExhausted "out of memory", or Internal with its text,
// if it has one.
template <typename Run>
absl::Status CatchExceptions(const Run& run) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  } catch (...) {
    return absl::InternalError("an unknown exception");
  }
}

}  // namespace weft

#endif  // WEFT_EXECUTOR_STEP_CATCH_EXCEPTIONS_H_
