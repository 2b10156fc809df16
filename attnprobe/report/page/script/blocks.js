// Packed content of the page (attnprobe/report/page/browser.py).

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

const decompressed = (text) => new Response(new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("gzip")));

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
    unpacked.set(name, decompressed($(name).textContent).json());
  }
  return unpacked.get(name);
}

// what the nth example has in blocks of as many examples each
const nthOf = async (names, n) => (await block(names[Math.floor(n / index.per_block)]))[n % index.per_block];
