// The memory that a process can still allocate.
#ifndef WEFT_BASE_AVAILABLE_MEMORY_H_
#define WEFT_BASE_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft {

// Bytes that this process can still allocate: the minimum of the machine's available memory and
// swap, and the rests of the limits of control groups (version 1 or 2) and of RLIMIT_AS. A limit
// that cannot be read counts as none. An estimate, because other processes allocate, too. `root` is
// the directory that contains proc and sys, for tests.
uint64_t AvailableMemory(const std::string& root = "");

// ResourceExhausted if `bytes` exceeds `available`: "<what> takes 6000 MiB, but only 2000 MiB of
// memory are available".
absl::Status CheckFitsMemory(absl::string_view what, uint64_t bytes, uint64_t available);

}  // namespace weft

#endif  // WEFT_BASE_AVAILABLE_MEMORY_H_
