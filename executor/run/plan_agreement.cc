#include "executor/run/plan_agreement.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

using Json = nlohmann::json;
constexpr auto kReplace = Json::error_handler_t::replace;  // names need not be UTF-8

Json JsonOf(const RingKey& ring) {
  return Json::array({ring.ring_id, ring.on_compute_stream, ring.ranks});
}

RingKey RingOf(const Json& json) {
  return {json.at(0).get<int>(), json.at(1).get<bool>(), json.at(2).get<std::vector<int>>()};
}

// Of the texts that must be equal.
std::string HashOf(const std::vector<PlannedCall>& calls) {
  std::string all;
  for (const PlannedCall& call : calls) absl::StrAppend(&all, call.call, "\n");
  return absl::StrFormat("%016x", XXH3_64bits(all.data(), all.size()));
}

struct Summary {
  std::map<std::string, std::string> settings;
  std::map<RingKey, std::string> hashes;
};

std::string TextOf(const RunFingerprint& fingerprint) {
  Json rings = Json::array();
  for (const auto& [ring, calls] : fingerprint.calls)
    rings.push_back({JsonOf(ring), HashOf(calls)});
  return Json{{"settings", fingerprint.settings}, {"rings", rings}}.dump(-1, ' ', false, kReplace);
}

// What a process has sent.
template <typename T>
absl::StatusOr<T> Parse(size_t process, const std::string& text, T (*parse)(const Json& json)) {
  try {
    return parse(Json::parse(text));
  } catch (const Json::exception& error) {
    return absl::InternalError(
        absl::StrCat("process ", process, " sends no plan that can be read: ", error.what()));
  }
}

Summary SummaryOf(const Json& json) {
  Summary summary;
  json.at("settings").get_to(summary.settings);
  for (const Json& ring : json.at("rings")) summary.hashes[RingOf(ring.at(0))] = ring.at(1);
  return summary;
}

std::string CallsText(const std::vector<PlannedCall>* calls) {
  Json json = Json::array();
  if (calls != nullptr) {
    for (const PlannedCall& call : *calls) json.push_back({call.call, call.where});
  }
  return json.dump(-1, ' ', false, kReplace);
}

std::vector<PlannedCall> CallsOf(const Json& json) {
  std::vector<PlannedCall> calls;
  for (const Json& call : json) calls.push_back({call.at(0), call.at(1)});
  return calls;
}

absl::Status CompareSettings(const std::vector<Summary>& summaries) {
  for (size_t p = 1; p < summaries.size(); ++p) {
    std::set<std::string> names;
    for (const Summary* summary : {&summaries[0], &summaries[p]}) {
      for (const auto& [name, value] : summary->settings) names.insert(name);
    }
    for (const std::string& name : names) {
      const auto value = [&](const Summary& summary) {
        const auto found = summary.settings.find(name);
        return found == summary.settings.end() ? std::string("none") : found->second;
      };
      if (value(summaries[0]) == value(summaries[p])) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "processes differ in ", name, ": process 0 has ", value(summaries[0]), ", process ", p,
          " has ", value(summaries[p]),
          name == "the feeds" ? "; option:feeds has the batches of all ranks, the same "
                                "in each process: join the files along the batch"
                              : ""));
    }
  }
  return absl::OkStatus();
}

// Whether a process has a rank of the ring.
bool HasRank(const World& world, int process, const RingKey& ring) {
  if (ring.ranks.empty()) return true;
  return absl::c_any_of(ring.ranks, [&](int rank) { return world.ProcessOf(rank) == process; });
}

// The first process of the ring, and one that plans other calls; -1: there is none.
struct Difference {
  int first = 0;
  int other = -1;
};

Difference FindDifference(const RingKey& ring, const World& world,
                          const std::vector<Summary>& summaries) {
  Difference difference;
  const std::string* expected = nullptr;
  static const std::string kNone = HashOf({});
  for (size_t p = 0; p < summaries.size(); ++p) {
    const auto process = static_cast<int>(p);
    if (!HasRank(world, process, ring)) continue;
    const auto found = summaries[p].hashes.find(ring);
    const std::string* const hash = found == summaries[p].hashes.end() ? &kNone : &found->second;
    if (expected == nullptr) {
      expected = hash;
      difference.first = process;
    } else if (*hash != *expected) {
      difference.other = process;
      break;
    }
  }
  return difference;
}

