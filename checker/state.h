// What the checker keeps while it walks over an original and its result (docs/certificate.md).
#ifndef WEFT_CHECKER_STATE_H_
#define WEFT_CHECKER_STATE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checker/format.h"

namespace checker {

// What a variable of the result holds of the variable `of` of the original: its value, the value /
// n, the sum of the values over the ranks where the mean is wanted, anything, or what it was before
// ops were left out.
enum Kind : uint8_t { kSame, kScaled, kSum, kLost, kOld };
// Of which rank: that which has the variable; all, one below the other; or rank i: kPart + i.
inline constexpr uint32_t kWhole = 0, kGathered = 1, kPart = 2;

struct Var : Decl {
  using Decl::Decl;
  struct Access {
    uint32_t stream, read, written;  // the last of each
  };
  Var* of = nullptr;  // itself: it is a variable of the original
  uint32_t of_version = 0, version = 0, form = kWhole;
  std::vector<Access> accesses;                 // a stream each
  std::vector<std::pair<Var*, int64_t>> parts;  // of a buffer, at which elements; -1: unknown
  Kind kind = kSame;
  bool in_result = false, in_buffer = false;
  bool is_own = false;                                // a state that each rank has its own of
  bool equal = false, has_value = false;              // on all ranks; from this step
  bool read_first = false, read_since_write = false;  // before a write of this step; by a kept op
  bool is_parameter = false, is_gradient = false, is_reduced = false, is_rounded = false;
  bool is_frozen = false;     // it was broadcast from rank 0, or is an id in use
  bool is_elsewhere = false;  // a state that the result has in shares, or in another variable
  // Of the value, and of the one that it is kOld with: equal numbers but 0 are equal values.
  uint32_t number = 0, old_number = 0;
  uint32_t late = 0;   // the stream on which it may travel when a step begins; 0: none
  uint64_t block = 0;  // of the result, that declares it
};

inline constexpr uint32_t kHost = 17;  // after stream 0, which computes, and those of rings
using Clock = std::array<uint32_t, kHost + 1>;  // of each, the last op that has ended for sure

inline void Join(const Clock& from, Clock* to) {
  for (size_t i = 0; i < from.size(); ++i) (*to)[i] = std::max((*to)[i], from[i]);
}

struct ByName {
  bool operator()(const Var* a, const Var* b) const { return a->name < b->name; }
};
template <typename T>
using Vars = std::map<Var*, T, ByName>;

// What new ops make of states after the ops of the original, in some steps (averaging.cc).
struct Branch {
  std::string condition;  // of the step s; empty: in every step
  Vars<std::string> values;
};

// The value of a variable of the original at a point of the walk, its number then, and what each
// rank has a part of: such values one after the other, in order of ranks.
struct Part {
  Var* of;
  uint32_t version, number;
};
struct Share {
  std::vector<Part> parts;
  Kind kind = kSame;
  bool is_of_ranks = false;  // the parts that all ranks sent to this one
  bool is_zero = false;      // nothing but 0
  bool has_zeros = false;    // its padding is 0, or it has none
  Part any = {};             // kLost: says whether elements may be other ones
};
// Numbers of the original of which a variable is the sum: on this rank, a part of it, or on all. Or
// the one that says whether any element is infinite.
struct Sum {
  std::vector<Part> of;
  bool is_whole = false, is_any = false;
};
// An op of the original that the result has not.
struct LeftOut {
  std::string_view op;
  std::vector<Part> args;  // inputs before it, outputs after it
};

struct Filling {
  std::string_view op;  // of the original, if it makes it
  bool is_zero = false;
};

struct State {
  // What the claim says.
  uint64_t nranks = 0;    // 0: any number
  bool sums = false;      // gradients are replaced by their sum over the ranks, not by their mean
  bool averages = false;  // gradients are not replaced, but parameters averaged

  State* main = nullptr;                 // of the main programs, if these are startup programs
  uint64_t version = 0;                  // of Paddle: 2006002 of 2.6.2; 0: not said
  std::vector<std::string_view> blocks;  // of the original
  Block original, result;                // block 0 of each
  std::vector<std::set<std::string_view>> locals;  // what each block but block 0 declares
  std::deque<Var> vars;                            // of block 0
  std::unordered_map<std::string_view, Var*> names;

  uint64_t num_gradients = 0, num_parameters = 0, num_rounded = 0, num_others = 0, num_calls = 0;
  std::string schedule;                     // a line for each call
  std::set<uint64_t> rings, set_up;         // that are used; that the startup program makes
  bool calls_compute = true;                // all calls are on the stream that computes
  uint64_t rank = 0;                        // startup programs: of which rank, if they are for one
  std::vector<std::string_view> endpoints;  // then, of all ranks

