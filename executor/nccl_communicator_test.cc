#include "executor/nccl_communicator.h"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/status_matchers.h"
#include "executor/cuda_stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/tensor.h"

namespace weft {
namespace {

// One rank: the result of a reduction is its input.
TEST(NcclCommunicator, ReducesOnOneDevice) {
  absl::StatusOr<std::unique_ptr<Device>> device = NewCudaDevice(0);
  if (!device.ok()) GTEST_SKIP() << device.status();
  WEFT_ASSERT_OK_AND_ASSIGN(const auto group, NewNcclGroup({}));
  WEFT_ASSERT_OK_AND_ASSIGN(std::unique_ptr<Stream> stream, (*device)->NewStream("ring 0"));
  const absl::StatusOr<Communicator*> made = group->Get({0, false}, 0);
  if (absl::IsUnavailable(made.status())) GTEST_SKIP() << made.status();
  WEFT_ASSERT_OK(made.status());
  Communicator* ring = *made;

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
    WEFT_ASSERT_OK(ring->Check());
    WEFT_ASSERT_OK_AND_ASSIGN(const Tensor found, out.ToHost());
    EXPECT_THAT(std::vector<float>(found.data<float>(), found.data<float>() + 3),
                ::testing::ElementsAre(0, 1.5F, 3));
  }
  call.desc.root = 1;
  EXPECT_THAT(ring->Run(call, in.raw(), out.raw()),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                ::testing::HasSubstr("root 1: expected 0 to 0")));
}

// Without NCCL only rings are missing: ranks that never communicate need none.
TEST(NcclCommunicator, GroupIsMadeInAnyBuild) {
  GroupOptions options;
  options.nranks = 3;
  WEFT_EXPECT_OK(NewNcclGroup(options).status());
}

// A single rank of two: reported, then an error.
TEST(NcclCommunicator, RankThatDoesNotComeEndsTheSetUp) {
  absl::StatusOr<std::unique_ptr<Device>> device = NewCudaDevice(0);
  if (!device.ok()) GTEST_SKIP() << device.status();
  std::vector<std::string> warnings;
  GroupOptions options;
  options.nranks = 2;
  options.warn_after_s = 0.1;
  options.timeout_s = 0.5;
  options.warn = [&](const std::string& message) { warnings.push_back(message); };
  WEFT_ASSERT_OK_AND_ASSIGN(const auto group, NewNcclGroup(options));
  const absl::Status status = group->Get({0, false}, 0).status();
  if (absl::IsUnavailable(status)) GTEST_SKIP() << status;
  EXPECT_THAT(status, testing::StatusIs(absl::StatusCode::kDeadlineExceeded,
                                        "ring 0: set-up of rank 0: not complete after 0.5 s"));
  EXPECT_THAT(warnings,
              ::testing::ElementsAre("ring 0: set-up of rank 0: not complete after 0.1 s"));
}

TEST(NcclCommunicator, AbortReleasesARankThatWaitsForOthers) {
  absl::StatusOr<std::unique_ptr<Device>> device = NewCudaDevice(0);
  if (!device.ok()) GTEST_SKIP() << device.status();
  GroupOptions options;
  options.nranks = 2;
  WEFT_ASSERT_OK_AND_ASSIGN(const auto group, NewNcclGroup(options));
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    group->Abort(absl::InternalError("rank 1 failed: no parameters"));
  });
  const absl::Status status = group->Get({0, false}, 0).status();
  other.join();
  if (absl::IsUnavailable(status)) GTEST_SKIP() << status;
  EXPECT_THAT(status,
              testing::StatusIs(absl::StatusCode::kAborted, "rank 1 failed: no parameters"));
}

}  // namespace
}  // namespace weft
