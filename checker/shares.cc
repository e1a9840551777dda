// States of which each rank has a part, and updates that each rank makes of its parts.
#include "checker/shares.h"

#include "checker/check.h"
#include "checker/json.h"

namespace checker {
namespace {

// Ops that compute each element of what they write from the elements at its place, and from
// numbers: inputs of one element. What they write besides are numbers, of numbers alone; but for
// kNorm, the sum of the squares of all elements.
// Ops that need whole tensors are for ranks of which each has one; their dimensions do not count.
constexpr char kNorm[] = "squared_l2_norm";
// These have lists of tensors, in slots X and Out; one after the other.
constexpr std::string_view kOfLists = " check_finite_and_unscale update_loss_scaling ",
                           kLast = "update_loss_scaling";
struct Elementwise {
  std::string_view types, numbers;
  bool needs_whole = false;
};
constexpr Elementwise kElementwise[] = {
    {" sgd momentum adagrad decayed_adagrad rmsprop adadelta ftrl ", ""},
    {" adam adamw ", " Beta1PowOut Beta2PowOut "},
    {" squared_l2_norm ", " Out "},
    {" lamb ", " Beta1PowOut Beta2PowOut ", true},
    {" lars_momentum clip_by_norm ", "", true},
    {kOfLists, " FoundInfinite LossScaling OutGoodSteps OutBadSteps "},
    {" scale sum cast clip assign sign abs square sqrt elementwise_add elementwise_sub "
     "elementwise_mul elementwise_div ",
     ""},
};

// Inputs of which ops read the first element.
constexpr std::string_view kNumbers =
    " LearningRate Beta1Pow Beta2Pow Beta1Tensor Beta2Tensor EpsilonTensor SkipUpdate Min Max "
    "ScaleTensor BiasTensor ";

bool Names(std::string_view words, std::string_view word) {
  return word.find(' ') == word.npos && words.find(Text(" ", word, " ")) != words.npos;
}

const Elementwise* FindElementwise(std::string_view type) {
  for (const Elementwise& found : kElementwise) {
    if (Names(found.types, type)) return &found;
  }
  return nullptr;
}

bool IsTensor(const Var& var) { return var.type == 7 && var.elements > 1; }

// Of fill_constant: 0 in each element.
bool IsZero(const Op& op) {
  for (const Attr& attr : op.attrs) {
    if (attr.name.substr(0, 5) == "value" && !attr.IsZero()) return false;
    if (attr.name != "str_value") continue;
    for (const std::string_view text : attr.Texts()) {
      if (text.find_first_not_of("0.") != text.npos) return false;
    }
  }
  return true;
}

std::vector<Part> Sorted(std::vector<Part> parts) {
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return a.of != b.of ? a.of->name < b.of->name : a.version < b.version;
  });
  return parts;
}

// Of sorted ones.
bool AreSame(const std::vector<Part>& some, const std::vector<Part>& others) {
  const auto are_same = [](const Part& a, const Part& b) {
    return a.of == b.of && a.version == b.version;
  };
  return std::equal(some.begin(), some.end(), others.begin(), others.end(), are_same);
}

bool IsCurrent(const Part& part) { return part.version == part.of->version; }

// What a variable of the original holds in the result.
Part Held(Var* var) {
  Expect(var->of == var && (var->kind == kSame || var->kind == kOld), var->name,
         " holds no value of the original");
  return var->kind == kSame ? Part{var, var->version, var->number}
                            : Part{var, var->of_version, var->old_number};
}

bool AreEqual(const Part& a, const Part& b) {
  return (a.of == b.of && a.version == b.version) || (a.number != 0 && a.number == b.number);
}

// Of the ops that are left out, and not found yet, and that read one of these: one that `is` takes.
template <typename Is>
auto FindLeftOut(const std::vector<Part>& parts, const Is& is, State* state) {
  for (const Part& part : parts) {
    const auto [begin, end] = state->left_out.equal_range(part.of);
    for (auto found = begin; found != end; ++found) {
      state->Spend(1 + found->second.op.size() / 8);
      if (is(found->second)) return found;
    }
  }
  return state->left_out.end();
}

