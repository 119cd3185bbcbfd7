// The vocabularies that vanilla_transformer learns, from their tokenizer.json: from text to ids and back.
//
//     text -> NFC, one blank in front -> words -> bytes spelt as visible characters -> pieces -> ids + </s>

const CONTINUATION = "\uFFED"; // marks a word piece that continues a word
const BROKEN = "\uFFFD"; // what bytes that are not characters decode to
const LONGEST_CHAIN = 8; // pieces that may share characters

/** The characters that spell the 256 bytes: printable ones are themselves, the others come from 256 on. */
function byteCharacters() {
  const isPrintable = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : next++));
}

const CHARACTERS = byteCharacters();
const BYTES = new Map(CHARACTERS.map((character, byte) => [character, byte]));

export class Tokenizer {
  /** @param {object} saved what is in tokenizer.json */
  constructor(saved) {
    this.model = saved.model;
    this.ids = new Map(Object.entries(saved.model.vocab));
    for (const { content, id } of saved.added_tokens) this.ids.set(content, id);
    this.pieces = new Map([...this.ids].map(([piece, id]) => [id, piece]));
    this.special = new Set(saved.added_tokens.filter((each) => each.special).map((each) => each.id));
    this.lowercase = saved.normalizer.normalizers.some((each) => each.type === "Lowercase");
    // \s is what Unicode calls white space there; here it has U+FEFF and lacks U+0085. \x{200D} is \u{200D} here.
    const spelling = { "\\s": "\\p{White_Space}", "\\S": "\\P{White_Space}", "\\x{": "\\u{" };
    const pattern = saved.pre_tokenizer.pretokenizers[0].pattern.Regex;
    this.words = new RegExp(pattern.replace(/\\[sS]|\\x\{/g, (each) => spelling[each]), "gu");
    this.end = saved.post_processor.single.flatMap((each) =>
      "SpecialToken" in each ? saved.post_processor.special_tokens[each.SpecialToken.id].ids : [],
    );
    if (this.model.type === "BPE") {
      const spelt = (merge) => (typeof merge === "string" ? merge : merge.join(" "));
      this.ranks = new Map(this.model.merges.map((merge, rank) => [spelt(merge), rank]));
    }
    this.known = new Map(); // words that were met, and their ids
  }

  /** The ids of a text's pieces, and of what ends it. */
  encode(text) {
    // Character by character: a Σ is σ at the end of a word too.
    if (this.lowercase) text = Array.from(text, (character) => character.toLowerCase()).join("");
    text = text.normalize("NFC");
    const found = [];
    for (const [word] of text === "" ? [] : ` ${text}`.matchAll(this.words)) {
      if (!this.known.has(word)) {
        const spelt = Array.from(new TextEncoder().encode(word), (byte) => CHARACTERS[byte]);
        this.known.set(word, this.ranks ? this.merged(spelt) : this.longestPieces(spelt.join("")));
      }
      found.push(...this.known.get(word));
    }
    return [...found, ...this.end];
  }

  /** Byte-pair encoding: of two neighbours in the list of merges, the ones learned first are joined, again and again. */
  merged(parts) {
    for (;;) {
      let [best, place] = [Infinity, -1];
      for (let i = 0; i + 1 < parts.length; i++) {
        const rank = this.ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity;
        if (rank < best) [best, place] = [rank, i];
      }
      if (place < 0) return parts.map((part) => this.ids.get(part));
      parts.splice(place, 2, parts[place] + parts[place + 1]);
    }
  }

  /** Word pieces: always the longest one that fits next. */
  longestPieces(word) {
    const found = [];
    if (word.length > this.model.max_input_chars_per_word) return [this.ids.get(this.model.unk_token)];
    for (let start = 0, end; start < word.length; start = end) {
      const prefix = start > 0 ? this.model.continuing_subword_prefix : "";
      for (end = word.length; end > start && !this.ids.has(prefix + word.slice(start, end)); ) end--;
      if (end === start) return [this.ids.get(this.model.unk_token)];
      found.push(this.ids.get(prefix + word.slice(start, end)));
    }
    return found;
  }

  /** The text of ids, without special tokens. */
  decode(ids) {
    const pieces = ids.filter((id) => !this.special.has(id)).map((id) => this.pieces.get(id) ?? "");
    const bytes = Array.from(pieces.join("").replaceAll(CONTINUATION, ""), (character) => BYTES.get(character));
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes)).replace(/^ /, "");
  }

  /** A readable label for each piece; pieces that make a character only together are counted: `日 1/3`. */
  labels(ids) {
    const found = [];
    while (found.length < ids.length) {
      const start = found.length;
      if (this.special.has(ids[start])) {
        found.push(this.pieces.get(ids[start]));
        continue;
      }
      for (let length = 1; start === found.length; length++) {
        const text = this.decode(ids.slice(start, start + length));
        const isWhole = !text.includes(BROKEN);
        if (!isWhole && length < LONGEST_CHAIN && start + length < ids.length) continue;
        const label = text.replace(/\p{White_Space}/gu, "") || "␣";
        if (isWhole && length > 1) for (let i = 1; i <= length; i++) found.push(`${label} ${i}/${length}`);
        else found.push(isWhole ? label : this.hexadecimal(ids[start]));
      }
    }
    return found;
  }

  /** `<E6 97>` for a piece whose bytes are not characters. */
  hexadecimal(id) {
    const bytes = Array.from(this.pieces.get(id).replace(CONTINUATION, ""), (character) => BYTES.get(character));
    return `<${bytes.map((byte) => byte.toString(16).toUpperCase().padStart(2, "0")).join(" ")}>`;
  }
}
