// How the value of a variable on each of n ranks relates to the value on one device that gets the
// batches of all ranks.
#ifndef WEFT_OPS_SCHEMA_BATCH_RELATION_H_
#define WEFT_OPS_SCHEMA_BATCH_RELATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/optional.h"

namespace weft {

// With v(r) the value of rank r and D that of one device:
//
//   kReplicated  v(r) = n^power D
//   kSharded     v(r) = n^power times part r of n equal parts of D along `axis`
//   kPartial     the mean of v(r) over the ranks = n^power D
//   kPartialMax  the maximum of v(r) over the ranks = D; likewise kPartialMin, kPartialProd
//   kShape       v(r) = D, a list of sizes, but element `axis` is divided by n
//   kUnrelated   none of these is known
//
// So a partial sum over the batch is kPartial with power -1, and the gradient that a mean loss has
// for a sharded activation is kSharded with power 1: the rank divides by the size of its own batch.
struct BatchRelation {
  enum class Kind : uint8_t {
    kReplicated,
    kSharded,
    kPartial,
    kPartialMax,
    kPartialMin,
    kPartialProd,
    kShape,
    kUnrelated
  };
  Kind kind = Kind::kReplicated;
  int8_t axis = 0;  // counted from the left; 0 unless kSharded or kShape
  int8_t power = 0;

  static constexpr BatchRelation Replicated(int power = 0) { return {Kind::kReplicated, 0, power}; }
  static constexpr BatchRelation Sharded(int axis, int power = 0) {
    return {Kind::kSharded, axis, power};
  }
  static constexpr BatchRelation Partial(int power = 0) { return {Kind::kPartial, 0, power}; }
  static constexpr BatchRelation PartialSum() { return Partial(-1); }
  static constexpr BatchRelation PartialMax() { return {Kind::kPartialMax, 0, 0}; }
  static constexpr BatchRelation PartialMin() { return {Kind::kPartialMin, 0, 0}; }
  static constexpr BatchRelation PartialProd() { return {Kind::kPartialProd, 0, 0}; }
  static constexpr BatchRelation Shape(int axis) { return {Kind::kShape, axis, 0}; }
  static constexpr BatchRelation Unrelated() { return {Kind::kUnrelated, 0, 0}; }

  constexpr BatchRelation() = default;

  bool IsReplicated() const { return kind == Kind::kReplicated; }
  bool IsSharded() const { return kind == Kind::kSharded; }
  bool IsPartial() const { return kind == Kind::kPartial; }
  bool IsUnrelated() const { return kind == Kind::kUnrelated; }
  // Related to what one device has by an all-reduce that neither averages nor sums: ops other than
  // that all-reduce make unrelated values of it.
  bool IsPartialOther() const {
    return kind == Kind::kPartialMax || kind == Kind::kPartialMin || kind == Kind::kPartialProd;
  }
  // The value of one device, on every rank.
  bool IsSame() const { return IsReplicated() && power == 0; }

  // The relation of n^by times the value. Unrelated if the power gets out of range.
  BatchRelation Times(int by) const;
  BatchRelation WithoutPower() const;
  // Sharded along another axis.
  BatchRelation Along(int other) const { return Sharded(other, power); }

  friend constexpr bool operator==(BatchRelation a, BatchRelation b) {
    return a.kind == b.kind && a.axis == b.axis && a.power == b.power;
  }
  friend constexpr bool operator!=(BatchRelation a, BatchRelation b) { return !(a == b); }

 private:
  constexpr BatchRelation(Kind kind, int axis, int power)
      : kind(kind), axis(static_cast<int8_t>(axis)), power(static_cast<int8_t>(power)) {}
};

// n^power times: "n times", "n^2 times", "1/n of". The power is not 0.
std::string MultipleText(int power);
// "sharded along axis 0", "a partial mean", "a partial sum", "a partial maximum", "replicated, n
// times that of one device".
std::string ToString(BatchRelation relation);

// The relation of a value that has either relation. Replicated values are partial means.
BatchRelation Join(BatchRelation a, BatchRelation b);

// Of a value and of the gradient of a loss L with respect to it, as ranks compute it from their own
// loss L(r), where the mean of L(r) over the ranks is n^loss_power times L of one device. By the
// chain rule:
//
//   v replicated(p): dL/dv = n^(p - loss_power) times the mean of dL(r)/dv(r)
//   v sharded(p):    rank r has 1/n of the weight in L
//   v partial(p):    L is linear in the mean of v(r), with one coefficient for all ranks
//
// Unrelated if the value is.
BatchRelation GradientRelation(BatchRelation value, int loss_power);
// The loss_power for which `gradient` is the GradientRelation of `value`; none if there is none.
absl::optional<int> LossPower(BatchRelation value, BatchRelation gradient);

// What makes an op's outputs differ from those of one device, although they are what the relation
// says but for that.
enum class BatchEffect : uint8_t {
  kNone,
  kStatistics,  // the op normalizes by statistics of the rank's part of the batch
  kDraws,       // the op draws random numbers: ranks draw others than one device
  kSparsifies,  // the op hands out a part of the values of a step
  // The op takes a mean over the labels that are not ignored: ranks may have different numbers.
  kCountsLabels,
};

struct BatchOutputs {
  std::vector<BatchRelation> relations;  // by Op::output_args()
  BatchEffect effect = BatchEffect::kNone;
};

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_BATCH_RELATION_H_