Share& ShareOf(const Var& var, State* state) {
  const auto found = state->shares.find(const_cast<Var*>(&var));
  Expect(found != state->shares.end() && !found->second.is_of_ranks, var.name, " is no share");
  return found->second;
}

// Whether one variable has that many times as many elements as another one.
bool IsTimes(const Var& whole, const Var& part, uint64_t times) {
  return part.elements > 0 && part.elements <= int64_t{1} << 40 && times > 0 &&
         part.elements * static_cast<int64_t>(times) == whole.elements && part.dtype == whole.dtype;
}

// A new variable gets another value, which has as many elements.
Share& Set(Var* var, State* state) {
  Expect(var->of == nullptr && var->type == 7 && var->parts.empty() && !var->in_buffer, var->name,
         " is no variable for shares");
  state->totals.erase(var);
  return state->shares[var] = {};
}

// Whether op i of the shares computes what this one does, which the result has not.
bool DoesSame(const Op& op, const std::vector<std::string_view>& attrs, const LeftOut& other,
              size_t i, State* state) {
  const Op was(other.op);
  if (was.type != op.type || was.args.size() != op.args.size() || AttrsOf(was.bytes) != attrs) {
    return false;
  }
  const Elementwise& kind = *FindElementwise(op.type);
  const Var* like = nullptr;  // all tensors have its dimensions
  for (size_t a = 0; a < op.args.size(); ++a) {
    const Op::Arg& arg = op.args[a];
    if (!Op::AreAtOnePlace(arg, was.args[a])) return false;
    Var* const var = state->VarOf(arg.var);
    const Part& part = other.args[a];
    // What is written is what the other one writes in place, and nothing else.
    for (size_t b = 0; arg.is_output && b < op.args.size(); ++b) {
      state->Spend(1);
      if ((arg.var == op.args[b].var) != (part.of == other.args[b].of)) return false;
    }
    const auto share = state->shares.find(var);
    const bool is_number =
        arg.is_output ? Names(kind.numbers, arg.name) : share == state->shares.end();
    if (!is_number && Names(kNumbers, arg.name)) return false;
    if (arg.is_output && is_number && op.type != kNorm &&
        std::none_of(op.args.begin(), op.args.end(), [&](const Op::Arg& other) {
          return !other.is_output && other.var == arg.var && Text(other.name, "Out") == arg.name;
        })) {
      return false;
    }
    if (is_number) {
      if (part.of->elements != 1) return false;
      if (!arg.is_output && !AreEqual(Held(var), part)) return false;
      continue;
    }
    if (!IsTensor(*part.of) || part.of->dtype != var->dtype) return false;
    if (like != nullptr && like->Dims() != part.of->Dims()) return false;
    like = part.of;
    if (arg.is_output) continue;
    if (!AreEqual(share->second.parts[i], part)) return false;
  }
  return like != nullptr;
}

// Whether it may be the sum of such numbers.
bool IsNumber(const Var& var, const Var& like) {
  return var.type == 7 && var.elements == 1 && var.FloatSize() > 0 && var.dtype == like.dtype;
}

// A variable holds a number that all ranks have found.
void HoldNumber(const Part& made, Var* var, State* state) {
  // Else the parts would be of different tensors.
  Expect(made.of->equal, made.of->name, " may differ between ranks");
  var->of = made.of;
  var->of_version = made.version;
  var->kind = kSame;
  var->form = kWhole;
  var->equal = true;
  state->totals.erase(var);
}

void ExpectFree(const Var& var, const State& state) {
  Expect((var.of == nullptr || var.of == &var) && !var.persistable && var.parts.empty() &&
             !var.in_buffer && state.shares.count(const_cast<Var*>(&var)) == 0,
         var.name, " is no variable for sums");
}

// Of an op of lists.
bool IsInList(const Op::Arg& arg) { return arg.name == (arg.is_output ? "Out" : "X"); }
std::vector<size_t> NumbersOf(const Op& op) {
  std::vector<size_t> numbers;
  for (size_t a = 0; a < op.args.size(); ++a) {
    if (!IsInList(op.args[a])) numbers.push_back(a);
  }
  return numbers;
}

