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
  Test(CollectiveKind kind, Reduction reduction, int64_t count, Communicator* end) : end_(*end) {
    desc_.kind = kind;
    desc_.reduction = reduction;
    // Parts are equal.
    desc_.count = (count + n() - 1) / n() * n();
    desc_.peer = n() - 1;
  }

  absl::Status Run() {
    std::vector<float> in(desc_.count);
    for (int64_t i = 0; i < desc_.count; ++i) in[i] = ValueOf(end_.rank(), i);
    std::vector<float> out(NumResults(), -1);
    const Dims dims = {desc_.count};
    WEFT_RETURN_IF_ERROR(
        end_.Run({desc_, "self-test", "known values", dims}, in.data(), out.data()));
    const bool is_checked = (desc_.kind != CollectiveKind::kReduce || end_.rank() == desc_.root) &&
                            (desc_.kind != CollectiveKind::kSend || end_.rank() == desc_.peer);
    for (int64_t i = 0; is_checked && i < NumResults(); ++i) {
      const float expected = Expected(i);
      // Averages may be rounded.
      if (std::abs(out[i] - expected) <= 1e-5F * expected) continue;
      return absl::InternalError(absl::StrCat(
          Reduces(desc_.kind) ? absl::StrCat(ReductionName(desc_.reduction), " by ") : "",
          CollectiveKindName(desc_.kind), " of ", desc_.count, " elements: element ", i,
          ": expected ", expected, ", found ", out[i]));
    }
    return absl::OkStatus();
  }

 private:
  int n() const { return end_.nranks(); }
  float ValueOf(int rank, int64_t i) const {
    if (desc_.reduction == Reduction::kProd) return i % n() == rank ? 2 : 1;
    return static_cast<float>((rank * 7 + i) % kValues + 1);
  }
  int64_t NumResults() const {
    if (desc_.kind == CollectiveKind::kAllGather) return desc_.count * n();
    return desc_.kind == CollectiveKind::kReduceScatter ? desc_.count / n() : desc_.count;
  }

  float Reduced(int64_t i) const {
    float result = ValueOf(0, i);
    for (int rank = 1; rank < n(); ++rank) {
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
    return desc_.reduction == Reduction::kAvg ? result / static_cast<float>(n()) : result;
  }

  float Expected(int64_t i) const {
    const int64_t part = desc_.count / n();
    switch (desc_.kind) {
      case CollectiveKind::kAllReduce:
      case CollectiveKind::kReduce:
        return Reduced(i);
      case CollectiveKind::kReduceScatter:
        return Reduced(end_.rank() * part + i);
      case CollectiveKind::kAllGather:
        return ValueOf(static_cast<int>(i / desc_.count), i % desc_.count);
      case CollectiveKind::kAllToAll:
        return ValueOf(static_cast<int>(i / part), end_.rank() * part + i % part);
      case CollectiveKind::kBroadcast:
      case CollectiveKind::kSend:
        return ValueOf(desc_.root, i);
    }
    return 0;
  }

  Communicator& end_;
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
