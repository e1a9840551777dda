#include "tests/properties/drawn_spec.h"

#include <vector>

namespace rc {

using weft::testing::DrawnData;
using weft::testing::DrawnMarks;
using weft::testing::DrawnRewrite;
using weft::testing::DrawnSpec;
using weft::testing::DrawnUpdates;
using weft::testing::OpChoice;

namespace {

// From 0 (what it shrinks to) to below `count`, whatever the size of the test.
Gen<int> Below(int count) { return gen::resize(kNominalSize, gen::inRange(0, count)); }

// More than there is to choose from.
constexpr int kMany = 1 << 20;

// Often one of the values that were made last.
Gen<int> Arguments() { return gen::oneOf(Below(3), Below(kMany)); }

Gen<bool> Rarely() {
  return gen::map(Below(12), [](int n) { return n == 1; });
}

Gen<OpChoice> Choices() {
  return gen::build<OpChoice>(
      gen::set(&OpChoice::op, Below(kMany)),
      gen::set(&OpChoice::arguments, gen::container<std::vector<int>>(3, Arguments())),
      gen::set(&OpChoice::attrs, Below(kMany)), gen::set(&OpChoice::is_in_place, Rarely()),
      gen::set(&OpChoice::has_other_gradient, Rarely()));
}

}  // namespace

Gen<DrawnSpec> Arbitrary<DrawnSpec>::arbitrary() {
  return gen::build<DrawnSpec>(
      gen::set(&DrawnSpec::ops, gen::resize(10, gen::container<std::vector<OpChoice>>(Choices()))),
      gen::set(&DrawnSpec::loss, Below(10)), gen::set(&DrawnSpec::loss_of, Below(8)),
      gen::set(&DrawnSpec::loss_with, Below(8)),
      gen::set(&DrawnSpec::second_loss, gen::oneOf(Below(1), Below(1), Below(10))),
      gen::set(&DrawnSpec::marks,
               gen::element(DrawnMarks::kBoth, DrawnMarks::kBoth, DrawnMarks::kBoth,
                            DrawnMarks::kBoth, DrawnMarks::kGradient, DrawnMarks::kNone)),
      gen::set(&DrawnSpec::updates, gen::element(DrawnUpdates::kSgd, DrawnUpdates::kMomentum,
                                                 DrawnUpdates::kSgd, DrawnUpdates::kByHand)),
      gen::set(
          &DrawnSpec::data,
          gen::element(DrawnData::kMarked, DrawnData::kMarked, DrawnData::kMarked, DrawnData::kFed,
                       DrawnData::kFed, DrawnData::kMixed, DrawnData::kMixed, DrawnData::kUntold)),
      gen::set(&DrawnSpec::data_choices, Below(1 << 27)),
      gen::set(&DrawnSpec::fetched_gradient, gen::oneOf(Below(1), Below(1), Below(kMany))),
      gen::set(&DrawnSpec::fetched_result, gen::oneOf(Below(1), Below(1), Below(kMany))),
      gen::set(&DrawnSpec::rewrite,
               gen::element(DrawnRewrite::kGradAllReduce, DrawnRewrite::kGradAllReduce,
                            DrawnRewrite::kExactLoss, DrawnRewrite::kLocalSgd)),
      gen::set(&DrawnSpec::averages, gen::element(false, false, true)),
      gen::set(&DrawnSpec::k_steps, gen::element(1, 1, 2)),
      gen::set(&DrawnSpec::state, gen::element("local", "local", "average", "reset")),
      gen::set(&DrawnSpec::nranks, gen::element(2, 2, 3)),
      gen::set(&DrawnSpec::rows, gen::element(2, 3, 3, 1)));
}

}  // namespace rc
