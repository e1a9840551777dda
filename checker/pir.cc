#include "checker/pir.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "checker/json.h"

namespace checker {

const char* const kPirClaim = R"(Assumed of Paddle 3:
- Ops that use one variable, and calls on rings, run in the order of the file.
- Ops whose names end in _ overwrite what is known of them, and other ops overwrite nothing.
- Gradient ops are linear in their last operand of floats; the process has set up the rings.
)";

namespace {

std::vector<int64_t> Integers(std::string_view raw) {
  std::vector<int64_t> integers;
  for (const std::string_view element : Elements(raw)) integers.push_back(IntegerOf(element));
  return integers;
}

using Numbers = std::vector<std::pair<std::string_view, uint64_t>>;
const Numbers kTypes = {{"0.t_bool", 0}, {"0.t_i16", 1},  {"0.t_i32", 2}, {"0.t_i64", 3},
                        {"0.t_f16", 4},  {"0.t_f32", 5},  {"0.t_f64", 6}, {"0.t_ui8", 20},
                        {"0.t_i8", 21},  {"0.t_bf16", 22}};
const Numbers kFloats = {{"float16", 4}, {"float32", 5}, {"float64", 6}, {"bfloat16", 22}};

uint64_t NumberOf(std::string_view name, const Numbers& numbers) {
  for (const auto& [known, number] : numbers) {
    if (name == known) return number;
  }
  return 99;
}

// The type of a value.
struct Tensor {
  Raw raw;
  std::string_view kind;
  uint64_t dtype = 0;
  std::vector<int64_t> dims;
  std::vector<Raw> rest;  // of a dense tensor, what follows dimensions
  Texts of;               // of a list, the types of its elements

  explicit Tensor(std::string_view type) : raw(type) {
    const Members members(raw);
    kind = members.String("#");
    if (IsDense()) {
      const Texts parts = Elements(members.Get("D"));
      Expect(parts.size() >= 2, "a tensor has no dimensions");
      dtype = NumberOf(Members(parts[0], 1).String("#"), kTypes);
      dims = Integers(parts[1]);
      rest.assign(parts.begin() + 2, parts.end());
    }
    of = {raw};
    if (kind != "0.t_vec") return;
    of = Elements(members.Get("D"));
    for (const std::string_view element : of) Tensor{element};
  }
  bool IsDense() const { return kind == "0.t_dtensor"; }
  bool IsFloats() const {
    return IsDense() && (dtype == 4 || dtype == 5 || dtype == 6 || dtype == 22);
  }
  int64_t Size() const {
    int64_t size = IsDense() ? 1 : 0;
    for (const int64_t dim : dims)
      size = dim > 0 && size <= (int64_t{1} << 40) / dim ? size * dim : 0;
    Expect(size > 0, "expected known dimensions");
    return size;
  }
  bool IsLike(const Tensor& other) const {
    return IsDense() && other.IsDense() && rest == other.rest;
  }
};

// A variable of the old format, for a value and for what is made of it in place.
struct Cell {
  std::string name;
  Raw type;
  uint8_t dtype = 0;
  bool is_state = false, is_parameter = false, is_named = false;
  uint32_t age = 0;      // how many new ops have used it up
  Cell* home = nullptr;  // what it has a copy of
  std::vector<Cell*> parts;
};

// What a value is: its variable, when that was young. `twin`: of a value of the original, its
// number; 0: a new one.
struct Ref {
  Cell* cell;
  Raw type;
  uint32_t twin, age;
  bool IsCurrent() const { return age == cell->age; }
};
using Refs = std::vector<Ref*>;

struct Value {
  Ref* only = nullptr;
  std::unique_ptr<Refs> list;  // or several
  uint32_t index = 0;          // of the op that makes it
  bool is_new = false, is_gradient = false, is_constant = false;
  Refs All() const { return list == nullptr ? Refs{only} : *list; }
};
using Values = std::unordered_map<int64_t, Value>;

struct PirOp {
  std::string_view type, base, name, regions = "[]";
  std::vector<int64_t> operands;
  std::vector<std::pair<int64_t, Tensor>> results;
  std::vector<std::pair<std::string_view, std::string_view>> attrs;
  std::vector<std::pair<std::string_view, Raw>> rest;
  std::vector<bool> persistable;
  bool is_trained = false, is_plain = true;

  explicit PirOp(std::string_view op) {
    const Members members(op);
    type = members.String("#");
    base = type.substr(std::min<size_t>(2, type.size()));
    if (InPlace()) base.remove_suffix(1);
    if (members.Has("regions")) regions = members.Get("regions");
    static_cast<void>(Elements(regions));
    for (const auto& [key, value] : members.all) {
      if (key == "I") {
        for (const std::string_view operand : Elements(value)) {
          operands.push_back(IntegerOf(Members(operand, 1).Get("%")));
        }
      } else if (key != "O") {
        Expect(!key.empty(), "a member of an op has no name");
        rest.emplace_back(key, value);
        is_plain = is_plain && (key == "#" || key == "A" || key == "OA");
      }
    }
    const std::string_view all = members.Get("O");
    for (const std::string_view result : type == "p" ? Texts{all} : Elements(all)) {
      const Members made(result, 2);
      results.emplace_back(IntegerOf(made.Get("%")), Tensor(made.Get("TT")));
      rest.emplace_back("", results.back().second.raw);
    }
    if (type == "p") {
      const Texts values = Elements(members.Get("A")), flags = Elements(members.Get("OA"));
      Expect(values.size() == 4 && values[0] == "0" && flags.size() == 3,
             "a parameter is distributed, or not as Paddle writes it");
      name = StringOf(values[3]);
      persistable = {flags[0] == "1"};
      is_trained = flags[2] == "1";
      return;
    }
    for (const auto& [attr, value] : Attrs(members, "A")) {
      for (const auto& [other, unused] : attrs) {
        Expect(other != attr, "an attribute is there twice");
      }
      attrs.emplace_back(attr, value);
      Expect(attrs.size() <= 256, "it has too many attributes");
    }
    for (const auto& [attr, value] : Attrs(members, "OA")) {
      if (attr != "persistable") continue;
      persistable.clear();
      for (const std::string_view flag : Elements(Members(value).Get("D"))) {
        persistable.push_back(Members(flag).Get("D") == "true");
      }
    }
    persistable.resize(std::max(persistable.size(), results.size()));
  }
  bool InPlace() const { return type.size() > 2 && type.back() == '_'; }
  bool IsAnyOf(std::string_view types) const {
    return types.find(Text(" ", type, " ")) != types.npos && type.find(' ') == type.npos;
  }
  const std::string_view* Find(std::string_view attr) const {
    for (const auto& [known, value] : attrs) {
      if (known == attr) return &value;
    }
    return nullptr;
  }
  // The value of an attribute, of any type if that is empty.
  std::string_view Get(std::string_view attr, std::string_view kind = "") const {
    const std::string_view* const found = Find(attr);
    Expect(found != nullptr, "attribute ", attr, " is missing");
    const Members members(*found);
    Expect(kind.empty() || (members.all.size() == 2 && members.String("#") == kind), "attribute ",
           attr, " has another type");
    return members.Get("D");
  }

