// Checkpoints: the state of a run between two steps, from which it goes on with the same bits.
#ifndef WEFT_EXECUTOR_FILES_CHECKPOINT_H_
#define WEFT_EXECUTOR_FILES_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/files/safetensors.h"
#include "ops/analysis/core/startup_buffers.h"
#include "ops/kernel.h"
#include "ops/tensor.h"

namespace weft {

// Tensors are dense and in host memory.
struct Checkpoint {
  // The steps that are done; the next one.
  int64_t step = 0;
  // Where the run was to end.
  int64_t end_step = 0;
  int nranks = 1;
  // Of these, the last ones, which are parameter servers.
  int num_servers = 0;
  // RunOptions::seed. With the rank and the step, it gives all random numbers of a step but the
  // first.
  uint64_t seed = 0;
  // By rank: RandomText of its generators; empty where they follow from the seed.
  std::vector<std::string> random;
  // What the caller needs to go on, such as the text of a learning-rate schedule; by name.
  std::map<std::string, std::string> settings;

  // Values by variable. Those that have the same type and bits on all ranks; and by rank the
  // others. A variable is in one of the two.
  std::map<std::string, Tensor> shared;
  std::vector<std::map<std::string, Tensor>> own;
  // Variables that have no value on any rank.
  std::set<std::string> unset;
  // Of the startup program, which does not run again.
  std::vector<StartupBuffer> buffers;
};

// A checkpoint is a safetensors file. A value in `shared` is tensor "all/NAME", one in `own` is
// "rank3/NAME". The other fields are metadata, numbers in decimals, lists and maps as JSON:
//
//   format    "weft checkpoint 1"
//   step, end_step, ranks, seed
//   servers, buffers   if there are any; a buffer is [name, size, [[part, begin, count], ...]]
//   random, settings, unset
//   hash      XXH3 (64 bits, hexadecimal) of the metadata and all tensors, names and types included
//
// Errors are one line that begins with the path.

// Writes the file atomically: it has the old content or all of the new. Equal checkpoints give
// equal bytes. InvalidArgument as WriteSafetensors; for a name or text that is not UTF-8; and if
// `own` or `random` are not of nranks ranks.
absl::Status WriteCheckpoint(const std::string& path, const Checkpoint& checkpoint);

// InvalidArgument if the file is bad, no checkpoint, of a later format, or damaged: everything that
// WriteCheckpoint writes is compared with the hash. ResourceExhausted if the tensors exceed the
// available memory.
absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& path);

// Whether a file claims to be a checkpoint, of any version.
bool IsCheckpoint(const SafetensorsFile& file);

// OK if as many ranks wrote the checkpoint, or if no rank has anything of its own: its values and
// generators are equal on all ranks. Otherwise FailedPrecondition, with both numbers and the first
// variable that differs.
absl::Status CheckRanks(const Checkpoint& checkpoint, int nranks);

// The state of generators as text, and back. InvalidArgument for another text.
std::string RandomText(const RandomState& random);
absl::StatusOr<RandomState> ParseRandomText(absl::string_view text);

}  // namespace weft

#endif  // WEFT_EXECUTOR_FILES_CHECKPOINT_H_
