/** Tells whether a text matches; made once from a pattern. */
export type Matcher = (text: string) => boolean;

const isWord = (text: string, index: number): boolean => {
  const code = text.charCodeAt(index);
  return (code >= 48 && code <= 57) || (code >= 65 && code <= 90) || (code >= 97 && code <= 122) || code === 95;
};

/** Whether a match may begin or end at this index: an end of the text, or a character that is no letter, digit or `_`. */
const isBoundary = (text: string, index: number): boolean =>
  index === 0 || index === text.length || !isWord(text, index - 1) || !isWord(text, index);

const isHighSurrogate = (code: number): boolean => code >= 0xd800 && code <= 0xdbff;

/** Where `segment` ends when it matches at `start`; -1 when it does not. `?` takes one code point. */
function matchAt(text: string, start: number, segment: string): number {
  let at = start;
  for (let i = 0; i < segment.length; i++) {
    if (at >= text.length) return -1;
    if (segment[i] === '?') {
      at += isHighSurrogate(text.charCodeAt(at)) && at + 1 < text.length ? 2 : 1;
    } else {
      if (text.charCodeAt(at) !== segment.charCodeAt(i)) return -1;
      at += 1;
    }
  }
  return at;
}

/** The first match of `segment` from `from` on that `accept` takes: [start, end], or `undefined`. */
function search(
  text: string,
  from: number,
  segment: string,
  accept: (start: number, end: number) => boolean,
): [number, number] | undefined {
  if (!segment.includes('?')) {
    for (let at = text.indexOf(segment, from); at !== -1; at = text.indexOf(segment, at + 1)) {
      if (accept(at, at + segment.length)) return [at, at + segment.length];
      if (at >= text.length) return undefined;
    }
    return undefined;
  }
  for (let at = from; at <= text.length; at++) {
    const end = matchAt(text, at, segment);
    if (end !== -1 && accept(at, end)) return [at, end];
  }
  return undefined;
}

/**
 * Whether a text holds these words as they are, beginning and ending at word boundaries. Both have to be in lower case.
 * @spec client-server-api#conditions-1
 */
export function holdsWords(text: string, words: string): boolean {
  if (words === '') return false;
  for (let at = text.indexOf(words); at !== -1; at = text.indexOf(words, at + 1))
    if (isBoundary(text, at) && isBoundary(text, at + words.length)) return true;
  return false;
}

const always = (): boolean => true;

/**
 * Compiles a glob (`*` any number of characters, `?` exactly one), compared without regard to case. No backtracking:
 * each literal between two stars is taken at its first place, so time grows with the text times the longest literal.
 * @param mode `whole`: the pattern must cover the text; `words`: some part of the text that begins and ends at word
 *   boundaries, as for `content.body`
 * @spec appendices#glob-style-matching
 */
export function compileGlob(pattern: string, mode: 'whole' | 'words'): Matcher {
  const segments = pattern.toLowerCase().replace(/\*+/g, '*').split('*');
  const first = segments[0] ?? '';
  const last = segments[segments.length - 1] ?? '';
  const middle = segments.slice(1, -1);
  const words = mode === 'words';
  if (segments.length === 1) {
    if (!words) {
      return (original) => {
        const text = original.toLowerCase();
        return matchAt(text, 0, first) === text.length;
      };
    }
    if (first === '') return () => false;
    return (original) => {
      const text = original.toLowerCase();
      return search(text, 0, first, (start, end) => isBoundary(text, start) && isBoundary(text, end)) !== undefined;
    };
  }
  return (original) => {
    const text = original.toLowerCase();
    let at = 0;
    if (first !== '') {
      const found = words ? search(text, 0, first, (start) => isBoundary(text, start))?.[1] : matchAt(text, 0, first);
      if (found === undefined || found === -1) return false;
      at = found;
    }
    for (const segment of middle) {
      const found = search(text, at, segment, always);
      if (found === undefined) return false;
      at = found[1];
    }
    if (last === '') return true;
    return search(text, at, last, (_, end) => (words ? isBoundary(text, end) : end === text.length)) !== undefined;
  };
}
