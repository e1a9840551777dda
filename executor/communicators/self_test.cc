#include "executor/communicators/self_test.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft {
namespace {

// What engines send with the call, and what they exchange after it.
constexpr int64_t kSmall = 1, kLarge = 8192;
// Sums of as many ranks are exact.
constexpr int64_t kValues = 251;

class Test {
 public:
  Test(CollectiveKind kind, Reduction reduction, int64_t count, Communicator* end)
      : end_(*end), n_(end->nranks()), rank_(end->rank()) {
    desc_.kind = kind;
    desc_.reduction = reduction;
    // Parts are equal.
    desc_.count = (count + n_ - 1) / n_ * n_;
    desc_.peer = n_ - 1;
  }

  absl::Status Run() {
    std::vector<float> in(desc_.count);
    for (int64_t i = 0; i < desc_.count; ++i) in[i] = ValueOf(rank_, i);
    const std::vector<float> expected = Expected();
    std::vector<float> out(expected.size(), -1);
    const Dims dims = {desc_.count};
    WEFT_RETURN_IF_ERROR(
        end_.Run({desc_, "self-test", "known values", dims}, in.data(), out.data()));
    const bool is_checked = (desc_.kind != CollectiveKind::kReduce || rank_ == desc_.root) &&
                            (desc_.kind != CollectiveKind::kSend || rank_ == desc_.peer);
    for (size_t i = 0; is_checked && i < expected.size(); ++i) {
      // Averages may be rounded.
      if (std::abs(out[i] - expected[i]) <= 1e-5F * expected[i]) continue;
      return absl::InternalError(absl::StrCat(
          Reduces(desc_.kind) ? absl::StrCat(ReductionName(desc_.reduction), " by ") : "",
          CollectiveKindName(desc_.kind), " of ", desc_.count, " elements: element ", i,
          ": expected ", expected[i], ", found ", out[i]));
    }
    return absl::OkStatus();
  }

 private:
  float ValueOf(int rank, int64_t i) const {
    if (desc_.reduction == Reduction::kProd) return i % n_ == rank ? 2 : 1;
    return static_cast<float>((rank * 7 + i) % kValues + 1);
  }

  float Reduced(int64_t i) const {
    float result = ValueOf(0, i);
    for (int rank = 1; rank < n_; ++rank) {
      const float value = ValueOf(rank, i);
      switch (desc_.reduction) {
        case Reduction::kSum:
        case Reduction::kAvg:
          result += value;
          break;
        case Reduction::kMax:
          result = std::max(result, value);
          break;
        case Reduction::kMin:
          result = std::min(result, value);
          break;
        case Reduction::kProd:
          result *= value;
          break;
      }
    }
    return desc_.reduction == Reduction::kAvg ? result / static_cast<float>(n_) : result;
  }

  std::vector<float> Expected() const {
    const int64_t part = desc_.count / n_;
    std::vector<float> expected;
    expected.reserve(desc_.kind == CollectiveKind::kAllGather ? desc_.count * n_ : desc_.count);
    const auto add = [&](int rank, int64_t begin, int64_t count) {
      for (int64_t i = begin; i < begin + count; ++i) expected.push_back(ValueOf(rank, i));
    };
    const auto add_reduced = [&](int64_t begin, int64_t count) {
      // They repeat: ranks are many, and the test should take no time.
      const int64_t period = desc_.reduction == Reduction::kProd ? n_ : kValues;
      for (int64_t i = 0; i < count; ++i) {
        expected.push_back(i < period ? Reduced(begin + i) : expected[i - period]);
      }
    };
    switch (desc_.kind) {
      case CollectiveKind::kAllReduce:
      case CollectiveKind::kReduce:
        add_reduced(0, desc_.count);
        break;
      case CollectiveKind::kReduceScatter:
        add_reduced(rank_ * part, part);
        break;
      case CollectiveKind::kAllGather:
        for (int rank = 0; rank < n_; ++rank) add(rank, 0, desc_.count);
        break;
      case CollectiveKind::kAllToAll:
        for (int rank = 0; rank < n_; ++rank) add(rank, rank_ * part, part);
        break;
      case CollectiveKind::kBroadcast:
      case CollectiveKind::kSend:
        add(desc_.root, 0, desc_.count);
        break;
    }
    return expected;
  }

  Communicator& end_;
  const int n_, rank_;
  CollectiveDesc desc_;
};

}  // namespace

absl::Status TestCollectives(const CollectiveKinds& kinds, Communicator* end) {
  for (const auto& [kind, reduction] : kinds) {
    for (const int64_t count : {kSmall, kLarge}) {
      absl::Status status = Test(kind, reduction, count, end).Run();
      if (absl::IsInternal(status)) {
        status = absl::InternalError(absl::StrCat(kSelfTest, status.message()));
      }
      WEFT_RETURN_IF_ERROR(status);
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
