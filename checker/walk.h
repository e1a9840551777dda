// One walk over an original and its result, side by side (docs/certificate.md has the rules).
#ifndef WEFT_CHECKER_WALK_H_
#define WEFT_CHECKER_WALK_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace checker {

// What the claim and the proof say.
struct Setting {
  uint64_t nranks = 0;  // 0: any number
  bool sums = false;    // gradients are replaced by their sum over the ranks, not by their mean
  std::set<std::string_view> own;  // states of which each rank has its own
};

// '=': the next ops of both programs are the same, '+': the next ops of the result are new.
using Steps = std::vector<std::pair<char, uint64_t>>;

// What was found.
struct Facts {
  uint64_t num_gradients = 0, num_parameters = 0, num_rounded = 0, num_others = 0, num_calls = 0;
  std::string schedule;      // a line for each call
  std::set<uint64_t> rings;  // that are used
  std::set<std::string_view> states;
  bool calls_compute = true;  // all calls are on the stream that computes
  // Startup programs: of which rank, if they are for one.
  uint64_t rank = 0;
  std::vector<std::string_view> endpoints;
  bool has_rank = false;
  bool sets_up = false;  // rings
};

// Throws Failure where something does not follow. `main`: what was found in the main programs, if
// these are startup programs; else null.
Facts Follow(std::string_view original, std::string_view result, const Setting& setting,
             const Steps& steps, const Facts* main);

}  // namespace checker

#endif  // WEFT_CHECKER_WALK_H_