 private:
  static std::vector<std::pair<std::string_view, std::string_view>> Attrs(const Members& members,
                                                                          std::string_view key) {
    std::vector<std::pair<std::string_view, std::string_view>> attrs;
    if (!members.Has(key)) return attrs;
    for (const std::string_view attr : Elements(members.Get(key))) {
      const Members one(attr, 2);
      attrs.emplace_back(one.String("N"), one.Get("AT"));
    }
    return attrs;
  }
};

constexpr std::string_view kConstants = " 1.full 1.full_int_array ";
// Sums and copies: of gradients, they are gradients.
constexpr std::string_view kSums =
    " 1.add_n 1.add 1.cast 1.scale 1.assign 1.concat 1.stack 1.flip 0.combine 0.split ";
// Of each op in place, for each result the operand whose memory it has; -: memory of its own.
constexpr std::pair<std::string_view, std::string_view> kInPlace[] = {
    {"adadelta", "0235"},
    {"adagrad", "024"},
    {"adam", "0345678"},
    {"adamax", "0346"},
    {"adamw", "0345678"},
    {"asgd", "0346"},
    {"assign_out", "1"},
    {"assign_value", "0"},
    {"average_accumulates", "123456"},
    {"batch_norm", "-12---"},
    {"check_finite_and_unscale", "0-"},
    {"increment", "0"},
    {"lamb", "034567"},
    {"lars_momentum", "024"},
    {"momentum", "024"},
    {"nadam", "0345678"},
    {"radam", "0345678"},
    {"rmsprop", "03156"},
    {"rprop", "0234"},
    {"scale", "0"},
    {"set_value", "0"},
    {"set_value_with_tensor", "0"},
    {"sgd", "03"},
    {"share_data", "0"},
    {"update_loss_scaling", "0234"},
};

bool IsBinder(std::string_view type) {
  return type == "0.set_parameter" || type == "0.shadow_output";
}
std::string_view BoundName(const PirOp& op) {
  Expect(op.operands.size() == 1 && op.results.empty(), "expected one value, for a state");
  const std::string_view name =
      StringOf(op.Get(op.type == "0.set_parameter" ? "parameter_name" : "output_name", "0.a_str"));
  Expect(!name.empty() && name[0] != '%', "the name of a state begins with %");
  return name;
}

// The old format.
std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value > 127; value >>= 7) bytes += static_cast<char>((value & 127) | 128);
  return bytes + static_cast<char>(value);
}
std::string Put(uint64_t field, uint64_t value) { return Varint(field << 3) + Varint(value); }
std::string Put(uint64_t field, std::string_view bytes) {
  return Text(Varint(field << 3 | 2), Varint(bytes.size()), bytes);
}
std::string PutAttr(std::string_view name, uint64_t type, const std::string& value) {
  return Put(4, Text(Put(1, name), Put(2, type), value));
}
std::string IntAttr(std::string_view name, int64_t value) {
  return PutAttr(name, Attr::kLong, Put(13, static_cast<uint64_t>(value)));
}
std::string BoolAttr(std::string_view name, bool value) {
  return PutAttr(name, Attr::kBool, Put(10, value ? 1 : 0));
}
std::string TextAttr(std::string_view name, std::string_view value) {
  return PutAttr(name, Attr::kString, Put(5, value));
}
std::string FloatAttr(std::string_view name, double value) {
  const auto number = static_cast<float>(value);
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &number, 4);
  return PutAttr(name, Attr::kFloat, Varint(4 << 3 | 5) + bytes);
}
// field: 1 of inputs, 2 of outputs.
std::string Slot(uint64_t field, std::string_view name, const std::vector<Cell*>& cells) {
  std::string slot = Put(1, name);
  for (const Cell* cell : cells) slot += Put(2, cell->name);
  return Put(field, slot);
}

// The only block of a region.
Members BlockOf(std::string_view region) {
  const Members of(region, 2);
  const Texts blocks = Elements(of.Get("blocks"));
  Expect(of.Has("#") && blocks.size() == 1, "expected one block");
  Members block(blocks[0], 3);
  Expect(block.Has("#"), "a block has another member");
  return block;
}

struct PirFile {
  Texts ops;
  Raw base_code;
  std::string_view setting;

