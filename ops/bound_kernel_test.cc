#include "ops/bound_kernel.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"
#include "ops/gpu/convert_halves.h"
#include "ops/op_kernel.h"

namespace weft::testing {
namespace {

// The kernel of an op with one input X and one output Out.
template <typename Make>
BoundKernel KernelOf(const char* type, Make make) {
  KernelSpec spec;
  spec.schema = FindOpSchema(type);
  spec.attrs = OpAttrs::Make(*spec.schema);
  spec.inputs["X"] = {0, 1};
  spec.outputs["Out"] = {0, 1};
  OpKernel op(spec);
  return BoundKernel(*make(op));
}

absl::Status RunOn(BoundKernel* kernel, const Tensor* x, Tensor* out) {
  KernelContext ctx;
  ctx.inputs = absl::MakeConstSpan(&x, 1);
  ctx.outputs = absl::MakeConstSpan(&out, 1);
  return kernel->Run(ctx);
}

// Out[i] = X[n - 1 - i].
absl::StatusOr<Kernel> Reverse(OpKernel& op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t size = x(ctx).size();
    for (int64_t i = 0; i < size; ++i) out.data<T>(ctx)[i] = x.data<T>(ctx)[size - 1 - i];
  });
}

TEST(BoundKernelTest, AnInputThatTheStepWouldOverwriteIsCopied) {
  BoundKernel kernel = KernelOf("relu", Reverse);
  Tensor x = Floats({3}, {1, 2, 3});
  for (const float first : {3.f, 1.f}) {
    WEFT_ASSERT_OK(RunOn(&kernel, &x, &x));
    EXPECT_EQ(Values<float>(x)[0], first);
  }
}

// Out = the number of elements of X.
absl::StatusOr<Kernel> CountX(OpKernel& op) {
  const InTypes x = op.in_types("X");
  const Out out = op.out("Out");
  return op.Supports(Floats(In())).Make([=](const KernelContext& ctx) {
    std::fill_n(out.data<float>(ctx), out(ctx).size(), static_cast<float>(x.size(ctx)));
  });
}

TEST(BoundKernelTest, AnInputThatIsNotReadIsNotCopied) {
  BoundKernel kernel = KernelOf("relu", CountX);
  EXPECT_THAT(kernel.kernel().unread, ElementsAre(0));
  Tensor x = Floats({3}, {1, 2, 3});
  WEFT_ASSERT_OK(RunOn(&kernel, &x, &x));
  EXPECT_FALSE(kernel.has_temporaries());
  EXPECT_THAT(Values<float>(x), ElementsAre(3, 3, 3));
  EXPECT_THAT(KernelOf("relu", Reverse).kernel().unread, ElementsAre());
}

TEST(BoundKernelTest, APostOpNeedsAKernelThatTakesIt) {
  KernelSpec spec;
  spec.schema = FindOpSchema("relu");
  spec.attrs = OpAttrs::Make(*spec.schema);
  spec.inputs["X"] = {0, 1};
  spec.outputs["Out"] = {0, 1};
  spec.post_ops = {{PostOpKind::kRelu}};
  OpKernel op(spec);
  EXPECT_EQ(Reverse(op).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(BoundKernelTest, HalfPrecisionIsComputedInFp32AndRounded) {
  BoundKernel kernel = KernelOf("relu", [](OpKernel& op) {
    const In x = op.in("X");
    const Out out = op.out("Out");
    return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
      using T = decltype(zero);
      EXPECT_EQ(x(ctx).dtype(), DType::kFloat32);
      *out.data<T>(ctx) = *x.data<T>(ctx) + T(0.001);
    });
  });
  Tensor x = MakeTensor<Float16>({1}, {Float16(1.0f)}), out;
  WEFT_ASSERT_OK(RunOn(&kernel, &x, &out));
  EXPECT_EQ(out.dtype(), DType::kFloat16);
  EXPECT_EQ(static_cast<float>(*out.data<Float16>()), 1.0009765625f);
}

// In blocks, and its last part of another size: every element is converted once.
TEST(BoundKernelTest, AnElementwiseStepConvertsLongTensorsBlockByBlock) {
  BoundKernel kernel = KernelOf("relu", [](OpKernel& op) {
    const In x = op.in("X");
    return op.MakeElementwise(
        Floats(x), op.out("Out"), [](auto v) { return v + 1; }, x);
  });
  constexpr int64_t kSize = 20001;
  std::vector<Float16> values;
  for (int64_t i = 0; i < kSize; ++i) values.push_back(Float16(static_cast<float>(i % 512)));
  for (const bool in_place : {false, true}) {
    Tensor x = MakeTensor<Float16>({3, kSize / 3}, values), out;
    Tensor* const to = in_place ? &x : &out;
    WEFT_ASSERT_OK(RunOn(&kernel, &x, to));
    EXPECT_THAT(to->dims(), ElementsAre(3, kSize / 3));
    for (int64_t i = 0; i < kSize; ++i) {
      ASSERT_EQ(static_cast<float>(to->data<Float16>()[i]), static_cast<float>(i % 512 + 1)) << i;
    }
    for (const auto& temporary : kernel.temporaries()) EXPECT_LT(temporary.tensor.size(), kSize);
  }
}

TEST(BoundKernelTest, AnInputMayStayInHalfPrecision) {
  BoundKernel kernel = KernelOf("relu", [](OpKernel& op) {
    const In x = op.in("X");
    const Out out = op.out("Out");
    return op.TakesHalves(x).Supports(Floats(In())).Make([=](const KernelContext& ctx) {
      EXPECT_EQ(x(ctx).dtype(), DType::kFloat16);
      EXPECT_EQ(out(ctx).dtype(), DType::kFloat16);
    });
  });
  Tensor x = MakeTensor<Float16>({1}, {Float16(1.0f)}), out;
  WEFT_ASSERT_OK(RunOn(&kernel, &x, &out));
  EXPECT_FALSE(kernel.has_temporaries());
}