absl::Status DescribeDifference(const RingKey& ring, const Difference& difference,
                                const std::vector<PlannedCall>& first,
                                const std::vector<PlannedCall>& other) {
  size_t number = 0;
  while (number < std::min(first.size(), other.size()) &&
         first[number].call == other[number].call) {
    ++number;
  }
  const auto describe = [&](int process, const std::vector<PlannedCall>& calls) {
    if (number >= calls.size()) {
      return absl::StrCat("process ", process, " has ", calls.size(),
                          calls.size() == 1 ? " call" : " calls");
    }
    return absl::StrCat("process ", process, " has ", calls[number].call, " in ",
                        calls[number].where);
  };
  return absl::FailedPreconditionError(
      absl::StrCat("processes run different plans: ", ToString(ring), ", call #", number, ": ",
                   describe(difference.first, first), ", ", describe(difference.other, other)));
}

}  // namespace

void AddCalls(const Plan& plan, RunFingerprint* fingerprint) {
  for (const RingKey& ring : plan.rings) fingerprint->calls[ring];
  for (const Plan::PlanOp& op : plan.ops) {
    const Plan::RingWork* const work = op.ring_work();
    if (work == nullptr) continue;
    PlannedCall planned;
    const CollectiveDesc& desc = work->desc;
    planned.call = std::string(CollectiveKindName(desc.kind));
    if (Reduces(desc.kind)) absl::StrAppend(&planned.call, " ", ReductionName(desc.reduction));
    if (HasRoot(desc.kind)) absl::StrAppend(&planned.call, ", root ", desc.root);
    if (desc.kind == CollectiveKind::kSend) absl::StrAppend(&planned.call, ", peer ", desc.peer);
    if (desc.rounds_each_addition) absl::StrAppend(&planned.call, ", rounding each addition");
    const Plan::Variable& variable =
        plan.variables[op.inputs.empty() ? op.outputs[0] : op.inputs[0]];
    if (op.has_rows) {
      absl::StrAppend(&planned.call, " of rows");
    } else if (const auto* const message = std::get_if<Plan::MessageWork>(&op.work)) {
      // Two programs declare it; the step compares the numbers of elements.
      if (message->received.has_value() || variable.declared.has_value()) {
        const TensorType& type =
            message->received.has_value() ? *message->received : *variable.declared;
        absl::StrAppend(&planned.call, " of ", DTypeName(type.dtype));
      }
    } else if (variable.declared.has_value()) {
      const TensorType& type = *variable.declared;
      const bool is_known = absl::c_all_of(type.dims, [](int64_t dim) { return dim >= 0; });
      absl::StrAppend(&planned.call, " of ", DTypeName(type.dtype));
      if (is_known) absl::StrAppend(&planned.call, ", ", NumElements(type.dims), " elements");
    }
    planned.where = absl::StrCat(op.name, " of ", variable.name);
    fingerprint->calls[plan.rings[work->ring]].push_back(std::move(planned));
  }
}

absl::StatusOr<std::vector<RingKey>> AgreeOnPlan(const RunFingerprint& fingerprint,
                                                 const World& world, JobLink* link) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> texts, link->AllGather(TextOf(fingerprint)));
  std::vector<Summary> summaries;
  std::set<RingKey> rings;
  for (size_t p = 0; p < texts.size(); ++p) {
    WEFT_ASSIGN_OR_RETURN(Summary summary, Parse(p, texts[p], SummaryOf));
    summaries.push_back(std::move(summary));
    for (const auto& [ring, hash] : summaries.back().hashes) rings.insert(ring);
  }
  WEFT_RETURN_IF_ERROR(CompareSettings(summaries));
  for (const RingKey& ring : rings) {
    const Difference difference = FindDifference(ring, world, summaries);
    if (difference.other < 0) continue;
    const auto found = fingerprint.calls.find(ring);
    WEFT_ASSIGN_OR_RETURN(
        const std::vector<std::string> calls,
        link->AllGather(CallsText(found == fingerprint.calls.end() ? nullptr : &found->second)));
    WEFT_ASSIGN_OR_RETURN(const auto first,
                          Parse(difference.first, calls[difference.first], CallsOf));
    WEFT_ASSIGN_OR_RETURN(const auto other,
                          Parse(difference.other, calls[difference.other], CallsOf));
    return DescribeDifference(ring, difference, first, other);
  }
  return std::vector<RingKey>(rings.begin(), rings.end());
}

}  // namespace weft
