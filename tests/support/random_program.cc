#include "tests/support/random_program.h"

#include <ostream>
#include <utility>
#include <vector>

#include "proto/text/program_text.h"

namespace weft::testing {

std::ostream& operator<<(std::ostream& out, const TrainingSpec& spec) {
  return out << ProgramText(BuildPrograms(spec).main);
}

}  // namespace weft::testing

namespace rc {

using weft::testing::Activation;
using weft::testing::ClipKind;
using weft::testing::HeadSpec;
using weft::testing::LayerSpec;
using weft::testing::LearningRateKind;
using weft::testing::LossKind;
using weft::testing::OptimizerKind;
using weft::testing::TrainingSpec;

namespace {

// From 0 (what it shrinks to) to below `count`, whatever the size of the test.
Gen<int> Below(int count) { return gen::resize(kNominalSize, gen::inRange(0, count)); }

// One of the first `count` values of an enum.
template <typename E>
Gen<E> OneOf(int count) {
  return gen::map(Below(count), [](int i) { return static_cast<E>(i); });
}

// true once in `count` times; shrinks to false.
Gen<bool> OnceIn(int count) {
  return gen::map(Below(count), [count](int i) { return i == count - 1; });
}

template <typename T>
Gen<std::vector<T>> UpTo(int count, Gen<T> element) {
  return gen::resize(count, gen::container<std::vector<T>>(std::move(element)));
}

Gen<LayerSpec> Layers() {
  return gen::build<LayerSpec>(
      gen::set(&LayerSpec::width, gen::map(Below(4), [](int i) { return i + 1; })),
      gen::set(&LayerSpec::activation, OneOf<Activation>(4)), gen::set(&LayerSpec::bias, OnceIn(2)),
      gen::set(&LayerSpec::in_place, OnceIn(2)), gen::set(&LayerSpec::fp64, OnceIn(3)),
      gen::set(&LayerSpec::shares_weight, OnceIn(2)), gen::set(&LayerSpec::frozen, OnceIn(5)));
}

Gen<HeadSpec> Heads() {
  return gen::build<HeadSpec>(gen::set(&HeadSpec::layer, Below(4)),
                              gen::set(&HeadSpec::loss, OneOf<LossKind>(3)),
                              gen::set(&HeadSpec::fp64, OnceIn(3)));
}

}  // namespace

Gen<TrainingSpec> Arbitrary<TrainingSpec>::arbitrary() {
  return gen::build<TrainingSpec>(
      gen::set(&TrainingSpec::lookups, Below(3)), gen::set(&TrainingSpec::sparse, OnceIn(2)),
      gen::set(&TrainingSpec::layers, UpTo(4, Layers())), gen::set(&TrainingSpec::head, Heads()),
      gen::set(&TrainingSpec::more_heads, UpTo(1, Heads())),
      gen::set(&TrainingSpec::apart, OnceIn(2)),
      gen::set(&TrainingSpec::weights_by, OneOf<OptimizerKind>(3)),
      gen::set(&TrainingSpec::biases_by, OneOf<OptimizerKind>(3)),
      gen::set(&TrainingSpec::clip, OneOf<ClipKind>(4)),
      gen::set(&TrainingSpec::clips_in_place, OnceIn(2)),
      gen::set(&TrainingSpec::l2_decay, OnceIn(3)),
      gen::set(&TrainingSpec::merged_steps,
               gen::map(OnceIn(4), [](bool is) { return is ? 2 : 1; })),
      gen::set(&TrainingSpec::learning_rate, OneOf<LearningRateKind>(3)));
}

}  // namespace rc
