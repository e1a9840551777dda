"""Makes cases.jsonl: gradients of several ranks, and what real systems make of them.

Usage: make_cases.py CONFORMANCE_DIR > cases.jsonl

CONFORMANCE_DIR holds reduce_semantics.json and compression.json. Each line has the options of pass
grad-reduce, the gradients of each rank, and the gradients after the reduction or the parameters
after an update by them. Numbers are bit patterns in hexadecimal.
"""
import json
import struct
import sys

OPTIONS = {
    "mindspore_mean": "reduce_method=mean,travel_type=fp32",
    "mindspore_sum": "travel_type=fp32",
    "singa": "reduce_method=mean,accumulate_type=native",
    "megengine_mean": "reduce_method=mean,division=quotient,accumulate_type=native",
    "megengine_sum": "reduce_method=sum,accumulate_type=native",
    "paddle_scale_before": "reduce_method=mean,division=before,accumulate_type=native",
    "native_scale_after": "reduce_method=mean,accumulate_type=native",
    "fp32_accumulate_div": "reduce_method=mean,division=quotient",
}
DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def hex_of(array):
    return "".join(array["hex"])


def floats(values):
    return "".join(struct.pack(">f", value).hex() for value in values)


def gradient(per_rank):
    """The values that the ranks have of one gradient."""
    first = per_rank[0]
    if "rows" in first:
        return {
            "dtype": DTYPES[first["values"]["dtype"]],
            "dims": first["values"]["shape"],
            "height": first["height"],
            "ranks": [hex_of(g["values"]) for g in per_rank],
            "rows": [g["rows"] for g in per_rank],
        }
    return {
        "dtype": DTYPES[first["dtype"]],
        "dims": first["shape"],
        "ranks": [hex_of(g) for g in per_rank],
    }


def expected(array):
    if "rows" in array:
        return {"hex": hex_of(array["values"]), "rows": array["rows"]}
    return {"hex": hex_of(array)}


def reducer_options(params):
    context = params["context"]
    mean = context.get("gradients_mean", False) if params["mean"] is None else params["mean"]
    options = "travel_type=fp32,buckets=mindspore"
    if mean:
        options += ",reduce_method=mean"
        if params["degree"] is not None:
            options += ",degree=%d" % params["degree"]
    return options


def from_semantics(case):
    world = case["world"]
    if case["mode"] != "mindspore_reducer":
        inputs = [[array] for array in case["inputs"]]
        outputs = [[case["output"]]] * world
        made = {"id": case["id"], "options": OPTIONS[case["mode"]]}
        if "other_orders" in case:
            made["other_orders"] = case["other_orders"]
    else:
        inputs = case["inputs"]
        outputs = case.get("output_per_rank", [case.get("output")] * world)
        made = {"id": case["id"], "options": reducer_options(case["params"])}
        made["attrs"] = [
            {
                "layerwise_parallel": p["layerwise_parallel"],
                "in_shard": p["is_in_shard"],
                "parameter_server": p["is_param_ps"],
            }
            for p in case["params"]["parameters"]
        ]
    made["ulp"] = case.get("ulp", 0)
    if case["mode"] == "native_scale_after":
        made["ulp"] = 1  # the vectors round the factor to the gradient's type, too
    made["gradients"] = [
        gradient([inputs[rank][i] for rank in range(world)]) for i in range(len(inputs[0]))
    ]
    made["expect"] = [[expected(array) for array in rank] for rank in outputs]
    return made


def from_half(case):
    params = case["params"]
    world = params["world"]
    clip = ",clip=%s" % params["clip_value"] if params["clipping"] else ""
    threshold = params["threshold"]
    buckets = ',buckets="singa{threshold=%d,buffer_elements=%d}"' % (threshold, 2 * threshold)
    options = "reduce_method=mean,travel_type=fp16,accumulate_type=native" + clip + buckets
    before = None
    for number, step in enumerate(case["steps"]):
        gradients = [
            gradient([step["inputs"][rank][i] for rank in range(world)])
            for i in range(len(step["inputs"][0]))
        ]
        if before is None:
            sizes = params["sizes"]
            before = [{"hex": floats([j * 0.25 + i for j in range(n)])} for i, n in enumerate(sizes)]
        after = [expected(array) for array in step["params_after"]]
        yield {
            "id": "%s/%d" % (case["id"], number),
            "options": options,
            "ulp": 0,
            "gradients": gradients,
            "params": before,
            "params_after": after,
        }
        before = after
        yield {
            "id": "%s/%d/prescaled" % (case["id"], number),
            "options": options + ",division=before",
            "ulp": 0,
            "gradients": gradients,
            "expect": [[expected(array) for array in case["prescaled_mean"][number]]] * world,
        }


def main():
    directory = sys.argv[1]
    cases = []
    with open(directory + "/reduce_semantics.json") as file:
        cases += [from_semantics(case) for case in json.load(file)["cases"]]
    with open(directory + "/compression.json") as file:
        for case in json.load(file)["cases"]:
            if case["kind"] == "half":
                cases += from_half(case)
    for case in cases:
        print(json.dumps(case, separators=(",", ":")))


main()
