// The op families, one function and one file (x_schemas.cc) each.
#ifndef WEFT_OPS_SCHEMA_FAMILIES_H_
#define WEFT_OPS_SCHEMA_FAMILIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ops/schema/op_schema.h"

namespace weft {

void AddActivationSchemas(OpSchemaTable* schemas);
void AddAmpSchemas(OpSchemaTable* schemas);
void AddCollectiveSchemas(OpSchemaTable* schemas);
void AddControlSchemas(OpSchemaTable* schemas);
void AddCreationSchemas(OpSchemaTable* schemas);
void AddDenseAlgebraSchemas(OpSchemaTable* schemas);
void AddDetectionSchemas(OpSchemaTable* schemas);
void AddElementwiseSchemas(OpSchemaTable* schemas);
void AddLossSchemas(OpSchemaTable* schemas);
void AddMathSchemas(OpSchemaTable* schemas);
void AddNnSchemas(OpSchemaTable* schemas);
void AddNormSchemas(OpSchemaTable* schemas);
void AddOptimizerSchemas(OpSchemaTable* schemas);
void AddProductSchemas(OpSchemaTable* schemas);
void AddRnnSchemas(OpSchemaTable* schemas);
void AddShapeSchemas(OpSchemaTable* schemas);
void AddViewSchemas(OpSchemaTable* schemas);
void AddIndexSchemas(OpSchemaTable* schemas);
void AddAlongSchemas(OpSchemaTable* schemas);
void AddLikeSchemas(OpSchemaTable* schemas);
void AddVocabularySchemas(OpSchemaTable* schemas);
void AddWindowSchemas(OpSchemaTable* schemas);
void AddResampleSchemas(OpSchemaTable* schemas);
void AddSecondGradientSchemas(OpSchemaTable* schemas);

// Attribute values by the names of their types in the format, for rows of schemas. Scalars are
// literals: 1 is INT, 1.0f is FLOAT, true is BOOLEAN, "x" is STRING, int64_t{1} is LONG.
using Ints = std::vector<int32_t>;
using Longs = std::vector<int64_t>;
using Strings = std::vector<std::string>;

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_FAMILIES_H_