void ExpectZeros(const Share& share, int64_t elements, const State& state) {
  int64_t size = 0;
  for (const Part& part : share.parts) size += part.of->elements;
  const bool has_none = size == elements * static_cast<int64_t>(state.nranks);
  Expect(share.has_zeros || has_none, "padding may be other than 0");
}

// Whether an op of lists, which the result has not, has the values of which the shares are, and
// these numbers.
bool DoesSameToAll(const Op& op, const std::vector<Part>& parts, const LeftOut& other,
                   State* state) {
  const Op was(other.op);
  const std::vector<size_t> now = NumbersOf(op), before = NumbersOf(was);
  if (was.type != op.type || now.size() != before.size() || AttrsOf(was.bytes) != AttrsOf(op.bytes))
    return false;
  std::vector<Part> read, written;
  for (size_t a = 0; a < was.args.size(); ++a) {
    if (!IsInList(was.args[a])) continue;
    (was.args[a].is_output ? written : read).push_back(other.args[a]);
  }
  if (read.size() != written.size() || !AreSame(Sorted(read), Sorted(parts))) return false;
  for (size_t i = 0; i < read.size(); ++i) {
    if (read[i].of != written[i].of) return false;
  }
  for (size_t i = 0; i < now.size(); ++i) {
    const Op::Arg& arg = op.args[now[i]];
    const Part& part = other.args[before[i]];
    if (!Op::AreAtOnePlace(arg, was.args[before[i]]) || part.of->elements != 1) return false;
    Var* const var = state->VarOf(arg.var);
    if (!arg.is_output && !AreEqual(Held(var), part)) return false;
    if (arg.is_output && part.of != var) return false;
    bool is_in_place = !arg.is_output || arg.name == "FoundInfinite";
    for (size_t k = 0; k < now.size(); ++k) {
      const bool is_it = op.args[now[k]].var == arg.var;
      if (is_it != (other.args[before[k]].of == part.of)) return false;
      is_in_place = is_in_place || (is_it && !op.args[now[k]].is_output);
    }
    if (!is_in_place) return false;
  }
  return true;
}

// One op for one that is left out, of all of whose tensors the shares have parts.
void UpdateLists(const Op& op, State* state) {
  std::vector<Part> parts;
  std::vector<Var*> in, out;
  for (const Op::Arg& arg : op.args) {
    Var* const var = state->VarOf(arg.var);
    if (!IsInList(arg)) continue;
    const Share& share = ShareOf(*var, state);
    (arg.is_output ? out : in).push_back(var);
    if (arg.is_output) continue;
    parts.insert(parts.end(), share.parts.begin(), share.parts.end());
    state->Spend(1 + share.parts.size());
    Expect(share.kind == (op.type == kLast ? kLost : kSame), var->name, " holds another value");
    ExpectZeros(share, var->elements, *state);
  }
  Expect(in == out, "expected X and the same Out");
  const auto does_same = [&](const LeftOut& other) {
    return DoesSameToAll(op, parts, other, state);
  };
  const auto found = FindLeftOut(parts, does_same, state);
  Expect(found != state->left_out.end(), "no op that is left out does the same with these");
  std::map<const Var*, Part> written;
  const Op was(found->second.op);
  Part any = {};
  for (size_t a = 0; a < was.args.size(); ++a) {
    if (was.args[a].name == "FoundInfinite") any = found->second.args[a];
  }
  for (Var* const var : in) {
    Share& share = state->shares[var];
    Expect(op.type != kLast || (share.any.of == any.of && share.any.version == any.version),
           "it does not read whether any element of ", var->name, " is infinite");
    share.any = any;
  }
  for (size_t a = 0; a < was.args.size(); ++a) {
    const Part& part = found->second.args[a];
    if (was.args[a].is_output) written[part.of] = part;
  }
  state->Launch(0);
  for (const Op::Arg& arg : op.args) {
    Var* const var = state->VarOf(arg.var);
    state->Touch(0, var, arg.is_output);
    if (!arg.is_output) continue;
    if (IsInList(arg)) {
      // If any is infinite, elements are the original's after the last op only.
      state->shares[var].kind = op.type == kLast ? kSame : kLost;
      for (Part& part : state->shares[var].parts) part = written.at(part.of);
    } else if (arg.name == "FoundInfinite") {
      ExpectFree(*var, *state);
      var->kind = kLost;
      state->totals[var] = {{written.at(var)}, false, true};
    } else {
      Expect(IsCurrent(written.at(var)), var->name, " has no number of its own there");
      var->number = ++state->num_numbers;
      var->kind = kSame;
    }
  }
  state->left_out.erase(found);
}

