// Images resized.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Out is X of another size in space, which has a number of dimensions in `spaces`: that of out_d,
// out_h and out_w, the last of them, or multiples of X's.
OpSchema::InferFn Interpolated(std::vector<size_t> spaces) {
  return IfKnown(
      "X",
      [spaces = std::move(spaces)](InferContext& context, const TensorType& x) -> absl::Status {
        const size_t space = x.dims.size() - 2;
        if (x.dims.size() < 3 || std::find(spaces.begin(), spaces.end(), space) == spaces.end()) {
          return context.InputError("X", absl::StrCat(spaces.front() + 2, " dimensions"));
        }
        const OpAttrs& attrs = context.attrs();
        static constexpr const char* kLayouts[][2] = {
            {"NCW", "NWC"}, {"NCHW", "NHWC"}, {"NCDHW", "NDHWC"}};
        const auto& layouts = kLayouts[space - 1];
        const std::string& layout = attrs.String("data_layout");
        // Paddle writes NCHW for NCW, too.
        const bool is_default = layout == "NCHW";
        if (layout != layouts[0] && layout != layouts[1] && !is_default) {
          return context.AttrError("data_layout", absl::StrCat(layouts[0], " or ", layouts[1]),
                                   layout);
        }
        const std::vector<double> scale = attrs.Floats("scale");
        if (scale.size() > 1 && scale.size() != space) {
          return context.AttrError("scale", absl::StrCat("one number or ", space),
                                   absl::StrCat(scale.size()));
        }
        const bool is_computed = HasAttrInput(context);
        const size_t first = layout == layouts[1] ? 1 : 2;
        TensorType out = x;
        for (size_t s = 0; s < space; ++s) {
          int64_t& dim = out.dims[first + s];
          static constexpr const char* kSizes[] = {"out_d", "out_h", "out_w"};
          const char* const attr = kSizes[3 - space + s];
          const double factor = scale.empty() ? 0 : scale[scale.size() == 1 ? 0 : s];
          if (is_computed) {
            dim = -1;
          } else if (dim != -1 && dim < 1) {
            return context.InputError("X", "a size of 1 or more");
          } else if (factor > 0) {
            if (dim == -1) continue;
            const double size = static_cast<double>(dim) * factor;
            if (!(size >= 1 && size < static_cast<double>(kMaxElements))) {
              return context.AttrError("scale", "a size of 1 or more", absl::StrCat(factor));
            }
            dim = static_cast<int64_t>(size);
          } else if (attrs.Int(attr) < 1) {
            return context.AttrError(attr, "1 or more", absl::StrCat(attrs.Int(attr)));
          } else {
            dim = attrs.Int(attr);
          }
        }
        context.SetOutput("Out", out);
        return absl::OkStatus();
      });
}

}  // namespace

void AddInterpolateSchemas(OpSchemaTable* schemas) {
  const std::pair<std::string, std::vector<size_t>> methods[] = {{"bicubic", {2}},
                                                                 {"bilinear", {2}},
                                                                 {"linear", {1}},
                                                                 {"nearest", {2, 3}},
                                                                 {"trilinear", {3}}};
  for (const auto& [method, spaces] : methods) {
    const auto interp = [&, &method = method, &spaces = spaces](const char* suffix) {
      return OpSchema(method + suffix)
          .In("OutSize{out_d out_h out_w}, Scale{scale}, SizeTensor*{out_d out_h out_w}, X")
          .Out("Out")
          .Attr("align_corners", true)
          .Attr("align_mode", 1)
          .Attr("data_layout", "NCHW")
          .Attr("interp_method", method)
          .Attr("out_d", 0)
          .Attr("out_h", 0)
          .Attr("out_w", 0)
          .Attr("scale", Floats{})
          .Infer(Interpolated(spaces))
          .Batch({batch::Rows({"X"}), Powers::kFirst});
    };
    const GradSlots grad = {{"X"}, {"Out"}, {"X"}};
    AddWithGrad(schemas, interp("_interp"), grad);
    AddWithGrad(
        schemas,
        interp("_interp_v2")
            .Pir(method + "_interp(x, out_size, size_tensor, scale_tensor:Scale) -> output:Out "
                          "{data_format=data_layout}"),
        grad);
  }
}

}  // namespace weft
