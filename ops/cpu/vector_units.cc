#include "ops/cpu/vector_units.h"

#include "absl/strings/str_cat.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "ops/vectorize.h"

namespace weft {
namespace {

std::string NameOf(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41:
      return "SSE4.1";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
      return "AVX2";
    case dnnl::cpu_isa::avx512_core:
      return "AVX512_CORE";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "AVX512_CORE_VNNI";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX512_CORE_BF16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "AVX512_CORE_AMX";
    default:
      return absl::StrCat("0x", absl::Hex(static_cast<unsigned>(isa)));
  }
}

}  // namespace

std::string VectorUnits() {
  return absl::StrCat(RunsAvx2Loops() ? "AVX2" : "no AVX2", ", oneDNN ",
                      NameOf(dnnl::get_effective_cpu_isa()));
}

}  // namespace weft