// A variable that is the sum of the same numbers as one that an op left out has made holds that.
void FindSum(Var* var, State* state) {
  const std::vector<Part> of = Sorted(state->totals[var].of);
  Part made = {};
  const auto makes_it = [&](const LeftOut& other) {
    const Op op(other.op);
    std::vector<Part> terms;
    made = {};
    for (size_t a = 0; a < op.args.size(); ++a) {
      op.args[a].is_output ? static_cast<void>(made = other.args[a])
                           : terms.push_back(other.args[a]);
    }
    return op.type == "sum" && made.of != nullptr && op.args.size() == of.size() + 1 &&
           AreSame(of, Sorted(terms)) && (var->of != var || var == made.of) && IsCurrent(made) &&
           IsNumber(*var, *made.of);
  };
  const auto found = FindLeftOut(of, makes_it, state);
  if (found == state->left_out.end()) return;
  HoldNumber(made, var, state);
  state->left_out.erase(found);
  ++state->num_sums;
}

}  // namespace

void ReadShares(State* state) {
  const std::string& setting = state->setting;
  const bool has_common = setting.find("common\"") != setting.npos;
  if (!has_common && setting.find("shares\"") == setting.npos) return;
  Expect(state->nranks > 0 && !state->averages && state->main == nullptr,
         "setting of the result: shares need a number of ranks, and gradients that are reduced");
  const Members all(Json::Checked(setting));
  if (all.Has("shares")) {
    for (const auto& [share, listed] : Members(all.Get("shares")).all) {
      std::vector<State::Named>& of = state->layout[share];
      for (const std::string_view part : Elements(listed)) {
        const Texts named = Elements(part);
        Expect(named.size() == 2, "setting of the result: shares: expected a name and dimensions");
        of.push_back({StringOf(named[0]), named[1]});
      }
    }
  }
  if (all.Has("common")) {
    for (const auto& [one, names] : Members(all.Get("common")).all) {
      for (const std::string_view name : Elements(names)) {
        state->common[one].push_back(StringOf(name));
      }
    }
  }
  Expect(!state->layout.empty(), "setting of the result: expected shares");
  for (const auto& [share, named] : state->layout) {
    for (const State::Named& of : named) {
      if (!of.name.empty()) state->elsewhere.push_back(of.name);
    }
  }
  for (const auto& [one, names] : state->common) {
    for (const std::string_view name : names) {
      if (name != one) state->elsewhere.push_back(name);
    }
  }
  std::sort(state->elsewhere.begin(), state->elsewhere.end());
}

