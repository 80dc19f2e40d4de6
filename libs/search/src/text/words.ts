/** Scripts that are written without spaces and have too many characters for a word list: cut into pairs. */
const pairScripts = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}ー]/u;
/** Scripts without spaces whose words a dictionary finds. */
const dictionaryScripts = /[\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;
const runs = /[\p{L}\p{N}\p{M}]+/gu;
const maxWordLength = 100;

let segmenter: Intl.Segmenter | undefined;

/** Without case, accents and other differences that people do not mean when they search. */
export function normalize(text: string): string {
  return text
    .normalize('NFKD')
    .replace(/[\u0300-\u036f]/g, '')
    .normalize('NFC')
    .toLowerCase();
}

interface Piece {
  readonly text: string;
  /** Of a script that is cut into pairs. */
  readonly paired: boolean;
}

function* piecesOf(text: string): Iterable<Piece> {
  for (const [run] of normalize(text).matchAll(runs)) {
    if (dictionaryScripts.test(run)) {
      // The first one reads megabytes of tables. The locale makes no difference to where these scripts' words end.
      segmenter ??= new Intl.Segmenter('und', { granularity: 'word' });
      for (const { segment, isWordLike } of segmenter.segment(run))
        if (isWordLike) yield { text: segment, paired: false };
      continue;
    }
    if (!pairScripts.test(run)) {
      yield { text: run, paired: false };
      continue;
    }
    let piece = '';
    let paired = false;
    for (const character of run) {
      const isPaired = pairScripts.test(character);
      if (piece !== '' && isPaired !== paired) {
        yield { text: piece, paired };
        piece = '';
      }
      paired = isPaired;
      piece += character;
    }
    if (piece !== '') yield { text: piece, paired };
  }
}

/**
 * The words under which a text is found, in order: words of any script, and for Chinese and Japanese, which set no spaces,
 * each pair of characters and the last character alone.
 * @param limit the rest is left out
 */
export function wordsOf(text: string, limit: number): string[] {
  const words: string[] = [];
  for (const piece of piecesOf(text)) {
    if (piece.paired) words.push(...pairsOf(piece.text, true));
    else words.push(cut(piece.text));
    if (words.length >= limit) return words.slice(0, limit);
  }
  return words;
}

/** A word to look for. */
export interface QueryWord {
  readonly text: string;
  /** Longer words that begin with it count as well. */
  readonly prefix: boolean;
}

/** What to look for; all of it has to be there. The same word is asked for once, and at most `limit` words. */
export function queryWordsOf(term: string, limit: number): QueryWord[] {
  const words = new Map<string, QueryWord>();
  for (const piece of piecesOf(term)) {
    const isSingle = !piece.paired || [...piece.text].length === 1;
    const texts = isSingle ? [cut(piece.text)] : pairsOf(piece.text, false);
    for (const text of texts) words.set(text, { text, prefix: isSingle });
  }
  return [...words.values()].slice(0, limit);
}

/** The words of a search as a person would mark them in what was found. */
export function highlightsOf(term: string, limit: number): string[] {
  return [...new Set([...piecesOf(term)].map((piece) => piece.text))].slice(0, limit);
}

function pairsOf(text: string, withLast: boolean): string[] {
  const characters = [...text];
  const pairs = characters.slice(1).map((character, index) => `${characters[index]}${character}`);
  return withLast ? [...pairs, characters.at(-1) ?? ''] : pairs;
}

const cut = (word: string): string => (word.length > maxWordLength ? [...word].slice(0, maxWordLength).join('') : word);
