#include "ops/cpu/vector_units.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "ops/vectorize.h"

namespace weft {
namespace {

constexpr absl::string_view kLoops = "AVX2, oneDNN ", kNoLoops = "no AVX2, oneDNN ";

// What oneDNN tells apart, by its name in ONEDNN_MAX_CPU_ISA; other names limit nothing. One has
// what another one has if the bits of its number include the other's.
struct Level {
  absl::string_view name;
  dnnl::cpu_isa isa;

  unsigned bits() const { return static_cast<unsigned>(isa); }
};
constexpr Level kLevels[] = {{"SSE41", dnnl::cpu_isa::sse41},
                             {"AVX", dnnl::cpu_isa::avx},
                             {"AVX2", dnnl::cpu_isa::avx2},
                             {"AVX2_VNNI", dnnl::cpu_isa::avx2_vnni},
                             {"AVX512_CORE", dnnl::cpu_isa::avx512_core},
                             {"AVX512_CORE_VNNI", dnnl::cpu_isa::avx512_core_vnni},
                             {"AVX512_CORE_BF16", dnnl::cpu_isa::avx512_core_bf16},
                             {"AVX512_CORE_AMX", dnnl::cpu_isa::avx512_core_amx}};

// The last level that all of these have; null: none.
const Level* LevelOf(unsigned bits) {
  const Level* found = nullptr;
  for (const Level& level : kLevels) {
    if ((level.bits() & ~bits) == 0) found = &level;
  }
  return found;
}

const Level* LevelNamed(absl::string_view name) {
  const auto* const level = absl::c_find_if(
      kLevels, [&](const Level& of) { return absl::EqualsIgnoreCase(of.name, name); });
  return level == std::end(kLevels) ? nullptr : level;
}

// The bits of all levels of the processor.
unsigned BitsOfProcessor() {
  unsigned bits = 0;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0, a1 = 0, b1 = 0, c1 = 0, d1 = 0;
  __get_cpuid_count(7, 0, &a, &b, &c, &d);
  if (a >= 1) __get_cpuid_count(7, 1, &a1, &b1, &c1, &d1);
  const auto add = [&bits](bool has, dnnl::cpu_isa isa) {
    if (has) bits |= static_cast<unsigned>(isa);
    return has;
  };
  const bool has_avx = add(__builtin_cpu_supports("sse4.1"), dnnl::cpu_isa::sse41) &&
                       add(__builtin_cpu_supports("avx"), dnnl::cpu_isa::avx);
  if (!has_avx || !add(__builtin_cpu_supports("avx2"), dnnl::cpu_isa::avx2)) return bits;
  add((a1 & 1U << 4) != 0, dnnl::cpu_isa::avx2_vnni);
  constexpr unsigned kTiles = 1U << 22 | 1U << 24 | 1U << 25;  // bf16, tiles, int8
  const bool has_bf16 =
      add(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"),
          dnnl::cpu_isa::avx512_core) &&
      add(__builtin_cpu_supports("avx512vnni"), dnnl::cpu_isa::avx512_core_vnni) &&
      add((a1 & 1U << 5) != 0, dnnl::cpu_isa::avx512_core_bf16);
  if (has_bf16) add((d & kTiles) == kTiles, dnnl::cpu_isa::avx512_core_amx);
#endif
  return bits;
}

// What processes have agreed on before; null: nothing.
const Level* limit_of_onednn = nullptr;

}  // namespace

std::string VectorUnits(const char* onednn_limit) {
  const Level* limit = limit_of_onednn;
  if (limit == nullptr && onednn_limit != nullptr) limit = LevelNamed(onednn_limit);
  const Level* const level = LevelOf(BitsOfProcessor() & (limit == nullptr ? ~0U : limit->bits()));
  return absl::StrCat(RunsAvx2Loops() ? kLoops : kNoLoops, level == nullptr ? "?" : level->name);
}

VectorUnitsAgreement LimitVectorUnits(const std::string& own, const std::vector<std::string>& all) {
  const auto differs =
      absl::c_find_if(all, [&](const std::string& text) { return text != all[0]; });
  if (differs == all.end()) return {};
  bool have_loops = true;
  unsigned bits = ~0U;
  for (absl::string_view text : all) {
    have_loops = have_loops && absl::StartsWith(text, kLoops);
    const bool is_read = absl::ConsumePrefix(&text, kLoops) || absl::ConsumePrefix(&text, kNoLoops);
    const Level* const level = is_read ? LevelNamed(text) : nullptr;
    bits = level == nullptr ? 0 : bits & level->bits();
  }
  const Level* const common = LevelOf(bits);
  const std::string found = absl::StrCat("vector units of processes: ", all[0], "; ", *differs);
  const std::string may_differ = absl::StrCat(found, ": they may round differently");
  if (common == nullptr) return {may_differ};
  const std::string agreed = absl::StrCat(have_loops ? kLoops : kNoLoops, common->name);
  if (own != agreed) {
    // Refused once oneDNN has been used.
    if (!absl::EndsWith(own, absl::StrCat(" ", common->name)) &&
        dnnl::set_max_cpu_isa(common->isa) != dnnl::status::success) {
      return {may_differ, false};
    }
    limit_of_onednn = common;
    use_baseline_loops = use_baseline_loops || !have_loops;
  }
  // The C library chooses its functions before the program begins.
  return {absl::StrCat(found, ": all use ", agreed,
                       have_loops ? "" : "; functions such as exp may still round differently")};
}

}  // namespace weft
