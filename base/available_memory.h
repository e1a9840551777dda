// How much memory a process can still take.
#ifndef WEFT_BASE_AVAILABLE_MEMORY_H_
#define WEFT_BASE_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft {

// Bytes that this process can still allocate: the least of what the machine has available (swap
// included), what its control groups (version 1 or 2) leave, and what RLIMIT_AS leaves. A limit
// that cannot be read counts as none. An estimate: other processes allocate, too. `root` is the
// directory that holds proc and sys, for tests.
uint64_t AvailableMemory(const std::string& root = "");

// ResourceExhausted where `bytes` exceeds `available`: "<what> takes 6000 MiB, but only 2000 MiB of
// memory are available".
absl::Status CheckFitsMemory(absl::string_view what, uint64_t bytes, uint64_t available);

}  // namespace weft

#endif  // WEFT_BASE_AVAILABLE_MEMORY_H_
