// The ranks of a run, and which of them are threads of this process.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_WORLD_H_
#define WEFT_EXECUTOR_COMMUNICATORS_WORLD_H_

#include <cstdint>

#include "executor/jobs/job_link.h"

namespace weft {

struct World {
  int size = 1;       // ranks of the run
  int first = 0;      // rank of this process
  int count = 1;      // ranks of this process
  int processes = 1;  // which share the ranks out as FirstRankOf says

  // All ranks of a run are threads of this process.
  static World OfThreads(int size) { return {size, 0, size, 1}; }

  bool Has(int rank) const { return rank >= first && rank < first + count; }
  int process() const { return ProcessOf(first); }
  int num_processes() const { return processes; }
  int ProcessOf(int rank) const {
    return static_cast<int>(((rank + int64_t{1}) * processes - 1) / size);
  }
  int end() const { return first + count; }
};

// The processes of the link share out the ranks, as equally as they divide; without a link, this
// process has all. There are no more processes than ranks.
inline World WorldOf(int size, const JobLink* link) {
  if (link == nullptr) return World::OfThreads(size);
  const int n = link->num_processes(), p = link->process();
  const int first = FirstRankOf(p, size, n);
  return {size, first, FirstRankOf(p + 1, size, n) - first, n};
}

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_WORLD_H_
