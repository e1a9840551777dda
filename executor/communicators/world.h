// The ranks of a run, and which of them are threads of this process.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_WORLD_H_
#define WEFT_EXECUTOR_COMMUNICATORS_WORLD_H_

#include "executor/jobs/job_link.h"

namespace weft {

struct World {
  int size = 1;   // ranks of the run
  int first = 0;  // rank of this process
  int count = 1;  // ranks of every process

  // All ranks of a run are threads of this process.
  static World OfThreads(int size) { return {size, 0, size}; }

  bool Has(int rank) const { return rank >= first && rank < first + count; }
  int process() const { return first / count; }
  int num_processes() const { return size / count; }
  int ProcessOf(int rank) const { return rank / count; }
  int end() const { return first + count; }
};

// The processes of the link have equally many of the ranks; without a link, this process has all.
// `size` must be a multiple of the number of processes.
inline World WorldOf(int size, const JobLink* link) {
  if (link == nullptr) return World::OfThreads(size);
  const int count = size / link->num_processes();
  return {size, link->process() * count, count};
}

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_WORLD_H_