  explicit PirFile(std::string_view text) {
    const Members file(Json::Checked(text));
    Expect(file.all.size() == (file.Has("weft_setting") ? 3 : 2), "the file has another member");
    base_code = file.Get("base_code");
    if (file.Has("weft_setting")) setting = file.Get("weft_setting");
    const Members code(base_code);
    const std::string_view version = code.Get("version");
    Expect(code.Get("magic") == "\"pir\"" && code.Get("trainable") == "true" &&
               version.size() == 1 && version >= "1" && version <= "4",
           "expected PIR of versions 1 to 4, for training");
    const Texts regions = Elements(Members(file.Get("program"), 1).Get("regions"));
    Expect(regions.size() == 1, "expected one block");
    const Members block = BlockOf(regions[0]);
    Expect(Elements(block.Get("args")).empty(), "expected a block without arguments");
    ops = Elements(block.Get("ops"));
  }
};

// An original and its result, in the old format.
class Pair {
 public:
  Pair(std::string_view original, std::string_view result, bool is_startup)
      : is_startup_(is_startup) {
    const PirFile was(original), now(result);
    Expect(was.base_code == now.base_code, "the result has another version");
    setting_ = now.setting;
    ReadOps(was.ops, &kept_, &bound_);
    ReadOps(now.ops, &ops_, &new_bound_);
    for (const auto& [name, op] : bound_) {
      const bool is_new = names_.emplace(PirOp(op.first).operands[0], name).second;
      Expect(is_new, "two states are set to one value");
    }
  }

  // One step. The original is at `kept`, the result at `index`.
  void Step(bool is_new) {
    Expect(index_ < ops_.size() && (is_new || next_kept_ < kept_.size()),
           "proof.txt: a program has no further op");
    const PirOp op(ops_[index_]);
    is_new_ = is_new;
    try {
      is_new ? AddNew(op) : Keep(PirOp(kept_[next_kept_]), op);
    } catch (const Failure& failure) {
      Fail("op ", std::to_string(index_), " (", op.type, "): ", failure.why);
    }
    next_kept_ += is_new ? 0 : 1;
    ++index_;
  }

  // After the last step. Adds the steps of the translation to the proof.
  void Finish(std::string* proof, std::string* original, std::string* result) {
    Expect(index_ == ops_.size() && next_kept_ == kept_.size(),
           "proof.txt: it leaves out the last ops");
    Expect(bound_.size() == new_bound_.size(), "the result sets other states");
    for (const auto& [name, op] : new_bound_) {
      const auto before = bound_.find(name);
      Expect(before != bound_.end(), "the result sets other states");
      const Ref &was = *BoundValue(was_, before->second), &now = *BoundValue(now_, op);
      Expect(PirOp(op.first).rest == PirOp(before->second.first).rest && now.IsCurrent() &&
                 now.cell->name == name && was.cell == now.cell,
             "the result sets ", name, " to another value");
    }
    std::string first;  // names the gradients; nothing else
    if (!is_startup_) first = Gradients(), *proof += "=1\n";
    *proof += steps_;
    Values().swap(was_), Values().swap(now_);
    refs_.clear(), cells_.clear();
    *original = Program({&decls_, &first, &kept_bytes_});
    std::string().swap(kept_bytes_);
    *result = Program({&decls_, &new_decls_, &first, &new_bytes_}) + Put(1001, setting_);
  }

 private:
  std::string Program(std::initializer_list<const std::string*> parts) const {
    const std::string begin = Put(1, uint64_t{0}) + Put(2, ~uint64_t{0});
    size_t size = begin.size();
    for (const std::string* part : parts) size += part->size();
    std::string program = Text(Varint(1 << 3 | 2), Varint(size), begin);
    program.reserve(size + 64 + setting_.size());
    for (const std::string* part : parts) program += *part;
    program += Put(4, Put(1, uint64_t{3000000}));
    return program;
  }

  using Bound = std::map<std::string_view, std::pair<std::string_view, size_t>>;

  void ReadOps(const Texts& all, Texts* ops, Bound* bound) {
    for (const std::string_view raw : all) {
      if (!IsBinder(Members(raw).String("#"))) {
        ops->push_back(raw);
        continue;
      }
      Expect(is_startup_ &&
                 bound->emplace(BoundName(PirOp(raw)), std::make_pair(raw, ops->size())).second,
             "a state is set twice, or in the main program");
    }
  }

  // Values.

  const Value& Find(const Values& values, int64_t number) const {
    const auto found = values.find(number);
    Expect(found != values.end(), "no op before it makes %", std::to_string(number));
    return found->second;
  }
  Ref* One(const Values& values, int64_t number) const {
    const Value& value = Find(values, number);
    Expect(value.list == nullptr, "%", std::to_string(number), " is a list");
    return value.only;
  }
  Ref* BoundValue(const Values& values, const std::pair<std::string_view, size_t>& binder) const {
    const int64_t number = PirOp(binder.first).operands[0];
    Expect(Find(values, number).index < binder.second, "no op before it makes %",
           std::to_string(number));
    return One(values, number);
  }
  Value& Define(Values* values, int64_t number, Refs refs, bool is_list) {
    const auto [entry, is_new] = values->try_emplace(number);
    Value& value = entry->second;
    Expect(is_new && (number > 0 || (number < 0 && in_block_)), "%", std::to_string(number),
           " is made twice");
    if (is_list) {
      value.list = std::make_unique<Refs>(std::move(refs));
    } else {
      value.only = refs[0];
    }
    value.index = static_cast<uint32_t>(values == &was_ ? next_kept_ : index_);
    value.is_new = is_new_;
    return value;
  }
  Ref* NewRef(Cell* cell, std::string_view type, uint32_t twin) {
    return &refs_.emplace_back(Ref{cell, type, twin, cell->age});
  }
  // Declares it, too.
  Cell* NewCell(const std::string& name, const Tensor& tensor, bool is_state, bool is_data,
                std::string* decls) {
    Expect(!is_state || tensor.IsDense(), "a state is no dense tensor");
    Cell* const cell = &cells_.emplace_back(Cell());
    cell->name = name;
    cell->type = tensor.raw;
    cell->dtype = static_cast<uint8_t>(tensor.dtype);
    cell->is_state = is_state;
    std::string described = Put(1, uint64_t{9});
    if (tensor.IsDense()) {
      std::string shape = Put(1, tensor.dtype);
      for (const int64_t dim : tensor.dims) shape += Put(2, static_cast<uint64_t>(dim));
      described = Put(1, uint64_t{7}) + Put(3, Put(1, shape));
    }
    *decls += Put(3, Text(Put(1, name), Put(2, described), Put(3, uint64_t{is_state}),
                          Put(4, uint64_t{is_data})));
    return cell;
  }
  // Ops of the original.

