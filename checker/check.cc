#include "checker/check.h"

#include <cstdlib>
#include <sstream>

#include "checker/pir.h"
#include "checker/shares.h"

namespace checker {
namespace {

std::vector<std::string_view> BlocksOf(std::string_view file) {
  std::vector<std::string_view> blocks;
  for (Fields fields(file); fields.Next(1);) {
    blocks.push_back(fields.Bytes());
    Expect(NumberOf(blocks.back(), 1) == blocks.size() - 1 && blocks.size() <= 1 << 16,
           "there are too many blocks, or they are not in order");
  }
  Expect(!blocks.empty(), "the file has no block: it is no program");
  return blocks;
}

// What a setting says of results that no rule makes.
constexpr std::pair<const char*, const char*> kNoRule[] = {
    {"distributed_params\"", "no rule is for parameters of which the user gives each rank a part"},
    {"groups\"", "no rule reduces gradients over some of the ranks"},
    {"ordered_by_data\"", "no rule orders ops by their data alone"},
    {"assumptions\"", "no rule is for ops of which only the user knows what they do"},
    {"\\", "its setting has a backslash"},
};

// The setting tells `weft run` and `weft verify` what the program is for, as JSON.
void CheckSetting(std::string_view json, State* state) {
  std::string& setting = state->setting;
  for (const char c : json) {
    if (static_cast<unsigned char>(c) > ' ') setting += c;
  }
  for (const auto& [part, why] : kNoRule) {
    Expect(setting.find(part) == setting.npos, why);
  }
  Expect(state->averages || setting.find("averaging\"") == setting.npos,
         "no rule averages parameters where gradients are reduced");
  const auto expect = [&](std::string_view key, std::string_view value) {
    const std::string right = Text(key, value);
    for (size_t at = 0; (at = setting.find(key, at)) != setting.npos; ++at) {
      const bool is_right =
          setting.compare(at, right.size(), right) == 0 &&
          (setting[at + right.size()] == ',' || setting[at + right.size()] == '}');
      Expect(is_right, "setting of the result: ", key, ": expected ", value);
    }
  };
  ReadShares(state);
  expect("\"nranks\":", std::to_string(state->nranks));
  expect("\"reduction\":", state->sums ? "\"sum\"" : "\"mean\"");
}

// What the result has in another variable is declared as in the original, but as no state.
bool IsNoState(std::string_view decl, const Var& var) {
  const auto others = [](std::string_view decl) {
    return OthersOf(decl, 3, 5, [](const Fields&) {});
  };
  return !Decl(decl).persistable && others(decl) == others(var.bytes);
}

// States are named in the claim, of which names must not make lines.
void ExpectPrintable(const Var& var) {
  for (const char c : var.name) {
    Expect(!var.persistable || (static_cast<unsigned char>(c) > ' ' && c != '\x7f'), var.name,
           " is a state whose name has blanks or control characters");
  }
}

void Declare(State* state) {
  state->locals.resize(state->blocks.size());
  for (size_t i = 1; i < state->blocks.size(); ++i) {
    for (Fields fields(state->blocks[i]); fields.Next(3);) {
      const Decl decl(fields.Bytes());
      Expect(!decl.persistable, "block ", std::to_string(i), " has a state");
      state->locals[i].insert(decl.name);
    }
  }
  size_t count = state->original.num_decls + state->result.num_decls;
  for (const Block& block : state->new_blocks) count += block.num_decls;
  state->names.reserve(count);
  for (Fields fields(state->original.decls); fields.Next(3);) {
    Var* const var = state->Declare(fields.Bytes());
    Expect(var->of == nullptr, var->name, " is declared twice");
    var->of = var;
    var->equal = state->main == nullptr && var->IsState();  // startup programs set them
  }
  for (const Var& var : state->vars) ExpectPrintable(var);
  // Most declarations are those of the original, in its order: these need not be looked for.
  const size_t end = state->vars.size();
  size_t next = 0;
  for (Fields fields(state->result.decls); fields.Next(3);) {
    const bool is_next = next < end && state->vars[next].bytes == fields.Bytes();
    Var* const var = is_next ? &state->vars[next++] : state->Declare(fields.Bytes());
    Expect(!var->in_result, var->name, " is declared twice");
    const bool is_elsewhere = state->IsElsewhere(var->name);
    Expect(is_elsewhere ? IsNoState(fields.Bytes(), *var) : var->bytes == fields.Bytes(), var->name,
           " is not declared as in the original");
    var->in_result = true;
    if (var->of != nullptr) continue;
    const bool is_ring = state->main != nullptr && var->type == 17;
    const bool is_scope = state->averages && var->type == 11 && !var->persistable;
    const State& main = state->main == nullptr ? *state : *state->main;
    const bool is_known = main.layout.count(var->name) > 0 ||
                          (state->averages && (state->main == nullptr ||
                                               main.first.count(std::string(var->name)) > 0));
    Expect(is_ring || is_scope || (var->type == 7 && (!var->persistable || is_known)),
           "the new variable ", var->name, " is a state, or no tensor");
    const Var* const known = is_known && state->main != nullptr ? main.Find(var->name) : nullptr;
    Expect(known == nullptr || known->bytes == var->bytes, var->name,
           " is declared otherwise in the main program");
    ExpectPrintable(*var);
    ExpectNoAttrs(*var);
    var->kind = kLost;
    var->equal = state->main == nullptr && var->persistable;
  }
  for (size_t i = 0; i < state->new_blocks.size(); ++i) {
    for (Fields fields(state->new_blocks[i].decls); fields.Next(3);) {
      Var* const var = state->Declare(fields.Bytes());
      Expect(!var->in_result && var->of == nullptr, var->name, " is declared twice");
      Expect(var->type == 7 && !var->persistable, "the new variable ", var->name,
             " is a state, or no tensor");
      var->kind = kLost;
      var->in_result = true;
      var->block = state->blocks.size() + i;
    }
  }
  // What ops used that are left out need not be declared.
  const bool leaves_out = state->main == nullptr && state->HasShares();
  for (Var& var : state->vars) {
    const bool is_elsewhere = state->IsElsewhere(var.name);
    Expect(var.in_result || is_elsewhere || (leaves_out && !var.persistable),
           "a variable of the original is not declared");
    if (!var.in_result) var.kind = kLost;
    var.is_elsewhere = is_elsewhere && state->main != nullptr;
  }
  if (leaves_out) BeginShares(state);
}

// Compares all but the ops.
void Begin(std::string_view original, std::string_view result, State* state) {
  const std::vector<std::string_view> blocks = BlocksOf(result);
  state->blocks = BlocksOf(original);
  state->original = Block(state->blocks[0]);
  state->result = Block(blocks[0]);
  state->version = NumberOf(TextOf(original, 4), 1);
  state->work_left = 1000 + 16 * result.size();
  CheckSetting(TextOf(result, 1001), state);
  const auto without_blocks = [](std::string_view file) {
    return OthersOf(file, 1, 1001, [](const Fields&) {});
  };
  const size_t num_old = state->blocks.size();
  for (size_t i = num_old; i < blocks.size() && state->averages && state->main == nullptr; ++i) {
    state->new_blocks.emplace_back(blocks[i]);
    Expect(state->new_blocks.back().others.size() <= 2 && NumberOf(blocks[i], 2) == 0,
           "a new block has another field, or is in another block than block 0");
  }
  Expect(blocks.size() == num_old + state->new_blocks.size() &&
             without_blocks(original) == without_blocks(result) &&
             state->original.others == state->result.others &&
             std::equal(state->blocks.begin() + 1, state->blocks.end(), blocks.begin() + 1),
         "the result has another version or other blocks");
  Declare(state);
}

// Calls that go on when the program ends, of states that may travel when a step begins.
void CheckStreams(State* state) {
  const auto& clocks = state->clocks;
  Failure late{"the program ends while communication goes on"};
  for (const auto& [ring, stream] : state->streams) {
    const uint32_t known = std::max(clocks[0][stream], clocks[kHost][stream]);
    if (known == clocks[stream][stream]) continue;
    Expect(state->averages && state->main == nullptr, late.why);
    for (const Var& var : state->vars) {
      for (const Var::Access& access : var.accesses) {
        const bool goes_on =
            access.stream == stream && std::max(access.read, access.written) > known;
        Expect(!goes_on || (var.of == nullptr && var.IsState()), late.why);
        if (goes_on && var.late != stream) {
          late.late.push_back(Text(std::to_string(ring), " ", var.name));
        }
      }
    }
  }
  if (!late.late.empty()) throw late;
}

void End(State* state) {
  CheckStreams(state);
  if (state->averages) CheckAveraging(state);
  if (state->HasShares()) CheckShares(state);
  State* const main = state->main;
  for (const uint64_t ring : main == nullptr ? std::set<uint64_t>() : main->rings) {
    const bool is_outside = state->set_up.empty() && main->calls_compute && state->calls_compute;
    Expect(is_outside || state->set_up.count(ring) > 0, "ring ", std::to_string(ring),
           " is not set up");
  }
  Failure differ;
  for (const Var& var : state->vars) {
    if (var.of != &var) continue;
    Expect(!var.is_gradient || var.is_reduced || state->averages, "the gradient ", var.name,
           " is not reduced");
    Expect(!var.is_parameter || (var.IsState() && (!var.is_own || state->averages)), var.name,
           " is no state of all ranks");
    if (var.is_elsewhere) {
      state->num_parameters += var.is_parameter ? 1 : 0;
      continue;
    }
    Expect(var.kind == kSame || (!var.persistable && !var.read_first), "the step leaves ", var.name,
           " with another value than the original does");
    state->num_others += var.kind != kSame ? 1 : 0;
    state->num_parameters += var.is_parameter ? 1 : 0;
    const Var* const known = main == nullptr ? &var
                             : var.has_value ? main->Find(var.name)
                                             : nullptr;
    const bool is_common = known != nullptr && known->IsState() &&
                           (!known->is_own || (known->is_parameter && main != nullptr));
    if (is_common && !var.equal) differ.own.emplace_back(var.name);
  }
  Expect(main != nullptr || state->num_gradients > 0 || state->averages, "no gradient is reduced");
  if (differ.own.empty()) return;
  std::sort(differ.own.begin(), differ.own.end());
  differ.why = Text(differ.own[0], " may differ between ranks");
  throw differ;
}

// Follows steps, to the end of the proof, or to "startup": true.
bool Follow(std::istream* proof, State* state) {
  Fields originals(state->original.ops), results(state->result.ops);
  uint64_t index = 0;
  bool is_main_end = false;
  for (std::string word; !is_main_end && *proof >> word;) {
    is_main_end = state->main == nullptr && word == "startup";
    const bool is_new = word[0] == '+', is_left_out = word[0] == '-';
    const bool is_step = (is_new || is_left_out || word[0] == '=') && word.size() > 1 &&
                         word.size() < 20 && word.find_first_not_of("0123456789", 1) == word.npos;
    Expect(is_step || is_main_end, "proof.txt: expected a step, found ", word);
    for (uint64_t i = is_step ? std::stoull(word.substr(1)) : 0; i > 0; --i) {
      Expect(is_left_out || results.Next(4), "proof.txt: the result has no further op");
      Expect(is_new || originals.Next(4), "proof.txt: the original has no further op");
      const std::string_view bytes = (is_left_out ? originals : results).Bytes();
      try {
        const Op op(bytes);
        if (is_new) {
          Insert(op, state);
        } else if (is_left_out) {
          Keep(op, nullptr, state);
        } else if (AreSameOps(bytes, originals.Bytes())) {
          Keep(op, &op, state);
        } else {
          Expect(state->HasShares() && SortedFields(bytes, 2) == SortedFields(originals.Bytes(), 2),
                 "the op of the original is another one");
          Keep(Op(originals.Bytes()), &op, state);
        }
      } catch (const Failure& failure) {
        throw Failure{Text(
            state->main == nullptr ? "" : "startup: ", is_left_out ? "left out before op " : "op ",
            std::to_string(index), " (", TextOf(bytes, 3), "): ", failure.why)};
      }
      if (!is_left_out) ++index;
    }
  }
  Expect(!originals.Next(4), "proof.txt: it leaves out the last ops of the original");
  Expect(!results.Next(4), "proof.txt: it leaves out the last ops of the result");
  End(state);
  return is_main_end;
}

// docs/certificate.md says what each line means.
constexpr std::string_view kClaim = R"(Weft certificate 1
original: %
result: %
original startup: %
result startup: %
startup of rank: %
ranks: %
gradients: %
schedule: %, % calls on % rings

Checked:
- On each rank, the result computes what the original computes on the data of this rank,
%- States that are equal on all ranks before a step are equal after it.
- No result depends on the timing of streams; all ranks make the same calls in one order.
- %
Exceptions:
- states of which each rank has its own: %
%- gradients that are rounded to fewer bits on their way: %
- variables that are not the original's when the step ends, but 1/n of them or unset: %
Assumed:
- Every rank runs this program, and a startup program that is certified for it.
- Kept ops compute the same from the same values, and write only their outputs, in place.
- Gradient ops (..._grad) are linear in their inputs ...@GRAD.
- Sums and quotients are rounded; states that no startup program sets are set equally.
%Asserted by Weft, not checked:
- How this relates to one device with the batch of all ranks (weft verify).
)";

constexpr std::string_view kReplaced =
    R"(  with gradients (% of % parameters) replaced by their % over the ranks.
- Each gradient is replaced once, when it is complete and before its first use.
)";
constexpr std::string_view kChanged =
    R"(  but when step s ends (s = 1, 2, ...), states change, by what they were before:
