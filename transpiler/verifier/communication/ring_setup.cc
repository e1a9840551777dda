#include "transpiler/verifier/communication/ring_setup.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/schema/op_attrs.h"

namespace weft {
namespace {

using Endpoints = std::set<std::string>;

// An op that makes an id.
struct IdMaker {
  OpId op;
  std::pair<int64_t, int> number;  // its ring, and of how many on it
  int64_t rank = 0;
  std::string endpoint;
  std::vector<std::string> others;

  // Other ranks wait for rank 0, and need no list of the others.
  bool NamesOthers() const { return rank == 0 || !others.empty(); }
  Endpoints All() const {
    Endpoints all(others.begin(), others.end());
    all.insert(endpoint);
    return all;
  }
};

struct Join {
  OpId op;
  int64_t ring = 0;
  absl::optional<int64_t> rank;     // of the process: a rank, or a trainer
  std::vector<int> group;           // ranks of the run that the ring connects; empty: all
  absl::optional<int64_t> members;  // ranks, or trainers
  bool is_rank = false;             // `rank` is the rank of a program
  absl::optional<Symbol> id;
  absl::optional<size_t> maker;  // into RingSetup::makers; none: no earlier op makes the id
  std::string endpoints;         // of all members; may be empty

  // `rank` in the run, of which the ring may connect some ranks only.
  absl::optional<int64_t> RankOfRun() const {
    if (!rank.has_value() || group.empty()) return rank;
    if (*rank < 0 || *rank >= static_cast<int64_t>(group.size())) return absl::nullopt;  // W303
    return group[*rank];
  }
};

// The ops of a program that set up rings, in order.
struct RingSetup {
  std::vector<IdMaker> makers;
  std::vector<Join> joins;
};

IdMaker ReadIdMaker(const Op& op) {
  IdMaker maker;
  maker.op = op.id();
  maker.rank = op.IntAttr("rank").value_or(0);
  maker.endpoint = std::string(op.StringAttr("endpoint").value_or(""));
  const auto others = op.StringsAttr("other_endpoints");
  if (others.has_value()) maker.others.assign(others->begin(), others->end());
  return maker;
}

Join ReadJoin(const Op& op) {
  Join join;
  join.op = op.id();
  join.ring = RingOf(op);
  join.is_rank = op.HasAttr("rank");
  const bool is_trainer = op.HasAttr("trainer_id");
  if (join.is_rank || is_trainer) {
    join.rank = op.IntAttr(is_trainer ? "trainer_id" : "rank").value_or(0);
    join.members = op.IntAttr(is_trainer ? "ntrainers" : kNumRanksAttr);
  }
  const absl::StatusOr<std::vector<int>> group = GroupRanksOf(op);
  if (group.ok()) join.group = *group;
  if (!op.input_args().empty()) join.id = op.input_args()[0];
  join.endpoints = std::string(op.StringAttr("endpoints").value_or(""));
  return join;
}

RingSetup ReadRingSetup(const Program& program) {
  RingSetup setup;
  OpTraits traits(program);
  std::map<int64_t, int> made;                                 // ids, by ring
  absl::flat_hash_map<Symbol, absl::optional<size_t>> makers;  // none: an op of another kind
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    const bool sets_up = traits.Has(op, Trait::kRingSetup);
    if (sets_up && !op.output_args().empty()) {
      makers[op.output_args()[0]] = setup.makers.size();
      setup.makers.push_back(ReadIdMaker(op));
      setup.makers.back().number = {RingOf(op), made[RingOf(op)]++};
    } else if (sets_up) {
      Join join = ReadJoin(op);
      if (join.id.has_value()) {
        const auto maker = makers.find(*join.id);
        // What an op of another kind makes is not known.
        if (maker != makers.end() && !maker->second.has_value()) join.id.reset();
        if (maker != makers.end()) join.maker = maker->second;
      }
      setup.joins.push_back(std::move(join));
    } else {
      for (Symbol out : op.output_args()) {
        if (!traits.IsRegistered(op)) makers[out] = absl::nullopt;
      }
    }
  }
  return setup;
}

std::string ToString(const Endpoints& endpoints) {
  return absl::StrCat("{", absl::StrJoin(endpoints, ", "), "}");
}

class OneProgramChecker {
 public:
  OneProgramChecker(const Program& program, ProgramRef ref, Findings* findings)
      : program_(program), setup_(ReadRingSetup(program)), reporter_(ref, findings) {}

