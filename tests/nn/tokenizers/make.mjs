// Makes the fixtures of tokenizer_test.cpp: small tokenizers trained on the texts below, and what the reference says of each text.
//   cd $(mktemp -d) && npm install @huggingface/tokenizers@0.2.0 && cp .../tests/nn/tokenizers/make.mjs . && node make.mjs OUT_DIR
// Pieces come from JavaScript's own regular expressions, ids and decoded texts from the package.
import { mkdirSync, writeFileSync } from 'node:fs';
import { Tokenizer } from '@huggingface/tokenizers';

const out = process.argv[2] ?? '.';
mkdirSync(out, { recursive: true });

const texts = [
  '', ' ', '  ', 'a', 'Hello, world!', 'The quick brown fox jumps over the lazy dog. The dog sleeps; the fox doesn\'t.',
  "I'm sure they've said we'll go, he'd see it's John's. I'M SURE THEY'VE SAID IT'S. 'tis 'Sunday", "''s 's' don''t",
  'one  two   three    four', ' leading', 'trailing ', '  both  ', 'tabs\tand\t\ttabs', 'line\nline\n\nline\r\nline \n  \n x', '\n', '\n\n\n', ' \n', '\r\n\r\n a',
  '0 1 12 123 1234 12345 123456 1234567', '3.14159, 1,000,000.50 and 2e-10', 'abc123def456', 'x=1;y=2', '１２３ ٣٤٥ ½ Ⅳ ②',
  'price: $5.00 (€4,50) ~ 10%', 'a+b<c>d^e|f~g=h', 'int main() { return 0; }\n\tif (x != y) { ++i; } // done', '<html><body class="x">&amp;</body></html>',
  'naïve café résumé Ångström', 'cafe\u0301 A\u030Angstro\u0308m \u1100\u1161\u11A8', 'Größe Straße ÄÖÜ', 'Привет, мир! Как дела? Это тест.',
  'Γειά σου Κόσμε', 'שלום עולם', 'مرحبا بالعالم', 'नमस्ते दुनिया', 'สวัสดีชาวโลก', '你好，世界！今天天气很好。', 'こんにちは世界。テスト', '안녕하세요 세계',
  '😀', '👍🏽 👨‍👩‍👧‍👦 🇩🇪 ❤️', 'mixed 你好 and 😀 emoji😀😀', '\u00A0nbsp\u2003em\u3000ideographic', 'zero\u200Bwidth\u200Djoiner', '…—–“quotes”‘x’',
  '<|im_start|>user\nHi<|im_end|>\n', '  <|end|>  after', '<s>text</s>', '▁already▁marked', 'a▁b ▁ c', 'https://example.com/a_b?c=d&e=f#g', 'snake_case camelCase SCREAMING_CASE',
  '\u0001\u0002\u007f', '\ud835\udc00\ud835\udc01 𐍈 𝟘𝟙', 'ﬁ ſ K İ', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', '                                x', '!!!???...',
];
const train = texts.join('\n') + '\n' + [
  'The tokens of a text are found by merging pairs of symbols. The pair that was most frequent is merged first, then the next.',
  'There are a few words that come again and again: the, and, of, to, in, that, is, was, for, it, with, as, his, on, be, at, by.',
  'When the weather is good the children play in the garden, and when it is not they play in the house with their toys.',
].join(' ').repeat(3);

// ---- pieces

const S = '\\p{White_Space}', s = '\\P{White_Space}';
const not = (set) => `[^${S}${set}]`;
const contractions = "'[sSſ]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]";
const tail = (digits) => `${contractions}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}${digits}| ?${not('\\p{L}\\p{N}')}+[\\r\\n]*|${S}*[\\r\\n]+|${S}+(?!${s})|${S}+`;
const gpt2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?${not('\\p{L}\\p{N}')}+|${S}+(?!${s})|${S}+`;
const rules = {
  gpt2: [gpt2], llama3: [tail('{1,3}')], qwen2: [tail('')], smollm: ['\\p{N}', gpt2],
  default: ['[\\p{P}\\$\\+<=>\\^~\\|]+', gpt2, '\\p{N}+', '[0-9][0-9][0-9]'],
};
function pieces(text, list) {
  let all = text === '' ? [] : [text];
  for (const rule of list) {
    const regex = new RegExp(rule, 'gu');
    all = all.flatMap((piece) => {
      const cut = [];
      let end = 0;
      for (const match of piece.matchAll(regex)) {
        if (match.index > end) cut.push(piece.slice(end, match.index));
        cut.push(match[0]);
        end = match.index + match[0].length;
      }
      if (end < piece.length) cut.push(piece.slice(end));
      return cut;
    });
  }
  return all;
}
let state = 12345;
const random = (n) => { state = (Math.imul(state, 1103515245) + 12345) >>> 0; return (state >>> 8) % n; };
const alphabet = [' ', ' ', ' ', '\n', '\r', '\t', '\u00A0', '\u0085', '\u2003', "'", "'", 's', 't', 're', 've', 'll', 'd', 'S', 'LL', 'ſ', 'a', 'B', 'é', 'ж', '你', 'ก', 'ា', '1', '2', '34', '５', '½', 'Ⅳ',
  '.', ',', '!', '-', '_', '$', '+', '<', '=', '^', '~', '|', '`', '€', '😀', '\u0301', '\u200D', '…', '（', 'ª', '²', '𝟘', '\u0000', '\u{E000}', '\u{20000}'];
