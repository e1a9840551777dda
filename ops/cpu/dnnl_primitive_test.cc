#include "ops/cpu/dnnl_primitive.h"

#include <omp.h>

#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using dnnl::memory;
using ::testing::ElementsAre;

// The transpose of a 2 x 3 matrix.
DnnlPrimitive Transposition() {
  const memory::desc rows({2, 3}, memory::data_type::f32, memory::format_tag::ab);
  const memory::desc columns({2, 3}, memory::data_type::f32, memory::format_tag::ba);
  const dnnl::reorder::primitive_desc description(DnnlCpuEngine(), rows, DnnlCpuEngine(), columns,
                                                  DnnlAttributes());
  return DnnlPrimitive(dnnl::reorder(description), description.scratchpad_desc(),
                       {{DNNL_ARG_FROM, rows, rows}}, {DNNL_ARG_TO, columns, columns});
}

TEST(DnnlPrimitiveTest, RunsOnTheCallersMemory) {
  DnnlPrimitive transposition = Transposition();
  const std::vector<float> from = {1, 2, 3, 4, 5, 6};
  std::vector<float> to(6);
  transposition.Run({from.data()}, to.data());
  EXPECT_THAT(to, ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST(DnnlPrimitiveTest, CopiesWhatThePrimitiveTakesInAnotherLayout) {
  const memory::desc rows({2, 3}, memory::data_type::f32, memory::format_tag::ab);
  const memory::desc columns({2, 3}, memory::data_type::f32, memory::format_tag::ba);
  // Takes columns from a caller who has rows, and gives them back as rows.
  const dnnl::reorder::primitive_desc description(DnnlCpuEngine(), columns, DnnlCpuEngine(),
                                                  columns, DnnlAttributes());
  DnnlPrimitive copy(dnnl::reorder(description), description.scratchpad_desc(),
                     {{DNNL_ARG_FROM, rows, columns}}, {DNNL_ARG_TO, rows, columns});
  const std::vector<float> from = {1, 2, 3, 4, 5, 6};
  std::vector<float> to(6);
  copy.Run({from.data()}, to.data());
  EXPECT_EQ(to, from);
}

// Results must not depend on how many cores there are.
TEST(DnnlPrimitiveTest, WorkIsNotDividedAmongThreads) {
  std::thread([] {
    omp_set_num_threads(4);
    DnnlAttributes();
    EXPECT_EQ(omp_get_max_threads(), 1);
  }).join();
}

}  // namespace
}  // namespace weft
