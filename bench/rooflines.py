"""Shares of a processor's limits, from the medians of a case of `heddle bench decode` or `prefill`."""


def decode_share(case):
    """Of the memory's read rate: the row's GB/s over its memory GB/s. The record's `floor_share` is the median of the samples' own
    shares, which differs where the memory's rate changes between samples."""
    return case["gbps"] / case["memory_read_gbps"]["median"]


def multiplies_bfloat16(record):
    """Whether GEMMs ran in bfloat16 dot products or AMX: `float32_gflops` is no limit of these."""
    return (record["dtype_of_weights"] == "bfloat16" and record["compute"] != "float32" and
            not {"avx512_bf16", "avx512bf16", "amx_bf16"}.isdisjoint(record["machine"]["simd"]))


def prefill_share(record, case):
    """Of the rate of float32 multiply-adds; None where they are not what the GEMMs consist of."""
    return None if multiplies_bfloat16(record) else 1e3 * case["tflops"] / case["float32_gflops"]["median"]


def share_of(record, case):
    return decode_share(case) if record["bench"] == "decode" else prefill_share(record, case)