void BeginShares(State* state) {
  std::set<std::string_view> taken;
  const auto take = [&](std::string_view name, bool is_kept) {
    Var* const var = state->VarOf(name);
    Expect(var->of == var && var->IsState() && var->type == 7 && taken.insert(name).second &&
               name.find(';') == name.npos && name != "=",
           "setting of the result: ", name, " is no state, or is there twice");
    ExpectNoAttrs(*var);
    var->is_elsewhere = !is_kept;
    var->kind = is_kept ? kSame : kLost;
    return var;
  };
  for (const auto& [name, named] : state->layout) {
    Var* const var = state->VarOf(name);
    Expect(var->of == nullptr && var->persistable && var->type == 7 && var->elements > 0 &&
               name.find(';') == name.npos,
           name, " is no new state, or its size is unknown");
    Share& share = state->shares[var];
    int64_t end = 0;
    for (const State::Named& of : named) {
      std::vector<int64_t> dims;
      for (const std::string_view dim : Elements(of.dims)) dims.push_back(IntegerOf(dim));
      if (of.name.empty()) {
        Expect(&of == &named.back() && dims.size() == 1 && dims[0] > 0,
               "setting of the result: ", name, ": expected padding at the end alone");
        end += std::min(dims[0], int64_t{1} << 40);
        continue;
      }
      Var* const part = take(of.name, false);
      Expect(IsTensor(*part) && part->Dims() == dims && part->dtype == var->dtype &&
                 part->elements <= int64_t{1} << 40 && end < int64_t{1} << 60,
             "setting of the result: ", of.name, " is declared otherwise");
      share.parts.push_back({part, 0, 0});
      end += part->elements;
    }
    Expect(!share.parts.empty() && var->elements <= int64_t{1} << 40 &&
               var->elements * static_cast<int64_t>(state->nranks) == end,
           name, " is no part of a rank: expected ", std::to_string(end), " elements over ranks");
  }
  for (const auto& [name, names] : state->common) {
    const uint32_t number = ++state->num_numbers;
    bool has_itself = false;
    Var* one = nullptr;
    for (const std::string_view of : names) {
      Var* const var = take(of, of == name);
      if (one == nullptr) one = var;
      has_itself = has_itself || of == name;
      Expect(var->elements == 1 && var->dtype == one->dtype && var->Dims() == one->Dims(),
             "setting of the result: ", of, " is no number like ", one->name);
      var->number = number;
    }
    Expect(has_itself, "setting of the result: ", name, " does not stand for itself");
  }
}

bool MayLeaveOut(std::string_view type, bool is_startup) {
  return is_startup ? type == "fill_constant" : FindElementwise(type) != nullptr;
}

void LeaveOut(const Op& op, std::vector<Part> before, State* state) {
  Expect(state->HasShares() && MayLeaveOut(op.type, state->main != nullptr),
         "no rule leaves out such an op");
  std::vector<Part> args = std::move(before);
  const Var* first = nullptr;
  std::set<const Var*> outputs;
  for (size_t a = 0; a < op.args.size(); ++a) {
    Var* const var = args[a].of;
    if (op.args[a].is_output) {
      Expect(outputs.insert(var).second, "it writes ", var->name, " twice");
      args[a] = {var, var->version, 0};
    } else if (first == nullptr || (!IsTensor(*first) && IsTensor(*var))) {
      first = var;
    }
  }
  if (state->main != nullptr) return;
  Expect(first != nullptr, "it has no input");
  state->left_out.emplace(first, LeftOut{op.bytes, std::move(args)});
}

void KeepConstant(const Op& op, State* state) {
  if (op.type != "fill_constant" || op.args.size() != 1 || !op.args[0].is_output) return;
  state->constants[state->VarOf(op.args[0].var)] = {op.bytes, IsZero(op)};
}

bool UpdatesShares(const Op& op, const State& state) {
  const auto is_share = [&](const Op::Arg& arg) {
    Var* const var = state.Find(arg.var);
    const auto share =
        var == nullptr || arg.is_output ? state.shares.end() : state.shares.find(var);
    return share != state.shares.end() && share->second.kind != kSum;
  };
  return state.main == nullptr && op.type.substr(0, 2) != "c_" && op.type != "all_gather" &&
         std::any_of(op.args.begin(), op.args.end(), is_share);
}

