// Packed content of the page (attnprobe/report/page/browser.py).

const TYPES = { Uint8Array, Uint16Array, Uint32Array, Int32Array, Float32Array, Float64Array };

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

const decompressed = (text) => new Response(new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("gzip")));

async function unpack({ textContent, dataset }) {
  const content = decompressed(textContent);
  return dataset.type === "JSON" ? content.json() : new TYPES[dataset.type](await content.arrayBuffer());
}

// a figure is an image still, from which no script runs
async function showFigure(image) {
  const svg = await decompressed(image.dataset.packed.split(",")[1]).text();
  image.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
  await image.decode();
}

const unpacked = new Map();
function block(name) {
  if (!unpacked.has(name)) {
    const maps = [...unpacked.keys()].filter((key) => key.startsWith("maps-"));
    if (maps.length >= KEPT_BLOCKS) unpacked.delete(maps[0]);
    unpacked.set(name, unpack($(name)));
  }
  return unpacked.get(name);
}

// key → name of a block, as key → its content
async function blocks(names) {
  return Object.fromEntries(await Promise.all(Object.entries(names).map(async ([key, name]) => [key, await block(name)])));
}

const weightOf = (level) => (level > LEVELS ? NaN : (level / LEVELS) ** 2);

function startsOf(lengths) {
  const starts = new Uint32Array(lengths.length + 1);
  for (let i = 0; i < lengths.length; i++) starts[i + 1] = starts[i] + lengths[i];
  return starts;
}
