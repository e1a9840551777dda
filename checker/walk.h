// One walk over an original and its result, side by side (docs/certificate.md has the rules).
#ifndef WEFT_CHECKER_WALK_H_
#define WEFT_CHECKER_WALK_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checker/format.h"

namespace checker {

// What the claim says.
struct Setting {
  uint64_t nranks = 0;  // 0: any number
  bool sums = false;    // gradients are replaced by their sum over the ranks, not by their mean
};

// What a variable of the result holds of the variable `of` of the original: its value, the value /
// n, the sum of the values over the ranks where the mean is wanted, or anything.
enum Kind : uint8_t { kSame, kScaled, kSum, kLost };
// Of which rank: that which has the variable; all, one below the other; or rank i: kPart + i.
inline constexpr uint32_t kWhole = 0, kGathered = 1, kPart = 2;

struct Access {
  uint32_t stream, read, written;  // the last of each
};
struct Var : Decl {
  const Var* of = nullptr;  // itself: it is a variable of the original
  uint32_t of_version = 0, version = 0, form = kWhole;
  Access computing = {0, 0, 0};  // of stream 0
  std::vector<Access> others;
  std::vector<std::pair<Var*, int64_t>> parts;  // of a buffer, at which elements; -1: unknown
  Kind kind = kSame;
  bool in_result = false, in_buffer = false,
       is_own = false;                                // a state that each rank has its own of
  bool equal = false, has_value = false;              // on all ranks; from this step
  bool read_first = false, read_since_write = false;  // before a write of this step; by a kept op
  bool is_parameter = false, is_gradient = false, is_reduced = false, is_rounded = false;
  bool is_frozen = false;  // it was broadcast from rank 0, or is an id in use
};

inline constexpr uint32_t kHost = 17;  // after stream 0, which computes, and those of rings
using Clock = std::array<uint32_t, kHost + 1>;  // of each, the last op that has ended for sure

class Walk {
 public:
  // Compares all but the ops. `main`: the walk over the main programs, if these are startup
  // programs; else null.
  Walk(std::string_view original, std::string_view result, const Setting& setting, Walk* main);
  void MarkOwn(std::string_view state);
  // Follows the steps of the proof, to its end, or to "startup": true.
  bool Run(std::istream* proof);

  // What was found.
  std::string OwnStates() const;
  uint64_t num_gradients = 0, num_parameters = 0, num_rounded = 0, num_others = 0, num_calls = 0;
  std::string schedule;      // a line for each call
  std::set<uint64_t> rings;  // that are used
  uint64_t rank = 0;         // startup programs: of which rank, if they are for one
  std::vector<std::string_view> endpoints;

 private:
  // walk.cc: declarations, kept ops, the end.
  void CheckSetting(std::string_view json) const;
  void Declare(std::string_view result);
  std::pair<uint64_t, Var*>& EntryOf(std::string_view name);
  Var* Find(std::string_view name) { return EntryOf(name).second; }  // null: it is not declared
  Var* VarOf(std::string_view name);
  Var* Declared(const Decl& decl, bool* is_new);
  bool CheckIsPlain(const Op& op) const;
  bool AddBlocks(const Op& op, std::vector<uint64_t>* path, std::vector<Var*>* reads,
                 std::vector<Var*>* writes);
  bool HasValue(const Var& var) const {
    return var.has_value || (main_ == nullptr && var.persistable);
  }
  void Keep(const Op& op);
  void CheckScaled(const Op& op, bool has_blocks);
  void CheckEnd();

  // streams.cc: the order of accesses and calls; rings.
  void Spend(uint64_t work, uint64_t memory);
  void Touch(uint32_t stream, Var* var, bool writes);
  void TouchAll(uint32_t stream, Var* var, bool writes);
  uint32_t Launch(uint32_t stream);
  uint64_t UseRing(bool computes);
  uint32_t StreamOf(uint64_t ring);
  uint32_t LaunchCall(const char* kind, const Var& var);
  void Wait();
  void SetUp();
  void MakeId();
  void Init();
  void CheckStreamsEnd() const;

  // rules.cc: new ops.
  struct Rule;
  static const Rule kRules[];
  void Insert();
  std::vector<Var*> Args(bool is_output, std::string_view slot);
  std::vector<uint64_t> Numbers(std::string_view attr) const;
  int64_t Number(std::string_view attr, int64_t absent) const;
  Var& NewVar(Var* var) const;
  void AllReduce();
  void Reduce(Var* var, bool averages);
  void Scale();
  void Cast();
  void Coalesce();
  void Broadcast();
  void Gather();
  void Split();
  void SumParts();

  const Setting& setting_;
  Walk* const main_;                                // null in the main programs
  std::vector<std::string_view> blocks_;            // of the original
  std::vector<std::set<std::string_view>> locals_;  // what each block but block 0 declares
  uint64_t version_ = 0;                            // of Paddle: 2006002 of 2.6.2; 0: not said
  Fields originals_, results_;                      // of block 0, of which ops are left
  std::deque<Var> vars_;
  std::vector<std::pair<uint64_t, Var*>> names_;  // a table of hashes, with twice the room needed
  std::array<Clock, kHost + 1> clocks_ = {};
  std::map<uint64_t, uint32_t> streams_;  // of rings
  std::set<uint64_t> set_up_;             // rings
  bool calls_compute_ = true;             // all calls are on the stream that computes
  uint64_t work_left_, memory_left_;
  const Op* op_ = nullptr;  // that is new, and its variables
  std::vector<Var*> in_, out_, more_;
};

}  // namespace checker

#endif  // WEFT_CHECKER_WALK_H_