void UpdateShares(const Op& op, State* state) {
  if (Names(kOfLists, op.type)) return UpdateLists(op, state);
  Expect(FindElementwise(op.type) != nullptr, "no rule lets each rank run such an op on its part");
  const Elementwise& kind = *FindElementwise(op.type);
  const Share* first = nullptr;
  int64_t elements = -1;
  std::vector<Var*> vars;
  for (const Op::Arg& arg : op.args) {
    Var* const var = state->VarOf(arg.var);
    vars.push_back(var);
    const auto share = state->shares.find(var);
    if (arg.is_output || share == state->shares.end()) continue;
    if (first == nullptr) first = &share->second, elements = var->elements;
    Expect(var->elements == elements && share->second.parts.size() == first->parts.size(),
           var->name, " has other parts than the shares before it");
    Expect(share->second.kind == kSame, var->name,
           " holds sums, where means are claimed, or what may be infinite");
  }
  const size_t count = first->parts.size();
  const std::vector<std::string_view> attrs = AttrsOf(op.bytes);
  const bool keeps_zeros = first->has_zeros && (op.type == "cast" || op.type == "assign");
  Expect(count > 0, "its shares hold nothing");
  std::vector<std::vector<Part>> values(vars.size());  // of outputs
  for (size_t i = 0; i < count; ++i) {
    const auto does_same = [&](const LeftOut& other) {
      return DoesSame(op, attrs, other, i, state);
    };
    const auto same = FindLeftOut({first->parts[i]}, does_same, state);
    Expect(!kind.needs_whole || first->parts[i].of->elements == elements,
           "it needs whole tensors, and no rank has all of ", first->parts[i].of->name);
    Expect(same != state->left_out.end(), "no op that is left out does the same with ",
           first->parts[i].of->name);
    for (size_t a = 0; a < vars.size(); ++a) values[a].push_back(same->second.args[a]);
    state->left_out.erase(same);
  }
  state->Launch(0);
  for (size_t a = 0; a < vars.size(); ++a) {
    Var* const var = vars[a];
    state->Touch(0, var, op.args[a].is_output);
    if (!op.args[a].is_output) continue;
    if (!Names(kind.numbers, op.args[a].name)) {
      Expect(var->elements == elements, var->name, " has other elements than the share");
      Share& held = Set(var, state);
      held.parts = std::move(values[a]);
      held.has_zeros = keeps_zeros;
      continue;
    }
    if (op.type == kNorm) {
      ExpectZeros(*first, elements, *state);
      Expect(var->of == nullptr && var->parts.empty() && !var->in_buffer &&
                 IsNumber(*var, *values[a][0].of) && state->shares.count(var) == 0,
             var->name, " is no new number");
      state->constants.erase(var);
      state->totals[var] = {std::move(values[a])};
      continue;
    }
    // All are the same function of equal numbers.
    const uint32_t number = ++state->num_numbers;
    bool has_itself = false;
    for (const Part& part : values[a]) {
      has_itself = has_itself || (part.of == var && IsCurrent(part));
      if (IsCurrent(part)) part.of->number = number;
    }
    Expect(has_itself, var->name, " has no number of its own there");
    var->kind = kSame;
    state->totals.erase(var);
  }
}

std::vector<Var*> PackedVars(const Var& buffer, const Var& other, uint64_t times) {
  Expect(!buffer.parts.empty() && IsTimes(buffer, other, times),
         "expected a buffer of tensors, and another variable for its parts");
  std::vector<Var*> vars;
  int64_t end = 0;
  for (const auto& [part, offset] : buffer.parts) {
    Expect(offset == end, part->name, " begins elsewhere in the buffer");
    end += part->elements;
    if (part->of != nullptr) vars.push_back(part);
  }
  // Padding is at the end.
  for (size_t i = 0; i < vars.size(); ++i) {
    Expect(vars[i] == buffer.parts[i].first, vars[i]->name, " comes after padding");
  }
  return vars;
}

void HoldShare(const std::vector<Var*>& vars, const Var& buffer, Kind kind, Var* share,
               State* state) {
  Share& held = Set(share, state);
  held.kind = kind;
  for (const Var* var : vars) {
    Expect(IsTensor(*var->of) && var->dtype == var->of->dtype && var->Dims() == var->of->Dims(),
           var->name, " is no tensor of several elements");
    held.parts.push_back({var->of, var->of->version, 0});
  }
  held.has_zeros = true;
  Expect(!vars.empty(), "the buffer holds nothing");
  for (size_t i = vars.size(); i < buffer.parts.size(); ++i) {
    const auto padding = state->constants.find(buffer.parts[i].first);
    Expect(padding != state->constants.end() && padding->second.is_zero,
           buffer.parts[i].first->name, " is padding, and does not hold 0");
  }
}

