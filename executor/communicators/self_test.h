// Collectives on known values: an engine that computes wrongly is found before a run begins.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_SELF_TEST_H_
#define WEFT_EXECUTOR_COMMUNICATORS_SELF_TEST_H_

#include <set>
#include <utility>

#include "absl/status/status.h"
#include "executor/communicators/communicator.h"

namespace weft {

// Begins the errors of TestCollectives.
inline constexpr char kSelfTest[] = "self-test of collectives: ";

// The ring on which the ranks of rings test their collectives: programs have no ring of that
// number, and the calls on theirs keep their numbers.
inline constexpr int kSelfTestRing = -1;
inline RingKey SelfTestRingOf(const RingKey& ring) { return {kSelfTestRing, false, ring.ranks}; }

// The kinds of calls; those that do not reduce, with kSum.
using CollectiveKinds = std::set<std::pair<CollectiveKind, Reduction>>;

// On a ring of the host: runs a small call and a large one of each kind. All ranks call it, each
// with its end. Internal if a result is wrong, and the errors of Communicator::Run.
absl::Status TestCollectives(const CollectiveKinds& kinds, Communicator* end);

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_SELF_TEST_H_
