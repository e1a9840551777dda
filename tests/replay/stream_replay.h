// Runs programs of several ranks with symbols for values: a slow and simple second opinion on what
// the verifier proves, which shares no code with it.
#ifndef WEFT_TESTS_REPLAY_STREAM_REPLAY_H_
#define WEFT_TESTS_REPLAY_STREAM_REPLAY_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/replay/values.h"
#include "tests/support/program_descs.h"

namespace weft::testing {

struct ReplayOptions {
  int nranks = 2;
  int steps = 3;
};

// What a run leaves: values of the variables that are watched, for each step, rank and variable; or
// why there are none.
struct ReplayResult {
  // "deadlock: ...", "mismatch: ...", "race: ..."; empty: none.
  std::string failure;
  // Ops that this does not know how to run (loops): nothing can be said.
  std::string unsupported;
  std::vector<std::vector<std::vector<ValueId>>> values;
};

// Runs programs and compares them with others, one for each rank: the reference.
//
// The machine. Ranks issue their ops in order. Collectives meet: all ranks, or those of the group
// that the call names, have to come to the same call, each with its next one, which is what a
// device with one queue does; a rank that waits for a call that no other one makes is a deadlock.
// Ranks outside of the group go on. Values follow the order of the program, which is the only one
// if there is no race: two accesses to the same storage, one of them writing, on different streams,
// such that no path of stream order, waits and blocking of the host leads from one to the other.
// Paths are searched in the graph of one step, or of the startup program, as it was run, and of
// what was left to do before: between two runs, the host waits for the compute stream only. What
// does not persist is new in each step.
//
// Startup: values that are drawn at random are own to each rank; a draw that all ranks have ended
// up with is as good as any other one of them. Ranks set up rings as they run: rank 0 sends an id
// to the endpoints where the others wait, and those who join by one id are a ring, with the numbers
// that they give. Where c_comm_init_all sets up rings, one process runs the startup program for all
// ranks. Without a startup program, rings count as set up, and persistable variables as equal on
// all ranks.
//
// Conditions: numbers are computed; a condition that depends on data is true or false by chance,
// a few times over.
//
// A variable that is declared with another type than in the reference holds something else. All
// else that declarations say, but for what persists, is for tools: data is what the reference
// feeds.
class StreamReplay {
 public:
  // Watches these variables of the root block.
  StreamReplay(absl::Span<const ProgramDescs* const> reference, std::vector<std::string> watched,
               const ReplayOptions& options);

  const ReplayResult& reference() const { return reference_; }
  // How programs, one for each rank, behave otherwise than the reference; empty: they do not.
  std::string Difference(absl::Span<const ProgramDescs* const> ranks);
  // How often a run met a condition that depends on data.
  int64_t num_guesses() const { return num_guesses_; }

 private:
  friend class ReplayRun;
  ReplayResult Run(absl::Span<const ProgramDescs* const> ranks, int seed,
                   const ReplayResult* expected);

  const ReplayOptions options_;
  const std::vector<std::string> watched_;
  ValueTable table_;
  std::map<std::string, std::string> types_;  // of the reference, by name
  std::set<std::string> feeds_;               // of the reference
  ReplayResult reference_;
  std::vector<ReplayResult> references_;  // by seed, where conditions are guessed
  int64_t num_guesses_ = 0;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_REPLAY_STREAM_REPLAY_H_