void DivideShare(Var* share, State* state) {
  Share& held = ShareOf(*share, state);
  Expect(held.kind == kSum, share->name, " is not to be divided");
  held.kind = kSame;
}

void GatherShare(const Var& share, const Var& buffer, State* state) {
  const Share& held = ShareOf(share, state);
  const size_t count = held.parts.size();
  PackedVars(buffer, share, state->nranks);
  Expect(held.kind == kSame && buffer.parts.size() >= count, buffer.name, " has too few parts");
  for (size_t i = 0; i < buffer.parts.size(); ++i) {
    Var* const var = buffer.parts[i].first;
    var->kind = kLost;
    state->constants.erase(var);
    if (i >= count) continue;
    const Part& part = held.parts[i];
    Expect(IsCurrent(part) && part.of->equal, part.of->name,
           " has another value by now, or may differ between ranks");
    Expect((var->of == var ? var == part.of : true) && var->dtype == part.of->dtype &&
               var->Dims() == part.of->Dims(),
           var->name, " cannot hold ", part.of->name);
    var->of = part.of;
    var->of_version = part.version;
    var->kind = kSame;
    var->form = kWhole;
    var->equal = true;
  }
}

void JoinSums(const Slots& slots) {
  State& state = slots.state;
  Var& out = One(slots.out);
  Sum sum;
  sum.is_whole = std::any_of(slots.in.begin(), slots.in.end(), [&](Var* var) {
    const auto found = state.totals.find(var);
    return found == state.totals.end() || found->second.is_whole;
  });
  for (Var* var : slots.in) {
    const auto found = state.totals.find(var);
    Expect(IsNumber(*var, out), var->name, " is no number like ", out.name);
    if (found == state.totals.end()) {
      Expect(var->kind == kSame, var->name, " holds no current value");
      sum.of.push_back(Held(var));
      continue;
    }
    Expect(found->second.is_whole == sum.is_whole, var->name, " is a part of this rank");
    sum.of.insert(sum.of.end(), found->second.of.begin(), found->second.of.end());
  }
  ExpectFree(out, state);
  out.kind = kLost;
  state.totals[&out] = std::move(sum);
  if (state.totals[&out].is_whole) FindSum(&out, &state);
}

void AddUp(Var* var, State* state) {
  Sum& sum = state->totals[var];
  Expect(!sum.is_whole, var->name, " is added up already");
  sum.is_whole = true;
  var->kind = kLost;
  FindSum(var, state);
}

bool IsAny(const Var& var, const State& state) {
  const auto found = state.totals.find(const_cast<Var*>(&var));
  return found != state.totals.end() && found->second.is_any;
}

void FindAny(Var* any, State* state) {
  Expect(any->dtype == 2, any->name, " is no whole number");
  state->totals[any].is_whole = true;
}

void CastAny(const Var& from, Var* to, State* state) {
  const Sum sum = state->totals[const_cast<Var*>(&from)];
  const Part& made = sum.of[0];
  ExpectFree(*to, *state);
  Expect(to->type == 7 && to->elements == 1 && (to->dtype == 0 || to->dtype == 2), to->name,
         " is no number");
  to->kind = kLost;
  state->totals[to] = sum;
  if (sum.is_whole && to == made.of && IsCurrent(made)) HoldNumber(made, to, state);
}

void SendParts(Var* buffer, Var* out, State* state) {
  const std::vector<Var*> vars = PackedVars(*buffer, *out, 1);
  for (Var* var : vars) {
    Expect(var->of == var && var->kind == kSame && state->HasValue(*var), var->name,
           " has no value");
  }
  Expect(!out->persistable, out->name, " is a state");
  HoldShare(vars, *buffer, kSame, out, state);
  state->shares[out].is_of_ranks = true;
}

