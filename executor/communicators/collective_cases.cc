#include "executor/communicators/collective_cases.h"

#include <cstdint>
#include <cstring>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/communicators/local_communicator.h"
#include "ops/kernel_util.h"
#include "ops/tensor.h"

namespace weft {
namespace {

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce,     CollectiveKind::kReduce,
                                     CollectiveKind::kReduceScatter, CollectiveKind::kAllGather,
                                     CollectiveKind::kBroadcast,     CollectiveKind::kAllToAll,
                                     CollectiveKind::kSend};
constexpr DType kReducible[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                                DType::kInt8,    DType::kUint8,   DType::kInt32,   DType::kInt64};

template <typename T>
std::string RandomElements(int64_t count, uint64_t seed) {
  std::minstd_rand rng(seed + 1);
  std::string bytes(count * sizeof(T), '\0');
  for (int64_t i = 0; i < count; ++i) {
    T x;
    if constexpr (std::is_integral_v<T>) {
      x = static_cast<T>(rng() * uint64_t{0x9E3779B97F4A7C15});
    } else {
      // Of different exponents, so that the order of additions shows.
      const uint64_t bits = rng();
      x = static_cast<T>(static_cast<float>(static_cast<int64_t>(bits) - (int64_t{1} << 30)) /
                         static_cast<float>(1 << bits % 10 << 20));
    }
    std::memcpy(&bytes[i * sizeof(T)], &x, sizeof(T));
  }
  return bytes;
}

std::string RandomElements(DType dtype, int64_t count, uint64_t seed) {
  switch (dtype) {
    case DType::kFloat32:
      return RandomElements<float>(count, seed);
    case DType::kFloat64:
      return RandomElements<double>(count, seed);
    case DType::kFloat16:
      return RandomElements<Float16>(count, seed);
    case DType::kBFloat16:
      return RandomElements<BFloat16>(count, seed);
    case DType::kInt8:
      return RandomElements<int8_t>(count, seed);
    case DType::kInt32:
      return RandomElements<int32_t>(count, seed);
    case DType::kInt64:
      return RandomElements<int64_t>(count, seed);
    default:
      return RandomElements<uint8_t>(count * static_cast<int64_t>(SizeOf(dtype)), seed);
  }
}

absl::StatusOr<std::string> RunCase(const CollectiveCase& c, uint64_t seed, Communicator* end) {
  CollectiveCall call;
  call.desc = c.desc;
  call.op = "op 7 (test)";
  call.variable = "x";
  call.dims = {c.desc.count};
  const int n = end->nranks();
  std::string in = RandomElements(c.desc.dtype, c.desc.count, seed * 64 + end->rank());
  const size_t in_bytes = in.size();
  size_t out_bytes = in_bytes;
  if (c.desc.kind == CollectiveKind::kAllGather) out_bytes *= n;
  if (c.desc.kind == CollectiveKind::kReduceScatter) out_bytes /= n;
  if (!c.in_place) {
    std::string out(out_bytes, '\x55');
    const std::string before = in;
    const bool sends = c.desc.kind == CollectiveKind::kSend;
    WEFT_RETURN_IF_ERROR(end->Run(call, sends && c.desc.root != end->rank() ? nullptr : in.data(),
                                  sends && c.desc.peer != end->rank() ? nullptr : &out[0]));
    if (in != before) return absl::InternalError("the input was written");
    return out;
  }
  if (c.desc.kind == CollectiveKind::kAllGather) {
    std::string out(out_bytes, '\x55');
    char* const mine = &out[0] + end->rank() * in_bytes;
    std::memcpy(mine, in.data(), in_bytes);
    WEFT_RETURN_IF_ERROR(end->Run(call, mine, &out[0]));
    return out;
  }
  WEFT_RETURN_IF_ERROR(end->Run(call, in.data(), &in[0]));
  return in.substr(0, out_bytes);
}

}  // namespace

std::string ToString(const CollectiveCase& c) {
  return absl::StrCat(DescribeCollective(c.desc, 0, "x", {c.desc.count}),
                      c.desc.rounds_each_addition ? ", rounds each addition" : "",
                      c.in_place ? ", in place" : "");
}

std::vector<CollectiveCase> CollectiveCases(int nranks) {
  std::vector<CollectiveCase> cases;
  const auto add = [&](CollectiveDesc desc) {
    // Each rank in turn.
    desc.root = HasRoot(desc.kind) ? static_cast<int>(cases.size() / 2) % nranks : 0;
    desc.peer = desc.kind == CollectiveKind::kSend ? (desc.root + 1) % nranks : 0;
    cases.push_back({desc, false});
    const bool can_overlap =
        desc.kind != CollectiveKind::kAllToAll && desc.kind != CollectiveKind::kSend;
    if (can_overlap) cases.push_back({desc, true});
  };
  for (const CollectiveKind kind : kKinds) {
    CollectiveDesc desc;
    desc.kind = kind;
    // With the descriptor, and after it.
    for (const int64_t count : {0, 1, 13, 6007}) {
      desc.count = SplitsInput(kind) ? count * nranks : count;
      for (const DType dtype : kReducible) {
        desc.dtype = dtype;
        add(desc);
      }
    }
    desc.count = int64_t{5000} * nranks;
    desc.dtype = DType::kUint8;
    if (!Reduces(kind)) {
      add(desc);
      continue;
    }
    for (const Reduction reduction :
         {Reduction::kAvg, Reduction::kMax, Reduction::kMin, Reduction::kProd}) {
      desc.reduction = reduction;
      for (const DType dtype : kReducible) {
        desc.dtype = dtype;
        add(desc);
      }
    }
    desc.reduction = Reduction::kSum;
    desc.rounds_each_addition = true;
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      desc.dtype = dtype;
      add(desc);
    }
    desc.rounds_each_addition = false;
    // Two chunks.
    desc.dtype = DType::kFloat64;
    desc.count = int64_t{600011} / nranks * nranks;
    add(desc);
  }
  return cases;
}

absl::StatusOr<std::vector<std::string>> RunCases(const std::vector<CollectiveCase>& cases,
                                                  Communicator* end) {
  std::vector<std::string> results;
  for (const CollectiveCase& c : cases) {
    WEFT_ASSIGN_OR_RETURN(std::string result, RunCase(c, results.size(), end));
    results.push_back(std::move(result));
  }
  return results;
}

std::vector<std::vector<std::string>> ExpectedResults(const std::vector<CollectiveCase>& cases,
                                                      int nranks) {
  GroupOptions options;
  options.nranks = nranks;
  const auto group = NewLocalGroup(options);
  // Ranks that are threads must not scatter large buffers in place: others still read them.
  std::vector<CollectiveCase> apart = cases;
  for (CollectiveCase& c : apart) c.in_place = false;
  std::vector<std::vector<std::string>> results(nranks);
  OnRankThreads(nranks, [&](int rank) {
    results[rank] = RunCases(apart, *group->Get(RingKey{}, rank)).value();
    return absl::OkStatus();
  });
  return results;
}

std::string FirstDifference(const std::vector<CollectiveCase>& cases,
                            const std::vector<std::string>& found,
                            const std::vector<std::string>& expected) {
  if (found.size() != cases.size() || expected.size() != cases.size()) {
    return absl::StrCat(found.size(), " results, expected ", expected.size());
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    if (found[i] != expected[i]) return ToString(cases[i]);
  }
  return "";
}

std::vector<absl::Status> OnRankThreads(int nranks, const std::function<absl::Status(int)>& body) {
  std::vector<absl::Status> results(nranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < nranks; ++r) {
    threads.emplace_back([&, r] { results[r] = body(r); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace weft
