#include "ops/cpu/dnnl_primitive.h"

#include <omp.h>

#include <thread>
#include <vector>

#include "base/testing/test.h"

namespace weft::testing {
namespace {

using dnnl::memory;

// The transpose of a 2 x 3 matrix.
DnnlPrimitive Transposition() {
  const memory::desc rows({2, 3}, memory::data_type::f32, memory::format_tag::ab);
  const memory::desc columns({2, 3}, memory::data_type::f32, memory::format_tag::ba);
  const dnnl::reorder::primitive_desc description(DnnlCpuEngine(), rows, DnnlCpuEngine(), columns,
                                                  DnnlAttributes());
  return DnnlPrimitive(dnnl::reorder(description), description.scratchpad_desc(),
                       {{DNNL_ARG_FROM, rows, rows}}, {{DNNL_ARG_TO, columns, columns}});
}

TEST(DnnlPrimitiveTest, RunsOnTheCallersMemory) {
  DnnlPrimitive transposition = Transposition();
  const std::vector<float> from = {1, 2, 3, 4, 5, 6};
  std::vector<float> to(6);
  transposition.Run({from.data()}, {to.data()});
  EXPECT_THAT(to, ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST(DnnlPrimitiveTest, ReordersArgumentsOfAnotherLayout) {
  const memory::desc rows({2, 3}, memory::data_type::f32, memory::format_tag::ab);
  const memory::desc columns({2, 3}, memory::data_type::f32, memory::format_tag::ba);
  // Needs columns, and gets rows from the caller; returns rows.
  const dnnl::reorder::primitive_desc description(DnnlCpuEngine(), columns, DnnlCpuEngine(),
                                                  columns, DnnlAttributes());
  DnnlPrimitive copy(dnnl::reorder(description), description.scratchpad_desc(),
                     {{DNNL_ARG_FROM, rows, columns}}, {{DNNL_ARG_TO, rows, columns}});
  const std::vector<float> from = {1, 2, 3, 4, 5, 6};
  std::vector<float> to(6);
  copy.Run({from.data()}, {to.data()});
  EXPECT_EQ(to, from);
}

TEST(DnnlPrimitiveTest, UnwantedOutputStaysInTheThreadsMemory) {
  const memory::desc desc({1, 2}, memory::data_type::f32, memory::format_tag::ab);
  const memory::desc row({1}, memory::data_type::f32, memory::format_tag::a);
  const dnnl::layer_normalization_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, desc, 0.0F, dnnl::normalization_flags::none},
      DnnlAttributes(), DnnlCpuEngine());
  DnnlPrimitive norm(dnnl::layer_normalization_forward(forward), forward.scratchpad_desc(),
                     {{DNNL_ARG_SRC, desc, desc}},
                     {{DNNL_ARG_DST, desc, desc, /*is_wanted=*/false},
                      {DNNL_ARG_MEAN, row, row},
                      {DNNL_ARG_VARIANCE, row, row, /*is_wanted=*/false}});
  const std::vector<float> from = {1, 4};
  float mean = 0;
  norm.Run({from.data()}, {nullptr, &mean, nullptr});
  EXPECT_EQ(mean, 2.5F);
}

TEST(DnnlOfShapeTest, MakesAPrimitiveWhereTheShapeIsAnother) {
  DnnlOfShape<int> of_shape;
  std::vector<int> made;
  const auto make = [&](int shape) {
    made.push_back(shape);
    return Transposition();
  };
  for (int shape : {5, 5, 6, 5}) of_shape(shape, make);
  EXPECT_THAT(made, ElementsAre(5, 6, 5));
}

// Results must not depend on the number of cores.
TEST(DnnlPrimitiveTest, WorkIsNotDividedAmongThreads) {
  std::thread([] {
    omp_set_num_threads(4);
    DnnlAttributes();
    EXPECT_EQ(omp_get_max_threads(), 1);
  }).join();
}

}  // namespace
}  // namespace weft::testing