%)";
constexpr std::string_view kSynchronized =
    R"(- states that are equal on all ranks after their change: %
- states that may travel when a step ends: %
)";
constexpr std::string_view kUpdated =
    "- Each rank's ops on its parts compute each element as ops on whole states do.\n";
constexpr std::string_view kAdded = "- Sums of squares are rounded, which ranks add up (%).\n";
constexpr char kNotStarted[] =
    "Not checked, as no startup programs were given: that states are equal at first.";
constexpr char kStarted[] =
    "After the startup program, states are equal: what the original's leaves on rank 0.";
constexpr char kShared[] =
    "After the startup program, states, and parts of states, are what the original's leaves on "
    "rank 0.";
constexpr char kBegun[] =
    "After the startup program, states are what the original's leaves on rank 0; new ones are 0,\n"
    "  but p_outer_param is p.";

// With each % replaced by one of the values, in order.
template <typename... Values>
std::string Filled(std::string_view text, const Values&... values) {
  std::string filled;
  const auto add = [&](std::string_view value) {
    filled += Text(text.substr(0, text.find('%')), value);
    text.remove_prefix(text.find('%') + 1);
  };
  (add(values), ...);
  return Text(filled, text);
}

// What follows `key` in the first line that begins with it.
std::string ValueOf(std::string_view key, std::string_view claim) {
  const size_t begin = Text("\n", claim).find(Text("\n", key));
  Expect(begin != std::string::npos, "claim.txt: no line begins with ", key);
  const std::string_view rest = claim.substr(begin + key.size());
  return std::string(rest.substr(0, rest.find('\n')));
}