  void Check() {
    for (const IdMaker& maker : setup_.makers) CheckEndpoints(maker);
    for (const Join& join : setup_.joins) {
      const auto [first, is_new] = joined_.emplace(join.ring, &join);
      if (!is_new && !AreAlike(*first->second, join)) {
        Report(join.op, absl::StrCat("joins ring ", join.ring, ", which ",
                                     Name(joined_[join.ring]->op), " has joined already"));
      }
      CheckRank(join);
      if (join.id.has_value()) CheckId(join);
    }
  }

 private:
  // Whether the second only makes the ring of the first anew, by an id of its own, as Paddle's
  // fleet does with local SGD.
  bool AreAlike(const Join& first, const Join& second) const {
    if (!first.maker.has_value() || !second.maker.has_value() || first.maker == second.maker) {
      return false;
    }
    const IdMaker &of_first = setup_.makers[*first.maker],
                  &of_second = setup_.makers[*second.maker];
    return first.rank == second.rank && first.members == second.members &&
           first.group == second.group && first.endpoints == second.endpoints &&
           of_first.rank == of_second.rank && of_first.All() == of_second.All();
  }

  void CheckEndpoints(const IdMaker& maker) {
    if (!maker.NamesOthers() || maker.endpoint.empty()) return;
    if (maker.All().size() == maker.others.size() + 1) return;
    Report(maker.op, absl::StrCat("expected endpoints that differ, found ", maker.endpoint,
                                  " and the others ", absl::StrJoin(maker.others, ", ")));
  }

  void CheckRank(const Join& join) {
    if (!join.RankOfRun().has_value()) return;
    const Join& first = setup_.joins.front();
    if (!first.RankOfRun().has_value() || *first.RankOfRun() == *join.RankOfRun()) return;
    Report(join.op, absl::StrCat("joins ring ", join.ring, " as rank ", *join.RankOfRun(),
                                 ", but ring ", first.ring, " as rank ", *first.RankOfRun(),
                                 ": expected the same rank in all rings"));
  }

  void CheckId(const Join& join) {
    const absl::string_view id = program_.name(*join.id);
    if (!join.maker.has_value()) {
      return Report(join.op, absl::StrCat("joins ring ", join.ring, " by id ", id,
                                          ", which no earlier op makes"));
    }
    const IdMaker& maker = setup_.makers[*join.maker];
    const auto [user, is_new] = user_of_.emplace(*join.maker, &join);
    if (!is_new) {
      return Report(join.op,
                    absl::StrCat("joins ring ", join.ring, " by id ", id, ", by which ",
                                 Name(user->second->op), " has joined ring ", user->second->ring));
    }
    if (join.rank.has_value() && *join.rank != maker.rank) {
      return Report(join.op,
                    absl::StrCat("joins ring ", join.ring, " as rank ", *join.rank, ", but ",
                                 Name(maker.op), " makes its id as rank ", maker.rank));
    }
    const int64_t named = static_cast<int64_t>(maker.others.size()) + 1;
    if (join.members.has_value() && maker.NamesOthers() && named != *join.members) {
      Report(join.op, absl::StrCat("joins ring ", join.ring, " of ", *join.members, ", but ",
                                   Name(maker.op), " makes its id for ", named, " endpoints"));
    }
  }

  std::string Name(OpId op) const { return program_.op(op).DebugName(); }
  void Report(OpId op, absl::string_view problem) {
    reporter_.Add("W307", op, "", absl::StrCat(Name(op), ": ", problem));
  }

  const Program& program_;
  const RingSetup setup_;
  Reporter reporter_;
  std::map<int64_t, const Join*> joined_;  // by ring
  std::map<size_t, const Join*> user_of_;  // by maker
};

class AllProgramsChecker {
 public:
  AllProgramsChecker(absl::Span<const Program* const> programs, Findings* findings)
      : programs_(programs), findings_(findings) {
    for (const Program* program : programs) setups_.push_back(ReadRingSetup(*program));
  }