  void Keep(const PirOp& was, const PirOp& now) {
    Expect(was.rest == now.rest && was.operands.size() == now.operands.size() &&
               was.results.size() == now.results.size(),
           "the op of the original is another one");
    if (was.type == "p" || was.type == "1.data") return KeepData(was, now);
    const Texts regions = Elements(was.regions);
    Expect(regions.empty() || was.type == "1.if" || was.type == "1.while",
           "no certificate for such ops with blocks");
    if (was.type == "0.combine" || was.type == "0.split") {
      AddList(was, &was_);
      AddList(now, &now_);
      return Note(was);
    }
    Expect(was.type.substr(0, 2) == "1.", "no certificate for such ops");
    std::vector<std::vector<Cell*>> inputs;
    for (size_t i = 0; i < was.operands.size(); ++i) {
      inputs.push_back(Read(was.operands[i], now.operands[i]));
    }
    for (const std::string_view region : regions) inputs.push_back(KeepBlock(region, was, inputs));
    std::string_view places;
    if (was.InPlace()) {
      Expect(!in_block_, "an op in a block writes in place");
      places = PirInPlace(was.base);
      Expect(!places.empty(), "it is not known what this op does in place");
      Expect(places.size() == was.results.size(), "it has other results than known");
    }
    std::string outputs;
    const bool is_gradient = IsGradientOp(was);
    for (size_t i = 0; i < was.results.size(); ++i) {
      const auto& [number, tensor] = was.results[i];
      if (tensor.kind == "NULL") continue;
      std::vector<Cell*> cells;
      if (i < places.size() && places[i] != '-') {
        const size_t place = static_cast<size_t>(places[i] - '0');
        Expect(place < inputs.size() && inputs[place].size() == tensor.of.size(),
               "it writes in place what it does not have");
        cells = inputs[place];
        for (Cell* cell : cells) {
          if (!cell->is_parameter) continue;
          updates_.insert(static_cast<uint32_t>(next_kept_));
          if (!cell->is_named) parameters_.push_back(cell);
          cell->is_named = true;
        }
      } else {
        const auto bound = names_.find(number);
        const std::string name =
            bound != names_.end() ? std::string(bound->second) : Text("%", std::to_string(number));
        const bool is_list = tensor.kind == "0.t_vec";
        for (size_t k = 0; k < tensor.of.size(); ++k) {
          cells.push_back(NewCell(is_list ? Text(name, ".", std::to_string(k)) : name,
                                  Tensor(tensor.of[k]), was.persistable[i], false, &decls_));
        }
      }
      outputs += Slot(2, Text("O", std::to_string(i), is_gradient ? "@GRAD" : ""), cells);
      DefineKept(number, now.results[i].first, tensor, cells);
    }
    Note(was);
    EmitKept(was, inputs, outputs);
  }

  // Ops in blocks, which are the same text, as if each ran once: what an op with blocks does is a
  // function of what they read. Returns what they give back.
  std::vector<Cell*> KeepBlock(std::string_view region, const PirOp& op,
                               const std::vector<std::vector<Cell*>>& inputs) {
    std::vector<Cell*> given;
    const bool was_in_block = std::exchange(in_block_, true);
    const Members block = BlockOf(region);
    for (const std::string_view arg : Elements(block.Get("args"))) {
      const Members members(arg, 2);
      const int64_t number = IntegerOf(members.Get("#"));
      const Tensor tensor(members.Get("TT"));
      Expect(tensor.kind != "0.t_vec", "an argument of a block is a list");
      given.push_back(NewCell(Text("%", std::to_string(number)), tensor, false, false, &decls_));
      DefineKept(number, number, tensor, {given.back()});
      was_[number].index = static_cast<uint32_t>(next_kept_);
    }
    if (!given.empty()) EmitKept(op, inputs, Slot(2, "O", given));
    for (const std::string_view raw : Elements(block.Get("ops"))) {
      const PirOp inner(raw);
      if (inner.type != "2.yield") {
        Keep(inner, inner);
        continue;
      }
      for (const int64_t operand : inner.operands) {
        for (Cell* cell : Read(operand, operand)) given.push_back(cell);
      }
    }
    in_block_ = was_in_block;
    return given;
  }

  void KeepData(const PirOp& was, const PirOp& now) {
    Expect(!in_block_, "a state is made in a block");
    const std::string_view name = was.type == "p" ? was.name : StringOf(was.Get("name", "0.a_str"));
    Expect(!name.empty() && name[0] != '%' && was.results.size() == 1 && was.operands.empty(),
           "a state has no proper name, or no value");
    const auto& [number, tensor] = was.results[0];
    Cell* const cell =
        NewCell(std::string(name), tensor, was.persistable[0], !was.persistable[0], &decls_);
    cell->is_parameter = was.type == "p" && was.is_trained;
    Expect(tensor.kind != "0.t_vec", "a state is a list");
    DefineKept(number, now.results[0].first, tensor, {cell});
    Note(was);
  }