const noise = Array.from({ length: 400 }, () => Array.from({ length: 1 + random(14) }, () => alphabet[random(alphabet.length)]).join(''));
const splitTexts = [...texts, ...noise];
const bytes = (text) => Buffer.byteLength(text, 'utf8');
const splits = Object.fromEntries(Object.entries(rules).map(([name, list]) => [name, splitTexts.map((text) => pieces(text, list).map(bytes))]));
const nfc = [...texts, ...noise].map((text) => text.normalize('NFC'));
writeFileSync(`${out}/splits.json`, JSON.stringify({ texts: splitTexts, splits, nfc }) + '\n');

// ---- small vocabularies

const byteToChar = (() => {
  const printable = (b) => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCharCode(printable(b) ? b : next++));
})();
const byteLevel = (text) => Array.from(Buffer.from(text, 'utf8'), (b) => byteToChar[b]);

/// Words as arrays of symbols -> merges, the most frequent pair first.
function trainBpe(words, count) {
  const merges = [];
  while (merges.length < count) {
    const pairs = new Map();
    for (const word of words) for (let i = 0; i + 1 < word.length; ++i) {
      const key = word[i] + ' ' + word[i + 1];
      pairs.set(key, (pairs.get(key) ?? 0) + 1);
    }
    let best = null;
    for (const [key, n] of pairs) if (n > 1 && (best === null || n > best[1])) best = [key, n];
    if (best === null) break;
    const [left, right] = best[0].split(' ');
    merges.push([left, right]);
    words = words.map((word) => {
      const joined = [];
      for (let i = 0; i < word.length; ++i) {
        if (i + 1 < word.length && word[i] === left && word[i + 1] === right) joined.push(left + right), ++i;
        else joined.push(word[i]);
      }
      return joined;
    });
  }
  return merges;
}
const added = (id, content, special, more = {}) => ({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special, ...more });
function vocabOf(symbols, merges) {
  const vocab = {};
  for (const symbol of [...symbols, ...merges.map(([a, b]) => a + b)]) if (!(symbol in vocab)) vocab[symbol] = Object.keys(vocab).length;
  return vocab;
}
const regexes = {
  llama3: "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  qwen2: "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
};
const byteLevelPart = (use_regex) => ({ type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex });
function byteBpe(rule, preTokenizer, options = {}) {
  const merges = trainBpe(pieces(train, rules[rule]).map(byteLevel), 260);
  const vocab = vocabOf(byteToChar, merges);
  const n = Object.keys(vocab).length;
  return {
    version: '1.0', truncation: null, padding: null,
    added_tokens: [added(n, '<|endoftext|>', true), added(n + 1, '<|im_start|>', true), added(n + 2, '<|im_end|>', true), added(n + 3, 'quick brown', false)],
    normalizer: options.normalizer ?? null, pre_tokenizer: preTokenizer, post_processor: options.post?.(n) ?? byteLevelPart(true), decoder: byteLevelPart(true),
    model: { type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: '', end_of_word_suffix: '', fuse_unk: false, byte_fallback: false,
      ignore_merges: options.ignoreMerges ?? false, vocab, merges: options.pairs ? merges : merges.map(([a, b]) => `${a} ${b}`) },
  };
}
const bytesTokens = Array.from({ length: 256 }, (_, b) => `<0x${b.toString(16).toUpperCase().padStart(2, '0')}>`);
const marked = (text) => text.replaceAll(' ', '▁');
const chars = [...new Set(Array.from(marked(train)))].filter((c) => c.codePointAt(0) < 0x250 || c === '▁').filter((c) => c >= ' ');
function spm(gemma) {
  const words = marked(train).split(/(?=▁)/u).map((w) => Array.from(w).filter((c) => chars.includes(c)));
  const merges = trainBpe(words, 220);
  const vocab = vocabOf(['<unk>', '<s>', '</s>', ...bytesTokens, ...chars], gemma ? [['▁', '▁'], ['▁▁', '▁▁'], ...merges] : merges);
  const list = gemma ? [['▁', '▁'], ['▁▁', '▁▁'], ...merges] : merges;
  const n = Object.keys(vocab).length;
  const replace = { type: 'Replace', pattern: { String: ' ' }, content: '▁' };
  const back = { type: 'Replace', pattern: { String: '▁' }, content: ' ' };
  const single = [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }];
  return {
    version: '1.0', truncation: null, padding: null,
    added_tokens: [added(0, '<unk>', true), added(1, '<s>', true), added(2, '</s>', true), added(n, '<|end|>', true, gemma ? {} : { rstrip: true })],
    normalizer: gemma ? replace : { type: 'Sequence', normalizers: [{ type: 'Prepend', prepend: '▁' }, replace] },
    pre_tokenizer: gemma ? { type: 'Split', pattern: { String: ' ' }, behavior: 'MergedWithPrevious', invert: false } : null,
    post_processor: { type: 'TemplateProcessing', single, pair: single, special_tokens: { '<s>': { id: '<s>', ids: [1], tokens: ['<s>'] } } },
    decoder: { type: 'Sequence', decoders: [back, { type: 'ByteFallback' }, { type: 'Fuse' }, ...(gemma ? [] : [{ type: 'Strip', content: ' ', start: 1, stop: 0 }])] },
    model: { type: 'BPE', dropout: null, unk_token: '<unk>', continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: true, byte_fallback: true, ignore_merges: false,
      vocab, merges: gemma ? list : list.map(([a, b]) => `${a} ${b}`) },
  };
}
function unigram() {
  const words = marked(train).split(/(?=▁)/u).map((w) => Array.from(w).filter((c) => chars.includes(c)));
  const found = vocabOf(chars, trainBpe(words, 200));
  const vocab = [['<unk>', 0], ['<s>', 0], ['</s>', 0], ...Object.keys(found).map((piece, i) => [piece, -2 - i / 37 - Array.from(piece).length % 3])];
  const metaspace = { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true };
  return {
    version: '1.0', truncation: null, padding: null, added_tokens: [added(0, '<unk>', true), added(1, '<s>', true), added(2, '</s>', true)],
    normalizer: null, pre_tokenizer: metaspace, post_processor: null, decoder: metaspace, model: { type: 'Unigram', unk_id: 0, vocab, byte_fallback: false },
  };
}
const bos = (n) => ({ type: 'TemplateProcessing', single: [{ SpecialToken: { id: '<|endoftext|>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }, { SpecialToken: { id: '<|im_end|>', type_id: 0 } }],
  pair: [], special_tokens: { '<|endoftext|>': { id: '<|endoftext|>', ids: [n], tokens: ['<|endoftext|>'] }, '<|im_end|>': { id: '<|im_end|>', ids: [n + 2], tokens: ['<|im_end|>'] } } });
const isolated = (Regex) => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false });
const sequence = (...pretokenizers) => ({ type: 'Sequence', pretokenizers });
const tokenizers = {
  gpt2: byteBpe('gpt2', byteLevelPart(true)),
  llama3: byteBpe('llama3', sequence(isolated(regexes.llama3), byteLevelPart(false)), { ignoreMerges: true, pairs: true, post: bos }),
  qwen2: byteBpe('qwen2', sequence(isolated(regexes.qwen2), byteLevelPart(false)), { normalizer: { type: 'NFC' } }),
  smollm: byteBpe('smollm', sequence({ type: 'Digits', individual_digits: true }, byteLevelPart(true))),
  llama2: spm(false), gemma: spm(true), unigram: unigram(),
};
const expected = {};
for (const [name, json] of Object.entries(tokenizers)) {
  writeFileSync(`${out}/${name}.json`, JSON.stringify(json) + '\n');
  const tokenizer = new Tokenizer(json, {});
  const ids = texts.map((text) => tokenizer.encode(text).ids);
  expected[name] = { ids, decoded: ids.map((list) => list.length === 0 ? '' : tokenizer.decode(list, { skip_special_tokens: true, clean_up_tokenization_spaces: false })) };
}
writeFileSync(`${out}/expected.json`, JSON.stringify({ texts, expected }) + '\n');