void SliceShare(const Slots& slots) {
  Var &x = One(slots.in), &part = One(slots.out);
  Expect(&x != &part, "expected Input and Out");
  const auto found = slots.state.shares.find(&x);
  const auto is = [&](std::string_view attr, int64_t value) {
    return slots.op.Numbers(attr) == std::vector{static_cast<uint64_t>(value)};
  };
  Expect(found != slots.state.shares.end() && found->second.is_of_ranks &&
             IsTimes(x, part, slots.state.nranks) && part.Dims().size() == 1 && is("axes", 0) &&
             is("starts", 0) && is("ends", part.elements),
         "expected the first part of what all ranks sent");
  const std::vector<Part> parts = found->second.parts;
  Set(&part, &slots.state).parts = parts;
}

void FillNew(const Slots& slots) {
  Var& var = One(slots.out);
  const std::vector<int64_t> dims = var.Dims();
  Expect(var.of != &var && var.type == 7 && var.parts.empty() &&
             slots.op.Find("shape") != nullptr &&
             slots.op.Numbers("shape") == std::vector<uint64_t>(dims.begin(), dims.end()) &&
             slots.op.Number("dtype", -1) == var.dtype,
         var.name, " is declared otherwise, or is no new variable");
  var.kind = kLost;
  slots.state.shares.erase(&var);
  slots.state.totals.erase(&var);
  slots.state.constants[&var].is_zero = IsZero(slots.op);
  if (var.persistable) Set(&var, &slots.state).is_zero = IsZero(slots.op);
}

void CheckShares(State* state) {
  const State& main = state->main == nullptr ? *state : *state->main;
  const auto find = [&](const Var* var) {
    const auto found = state->constants.find(const_cast<Var*>(var));
    return found == state->constants.end() ? nullptr : &found->second;
  };
  for (const auto& [name, named] : main.layout) {
    Var* const var = state->VarOf(name);
    const auto share = state->shares.find(var);
    Expect(var->bytes == main.Find(name)->bytes, name,
           " is declared otherwise in the main program");
    Expect(var->persistable && share != state->shares.end() && share->second.kind == kSame &&
               !share->second.is_of_ranks,
           name, " does not hold the parts of its states");
    size_t i = 0;
    for (const State::Named& of : named) {
      if (of.name.empty()) continue;
      Var* const state_of = state->VarOf(of.name);
      if (share->second.is_zero) {
        const Filling* const constant = find(state_of);
        Expect(constant != nullptr && constant->is_zero, of.name, " does not begin with 0, as ",
               name, " does");
        continue;
      }
      const auto& parts = share->second.parts;
      Expect(i < parts.size() && parts[i].of == state_of, name, " holds other parts");
      Expect(IsCurrent(parts[i]), name, " does not hold the part of ", of.name);
      ++i;
      Expect(state->main != nullptr || state_of->equal, of.name, " may differ between ranks");
    }
    Expect(share->second.is_zero || i == share->second.parts.size(), name, " holds other parts");
  }
  for (const auto& [name, names] : main.common) {
    Var* const one = state->VarOf(name);
    for (const std::string_view of : names) {
      Var* const var = state->VarOf(of);
      const Filling *const a = find(one), *const b = find(var);
      const bool are_equal = state->main == nullptr
                                 ? one->number != 0 && one->number == var->number
                                 : a != nullptr && b != nullptr && AttrsOf(a->op) == AttrsOf(b->op);
      Expect(are_equal && one->kind == kSame, name, " does not hold the value of ", of);
      Expect(state->main != nullptr || var->equal, of, " may differ between ranks");
    }
  }
}

std::string SharesOfClaim(const State& main) {
  std::string shares, common;
  for (const auto& [name, named] : main.layout) {
    shares += Text(shares.empty() ? "" : "; ", name, " =");
    for (const State::Named& of : named) {
      if (!of.name.empty()) shares += Text(" ", of.name);
    }
  }
  for (const auto& [name, names] : main.common) {
    common += Text(common.empty() ? "" : "; ", name, " =");
    for (const std::string_view of : names) common += Text(" ", of);
  }
  return Text("- states of which each rank has a part, in order of ranks: ", shares,
              "\n- states that are equal, of which one is kept: ", common.empty() ? "none" : common,
              "\n");
}

}  // namespace checker