  void DefineKept(int64_t number, int64_t new_number, const Tensor& tensor,
                  const std::vector<Cell*>& cells) {
    Refs was, now;
    for (size_t i = 0; i < cells.size(); ++i) {
      ++last_twin_;
      was.push_back(NewRef(cells[i], tensor.of[i], last_twin_));
      now.push_back(NewRef(cells[i], tensor.of[i], last_twin_));
    }
    const bool is_list = tensor.kind == "0.t_vec";
    Define(&was_, number, std::move(was), is_list);
    Define(&now_, new_number, std::move(now), is_list);
  }

  // 0.combine and 0.split: the elements of a list are values, too.
  void AddList(const PirOp& op, Values* values) {
    const bool combines = op.type == "0.combine";
    Expect(!op.operands.empty() &&
               (combines ? op.results.size() == 1 && op.results[0].second.kind == "0.t_vec"
                         : op.operands.size() == 1),
           "a list lacks elements");
    Refs refs;
    for (const int64_t operand : op.operands) {
      if (combines)
        refs.push_back(One(*values, operand));
      else
        refs = Find(*values, operand).All();
    }
    std::vector<Raw> types;
    for (const auto& [number, tensor] : op.results) types.push_back(tensor.raw);
    if (combines) {
      const Texts& of = op.results[0].second.of;
      types.assign(of.begin(), of.end());
    }
    Expect(types.size() == refs.size(), "a list has another length");
    for (size_t i = 0; i < refs.size(); ++i) {
      Expect(types[i] == refs[i]->type || Tensor(types[i]).kind == "NULL",
             "a list has other types than its elements");
    }
    for (size_t i = 0; i < op.results.size(); ++i) {
      if (op.results[i].second.kind == "NULL") continue;
      Define(values, op.results[i].first, combines ? refs : Refs{refs[i]}, combines);
    }
  }

  // Of an operand that is the same in both.
  std::vector<Cell*> Read(int64_t a, int64_t b) {
    std::vector<Cell*> cells;
    Expect((a == 0) == (b == 0), "an operand is missing");
    if (a == 0) return cells;
    const Value &list = Find(was_, a), &new_list = Find(now_, b);
    const Refs was = list.All(), now = new_list.All();
    Expect(!was.empty(), "it reads an empty list");
    Expect(was.size() == now.size() && (list.list == nullptr) == (new_list.list == nullptr),
           "a list has other elements");
    for (size_t i = 0; i < was.size(); ++i) {
      Expect(now[i]->IsCurrent(), "it reads %", std::to_string(b), ", which a new op has used");
      // From now on, a new value stands for the one of the original that it is read for first. What
      // an op in place made later of the same variable is that variable, too, with more order.
      if (now[i]->twin == 0) now[i]->twin = was[i]->twin;
      Expect(was[i]->cell == now[i]->cell && now[i]->twin >= was[i]->twin &&
                 was[i]->type == now[i]->type,
             "it reads %", std::to_string(b), ", and not what the original reads");
      cells.push_back(was[i]->cell);
    }
    return cells;
  }

  static bool IsGradientOp(const PirOp& op) {
    constexpr std::string_view kEnd = "_grad";
    return op.base.size() >= kEnd.size() && op.base.substr(op.base.size() - kEnd.size()) == kEnd;
  }

