#include "proto/diff/sequence_alignment.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace weft {
namespace {

using Keys = absl::Span<const uint64_t>;

// The maximum number of pairs of elements in gaps that are solved exactly.
constexpr size_t kMaxExactCells = size_t{1} << 20;
// The number of elements of each sequence that are solved together in larger gaps.
constexpr size_t kWindow = 1000;
// The maximum nesting of searches for unique keys, which bounds the time for adversarial sequences.
// Real ones need two or three rounds.
constexpr int kMaxRounds = 16;

// A stretch of both sequences in which pairs are still to be found.
struct Gap {
  size_t a_begin, a_end, b_begin, b_end;
  int round;
};

class Aligner {
 public:
  Aligner(Keys a, Keys b) : a_(a), b_(b) {}

  std::vector<AlignedPair> Align() {
    gaps_.push_back({0, a_.size(), 0, b_.size(), 0});
    while (!gaps_.empty()) {
      Gap gap = gaps_.back();
      gaps_.pop_back();
      Solve(gap);
    }
    std::sort(pairs_.begin(), pairs_.end(),
              [](const AlignedPair& x, const AlignedPair& y) { return x.a < y.a; });
    return std::move(pairs_);
  }

 private:
  void Solve(Gap gap) {
    TakeEqualEnds(&gap);
    if (gap.a_begin == gap.a_end || gap.b_begin == gap.b_end) return;
    const std::vector<AlignedPair> anchors =
        gap.round < kMaxRounds ? LongestIncreasing(UniquePairs(gap)) : std::vector<AlignedPair>();
    if (!anchors.empty()) {
      SplitAt(anchors, gap);
    } else if ((gap.a_end - gap.a_begin) <= kMaxExactCells / (gap.b_end - gap.b_begin)) {
      SolveExactly(gap);
    } else {
      SolveInWindows(gap);
    }
  }

  void TakeEqualEnds(Gap* gap) {
    while (gap->a_begin < gap->a_end && gap->b_begin < gap->b_end &&
           a_[gap->a_begin] == b_[gap->b_begin]) {
      pairs_.push_back({gap->a_begin++, gap->b_begin++});
    }
    while (gap->a_begin < gap->a_end && gap->b_begin < gap->b_end &&
           a_[gap->a_end - 1] == b_[gap->b_end - 1]) {
      pairs_.push_back({--gap->a_end, --gap->b_end});
    }
  }

  // Keys that occur once on each side of the gap, in the order of `a`.
  std::vector<AlignedPair> UniquePairs(const Gap& gap) const {
    struct Occurrences {
      uint32_t in_a = 0, in_b = 0;
      size_t b = 0;
    };
    absl::flat_hash_map<uint64_t, Occurrences> occurrences;
    for (size_t i = gap.a_begin; i < gap.a_end; ++i) ++occurrences[a_[i]].in_a;
    for (size_t i = gap.b_begin; i < gap.b_end; ++i) {
      const auto found = occurrences.find(b_[i]);
      if (found == occurrences.end()) continue;
      ++found->second.in_b;
      found->second.b = i;
    }
    std::vector<AlignedPair> pairs;
    for (size_t i = gap.a_begin; i < gap.a_end; ++i) {
      const Occurrences& o = occurrences[a_[i]];
      if (o.in_a == 1 && o.in_b == 1) pairs.push_back({i, o.b});
    }
    return pairs;
  }

  // The longest subsequence that also increases in `b`.
  static std::vector<AlignedPair> LongestIncreasing(const std::vector<AlignedPair>& pairs) {
    constexpr size_t kNone = ~size_t{0};
    std::vector<size_t> tails;  // of the best subsequence of each length: the pair it ends with
    std::vector<size_t> previous(pairs.size(), kNone);
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto place =
          std::lower_bound(tails.begin(), tails.end(), pairs[i].b,
                           [&](size_t tail, size_t position) { return pairs[tail].b < position; });
      if (place != tails.begin()) previous[i] = *(place - 1);
      if (place == tails.end()) {
        tails.push_back(i);
      } else {
        *place = i;
      }
    }
    std::vector<AlignedPair> longest;
    for (size_t i = tails.empty() ? kNone : tails.back(); i != kNone; i = previous[i]) {
      longest.push_back(pairs[i]);
    }
    std::reverse(longest.begin(), longest.end());
    return longest;
  }

  void SplitAt(const std::vector<AlignedPair>& anchors, const Gap& gap) {
    size_t a = gap.a_begin, b = gap.b_begin;
    for (const AlignedPair& anchor : anchors) {
      pairs_.push_back(anchor);
      gaps_.push_back({a, anchor.a, b, anchor.b, gap.round + 1});
      a = anchor.a + 1;
      b = anchor.b + 1;
    }
    gaps_.push_back({a, gap.a_end, b, gap.b_end, gap.round + 1});
  }

  // The longest common subsequence, by dynamic programming from the end.
  void SolveExactly(const Gap& gap) {
    const size_t rows = gap.a_end - gap.a_begin, columns = gap.b_end - gap.b_begin;
    const size_t width = columns + 1;
    std::vector<uint32_t> length((rows + 1) * width);  // of what remains from (i, j) on
    for (size_t i = rows; i-- > 0;) {
      for (size_t j = columns; j-- > 0;) {
        length[i * width + j] =
            a_[gap.a_begin + i] == b_[gap.b_begin + j]
                ? length[(i + 1) * width + j + 1] + 1
                : std::max(length[(i + 1) * width + j], length[i * width + j + 1]);
      }
    }
    for (size_t i = 0, j = 0; i < rows && j < columns;) {
      if (a_[gap.a_begin + i] == b_[gap.b_begin + j]) {
        pairs_.push_back({gap.a_begin + i++, gap.b_begin + j++});
      } else if (length[(i + 1) * width + j] >= length[i * width + j + 1]) {
        ++i;
      } else {
        ++j;
      }
    }
  }

  // Solves windows of both sequences exactly. Elements in the second half of a window may match
  // later elements better, so the next window includes them.
  void SolveInWindows(const Gap& gap) {
    size_t a = gap.a_begin, b = gap.b_begin;
    while (a < gap.a_end && b < gap.b_end) {
      const Gap window = {a, std::min(a + kWindow, gap.a_end), b, std::min(b + kWindow, gap.b_end),
                          gap.round};
      const size_t first = pairs_.size();
      SolveExactly(window);
      if (window.a_end == gap.a_end && window.b_end == gap.b_end) return;
      const size_t a_middle = a + kWindow / 2, b_middle = b + kWindow / 2;
      size_t kept = first;
      while (kept < pairs_.size() && pairs_[kept].a < a_middle && pairs_[kept].b < b_middle) ++kept;
      pairs_.resize(kept);
      a = kept > first ? pairs_.back().a + 1 : a_middle;
      b = kept > first ? pairs_.back().b + 1 : b_middle;
    }
  }

  Keys a_;
  Keys b_;
  std::vector<Gap> gaps_;
  std::vector<AlignedPair> pairs_;
};

}  // namespace

std::vector<AlignedPair> AlignSequences(Keys a, Keys b) { return Aligner(a, b).Align(); }

}  // namespace weft