// The line after `n` others, in quotes.
std::string LineOf(std::string_view text, size_t n) {
  for (; n > 0; --n) {
    const size_t end = text.find('\n');
    if (end == text.npos) return "no line";
    text.remove_prefix(end + 1);
  }
  return Text("\"", text.substr(0, text.find('\n')), "\"");
}

}  // namespace

std::string ClaimOf(const Files& files, const std::function<std::string(std::string_view)>& hash) {
  if (IsPir(files.original)) {
    Expect(ValueOf("gradients: ", files.claim) != "own", "no rule averages parameters of PIR");
    const OldFormat old = FromPir(files);
    Expect(TextOf(old.result, 1001).find("shares\"") == std::string_view::npos,
           "no rule shares out states of PIR");
    const Files programs = {files.claim,          old.proof,  old.original, old.result,
                            old.original_startup, old.startup};
    const auto hash_of = [&](std::string_view program) {
      return hash(program.data() == old.original.data()           ? files.original
                  : program.data() == old.result.data()           ? files.result
                  : program.data() == old.original_startup.data() ? files.original_startup
                                                                  : files.startup);
    };
    return ClaimOf(programs, hash_of) + kPirClaim;
  }
  const std::string ranks = ValueOf("ranks: ", files.claim);
  const std::string by = ValueOf("gradients: ", files.claim);
  State main, startup;
  main.nranks = startup.nranks = std::strtoull(ranks.c_str(), nullptr, 10);
  main.sums = startup.sums = by == "sum";
  main.averages = startup.averages = by == "own";
  startup.main = &main;
  Expect((by == "sum" || by == "mean" || by == "own") && main.nranks <= 1 << 20,
         "claim.txt: expected at most 2^20 ranks, and sum, mean or own");
  std::istringstream proof{std::string(files.proof)};
  std::string word, own, late;
  Expect(proof >> word && word == "weft-proof" && proof >> word && word == "1",
         "proof.txt: unknown version");
  Begin(files.original, files.result, &main);
  std::set<std::string> owns;
  proof >> word;
  for (uint64_t ring = 0; word == "late" && proof >> ring >> own; proof >> word) {
    Var* const var = main.VarOf(own);
    const uint32_t stream = main.streams.emplace(ring, main.streams.size() + 1).first->second;
    Expect(var->of == nullptr && var->IsState() && var->late == 0 && stream < kHost,
           "proof.txt: ", own, " is no new state, is named twice, or there are more than 16 rings");
    var->late = stream;
    main.clocks[stream][stream] = 1;
    var->accesses.push_back({stream, 1, 1});
    late += Text(late.empty() ? "" : " ", own);
  }
  const auto name_own = [&](Var* var, bool is_own) {
    Expect(var->IsState() && var->name != "none" && (var->of == var || main.averages) &&
               (!is_own || !var->is_elsewhere),
           "proof.txt: ", var->name, " is no state, or named none, or shared out");
    var->is_own = is_own;
    var->equal = !is_own;
    is_own ? static_cast<void>(owns.emplace(var->name))
           : static_cast<void>(owns.erase(std::string(var->name)));
  };
  if (word == "all") {
    for (Var& var : main.vars) {
      if (var.of == &var && var.IsState() && !var.is_elsewhere) name_own(&var, true);
    }
    proof >> word;
  }
  for (; (word == "own" || word == "common") && proof >> own; proof >> word) {
    name_own(main.VarOf(own), word == "own");
  }
  Expect(word == "main", "proof.txt: expected the steps of the main program");
  const bool has_startup = !files.startup.empty();
  Expect(Follow(&proof, &main) == has_startup, "proof.txt: it is for other files");
  Expect(has_startup || !main.HasShares(), "shares need the startup programs, which make them");
  std::string rank = "all", own_states = owns.empty() ? "none" : "";
  if (has_startup) {
    Begin(files.original_startup, files.startup, &startup);
    Follow(&proof, &startup);
    const bool is_for_one = !startup.endpoints.empty();
    if (is_for_one) rank = std::to_string(startup.rank);
    rank += Text(", calls ", Sha256(startup.schedule).substr(0, 16));
    if (is_for_one) rank += ", endpoints";
    for (const std::string_view endpoint : startup.endpoints) rank += Text(" ", endpoint);
  }
  for (const std::string& state : owns) own_states += Text(own_states.empty() ? "" : " ", state);
  const auto number = [](uint64_t n) { return std::to_string(n); };
  std::string statement =
                  Filled(kReplaced, number(main.num_gradients), number(main.num_parameters), by),
              synchronized;
  for (const std::string& state : main.synchronized) {
    synchronized += Text(synchronized.empty() ? "" : " ", state);
  }
  if (main.averages) statement = Filled(kChanged, main.changes);
  return Filled(kClaim, hash(files.original), hash(files.result),
                has_startup ? hash(files.original_startup) : "none",
                has_startup ? hash(files.startup) : "none", rank,
                main.nranks == 0 ? "any" : number(main.nranks), by,
                Sha256(main.schedule).substr(0, 16), number(main.num_calls),
                number(main.rings.size()), statement,
                !has_startup       ? kNotStarted
                : main.averages    ? kBegun
                : main.HasShares() ? kShared
                                   : kStarted,
                own_states,
                main.averages ? Filled(kSynchronized, synchronized.empty() ? "none" : synchronized,
                                       late.empty() ? "none" : late)
                : main.HasShares() ? SharesOfClaim(main)
                                   : "",
                number(main.num_rounded), number(main.num_others),
                Text(main.HasShares() ? kUpdated : "",
                     main.num_sums > 0 ? Filled(kAdded, number(main.num_sums)) : ""));
}

void Check(const Files& files) {
  const std::string right = ClaimOf(files, Sha256);
  if (files.claim == right) return;
  size_t line = 0;
  while (LineOf(right, line) == LineOf(files.claim, line)) ++line;
  throw Failure{Text("claim.txt, line ", std::to_string(line + 1), ": expected ",
                     LineOf(right, line), ", found ", LineOf(files.claim, line))};
}

}  // namespace checker
