// Blocks of numbers (attnprobe/report/page/browser/packing.py).

const TYPES = { Uint8Array, Uint16Array, Uint32Array, Int32Array, Float32Array, Float64Array };

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

async function unpack(name) {
  const packed = new Blob([bytesOf($(name).textContent.trim())]);
  const buffer = await new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  const start = 4 + new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, start - 4)));
  const arrays = {};
  for (const { name: key, type, length, offset } of header.arrays) {
    const kind = TYPES[type];
    // an array must lie at a multiple of its element's size; the header's length is none
    const from = start + offset;
    arrays[key] = new kind(buffer.slice(from, from + length * kind.BYTES_PER_ELEMENT));
  }
  return { facts: header.facts, arrays };
}

const unpacked = new Map();
function block(name, kept = true) {
  let found = unpacked.get(name);
  if (!found) {
    found = unpack(name);
    if (!kept) {
      const others = [...unpacked.keys()].filter((key) => key.startsWith("maps-"));
      if (others.length >= KEPT_BLOCKS) unpacked.delete(others[0]);
    }
    unpacked.set(name, found);
  }
  return found;
}

function startsOf(lengths) {
  const starts = new Uint32Array(lengths.length + 1);
  for (let i = 0; i < lengths.length; i++) starts[i + 1] = starts[i] + lengths[i];
  return starts;
}