  void EmitKept(const PirOp& op, const std::vector<std::vector<Cell*>>& inputs,
                const std::string& outputs) {
    const std::string_view type = op.base == "share_data" ? "assign"
                                  : op.base == "add_n"    ? "sum"
                                  : op.base == "add"      ? "elementwise_add"
                                  : op.base == "subtract" ? "elementwise_sub"
                                                          : op.base;
    size_t gradient = inputs.size();  // the operand that is one
    for (size_t i = 0; i < inputs.size() && IsGradientOp(op); ++i) {
      const bool has_floats = std::any_of(inputs[i].begin(), inputs[i].end(), [](const Cell* cell) {
        return Tensor(cell->type).IsFloats();
      });
      if (has_floats && !Find(was_, op.operands[i]).is_constant) gradient = i;
    }
    std::string bytes;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool is_factor = i == 1 && (type == "scale" || type == "concat");
      bytes += Slot(1,
                    i == gradient ? "Out@GRAD"
                    : is_factor   ? "ScaleTensor"
                                  : Text("I", std::to_string(i)),
                    inputs[i]);
    }
    bytes += outputs + Put(3, type);
    for (const auto& [name, value] : op.attrs) {
      if (name.find("seed") != name.npos || name.find("Seed") != name.npos) {
        bytes += IntAttr(name, 0);
      } else if (name == "ring_id") {
        bytes += IntAttr(name, IntegerOf(op.Get(name)));
      } else if (name == "ring_ids") {
        bytes += PutAttr(name, Attr::kInts, "");
      } else if (name == "execution_stream") {
        bytes += TextAttr(name, StringOf(op.Get(name)));
      } else if (name == "bias" && type == "scale") {
        bytes += FloatAttr(name, DoubleOf(op.Get(name)));
      }
    }
    bytes = Put(4, bytes);
    kept_bytes_ += bytes;
    new_bytes_ += bytes;
    steps_ += "=1\n";
  }

  // Gradients.

  // Which values are gradients: results of gradient ops, and sums of such results alone.
  void Note(const PirOp& op) {
    bool is_sum = op.IsAnyOf(kSums), has_any = false;
    for (const int64_t operand : op.operands) {
      if (operand == 0) continue;
      const Value& value = Find(was_, operand);
      is_sum = is_sum && (value.is_constant || value.is_gradient);
      has_any = has_any || value.is_gradient;
    }
    for (const auto& [number, tensor] : op.results) {
      if (tensor.kind == "NULL") continue;
      Value& value = was_[number];
      value.is_gradient = IsGradientOp(op) || (is_sum && has_any);
      value.is_constant = op.IsAnyOf(kConstants);
    }
  }

  // Of each parameter that an op writes: the gradients that its operands come from, without others
  // between. An op that says so.
  std::string Gradients() {
    std::vector<uint32_t> todo(updates_.begin(), updates_.end());  // ops
    std::vector<bool> seen(kept_.size());
    std::vector<Cell*> gradients;
    while (!todo.empty()) {
      const PirOp op(kept_[todo.back()]);
      todo.pop_back();
      for (const int64_t operand : op.operands) {
        if (operand == 0) continue;
        const Value& value = Find(was_, operand);
        if (!value.is_gradient) {
          if (!seen[value.index]) todo.push_back(value.index);
          seen[value.index] = true;
          continue;
        }
        for (const Ref* ref : value.All()) {
          if (!ref->cell->is_named) gradients.push_back(ref->cell);
          ref->cell->is_named = true;
        }
      }
    }
    Expect(!parameters_.empty() && !gradients.empty(), "no op writes a parameter by a gradient");
    std::string names;
    for (size_t i = 0; i < std::max(parameters_.size(), gradients.size()); ++i) {
      names += Put(8, parameters_[std::min(i, parameters_.size() - 1)]->name);
      names += Put(8, gradients[std::min(i, gradients.size() - 1)]->name);
    }
    return Put(4, Text(Put(3, "gradients"), PutAttr("op_role", Attr::kInt, Put(3, uint64_t{1})),
                       PutAttr("op_role_var", Attr::kStrings, names)));
  }

  // New ops. Each uses up what it reads: its result takes over the variable.

  Ref* Take(Ref* ref) {
    Expect(ref->IsCurrent(), "it reads ", ref->cell->name, ", which a new op has used");
    ++ref->cell->age;
    return ref;
  }
  void Give(const PirOp& op, Cell* cell) {
    Define(&now_, op.results[0].first, {NewRef(cell, op.results[0].second.raw, 0)}, false);
  }
  // The only value of the first operand, of an op with one result.
  Ref* TakeX(const PirOp& op, size_t operands) {
    Expect(op.operands.size() == operands && op.results.size() == 1,
           "it has other operands or results");
    return Take(One(now_, op.operands[0]));
  }
  std::vector<Cell*> TakeList(const PirOp& op, size_t operands) {
    Expect(op.operands.size() == operands && op.results.size() == 1 && op.attrs.empty(),
           "it has other operands, results or attributes");
    const Value& list = Find(now_, op.operands[0]);
    Expect(list.is_new && Members(ops_[list.index]).String("#") == "0.combine",
           "its operand is no new list");
    std::vector<Cell*> cells;
    for (Ref* ref : list.All()) cells.push_back(Take(ref)->cell);
    return cells;
  }
  void EmitNew(std::string_view type, const std::string& slots, const std::string& attrs) {
    new_bytes_ += Put(4, Text(slots, Put(3, type), attrs));
    steps_ += "+1\n";
  }
  // The data orders ops: it does not matter on which stream they are.
  static std::string AttrsOf(const PirOp& op) {
    std::string attrs = op.Find("ring_id") == nullptr ? "" : BoolAttr("use_calc_stream", true);
    for (const auto& [name, raw] : op.attrs) {
      const Members members(raw, 2);
      const std::string_view type = members.String("#"), value = members.Get("D");
      const bool is_float = type == "0.a_f32" || type == "0.a_f64";
      Expect(is_float || type == "0.a_i32" || type == "0.a_i64" || type == "0.a_bool" ||
                 type == "0.a_str",
             "no rule allows attribute ", name);
      if (name == "execution_stream" || name == "scheduling_priority") continue;
      attrs += is_float             ? FloatAttr(name, DoubleOf(value))
               : type == "0.a_bool" ? BoolAttr(name, value == "true")
               : type == "0.a_str"  ? TextAttr(name, StringOf(value))
                                    : IntAttr(name, IntegerOf(value));
    }
    return attrs;
  }

  const PirOp Constant(int64_t number, const char* type) const {
    const Value& value = Find(now_, number);
    const PirOp op(ops_[value.index]);
    Expect(value.is_new && op.type == type, "%", std::to_string(number),
           " is no new constant of type ", type);
    return op;
  }
  // Its type and its value.
  std::pair<std::string_view, double> ScalarOf(int64_t number) const {
    const PirOp op = Constant(number, "1.full");
    Expect(op.attrs.size() == 4 && op.Find("place") != nullptr &&
               op.results[0].second.dims == std::vector<int64_t>{1} &&
               Elements(op.Get("shape", "1.a_intarray")) == Texts{"1"},
           "expected a constant of one element");
    return {StringOf(op.Get("dtype", "1.a_dtype")), DoubleOf(op.Get("value", "0.a_f64"))};
  }
  void CheckAxis(int64_t number) const {
    const auto [dtype, axis] = ScalarOf(number);
    Expect(dtype == "int32" && axis == 0, "expected axis 0");
  }
  std::vector<int64_t> IntegersOf(int64_t number) const {
    const PirOp op = Constant(number, "1.full_int_array");
    Expect(op.attrs.size() == 3 && op.Find("place") != nullptr &&
               op.Get("dtype", "1.a_dtype") == "\"int64\"",
           "expected whole numbers");
    std::vector<int64_t> integers;
    for (const std::string_view element : Elements(op.Get("value", "0.a_array"))) {
      const Members one(element, 2);
      Expect(one.Get("#") == "\"0.a_i64\"", "expected whole numbers");
      integers.push_back(IntegerOf(one.Get("D")));
    }
    return integers;
  }

  void AddNew(const PirOp& op) {
    static constexpr std::pair<std::string_view, void (Pair::*)(const PirOp&)> kRules[] = {
        {" 1.full 1.full_int_array ", &Pair::AddConstant},
        {" 0.combine 0.split ", &Pair::AddNewList},
        {" 1.all_reduce 1.all_reduce_ 1.broadcast 1.broadcast_ 1.scale 1.scale_ ",
         &Pair::AddInPlace},
        {" 1.cast ", &Pair::AddCast},
        {" 1.reshape ", &Pair::AddReshape},
        {" 1.concat ", &Pair::AddConcat},
        {" 1.split ", &Pair::AddSplit},
        {" 1.all_gather ", &Pair::AddGather},
        {" 1.split_with_num ", &Pair::AddParts},
        {" 1.add_n ", &Pair::AddSum},
    };
    for (const auto& [types, add] : kRules) {
      if (op.IsAnyOf(types) && op.is_plain && !op.results.empty()) return (this->*add)(op);
    }
    Fail("no rule inserts such an op");
  }

  void AddConstant(const PirOp& op) {  // of which the op that reads it asks more
    Expect(op.operands.empty() && op.results.size() == 1, "expected a constant");
    const int64_t number = op.results[0].first;
    Define(&now_, number, {}, true);
    if (op.type == "1.full") {
      ScalarOf(number);
    } else {
      IntegersOf(number);
    }
  }

  void AddNewList(const PirOp& op) {
    Expect(op.attrs.empty(), "no rule allows its attributes");
    AddList(op, &now_);
  }

  void AddInPlace(const PirOp& op) {
    const bool scales = op.base == "scale";
    const Ref* const x = TakeX(op, scales ? 2 : 1);
    Cell* const cell = x->cell;
    Expect(x->type == op.results[0].second.raw, "its result has another type");
    Expect(!cell->is_state || (op.persistable[0] && (is_startup_ || op.InPlace())), cell->name,
           " is a state, and its result is not");
    std::string attrs = AttrsOf(op);
    if (scales) {
      const auto [dtype, factor] = ScalarOf(op.operands[1]);
      Expect(dtype == "float32", "expected a constant to scale by");
      attrs += FloatAttr("scale", factor);
    }
    EmitNew(op.base, Slot(1, "X", {cell}) + Slot(2, "Out", {cell}), attrs);
    Give(op, cell);
  }

  Cell* AddCell(const Tensor& tensor, Cell* home) {
    Cell* const cell =
        NewCell(Text("%new.", std::to_string(num_new_++)), tensor, false, false, &new_decls_);
    cell->home = home;
    return cell;
  }
  // For what a cell has, in another type.
  Cell* AddLike(Cell* cell, uint64_t dtype) {
    Tensor tensor(cell->type);
    tensor.dtype = dtype;
    Cell* const like = AddCell(tensor, cell->home == nullptr ? cell : cell->home);
    like->dtype = dtype;
    return like;
  }
  void Coalesce(Cell* cell, std::vector<Cell*> parts, bool copies) {
    EmitNew("coalesce_tensor",
            Slot(1, "Input", parts) + Slot(2, "Output", parts) + Slot(2, "FusedOutput", {cell}),
            BoolAttr("copy_data", copies) + BoolAttr("use_align", false) +
                IntAttr("dtype", static_cast<int64_t>(cell->dtype)));
    cell->parts = std::move(parts);
  }

  void AddCast(const PirOp& op) {
    const Ref* const x = TakeX(op, 1);
    const Tensor from(x->type), to = op.results[0].second;
    Expect(op.attrs.size() == 1 && from.IsLike(to) && from.dims == to.dims,
           "its result has another type");
    Cell* target = x->cell->home;
    if (target == nullptr || target->dtype != to.dtype) {
      target = AddLike(x->cell, to.dtype);
      std::vector<Cell*> parts;
      for (Cell* part : x->cell->parts) parts.push_back(AddLike(part, to.dtype));
      if (!parts.empty()) Coalesce(target, parts, false);
    }
    const uint64_t dtype = NumberOf(StringOf(op.Get("dtype", "1.a_dtype")), kFloats);
    EmitNew("cast", Slot(1, "X", {x->cell}) + Slot(2, "Out", {target}),
            IntAttr("in_dtype", static_cast<int64_t>(from.dtype)) +
                IntAttr("out_dtype", static_cast<int64_t>(dtype)));
    Give(op, target);
  }

  void AddReshape(const PirOp& op) {
    const Ref* const x = TakeX(op, 2);
    const Tensor from(x->type), &to = op.results[0].second;
    Expect(op.attrs.empty() && from.IsLike(to) && from.dtype == to.dtype &&
               from.Size() == to.Size() && IntegersOf(op.operands[1]) == to.dims &&
               x->cell->parts.empty(),
           "it is no reshape");
    Give(op, x->cell);
  }

  void AddConcat(const PirOp& op) {
    const std::vector<Cell*> parts = TakeList(op, 2);
    const Tensor& to = op.results[0].second;
    CheckAxis(op.operands[1]);
    int64_t size = 0;
    for (const Ref* ref : Find(now_, op.operands[0]).All()) {
      const Tensor part(ref->type);
      Expect(part.IsLike(to) && part.dtype == to.dtype && part.dims.size() == 1 &&
                 ref->cell->parts.empty(),
             "its parts have other types");
      size += part.Size();
    }
    Expect(to.dims == std::vector<int64_t>{size}, "its result has another type");
    Cell* const cell = AddCell(to, nullptr);
    Coalesce(cell, parts, true);
    Give(op, cell);
  }

  void AddSplit(const PirOp& op) {
    const Ref* const x = TakeX(op, 3);
    CheckAxis(op.operands[2]);
    const std::vector<Cell*>& parts = x->cell->parts;
    const std::vector<int64_t> sizes = IntegersOf(op.operands[1]);
    const auto& [number, list] = op.results[0];
    Expect(op.attrs.empty() && !parts.empty() && list.kind == "0.t_vec" &&
               sizes.size() == parts.size() && list.of.size() == parts.size(),
           "it takes apart what no concat made");
    const Tensor whole(x->type);
    Refs refs;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Tensor part(list.of[i]);
      Expect(sizes[i] == Tensor(parts[i]->type).Size() &&
                 part.dims == std::vector<int64_t>{sizes[i]} && part.IsLike(whole) &&
                 part.dtype == whole.dtype,
             "it takes apart other parts than were concatenated");
      refs.push_back(NewRef(parts[i], list.of[i], 0));
    }
    Define(&now_, number, std::move(refs), true);
  }

  void AddGather(const PirOp& op) {
    const Ref* const x = TakeX(op, 1);
    const Tensor& to = op.results[0].second;
    Expect(x->cell->home == nullptr && x->type == x->cell->type && Tensor(x->type).IsLike(to),
           "it gathers another value than a gradient");
    Cell* const cell = AddCell(to, x->cell);
    EmitNew("all_gather", Slot(1, "X", {x->cell}) + Slot(2, "Out", {cell}), AttrsOf(op));
    Give(op, cell);
  }

  void AddParts(const PirOp& op) {
    const Ref* const x = TakeX(op, 2);
    CheckAxis(op.operands[1]);
    const auto& [number, list] = op.results[0];
    Cell* const home = x->cell->home;
    Expect(home != nullptr && x->type == x->cell->type && list.kind == "0.t_vec",
           "it takes apart what was not gathered");
    std::vector<Cell*> cells;
    Refs refs;
    for (const Raw type : list.of) {
      Expect(type == home->type, "a part has another type than what was gathered");
      cells.push_back(AddCell(Tensor(type), home));
      refs.push_back(NewRef(cells.back(), type, 0));
    }
    EmitNew("split", Slot(1, "X", {x->cell}) + Slot(2, "Out", cells), AttrsOf(op));
    Define(&now_, number, std::move(refs), true);
  }

  void AddSum(const PirOp& op) {
    const std::vector<Cell*> parts = TakeList(op, 1);
    Cell* const home = parts[0]->home;
    Expect(home != nullptr && op.results[0].second.raw == home->type,
           "it sums other values than gathered ones");
    for (const Ref* ref : Find(now_, op.operands[0]).All()) {
      Expect(ref->type == home->type, "it sums values of other types");
    }
    EmitNew("sum", Slot(1, "X", parts) + Slot(2, "Out", {home}), "");
    Give(op, home);
  }

  const bool is_startup_;
  std::string_view setting_;
  Texts kept_, ops_;  // but for those that set states
  size_t next_kept_ = 0, index_ = 0, num_new_ = 0;
  Bound bound_, new_bound_;  // states: the ops that set them, and how many ops are before
  std::unordered_map<int64_t, std::string_view> names_;  // of values that are states
  std::deque<Cell> cells_;
  std::deque<Ref> refs_;
  Values was_, now_;
  uint32_t last_twin_ = 0;
  bool is_new_ = false, in_block_ = false;  // the op at hand
  std::vector<Cell*> parameters_;           // that ops write
  std::set<uint32_t> updates_;              // these ops
  std::string decls_, new_decls_, kept_bytes_, new_bytes_, steps_;
};

