#include "tests/support/stream_sanitizer.h"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/communicators/local_communicator.h"
#include "executor/run/runner.h"
#include "ops/kernel.h"
#include "ops/tensor.h"
#include "proto/program.h"
#include "proto/rewriter.h"
#include "tests/support/combination_programs.h"

namespace weft::testing {
namespace {

// --- Streams of one rank, without a program ------------------------------------------------------

class StreamSanitizerTest : public ::testing::Test {
 protected:
  StreamSanitizerTest() : x_(device_->memory()), y_(device_->memory()) {
    for (Tensor* tensor : {&x_, &y_}) tensor->Resize(DType::kFloat32, {4});
  }

  // By a ring of one rank: of variable a on the compute stream, of b on the other one.
  void Copy(Stream* stream, const float* from, float* to, int64_t count) {
    stream->Launch([=] {
      CollectiveCall call;
      call.desc.count = count;
      call.variable = stream == compute_.get() ? "a" : "b";
      return ring_->Run(call, from, to);
    });
  }
  std::set<std::string> Reports() {
    compute_->Flush();
    for (Stream* stream : {compute_.get(), other_.get()}) WEFT_EXPECT_OK(stream->Synchronize());
    return sanitizer_.reports();
  }

  StreamSanitizer sanitizer_{/*seed=*/1, /*max_delay_us=*/50};
  const std::unique_ptr<Device> device_ = sanitizer_.NewDevice();
  const std::unique_ptr<CommunicatorGroup> group_ = sanitizer_.Checked(NewLocalGroup({}));
  Communicator* const ring_ = *group_->Get(RingKey{}, 0);
  Tensor x_, y_;
  const std::unique_ptr<Event> event_ = *device_->NewEvent();
  const std::unique_ptr<Stream> compute_ = *device_->NewComputeStream("compute");
  const std::unique_ptr<Stream> other_ = *device_->NewStream("ring 0");
};

TEST_F(StreamSanitizerTest, AMissingWaitIsFoundInAnyOrder) {
  Copy(compute_.get(), x_.data<float>(), y_.data<float>(), 4);
  compute_->Flush();
  Copy(other_.get(), y_.data<float>(), x_.data<float>(), 4);
  EXPECT_THAT(Reports(),
              ElementsAre("all-reduce of b on stream ring 0 reads what all-reduce of a on stream "
                          "compute has written",
                          "all-reduce of b on stream ring 0 writes what all-reduce of a on stream "
                          "compute has read"));
}

TEST_F(StreamSanitizerTest, AWaitOrdersWhatIsLaunchedAfterIt) {
  Copy(compute_.get(), x_.data<float>(), y_.data<float>(), 4);
  compute_->Record(event_.get());
  other_->Wait(event_.get());
  Copy(other_.get(), y_.data<float>(), x_.data<float>(), 4);
  EXPECT_THAT(Reports(), IsEmpty());
  EXPECT_EQ(sanitizer_.num_accesses(), 4);
  // This one has come after the record.
  Copy(compute_.get(), x_.data<float>(), y_.data<float>(), 4);
  other_->Wait(event_.get());
  Copy(other_.get(), y_.data<float>(), x_.data<float>(), 4);
  EXPECT_THAT(Reports(), Not(IsEmpty()));
}

TEST_F(StreamSanitizerTest, AWaitOfTheHostOrdersToo) {
  Copy(other_.get(), x_.data<float>(), y_.data<float>(), 4);
  WEFT_ASSERT_OK(other_->Synchronize());
  Copy(compute_.get(), y_.data<float>(), x_.data<float>(), 4);
  EXPECT_THAT(Reports(), IsEmpty());
}

TEST_F(StreamSanitizerTest, BytesCountAndReadsDoNot) {
  Copy(compute_.get(), x_.data<float>(), y_.data<float>(), 2);
  Copy(other_.get(), x_.data<float>(), y_.data<float>() + 2, 2);
  EXPECT_THAT(Reports(), IsEmpty());
  Copy(compute_.get(), x_.data<float>(), y_.data<float>(), 3);
  Copy(other_.get(), x_.data<float>(), y_.data<float>() + 2, 2);
  EXPECT_THAT(Reports(), ElementsAre(HasSubstr("writes what")));
}

TEST_F(StreamSanitizerTest, MemoryThatComesAnewHasNoPast) {
  for (Stream* stream : {compute_.get(), other_.get()}) {
    Tensor z(device_->memory());
    z.Resize(DType::kFloat32, {1 << 16});
    CollectiveCall call;
    call.desc.count = z.size();
    stream->Launch([&] { return ring_->Run(call, z.raw(), z.raw()); });
    stream->Flush();
    WEFT_ASSERT_OK(stream->Synchronize());
  }
  EXPECT_THAT(Reports(), IsEmpty());
}

// --- Programs of two ranks -----------------------------------------------------------------------

// Of the main program.
std::vector<OpId> WaitsOf(const Program& program) {
  std::vector<OpId> waits;
  for (const OpId id : program.block(0).ops()) {
    const std::string type(program.op(id).type());
    if (absl::StartsWith(type, "c_wait") || absl::StartsWith(type, "c_sync")) waits.push_back(id);
  }
  return waits;
}

absl::StatusOr<std::set<std::string>> ReportsOf(const TrainingPrograms& programs, uint64_t seed) {
  StreamSanitizer sanitizer(seed, /*max_delay_us=*/50);
  RunOptions options;
  options.nranks = 2;
  options.steps = 3;
  options.kernels = &CpuKernels();
  sanitizer.Use(&options);
  RunInputs inputs;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  inputs.feeds = programs.feeds;
  WEFT_RETURN_IF_ERROR(RunProgram(inputs, options).status());
  EXPECT_GT(sanitizer.num_accesses(), 0);
  return sanitizer.reports();
}

TEST(SanitizedProgramsTest, EachWaitThatIsMissingIsFound) {
  TrainingPrograms programs = SmallProgram(/*has_rows=*/false, /*is_narrow=*/false);
  WEFT_ASSERT_OK(
      Rewrite("comm-init,broadcast-params,scale-loss-grad,grad-all-reduce", 2, &programs));
  WEFT_ASSERT_OK_AND_ASSIGN(const std::set<std::string> whole, ReportsOf(programs, 0));
  EXPECT_THAT(whole, IsEmpty());
  const size_t num_waits = WaitsOf(programs.main).size();
  EXPECT_GT(num_waits, 1);
  for (size_t i = 0; i < num_waits; ++i) {
    WEFT_ASSERT_OK_AND_ASSIGN(Program main, Program::Parse(programs.main.Serialize()));
    const OpId wait = WaitsOf(main)[i];
    SCOPED_TRACE(main.op(wait).DebugName());
    Rewriter rewriter(&main);
    rewriter.Erase(wait);
    WEFT_ASSERT_OK(rewriter.Commit());
    TrainingPrograms planted = programs;
    planted.main = std::move(main);
    WEFT_ASSERT_OK_AND_ASSIGN(const std::set<std::string> reports, ReportsOf(planted, i));
    EXPECT_THAT(reports, Contains(HasSubstr(" on stream 0 ring 0 ")));
  }
}

}  // namespace
}  // namespace weft::testing
