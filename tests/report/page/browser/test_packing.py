import base64
import gzip
import json
import re

import numpy as np
import pytest

from attnprobe.report.page.browser.packing import pack, quantised, restored


def read(block):
    """An independent reader, after the description in `pack`."""
    content = gzip.decompress(base64.b64decode(block))
    start = 4 + int.from_bytes(content[:4], "little")
    header = json.loads(content[4:start])
    kinds = {"Uint8Array": "<u1", "Uint16Array": "<u2", "Uint32Array": "<u4", "Int32Array": "<i4", "Float32Array": "<f4",
             "Float64Array": "<f8"}  # fmt: skip
    arrays = {
        a["name"]: np.frombuffer(content, kinds[a["type"]], a["length"], start + a["offset"]) for a in header["arrays"]
    }
    return header["facts"], arrays


def test_arrays_and_facts_come_back():
    arrays = {"a": np.array([1, 2, 255], np.uint8), "b": np.array([1.5, np.nan]), "none": np.zeros(0, np.int32)}
    facts = {"words": ["</script>", "\u2028", "a&b", '"', "\ud800", "кино"]}
    block = pack(arrays, facts)
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", block)
    again, found = read(block)
    assert again == facts
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


def test_the_same_arrays_give_the_same_text():
    assert pack({"a": np.arange(5, dtype=np.uint16)}) == pack({"a": np.arange(5, dtype=np.uint16)})


def test_an_array_that_browsers_lack_is_named():
    with pytest.raises(ValueError, match=r"ids: expected an array of u1, .*, got int64"):
        pack({"ids": np.arange(3)})


@pytest.mark.parametrize("bits", [8, 16])
def test_weights_come_back_within_the_stated_error(bits):
    values = np.concatenate([np.linspace(0, 1, 1001), np.geomspace(1e-6, 1, 200)])
    error = np.abs(restored(quantised(values, bits)) - values)
    levels = 2**bits - 2
    assert (error <= np.sqrt(values) / levels + 1 / levels**2).all()
    assert np.isnan(restored(quantised(np.array([np.nan]), bits))).all()