// Follows steps to the end of the proof or to "startup": true.
bool Translate(std::string_view original, std::string_view result, bool is_startup,
               std::istream* steps, std::string* proof, std::string* old_original,
               std::string* old_result) {
  Pair pair(original, result, is_startup);
  std::string word;
  while (*steps >> word && (is_startup || word != "startup")) {
    const bool is_new = word[0] == '+';
    Expect((is_new || word[0] == '=') && word.size() > 1 && word.size() < 20 &&
               word.find_first_not_of("0123456789", 1) == word.npos,
           "proof.txt: expected a step, found ", word);
    for (uint64_t i = std::stoull(word.substr(1)); i > 0; --i) pair.Step(is_new);
  }
  pair.Finish(proof, old_original, old_result);
  return !steps->fail();
}

}  // namespace

bool IsPir(std::string_view file) {
  const size_t first = file.find_first_not_of(" \t\n\r");
  return first != file.npos && file[first] == '{';
}

OldFormat FromPir(const Files& files) {
  OldFormat old;
  std::istringstream proof{std::string(files.proof)};
  // Two words, then own states, then the steps of the main program. Of what else is wrong there,
  // the check of what is made here speaks.
  std::string word;
  for (size_t i = 0; proof >> word && word != "main"; ++i) {
    Expect(i < 2 || word == "own", "proof.txt: expected the steps of the main program");
    old.proof += word + " ";
    if (i >= 2 && proof >> word) old.proof += word + " ";
  }
  old.proof += "main\n";
  const bool has_startup = Translate(files.original, files.result, false, &proof, &old.proof,
                                     &old.original, &old.result);
  Expect(has_startup == !files.startup.empty(), "proof.txt: it is for other files");
  if (has_startup) {
    old.proof += "startup\n";
    Translate(files.original_startup, files.startup, true, &proof, &old.proof,
              &old.original_startup, &old.startup);
  }
  return old;
}

std::string_view PirInPlace(std::string_view base) {
  for (const auto& [known, places] : kInPlace) {
    if (known == base) return places;
  }
  return "";
}

std::vector<std::string_view> PirOpsOf(std::string_view file) {
  std::vector<std::string_view> ops;
  for (const std::string_view op : PirFile(file).ops) {
    if (!IsBinder(Members(op).String("#"))) ops.push_back(op);
  }
  return ops;
}

std::string PirLabelOf(std::string_view raw) {
  const Members members(raw);
  std::string label(members.String("#"));
  const std::string_view results = members.Get("O");
  for (const std::string_view result : label == "p" ? Texts{results} : Elements(results)) {
    label += Text(" ", Members(result).Get("%"));
  }
  return label;
}

}  // namespace checker
