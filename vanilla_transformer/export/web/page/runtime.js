// onnxruntime-web, and the files of this folder.

import * as ort from "./onnxruntime/ort.wasm.bundle.min.mjs";

const GZIP = [0x1f, 0x8b];

/** The bytes of a file that may be compressed; a server that says so has the browser unpack it on the way. */
export async function unpacked(bytes) {
  if (!GZIP.every((byte, place) => bytes[place] === byte)) return bytes;
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** onnxruntime-web on one thread: static servers do not send what more would need. */
export async function runtime(read) {
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmBinary = await unpacked(await read("onnxruntime/ort-wasm-simd-threaded.wasm.gz"));
  return ort;
}
