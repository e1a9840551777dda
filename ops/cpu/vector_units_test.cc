// In the environment of a test that limits vector units, oneDNN and loops keep to the limits.
#include "ops/cpu/vector_units.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "ops/vectorize.h"

namespace weft {
namespace {

// In a process that has not used oneDNN yet.
TEST(VectorUnitsDeathTest, WhatProcessesAgreeOnIsWhatThisOneHasFromThenOn) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "this processor has no AVX2";
  const auto agree = [] {
    const std::string own = VectorUnits(nullptr), other = "no AVX2, oneDNN AVX";
    const bool is_kept = LimitVectorUnits(own, {own, other}).is_kept;
    const bool is_limited = dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::avx;
    // A process that joins later learns of it.
    std::exit(own != other && is_kept && is_limited && VectorUnits(nullptr) == other ? 0 : 1);
  };
  EXPECT_EXIT(agree(), ::testing::ExitedWithCode(0), "");
}

std::string NameOf(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41:
      return "SSE41";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
      return "AVX2";
    case dnnl::cpu_isa::avx2_vnni:
      return "AVX2_VNNI";
    case dnnl::cpu_isa::avx512_core:
      return "AVX512_CORE";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "AVX512_CORE_VNNI";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX512_CORE_BF16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "AVX512_CORE_AMX";
    default:
      return "another";
  }
}

// All that are documented for any version of oneDNN: this one may not know them.
TEST(VectorUnitsDeathTest, AWordLimitsThemAsItLimitsOneDnn) {
  if (!__builtin_cpu_supports("sse4.1")) GTEST_SKIP() << "this processor has no SSE4.1";
  for (const char* word :
       {"ALL", "DEFAULT", "SSE41", "sse41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_MIC",
        "AVX512_MIC_4OPS", "AVX512_CORE", "AVX512_CORE_VNNI", "AVX512_CORE_BF16",
        "AVX512_CORE_FP16", "AVX512_CORE_AMX", "AVX512_CORE_AMX_FP16", "AVX10_1_512"}) {
    const auto limit = [word] {
      setenv("ONEDNN_MAX_CPU_ISA", word, /*overwrite=*/1);
      const std::string own = VectorUnits(word), name = NameOf(dnnl::get_effective_cpu_isa());
      std::fprintf(stderr, "%s: %s, oneDNN says %s\n", word, own.c_str(), name.c_str());
      std::exit(own == "no AVX2, oneDNN " + name ? 0 : 1);
    };
    EXPECT_EXIT(limit(), ::testing::ExitedWithCode(0), "");
  }
}

TEST(VectorUnitsTest, AreLimited) {
  EXPECT_FALSE(RunsAvx2Loops());
  EXPECT_EQ(dnnl::get_effective_cpu_isa(), dnnl::cpu_isa::sse41);
  EXPECT_EQ(VectorUnits("SSE41"), "no AVX2, oneDNN SSE41");
}

TEST(LimitVectorUnitsTest, EqualUnitsAreNoNews) {
  EXPECT_EQ(LimitVectorUnits("AVX2, oneDNN AVX", {"AVX2, oneDNN AVX", "AVX2, oneDNN AVX"}).note,
            "");
}

TEST(LimitVectorUnitsTest, ProcessesKeepToWhatAllHave) {
  const VectorUnitsAgreement agreement =
      LimitVectorUnits("AVX2, oneDNN AVX2",
                       {"AVX2, oneDNN AVX512_CORE", "AVX2, oneDNN AVX2_VNNI", "AVX2, oneDNN AVX2"});
  EXPECT_EQ(agreement.note,
            "vector units of processes: AVX2, oneDNN AVX512_CORE; AVX2, oneDNN AVX2_VNNI: all use "
            "AVX2, oneDNN AVX2");
  EXPECT_TRUE(agreement.is_kept);
  EXPECT_EQ(LimitVectorUnits("no AVX2, oneDNN AVX",
                             {"no AVX2, oneDNN AVX", "AVX2, oneDNN AVX512_CORE_AMX"})
                .note,
            "vector units of processes: no AVX2, oneDNN AVX; AVX2, oneDNN AVX512_CORE_AMX: all use "
            "no AVX2, oneDNN AVX; functions such as exp may still round differently");
}

TEST(LimitVectorUnitsTest, WhatCannotBeLimitedIsSaid) {
  const std::string own = "AVX2, oneDNN AVX512_CORE";
  EXPECT_EQ(
      LimitVectorUnits(own, {own, "another processor"}).note,
      "vector units of processes: AVX2, oneDNN AVX512_CORE; another processor: they may round "
      "differently");
  dnnl::get_effective_cpu_isa();  // as kernels do
  const VectorUnitsAgreement agreement = LimitVectorUnits(own, {own, "AVX2, oneDNN AVX2"});
  EXPECT_THAT(agreement.note, ::testing::EndsWith(": they may round differently"));
  EXPECT_FALSE(agreement.is_kept);
}

}  // namespace
}  // namespace weft