  // Where parameters are averaged.
  std::string setting;                       // of the result, without blanks
  std::vector<Block> new_blocks;             // after those of the original
  uint64_t block = 0;                        // that is walked
  std::set<const Var*> reads, writes;        // of block 0, that this one names
  std::string condition;                     // of this block
  Vars<std::string> values;                  // formulas; empty: lost
  Vars<bool> changed;                        // states, by this block: whether they were equal
  std::vector<Branch> branches;              // that have ended
  Vars<std::vector<size_t>> changed_by;      // branches
  std::set<uint64_t> walked;                 // new blocks
  Vars<Var*> rates;                          // the learning rates of parameters
  Var* counter = nullptr;                    // of steps
  bool has_ended = false;                    // the step of the original
  std::map<std::string, std::string> first;  // what new states begin with
  std::string changes;                       // for the claim
  std::set<std::string> synchronized;        // states that are equal on all ranks after them

  // Where states are shared out (shares.cc).
  struct Named {
    std::string_view name, dims;  // as JSON
  };
  std::map<std::string_view, std::vector<Named>> layout;             // of shares; "": padding
  std::map<std::string_view, std::vector<std::string_view>> common;  // states that one stands for
  std::vector<std::string_view> elsewhere;                           // states in these, sorted
  Vars<Share> shares;
  Vars<Sum> totals;
  std::multimap<const Var*, LeftOut> left_out;  // by the first input of several elements
  Vars<Filling> constants;                      // startup programs: what holds one
  uint32_t num_numbers = 0, num_sums = 0;

  std::array<Clock, kHost + 1> clocks = {};
  std::map<uint64_t, uint32_t> streams;  // of rings
  uint64_t work_left = 0;

  void Spend(uint64_t work) {
    Expect(work <= work_left, "it takes more time than programs of this size may");
    work_left -= work;
  }

  Var* Find(std::string_view name) const {  // in block 0; null: it is not declared
    const auto found = names.find(name);
    return found == names.end() ? nullptr : found->second;
  }
  Var* VarOf(std::string_view name) {
    Var* const var = Find(name);
    Expect(var != nullptr, name, " is not declared");
    return var;
  }
  Var* Declare(std::string_view decl) {  // the first one of that name
    const auto [entry, is_new] = names.emplace(TextOf(decl, 1), nullptr);
    if (is_new) {
      entry->second = &vars.emplace_back(decl);
      // There is room for all. Names that are made to share a place would take more than linear
      // time.
      const size_t place = names.bucket(entry->first);
      Expect(names.bucket_size(place) < 64, "too many names have one hash");
    }
    return entry->second;
  }
  bool IsElsewhere(std::string_view name) const {
    const auto& names = (main == nullptr ? this : main)->elsewhere;
    return std::binary_search(names.begin(), names.end(), name);
  }
  bool HasShares() const { return !(main == nullptr ? this : main)->layout.empty(); }
  bool HasValue(const Var& var) const {
    return var.has_value || (main == nullptr && var.persistable);
  }

  uint32_t Launch(uint32_t stream) {
    Join(clocks[kHost], &clocks[stream]);
    ++clocks[stream][stream];
    return stream;
  }
  // Fails unless the access comes after all that conflict with it. An access to a buffer is one to
  // all of its parts.
  void Touch(uint32_t stream, Var* var, bool writes) {
    Spend(1);
    Expect(var->in_result, var->name, " is not declared in the result");
    for (const auto& [part, offset] : var->parts) Touch(stream, part, writes);
    Var::Access* own = nullptr;
    for (Var::Access& access : var->accesses) {
      if (access.stream == stream) own = &access;
      const uint32_t ended = clocks[stream][access.stream];
      Expect(own == &access || (access.written <= ended && (!writes || access.read <= ended)),
             "nothing orders its access to ", var->name, " after an earlier one");
    }
    if (own == nullptr) own = &var->accesses.emplace_back(Var::Access{stream, 0, 0});
    (writes ? own->written : own->read) = clocks[stream][stream];
  }
};

// An op with the variables in its slots.
struct Slots {
  const Op& op;
  State& state;
  std::vector<Var*> in, out, more, also;
};

inline Var& One(const std::vector<Var*>& vars) {
  Expect(vars.size() == 1, "expected one X, and one Out");
  return *vars[0];
}

// By an attribute, a declaration says that the host sets the variable before each step.
inline void ExpectNoAttrs(const Var& var) {
  Expect(!Fields(var.bytes).Next(7), var.name,
         " is new, or shared out, and its declaration has an attribute");
}

// An op that the original has, too: there it is `op`. Null: the result has it not.
void Keep(const Op& op, const Op* now, State* state);
void Insert(const Op& op, State* state);  // another one

// Where parameters are averaged (averaging.cc): rules for new ops, and the end of the step.
void Move(Var* var, bool keeps, State* state);  // into a buffer
void Count(const Slots& slots);
void Fill(const Slots& slots);
void Compute(const Slots& slots);
bool Exchange(const Slots& slots);  // returns whether it averages
void RunBranch(const Slots& slots);
void BeginState(const Slots& slots);
void CheckAveraging(State* state);

inline std::vector<Var*> PartsOf(Var* var) {
  std::vector<Var*> parts;
  for (const auto& [part, offset] : var->parts) parts.push_back(part);
  return parts.empty() ? std::vector<Var*>{var} : parts;
}

}  // namespace checker

#endif  // WEFT_CHECKER_STATE_H_