  void Check() {
    for (size_t rank = 0; rank < programs_.size(); ++rank) {
      for (const IdMaker& maker : setups_[rank].makers) {
        first_makers_.emplace(maker.number, std::make_pair(rank, &maker));
      }
    }
    for (size_t rank = 0; rank < programs_.size(); ++rank) {
      // One wrong number makes all rings wrong.
      if (CheckNumbers(rank)) CheckEndpoints(rank);
    }
  }

 private:
  bool CheckNumbers(size_t rank) {
    bool all_right = true;
    for (const Join& join : setups_[rank].joins) {
      if (!join.is_rank) continue;
      const auto [first, is_new] = joined_.emplace(std::make_pair(join.ring, *join.rank), rank);
      const std::string joins = absl::StrCat("joins ring ", join.ring, " as rank ", *join.rank);
      if (!is_new && first->second != rank) {
        Report("W507", rank, join.op,
               absl::StrCat(joins, ", as the startup program of rank ", first->second, " does"));
        all_right = false;
      } else if (join.RankOfRun().value_or(-1) != static_cast<int64_t>(rank)) {
        Report("W509", rank, join.op,
               absl::StrCat(joins, join.group.empty() ? "" : " of " + GroupText(join.group),
                            ": expected rank ", rank, ", as the programs are given in rank order"));
        return false;
      }
    }
    return all_right;
  }

  // Compares with the first rank of the ring, which sends the id.
  void CheckEndpoints(size_t rank) {
    for (const IdMaker& maker : setups_[rank].makers) {
      if (!CheckEndpoints(rank, maker)) return;
    }
    const std::vector<Join>&expected = setups_[0].joins, &found = setups_[rank].joins;
    for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
      if (!found[i].group.empty() || found[i].endpoints == expected[i].endpoints) continue;
      Report("W509", rank, found[i].op,
             absl::StrCat("attribute endpoints: expected ", expected[i].endpoints,
                          ", as on rank 0, found ", found[i].endpoints));
    }
  }

  bool CheckEndpoints(size_t rank, const IdMaker& maker) {
    const auto report = [&](absl::string_view problem) {
      Report("W509", rank, maker.op, problem);
      return false;
    };
    const std::string waits = absl::StrCat("waits at endpoint ", maker.endpoint);
    if (!own_endpoints_.emplace(maker.number, maker.endpoint).second) {
      return report(absl::StrCat(waits, ", as an earlier rank does"));
    }
    const auto [first, first_maker] = first_makers_.at(maker.number);
    const Endpoints all = first_maker->All();
    if (all.count(maker.endpoint) == 0) {
      return report(absl::StrCat(waits, ", but rank ", first, " names ", ToString(all)));
    }
    if (maker.NamesOthers() && maker.All() != all) {
      return report(absl::StrCat("expected endpoints ", ToString(all), ", as rank ", first,
                                 " names, found ", ToString(maker.All())));
    }
    return true;
  }

  void Report(const char* rule, size_t rank, OpId op, absl::string_view problem) {
    Reporter({static_cast<int>(rank), /*is_startup=*/true}, findings_)
        .Add(rule, op, "", absl::StrCat(programs_[rank]->op(op).DebugName(), ": ", problem));
  }

  const absl::Span<const Program* const> programs_;
  Findings* const findings_;
  std::vector<RingSetup> setups_;  // by rank
  // By number of the id: the first rank that makes it, and how.
  std::map<std::pair<int64_t, int>, std::pair<size_t, const IdMaker*>> first_makers_;
  std::map<std::pair<int64_t, int64_t>, size_t> joined_;  // by ring and rank: the program
  std::set<std::pair<std::pair<int64_t, int>, std::string>> own_endpoints_;  // by number
};

}  // namespace

void CheckRingSetup(const Program& program, ProgramRef ref, Findings* findings) {
  OneProgramChecker(program, ref, findings).Check();
}

void CheckRingSetups(absl::Span<const Program* const> startups, Findings* findings) {
  if (startups.size() > 1) AllProgramsChecker(startups, findings).Check();
}

}  // namespace weft
