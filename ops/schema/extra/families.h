// The op families that few models use, one function and one file (x_schemas.cc) each. Outside this
// directory only the table of all schemas depends on them.
#ifndef WEFT_OPS_SCHEMA_EXTRA_FAMILIES_H_
#define WEFT_OPS_SCHEMA_EXTRA_FAMILIES_H_

#include "ops/schema/op_schema.h"

namespace weft {

// All of these.
void AddExtraSchemas(OpSchemaTable* schemas);

// Adds the schemas of one file.
using AddSchemas = void(OpSchemaTable* schemas);

// --- Linear algebra -----------------------------------------------------------------------------

AddSchemas AddDenseAlgebraSchemas, AddDiagonalSchemas, AddProductSchemas;

// --- Functions of numbers -----------------------------------------------------------------------

AddSchemas AddSpecialFunctionSchemas;

// --- Normalization and activation ---------------------------------------------------------------

AddSchemas AddNormalizationSchemas, AddSamplingSchemas;

// --- Images and detection -----------------------------------------------------------------------

AddSchemas AddDeformableConvSchemas, AddFractionalPoolSchemas, AddGridSampleSchemas,
    AddImageSchemas, AddInterpolateSchemas, AddPadSchemas, AddPaddle1LayerSchemas,
    AddPaddle1Schemas, AddPixelShuffleSchemas, AddUnfoldSchemas, AddYoloSchemas;

// --- Sequences and search -----------------------------------------------------------------------

AddSchemas AddIndexingSchemas, AddLabelMetricsSchemas, AddSequenceSchemas;

// --- Large vocabularies and click-through rates -------------------------------------------------

AddSchemas AddClassWeightsSchemas, AddCvmSchemas;

// --- Other --------------------------------------------------------------------------------------

AddSchemas AddBroadcastTensorsSchemas, AddModelAverageSchemas, AddRollSchemas, AddSparsifySchemas;

// --- Gradients of gradients, made from the schemas of the ops -----------------------------------

AddSchemas AddSecondGradientsSchemas;

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_EXTRA_FAMILIES_H_
