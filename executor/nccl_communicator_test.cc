#include "executor/nccl_communicator.h"

#include <vector>

#include "base/status_matchers.h"
#include "executor/cuda_stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/tensor.h"

namespace weft {
namespace {

// One rank: what is reduced is what there was.
TEST(NcclCommunicator, ReducesOnOneDevice) {
  absl::StatusOr<std::unique_ptr<Device>> device = NewCudaDevice(0);
  if (!device.ok()) GTEST_SKIP() << device.status();
  absl::StatusOr<std::unique_ptr<CommunicatorGroup>> group = NewNcclGroup(1);
  if (!group.ok()) GTEST_SKIP() << group.status();
  WEFT_ASSERT_OK_AND_ASSIGN(std::unique_ptr<Stream> stream, (*device)->NewStream("ring 0"));
  WEFT_ASSERT_OK_AND_ASSIGN(Communicator * ring, (*group)->Get({0, false}, 0));

  Tensor host;
  host.Resize(DType::kFloat32, {3});
  for (int i = 0; i < 3; ++i) host.data<float>()[i] = 1.5F * i;
  Tensor in((*device)->memory()), out((*device)->memory());
  WEFT_ASSERT_OK(in.CopyFrom(host));
  out.Resize(DType::kFloat32, {3});
  CollectiveCall call;
  call.desc.count = 3;
  call.variable = "w@GRAD";
  call.dims = {3};
  call.stream = stream->native_handle();
  for (const Reduction reduction : {Reduction::kSum, Reduction::kAvg, Reduction::kMax}) {
    call.desc.reduction = reduction;
    stream->Launch([&] { return ring->Run(call, in.raw(), out.raw()); });
    WEFT_ASSERT_OK(stream->Synchronize());
    WEFT_ASSERT_OK_AND_ASSIGN(const Tensor found, out.ToHost());
    EXPECT_THAT(std::vector<float>(found.data<float>(), found.data<float>() + 3),
                ::testing::ElementsAre(0, 1.5F, 3));
  }
  call.desc.root = 1;
  EXPECT_THAT(ring->Run(call, in.raw(), out.raw()),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                ::testing::HasSubstr("root 1: expected 0 to 0")));
}

}  // namespace
}  // namespace weft
