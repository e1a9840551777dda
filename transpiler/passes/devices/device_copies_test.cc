#include "transpiler/passes/devices/device_copies.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/schema/device_ops.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "transpiler/passes/devices/device_values.h"
#include "transpiler/passes/support/device_accesses.h"
#include "transpiler/passes/support/new_variables.h"

namespace weft::testing {
namespace {

// What is inserted into a program whose ops stay in their order. Only the ops named are on the
// host.
struct Inserted {
  Inserted(const std::string& text, const std::vector<size_t>& on_host)
      : program(CompactProgram(text)), accesses(program), names(ProgramPair{&program, nullptr}) {
    for (OpId op : program.block(0).ops()) steps.push_back({op, DeviceKind::kAccelerator});
    for (size_t i : on_host) steps[i].device = DeviceKind::kHost;
  }

  DeviceCopies Copies(const std::string& accelerator = "gpu") {
    return DeviceCopies(program, accesses, steps, accelerator, Staging::kAll, &names);
  }

  Program program;
  DeviceAccesses accesses;
  std::vector<DeviceStep> steps;
  UniqueNames names;
};

// "memcpy_d2h a -> a@CPU", "cpu waits for d2h".
std::vector<std::string> Texts(const std::vector<pb::OpDesc>& ops) {
  std::vector<std::string> texts;
  for (const pb::OpDesc& op : ops) {
    if (op.type() != "stream_wait") {
      texts.push_back(absl::StrCat(op.type(), " ", op.inputs(0).arguments(0), " -> ",
                                   op.outputs(0).arguments(0)));
      continue;
    }
    std::string stream, awaited;
    for (const pb::OpDesc::Attr& attr : op.attrs()) {
      if (attr.name() == "stream") stream = attr.s();
      if (attr.name() == "awaited") awaited = attr.s();
    }
    texts.push_back(absl::StrCat(stream, " waits for ", awaited));
  }
  return texts;
}

TEST(DeviceCopies, ValuesAreCopiedAsSoonAsTheyAreWritten) {
  Inserted inserted(R"(
    var x : fp32[2, 2] need_check_feed
    Out=[a] = relu(X=[x])
    Out=[b] = relu(X=[x])
    Out=[c] = tanh(X=[a])
  )",
                    /*on_host=*/{2});
  const DeviceCopies copies = inserted.Copies();
  EXPECT_THAT(Texts(copies.Before(0)), IsEmpty());
  EXPECT_THAT(Texts(copies.Before(1)),
              ElementsAre("d2h waits for compute", "memcpy_d2h a -> a@CPU"));
  EXPECT_THAT(Texts(copies.Before(2)), ElementsAre("cpu waits for d2h"));
  EXPECT_THAT(Texts(copies.Before(3)), IsEmpty());
  EXPECT_EQ(copies.num_copies(), 1);
  EXPECT_EQ(copies.new_vars().size(), 1);
  EXPECT_EQ(copies.Renamed(DeviceKind::kHost).size(), 1);
  EXPECT_THAT(copies.Renamed(DeviceKind::kAccelerator), IsEmpty());
}

// Its stream runs ahead, and the copy waits for nothing.
TEST(DeviceCopies, ValuesOfTheStartOfAStepAreCopiedBeforeTheirReader) {
  Inserted inserted(R"(
    var x : fp32[2, 2] need_check_feed
    Out=[a] = relu(X=[x])
    Out=[b] = tanh(X=[x])
  )",
                    /*on_host=*/{0});
  const DeviceCopies copies = inserted.Copies("sim");
  EXPECT_THAT(Texts(copies.Before(1)),
              ElementsAre("memcpy_h2d x -> x@SIM", "compute waits for h2d"));
  EXPECT_EQ(copies.num_copies(), 1);
}

// One wait is for all that the stream has been given.
TEST(DeviceCopies, WhatAWaitCoversNeedsNoOther) {
  Inserted inserted(R"(
    var x : fp32[2, 2] need_check_feed
    Out=[a] = relu(X=[x])
    Out=[b] = relu(X=[x])
    Out=[c] = elementwise_add(X=[a], Y=[b])
    Out=[d] = elementwise_mul(X=[a], Y=[b])
  )",
                    /*on_host=*/{2, 3});
  const DeviceCopies copies = inserted.Copies();
  EXPECT_THAT(Texts(copies.Before(2)), Contains("cpu waits for d2h"));
  EXPECT_THAT(Texts(copies.Before(3)), IsEmpty());
  EXPECT_EQ(copies.num_copies(), 2);
}

// A value that is written again is copied again, when nobody reads the copy of the first any more.
TEST(DeviceCopies, SecondValuesWaitForReadersOfTheFirst) {
  Inserted inserted(R"(
    var x : fp32[2, 2] need_check_feed
    Out=[a] = relu(X=[x])
    Out=[c] = tanh(X=[a])
    Out=[a] = sigmoid(X=[x])
    Out=[d] = tanh(X=[a])
  )",
                    /*on_host=*/{1, 3});
  const DeviceCopies copies = inserted.Copies();
  EXPECT_EQ(copies.num_copies(), 2);
  EXPECT_THAT(Texts(copies.Before(2)), ElementsAre("compute waits for d2h"));
  EXPECT_THAT(Texts(copies.Before(3)), ElementsAre("d2h waits for compute", "d2h waits for cpu",
                                                   "memcpy_d2h a -> a@CPU", "cpu waits for d2h"));
}

// Both are there: the name of a mirror is free in the program.
TEST(DeviceCopies, MirrorsTakeFreeNames) {
  Inserted inserted(R"(
    var x, a@CPU : fp32[2, 2] need_check_feed
    Out=[a] = relu(X=[x])
    Out=[c] = elementwise_add(X=[a], Y=[a@CPU])
  )",
                    /*on_host=*/{1});
  const DeviceCopies copies = inserted.Copies();
  ASSERT_EQ(copies.new_vars().size(), 1);
  EXPECT_NE(copies.new_vars()[0].name(), "a@CPU");
}

TEST(DeviceCopies, RingsHaveStreamsOfTheirOwn) {
  Inserted inserted(R"(
    var x : fp32[2, 2] need_check_feed
    Out=[a] = relu(X=[x])
    Out=[a] = c_allreduce_sum(X=[a]) {ring_id=3, use_calc_stream=false}
    Out=[b] = tanh(X=[a])
  )",
                    /*on_host=*/{2});
  const DeviceCopies copies = inserted.Copies();
  EXPECT_THAT(Texts(copies.Before(1)), ElementsAre("ring 3 waits for compute"));
  EXPECT_THAT(Texts(copies.Before(2)),
              ElementsAre("d2h waits for ring 3", "memcpy_d2h a -> a@CPU", "cpu waits for d2h"));
}

}  // namespace
}  // namespace weft::testing
