#include "ops/schema/batch_relation.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

using Kind = BatchRelation::Kind;

// Far more than programs have, so that sums of two powers fit into a byte.
constexpr int kMaxPower = 32;

}  // namespace

BatchRelation BatchRelation::Times(int by) const {
  if (IsUnrelated() || by == 0) return *this;
  if (kind == Kind::kShape || IsPartialOther() || std::abs(power + by) > kMaxPower) {
    return Unrelated();
  }
  return BatchRelation(kind, axis, power + by);
}

BatchRelation BatchRelation::WithoutPower() const { return BatchRelation(kind, axis, 0); }

std::string MultipleText(int power) {
  const std::string n = std::abs(power) == 1 ? "n" : absl::StrCat("n^", std::abs(power));
  return power < 0 ? absl::StrCat("1/", n, " of") : absl::StrCat(n, " times");
}

std::string ToString(BatchRelation relation) {
  const std::string multiple =
      relation.power == 0
          ? ""
          : absl::StrCat(", ", MultipleText(relation.power), " the reference value");
  switch (relation.kind) {
    case Kind::kReplicated:
      return absl::StrCat("replicated", multiple);
    case Kind::kSharded:
      return absl::StrCat("sharded along axis ", relation.axis, multiple);
    case Kind::kPartial:
      if (relation.power == -1) return "a partial sum";
      return absl::StrCat("a partial mean", multiple);
    case Kind::kPartialMax:
      return "a partial maximum";
    case Kind::kPartialMin:
      return "a partial minimum";
    case Kind::kPartialProd:
      return "a partial product";
    case Kind::kShape:
      return absl::StrCat("the shape of a value sharded along axis ", relation.axis);
    case Kind::kUnrelated:
      break;
  }
  return "unrelated to what one device has";
}

BatchRelation Join(BatchRelation a, BatchRelation b) {
  if (a == b) return a;
  const bool are_partial =
      (a.IsPartial() || a.IsReplicated()) && (b.IsPartial() || b.IsReplicated());
  return are_partial && a.power == b.power ? BatchRelation::Partial(a.power)
                                           : BatchRelation::Unrelated();
}

BatchRelation GradientRelation(BatchRelation value, int loss_power) {
  const int power = loss_power - value.power;
  switch (value.kind) {
    case Kind::kReplicated:
      return BatchRelation::Partial().Times(power);
    case Kind::kSharded:
      return BatchRelation::Sharded(value.axis).Times(power + 1);
    case Kind::kPartial:
      return BatchRelation::Replicated().Times(power);
    case Kind::kPartialMax:
    case Kind::kPartialMin:
    case Kind::kPartialProd:
    case Kind::kShape:
    case Kind::kUnrelated:
      break;
  }
  return BatchRelation::Unrelated();
}

absl::optional<int> LossPower(BatchRelation value, BatchRelation gradient) {
  const bool is_mean = gradient.IsPartial() || gradient.IsReplicated();
  if (value.IsReplicated() && is_mean) return gradient.power + value.power;
  if (value.IsPartial() && gradient.IsReplicated()) return gradient.power + value.power;
  if (value.IsSharded() && gradient.IsSharded() && gradient.axis == value.axis) {
    return gradient.power + value.power - 1;
  }
  return absl::nullopt;
}

}  // namespace weft
