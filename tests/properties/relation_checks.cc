#include "tests/properties/relation_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"

namespace weft::testing {
namespace {

// Programs are in fp64, but the factor 1/n is in fp32: a third of a gradient is rounded, which a
// second step might compare with something.
constexpr double kTolerance = 2e-5;

bool IsNear(double a, double b, double scale) {
  return std::fabs(a - b) <= kTolerance * (1 + std::fabs(scale));
}

bool AreNear(const Values& found, const Values& expected, double factor) {
  if (found.dims != expected.dims) return false;
  const double scale = Largest(expected) * factor;
  for (size_t i = 0; i < found.data.size(); ++i) {
    if (!IsNear(found.data[i], factor * expected.data[i], scale)) return false;
  }
  return true;
}

// Part r of n along an axis; none if there is no such part.
absl::optional<Values> PartOf(const Values& whole, int axis, int r, int n) {
  if (axis >= static_cast<int>(whole.dims.size()) || whole.dims[axis] % n != 0)
    return absl::nullopt;
  Values part{whole.dims, {}};
  part.dims[axis] /= n;
  int64_t inner = part.dims[axis], outer = 1;
  for (size_t i = axis + 1; i < whole.dims.size(); ++i) inner *= whole.dims[i];
  for (int i = 0; i < axis; ++i) outer *= whole.dims[i];
  for (int64_t o = 0; o < outer; ++o) {
    const auto begin = whole.data.begin() + (o * n + r) * inner;
    part.data.insert(part.data.end(), begin, begin + inner);
  }
  return part;
}

Values Mean(const std::vector<Values>& of_ranks) {
  Values mean{of_ranks[0].dims, std::vector<double>(of_ranks[0].data.size(), 0)};
  for (const Values& values : of_ranks) {
    for (size_t i = 0; i < mean.data.size(); ++i) {
      mean.data[i] += i < values.data.size() ? values.data[i] / of_ranks.size() : 0;
    }
  }
  return mean;
}

// Element by element, over the ranks.
Values Reduced(BatchRelation::Kind kind, const std::vector<Values>& of_ranks) {
  Values reduced = of_ranks[0];
  for (const Values& values : of_ranks) {
    if (&values == &of_ranks[0]) continue;
    for (size_t i = 0; i < std::min(reduced.data.size(), values.data.size()); ++i) {
      double& value = reduced.data[i];
      value = kind == BatchRelation::Kind::kPartialMax   ? std::max(value, values.data[i])
              : kind == BatchRelation::Kind::kPartialMin ? std::min(value, values.data[i])
                                                         : value * values.data[i];
    }
  }
  return reduced;
}

}  // namespace

double Largest(const Values& values) {
  double largest = 0;
  for (double x : values.data) {
    if (!std::isfinite(x)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::fabs(x));
  }
  return largest;
}

bool Holds(BatchRelation relation, const std::vector<Values>& of_ranks, const Values& whole) {
  const int n = static_cast<int>(of_ranks.size());
  const double factor = std::pow(n, relation.power);
  switch (relation.kind) {
    case BatchRelation::Kind::kUnrelated:
      return true;
    case BatchRelation::Kind::kReplicated:
      return std::all_of(of_ranks.begin(), of_ranks.end(),
                         [&](const Values& values) { return AreNear(values, whole, factor); });
    case BatchRelation::Kind::kPartial:
      return std::all_of(of_ranks.begin(), of_ranks.end(),
                         [&](const Values& values) { return values.dims == whole.dims; }) &&
             AreNear(Mean(of_ranks), whole, factor);
    case BatchRelation::Kind::kPartialMax:
    case BatchRelation::Kind::kPartialMin:
    case BatchRelation::Kind::kPartialProd:
      return AreNear(Reduced(relation.kind, of_ranks), whole, 1);
    case BatchRelation::Kind::kSharded:
      for (int r = 0; r < n; ++r) {
        const absl::optional<Values> part = PartOf(whole, relation.axis, r, n);
        if (!part.has_value() || !AreNear(of_ranks[r], *part, factor)) return false;
      }
      return true;
    case BatchRelation::Kind::kShape: {
      Values expected = whole;
      if (relation.axis >= static_cast<int>(expected.data.size())) return false;
      expected.data[relation.axis] /= n;
      return Holds(BatchRelation::Replicated(), of_ranks, expected);
    }
  }
  return false;
}

std::string Show(const std::vector<Values>& values) {
  std::string text;
  for (const Values& v : values) {
    absl::StrAppend(
        &text, " ", DimsToString(v.dims), " {",
        absl::StrJoin(v.data.begin(), v.data.begin() + std::min<size_t>(12, v.data.size()), ", "),
        "}");
  }
  return text;
}

}  // namespace weft::testing
