// Which ops of a parameter server's program run together, and when.
#ifndef WEFT_EXECUTOR_SERVERS_KEY_SECTIONS_H_
#define WEFT_EXECUTOR_SERVERS_KEY_SECTIONS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "absl/types/optional.h"
#include "executor/plan/plan.h"
#include "executor/step/plan_executor.h"

namespace weft {

// Ops that need the gradients of these keys. No value of a step passes from one section to another,
// so that sections may run in any order.
struct KeySection {
  OpRange ops;
  std::vector<int64_t> keys;
};

// The sections of a plan that has one stream and no blocks, as many as possible: one for each key,
// or, where all gradients are received first, one for all. O(ops log ops).
std::vector<KeySection> FindKeySections(const Plan& plan);

// Says which section runs next. Sections run in the order in which the gradients of their keys are
// complete.
class SectionQueue {
 public:
  explicit SectionQueue(std::vector<KeySection> sections);

  // Begins a step, in which each section runs so many times. O(sections).
  void BeginStep(int runs);

  // The gradients of the key are complete, or not any more. O(1), but for the search of the key.
  void SetComplete(int64_t key, bool is_complete);

  // Whether all sections have run as often as they shall.
  bool IsDone() const { return runs_left_ == 0; }
  // Whether Next has a section.
  bool HasNext() const { return !queue_.empty(); }
  // Takes a section that can run. After it has run, and its gradients are used, comes EndRun.
  int Next();
  void EndRun(int section);

  const KeySection& section(int index) const { return states_[index].section; }
  // The first key in the program that a section waits for; none: all can run.
  absl::optional<int64_t> FirstLateKey() const;

 private:
  struct State {
    KeySection section;
    int64_t num_late = 0;  // of its keys
    int runs_left = 0;
    bool is_queued = false;
  };

  void Enqueue(int section);

  std::vector<State> states_;
  struct Key {
    int section = 0;
    bool is_complete = false;
  };
  std::map<int64_t, Key> keys_;
  std::deque<int> queue_;
  int64_t runs_left_ = 0;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_SERVERS_KEY_SECTIONS_H_
