#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/second_gradients.h"

namespace weft {
namespace {

using Kind = SecondGradient::Kind;

// Outputs have the types of the inputs whose gradients they are.
OpSchema::InferFn InferTypes(const SecondGradient& row) {
  return [row](InferContext& context) {
    const auto set_like = [&](const std::string& output, const std::string& input) {
      const TensorType* type = input.empty() ? nullptr : context.Input(input);
      if (type != nullptr) context.SetOutput(output, *type);
    };
    set_like(row.dx, row.x);
    set_like(row.dy, row.y);
    // Of x / y, slot x holds out, which has the dimensions of dout; slot dout holds dx.
    set_like(row.ddout, row.kind == Kind::kQuotient ? row.x
                        : row.dout.empty()          ? row.ddx
                                                    : row.dout);
    return absl::OkStatus();
  };
}

OpSchema SchemaOf(const SecondGradient& row, const OpSchema& op) {
  OpSchema schema(row.type);
  const bool has_y = !row.ddy.empty();
  const auto in = [&](const std::string& slot, bool optional = false) {
    const bool is_new = slot == row.x && !row.old_x.empty();
    if (!slot.empty()) std::move(schema).In(absl::StrCat(slot, optional ? "?" : is_new ? "^" : ""));
  };
  in(row.x);
  if (!row.old_x.empty()) {
    SlotSchema old;
    old.name = row.old_x;
    old.until = kPaddle3;
    std::move(schema).In(std::move(old));
  }
  in(row.y);
  in(row.dout);
  in(row.ddx, has_y);
  in(row.ddy, /*optional=*/true);
  if (row.kind == Kind::kQuotient) in("Out@GRAD", /*optional=*/true);  // since Paddle 3; unused
  for (const std::string& slot : {row.dx, row.dy, row.ddout}) {
    if (!slot.empty()) std::move(schema).Out(slot + "?");
  }
  for (const AttrSchema& attr : op.attrs()) std::move(schema).Attr(attr.name, attr.default_value);
  std::vector<OpSchema::InferFn> checks;
  if (!row.x.empty() && row.kind != Kind::kQuotient) checks.push_back(SameType(row.x, row.ddx));
  if (!row.old_x.empty()) checks.push_back(SameType(row.old_x, row.ddx));
  if (has_y) checks.push_back(SameType(row.y, row.ddy));
  if (row.kind == Kind::kFunction) {
    if (!row.dout.empty()) checks.push_back(SameType(row.x, row.dout));
    std::move(schema).With(Trait::kElementwise, Trait::kRowSplittable);
  }
  checks.push_back(InferTypes(row));
  return std::move(schema).Infer(InOrder(std::move(checks)));
}

}  // namespace

void AddSecondGradientsSchemas(OpSchemaTable* schemas) {
  for (const SecondGradient& row : SecondGradients()) {
    schemas->Add(SchemaOf(row, *schemas->Find(row.op)));
  }
}

}  // namespace weft
