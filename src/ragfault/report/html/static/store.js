// The traces lie in blocks of gzipped JSON, and a block is unpacked when one of its traces is opened.

const store = { index: null, legend: null, blocks: new Map() };

async function unpack(id) {
  const packed = atob(find(id).textContent.trim());
  const bytes = Uint8Array.from(packed, (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

async function openStore() {
  store.legend = JSON.parse(find("legend").textContent);
  store.index = await unpack("index");
  store.place = new Map(store.index.ids.map((id, place) => [id, place]));
  return store.index;
}

const KEPT = 4;

async function traceAt(place) {
  const starts = store.index.blocks;
  let block = starts.findIndex((start) => start > place) - 1;
  if (block < 0) block = starts.length - 1;
  if (!store.blocks.has(block)) {
    store.blocks.set(block, unpack("block-" + block));
    if (store.blocks.size > KEPT) store.blocks.delete(store.blocks.keys().next().value);
  }
  return (await store.blocks.get(block))[place - starts[block]];
}

// What each trace can be searched by, made on the first search.
function haystack() {
  if (!store.haystack) {
    const { ids, queries, answers } = store.index;
    store.haystack = ids.map((id, i) => `${id}\n${queries[i]}\n${answers[i]}`.toLocaleLowerCase());
  }
  return store.haystack;
}