TEST(BoundKernelTest, AStepIsPreparedAgainOnlyForOtherTypes) {
  int prepared = 0;
  BoundKernel kernel = KernelOf("relu", [&](OpKernel& op) {
    const In x = op.in("X");
    const Out out = op.out("Out");
    return op.Make(Floats(x), [=, &prepared](const KernelContext& ctx, auto zero) {
      using T = decltype(zero);
      ++prepared;
      EXPECT_EQ(out(ctx).dims(), x(ctx).dims());
      return [=, size = x(ctx).size()](const KernelContext& now) {
        std::copy_n(x.data<T>(now), size, out.data<T>(now));
      };
    });
  });
  Tensor x = Floats({2}, {1, 2}), out;
  WEFT_ASSERT_OK(RunOn(&kernel, &x, &out));
  x.data<float>()[1] = 3;
  WEFT_ASSERT_OK(RunOn(&kernel, &x, &out));
  EXPECT_THAT(Values<float>(out), ElementsAre(1, 3));
  EXPECT_EQ(prepared, 1);
  x = Floats({3}, {4, 5, 6});
  WEFT_ASSERT_OK(RunOn(&kernel, &x, &out));
  EXPECT_THAT(Values<float>(out), ElementsAre(4, 5, 6));
  EXPECT_EQ(prepared, 2);
}

TEST(BoundKernelTest, AnErrorOfPreparationComesInEveryStep) {
  BoundKernel kernel = KernelOf("relu", Reverse);
  Tensor x = MakeTensor<int32_t>({1}, {1}), out;
  for (int step = 0; step < 2; ++step) {
    EXPECT_THAT(RunOn(&kernel, &x, &out), IsUnimplemented("input X"));
  }
  x = Floats({1}, {7});
  WEFT_ASSERT_OK(RunOn(&kernel, &x, &out));
  EXPECT_THAT(Values<float>(out), ElementsAre(7));
}

TEST(BoundKernelTest, OutputsThatTheInputsMayShareAreThoseThatTheKernelNames) {
  Tensor x = Floats({2}, {1, 2}), out;
  const Tensor* in = &x;
  Tensor* to = &out;
  KernelContext ctx;
  ctx.inputs = absl::MakeConstSpan(&in, 1);
  ctx.outputs = absl::MakeConstSpan(&to, 1);
  const TensorType single{DType::kFloat32, {2}}, half{DType::kFloat16, {2}};
  BoundKernel copies = KernelOf("relu", Reverse);
  WEFT_ASSERT_OK(copies.Bind(ctx, {single}));
  EXPECT_FALSE(copies.CanShare(0, 0));
  BoundKernel in_place = KernelOf("relu", [](OpKernel& op) { return Reverse(op.InPlace()); });
  WEFT_ASSERT_OK(in_place.Bind(ctx, {single}));
  EXPECT_TRUE(in_place.CanShare(0, 0));
  WEFT_ASSERT_OK(in_place.Bind(ctx, {half}));
  EXPECT_FALSE(in_place.CanShare(0, 0));
  EXPECT_EQ(in_place.temporaries().size(), 2u);
}

// Memory that counts as that of a device.
class DeviceMemory : public Memory {
 public:
  bool IsHost() const override { return false; }
  std::shared_ptr<void> Allocate(size_t bytes) override { return HostMemory()->Allocate(bytes); }
  absl::Status CopyFromHost(const void* from, size_t bytes, void* to) override {
    return HostMemory()->CopyFromHost(from, bytes, to);
  }
  absl::Status CopyToHost(const void* from, size_t bytes, void* to) override {
    return HostMemory()->CopyToHost(from, bytes, to);
  }
  absl::Status Copy(const void* from, size_t bytes, void* to, void* stream) override {
    streams.push_back(stream);
    return HostMemory()->Copy(from, bytes, to, nullptr);
  }
  absl::Status ConvertHalves(DType from_type, const void* from, DType to_type, void* to,
                             int64_t count, void* stream) override {
    streams.push_back(stream);
    return weft::ConvertHalves(KernelContext(), from_type, from, to_type, to, count);
  }

  std::vector<void*> streams;  // of calls
};

TEST(BoundKernelTest, HalvesOfADeviceAreConvertedOnItsStream) {
  DeviceMemory memory;
  Tensor x(&memory), out(&memory);
  WEFT_ASSERT_OK(x.CopyFrom(MakeTensor<Float16>({3}, {1.5F, -2, 4})));
  BoundKernel kernel = KernelOf("relu", Reverse);
  const Tensor* in = &x;
  Tensor* to = &out;
  int stream = 0;
  KernelContext ctx;
  ctx.inputs = absl::MakeConstSpan(&in, 1);
  ctx.outputs = absl::MakeConstSpan(&to, 1);
  ctx.stream = &stream;
  WEFT_ASSERT_OK(kernel.Run(ctx));
  EXPECT_EQ(out.dtype(), DType::kFloat16);
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensor result, out.ToHost());
  EXPECT_THAT(std::vector<float>(result.data<Float16>(), result.data<Float16>() + 3),
              ElementsAre(4, -2, 1.5F));
  EXPECT_THAT(memory.streams, ElementsAre(&stream, &stream));
}

}  // namespace
}  // namespace weft::testing
