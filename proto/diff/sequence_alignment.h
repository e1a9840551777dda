// Aligns two sequences, as a text diff does.
#ifndef WEFT_PROTO_DIFF_SEQUENCE_ALIGNMENT_H_
#define WEFT_PROTO_DIFF_SEQUENCE_ALIGNMENT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace weft {

// A pair of positions, one in each sequence.
struct AlignedPair {
  size_t a;
  size_t b;
};

// Pairs of equal keys, increasing in both sequences: a common subsequence, long but not always the
// longest. Patience diff: equal ends first, then the keys that occur once on each side, then the
// same in each gap between them. A small gap without such keys is solved exactly, a large one in
// overlapping windows. O(n log n) for n = a.size() + b.size(), and up to 2,000 steps for each
// element in a gap without unique keys.
std::vector<AlignedPair> AlignSequences(absl::Span<const uint64_t> a, absl::Span<const uint64_t> b);

}  // namespace weft

#endif  // WEFT_PROTO_DIFF_SEQUENCE_ALIGNMENT_H_
