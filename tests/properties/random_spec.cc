#include "tests/properties/random_spec.h"

#include <vector>

namespace rc {

using weft::testing::OpChoice;
using weft::testing::RandomData;
using weft::testing::RandomMarks;
using weft::testing::RandomRewrite;
using weft::testing::RandomSpec;
using weft::testing::RandomUpdates;

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

Gen<RandomSpec> Arbitrary<RandomSpec>::arbitrary() {
  return gen::build<RandomSpec>(
      gen::set(&RandomSpec::ops, gen::resize(10, gen::container<std::vector<OpChoice>>(Choices()))),
      gen::set(&RandomSpec::loss, Below(10)), gen::set(&RandomSpec::loss_of, Below(8)),
      gen::set(&RandomSpec::loss_with, Below(8)),
      gen::set(&RandomSpec::second_loss, gen::oneOf(Below(1), Below(1), Below(10))),
      gen::set(&RandomSpec::marks,
               gen::element(RandomMarks::kBoth, RandomMarks::kBoth, RandomMarks::kBoth,
                            RandomMarks::kBoth, RandomMarks::kGradient, RandomMarks::kNone)),
      gen::set(&RandomSpec::updates, gen::element(RandomUpdates::kSgd, RandomUpdates::kMomentum,
                                                  RandomUpdates::kSgd, RandomUpdates::kByHand)),
      gen::set(&RandomSpec::data,
               gen::element(RandomData::kMarked, RandomData::kMarked, RandomData::kMarked,
                            RandomData::kFed, RandomData::kFed, RandomData::kMixed,
                            RandomData::kMixed, RandomData::kUntold)),
      gen::set(&RandomSpec::data_choices, Below(1 << 27)),
      gen::set(&RandomSpec::fetched_gradient, gen::oneOf(Below(1), Below(1), Below(kMany))),
      gen::set(&RandomSpec::fetched_result, gen::oneOf(Below(1), Below(1), Below(kMany))),
      gen::set(&RandomSpec::rewrite,
               gen::element(RandomRewrite::kGradAllReduce, RandomRewrite::kGradAllReduce,
                            RandomRewrite::kExactLoss, RandomRewrite::kLocalSgd)),
      gen::set(&RandomSpec::averages, gen::element(false, false, true)),
      gen::set(&RandomSpec::k_steps, gen::element(1, 1, 2)),
      gen::set(&RandomSpec::state, gen::element("local", "local", "average", "reset")),
      gen::set(&RandomSpec::nranks, gen::element(2, 2, 3)),
      gen::set(&RandomSpec::rows, gen::element(2, 3, 3, 1)));
}

}  // namespace rc
